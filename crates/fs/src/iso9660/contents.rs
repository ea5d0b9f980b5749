//! The contents of a file as a read-only device over its sections.

use bandsaw_core::{Error, Result};

use super::layout::RecordRaw;
use super::{LAYER, Space};
use crate::extent_device::{ExtentDevice, push_joined};

/// Joins the sections of a file. Places past the end of the volume are refused when they are read.
pub(super) fn join_sections(space: &Space, sections: &[RecordRaw]) -> Result<ExtentDevice> {
    let mut ranges = Vec::new();
    let mut total = 0;
    for section in sections {
        let (start, len) = (
            section.first_block() * space.block_size,
            u64::from(section.size.get()),
        );
        if section.is_interleaved() {
            let message = "interleaved files are not supported";
            return Err(Error::unsupported(LAYER, message));
        }
        if !section.agrees() {
            let message = "the place or the length of a file differs between the byte orders";
            return Err(Error::corrupt(LAYER, start, message));
        }
        if len > 0 {
            push_joined(&mut ranges, start..start + len);
        }
        // At most 2^14 sections of 2^32 bytes.
        total += len;
    }
    Ok(ExtentDevice::new(
        space.device.clone(),
        ranges,
        total,
        LAYER,
    ))
}
