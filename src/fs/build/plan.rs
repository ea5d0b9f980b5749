//! Volumes to be made, whatever their format.

use std::fmt;

use crate::Result;
use crate::device::BlockDevice;
use crate::progress::Progress;

/// A volume that is planned in full, and of which nothing is written yet.
pub trait VolumePlan: fmt::Debug + Send + Sync {
    /// Bytes that are enough for the volume, a multiple of its block and of 4096.
    fn minimum_len(&self) -> Result<u64>;

    /// The same with room to work.
    fn comfortable_len(&self) -> Result<u64>;

    /// Writes the volume over all of `device`, whose former contents are lost, flushed when this
    /// returns. On failure, the device holds no volume.
    fn build(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<Built>;
}

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// Bytes of the volume.
    pub len: u64,
    /// Bytes of an allocation block.
    pub block_size: u32,
    /// Files, as the volume counts them.
    pub files: u64,
    /// Folders, without the root.
    pub folders: u64,
    /// Free bytes.
    pub free: u64,
}
