//! The interface of a format that can be a layer of a [stack](super::stack).

use std::ops::Range;

use crate::Result;
use crate::device::BlockDevice;

/// A device that tracks its blocks. Blocks that were never written or discarded are
/// [`Hole`](crate::device::ExtentKind::Hole)s, through which the device below is visible; zeros
/// that hide the data below are explicit.
pub trait Overlay: BlockDevice {
    /// Returns the size of a block in bytes; blocks are aligned, and the length is a multiple of
    /// it. A partial write of a block that the overlay does not have zeros the rest of the block.
    fn grain(&self) -> u64;

    /// Does the same as [`set_len`](BlockDevice::set_len), but new bytes within `hidden` are
    /// explicit zeros from the start, even after a crash. Other new bytes are holes.
    fn set_len_hiding(&self, len: u64, hidden: Range<u64>) -> Result<()>;
}
