//! The common part of all volume builders: the view of a source tree, and the writing of contents.

pub(super) mod filling;
pub(super) mod output;
pub(super) mod plan;
pub(super) mod tree;

use bandsaw_core::Result;
use bandsaw_core::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind};

/// Zeros the device by the cheapest means; a new device is zero already. The 512 bytes at each
/// offset in `heads`, by which readers recognize a volume, are overwritten first, so that a
/// previous volume is not recognized any more when it is partially erased.
pub(super) fn blank(device: &dyn BlockDevice, heads: &[u64]) -> Result<()> {
    let info = device.info();
    debug_assert_eq!(info.access, Access::ReadWrite);
    for extent in device.extents(0..info.len) {
        if extent?.1 != ExtentKind::Data {
            continue;
        }
        for &head in heads {
            device.write_at(head, &[0; 512])?;
        }
        device.flush()?;
        return device.discard(0..info.len, AfterDiscard::Zeros);
    }
    Ok(())
}
