//! Volumes that grow and shrink.

use crate::Result;
use crate::progress::Progress;

/// How long a volume can be, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// The least that holds what is in it.
    pub min: u64,
    /// What it has now.
    pub current: u64,
    /// The most that its format can express.
    pub max: u64,
}

/// A volume that can get longer and shorter, and nobody else has open.
///
/// Its device is as long as the longer of what the volume has and what it is to have: whoever wants
/// it to grow makes the device longer first, whoever wants it to shrink cuts the device afterwards.
pub trait ResizeVolume {
    /// Returns how long it can be. The least is an estimate, for what lies in the way gets into
    /// more pieces: a volume may refuse to get so short.
    fn limits(&self) -> Result<SizeLimits>;

    /// Makes the volume end within its device's first `len` bytes, and as near to their end as its
    /// blocks allow. What lies past a new end is moved first.
    ///
    /// A crash leaves the volume with its old or its new length and all of its files; doing it
    /// again completes it. An error, or `progress` saying stop, leaves the old length, with some
    /// files moved. [`Kind::Limit`](crate::Kind::Limit) if it cannot have that length.
    fn resize(&self, len: u64, progress: &dyn Progress) -> Result<()>;
}
