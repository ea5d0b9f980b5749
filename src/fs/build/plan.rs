//! Plans of new volumes of any format.

use std::fmt;

use crate::Result;
use crate::device::BlockDevice;
use crate::progress::Progress;

/// A volume that is planned in full, with nothing written yet.
pub trait VolumePlan: fmt::Debug + Send + Sync {
    /// Returns the minimum length of the volume in bytes, a multiple of its block size and of 4096.
    fn minimum_len(&self) -> Result<u64>;

    /// Returns the minimum length plus free space to work with, in bytes.
    fn comfortable_len(&self) -> Result<u64>;

    /// Writes the volume over all of `device`, whose previous contents are lost, and flushes it. If
    /// this fails, the device contains no valid volume.
    fn build(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<Built>;
}

/// Properties of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// Length of the volume in bytes.
    pub len: u64,
    /// Allocation block size in bytes.
    pub block_size: u32,
    /// Number of files, by the volume's own count.
    pub files: u64,
    /// Number of folders, without the root.
    pub folders: u64,
    /// Free space in bytes.
    pub free: u64,
}
