//! The partition layouts of new disks.

use std::fmt;
use std::str::FromStr;

use crate::partition::{Scheme, single};
use crate::{Error, Result};

/// The partition layout of a disk, by hdiutil's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// `GPTSPUD`: a GUID partition table with one partition.
    #[default]
    Gptspud,
    /// `SPUD`: an Apple partition map with one partition, the layout of images before macOS on
    /// Intel processors.
    Spud,
    /// `MBRSPUD`: a master boot record with one partition; not for APFS. Usual for FAT and exFAT.
    MbrSpud,
    /// `NONE`: no partition map, the volume is the whole disk.
    None,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 4] = [Self::Gptspud, Self::Spud, Self::MbrSpud, Self::None];

    /// Returns the kind of partition map. `None` for a disk without one.
    pub fn scheme(self) -> Option<Scheme> {
        match self {
            Self::Gptspud => Some(Scheme::Gpt),
            Self::Spud => Some(Scheme::Apm),
            Self::MbrSpud => Some(Scheme::Mbr),
            Self::None => None,
        }
    }

    /// Returns the length in bytes of the smallest disk of this layout, in sectors of `sector`
    /// bytes, that holds a volume of `volume_len` bytes.
    pub fn disk_len_for(self, volume_len: u64, sector: u32) -> Result<u64> {
        match self.scheme() {
            None => Ok(volume_len.next_multiple_of(sector.into())),
            Some(scheme) => single::disk_len_for(scheme, volume_len, sector),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gptspud => "GPTSPUD",
            Self::Spud => "SPUD",
            Self::MbrSpud => "MBRSPUD",
            Self::None => "NONE",
        })
    }
}

impl FromStr for Layout {
    type Err = Error;

    /// Parses hdiutil's name in any case.
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|layout| layout.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                Error::invalid(
                    "layout",
                    "unknown layout: expected gptspud, spud, mbrspud or none",
                )
                .named(text)
            })
    }
}
