//! What a format must be able to do to be a layer of a [stack](super::stack).

use std::ops::Range;

use crate::Result;
use crate::device::BlockDevice;

/// A device whose blocks are its own or not. Those it was never told anything about are
/// [`Hole`](crate::device::ExtentKind::Hole)s, through which the device below it shows; zeros that
/// hide what is below are stated.
pub trait Overlay: BlockDevice {
    /// Bytes that become its own together, aligned; the length is a multiple of it. A write of a
    /// part of such a block makes the rest zeros, unless it was the overlay's own before.
    fn grain(&self) -> u64;

    /// As [`set_len`](BlockDevice::set_len), but of the new bytes those within `hidden` state zeros
    /// from the moment on that they are there, even if it ends in a crash. The others are holes.
    fn set_len_hiding(&self, len: u64, hidden: Range<u64>) -> Result<()>;
}
