//! Numbers of sectors.

use std::fmt;

use super::SECTOR;

/// The number of a sector of a file or of a disk, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SectorNumber(pub(super) u64);

impl SectorNumber {
    /// Returns the sector with the byte at this offset.
    pub(super) fn of(offset: u64) -> Self {
        Self(offset / SECTOR)
    }

    /// Returns the offset of the first byte; [`u64::MAX`], which is past every file, if it is larger.
    pub(super) fn offset(self) -> u64 {
        self.0.saturating_mul(SECTOR)
    }
}

impl From<u32> for SectorNumber {
    fn from(number: u32) -> Self {
        Self(number.into())
    }
}

impl fmt::Display for SectorNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
