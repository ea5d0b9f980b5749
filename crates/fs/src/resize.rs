//! Resizing of volumes.

use bandsaw_core::Result;
use bandsaw_core::progress::Progress;

/// The possible lengths of a volume, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimits {
    /// Minimum length that holds its contents.
    pub min: u64,
    /// Current length.
    pub current: u64,
    /// Maximum length of the format.
    pub max: u64,
}

/// A volume that can be resized, and that is not open elsewhere.
///
/// The device must be as long as the longer of the volume's old and new lengths: to grow a volume,
/// extend the device first; to shrink it, truncate the device afterwards.
pub trait ResizeVolume {
    /// Returns the possible lengths. The minimum is an estimate, because moved extents become
    /// fragmented: the volume may reject that length.
    fn limits(&self) -> Result<SizeLimits>;

    /// Resizes the volume to the first `len` bytes of its device, rounded down to whole blocks.
    /// Data past a new end is moved first.
    ///
    /// A crash leaves the volume with its old or its new length and all of its files; repeating the
    /// call completes it. An error, or cancellation through `progress`, leaves the old length, with
    /// some files moved. [`Kind::Limit`](bandsaw_core::Kind::Limit) if it cannot have that length.
    fn resize(&self, len: u64, progress: &dyn Progress) -> Result<()>;
}
