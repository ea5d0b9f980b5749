//! What the builders of all formats share: the view of a tree of files, and how contents get where
//! they belong.

pub(super) mod filling;
pub(super) mod output;
pub(super) mod plan;
pub(super) mod tree;

use crate::Result;
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind};

/// Makes every byte of the device zero, as cheaply as it can; a new one is so already. The 512
/// bytes at each of `heads`, by which readers know a volume, go first: whatever was there ceases to
/// be one before a part of it is gone.
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
