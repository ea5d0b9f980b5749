//! Plans of new volumes of any format.

use std::fmt;
use std::ops::Range;

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, Extent};
use bandsaw_core::progress::Progress;

/// A volume that is planned in full, with nothing written yet.
pub trait VolumePlan: fmt::Debug + Send + Sync {
    /// Returns the minimum length of the volume in bytes, a multiple of its block size and of 4096.
    fn minimum_len(&self) -> Result<u64>;

    /// Returns the minimum length plus free space to work with, in bytes.
    fn comfortable_len(&self) -> Result<u64>;

    /// Writes the volume over all of `device`, whose previous contents are lost, and flushes it. If
    /// this fails, the device contains no valid volume.
    fn build(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<NewVolumeInfo>;

    /// Writes everything but the contents of files to `device`, which must be all zeros: the volume
    /// is complete with the returned contents.
    fn build_metadata<'a>(
        &'a self,
        device: &dyn BlockDevice,
    ) -> Result<(NewVolumeInfo, Box<dyn PlacedContents + 'a>)>;
}

/// The contents of the files of a planned volume, in their places on it.
pub trait PlacedContents: fmt::Debug + Send + Sync {
    /// Returns the bytes of the volume that they take.
    fn range(&self) -> Range<u64>;

    /// Reads the contents in `range` from their source and writes them to `device`, a volume that
    /// is zero there. `range` is in multiples of 512 and within [`range`](Self::range).
    fn write(&self, range: Range<u64>, device: &dyn BlockDevice) -> Result<()>;

    /// Returns the kind of data at the start of `range`, and its length, as
    /// [`BlockDevice::extent_at`] does: a hole is a large one of a file in the source.
    fn extent_at(&self, range: Range<u64>) -> Result<Extent>;
}

/// Properties of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewVolumeInfo {
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
