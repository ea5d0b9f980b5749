//! Blocks of lengths, and bytes of extents.

use bandsaw_core::{Error, Result};

use crate::hfsplus::layout::{AllocBlock, Extent};

/// Returns the number of blocks that hold `bytes` bytes.
pub(super) fn blocks_of(bytes: u64, block_size: u32) -> Result<u32> {
    let blocks = u32::try_from(bytes.div_ceil(block_size.into()))
        .ok()
        .filter(|&blocks| blocks < u32::MAX - (1 << 16));
    blocks.ok_or_else(|| {
        Error::limit(
            "hfs+ space",
            format!("{bytes} bytes exceed the limit of a volume, about 2^32 blocks"),
        )
    })
}

/// Returns offset and length of an extent in bytes.
pub(super) fn bytes_of(extent: Extent, block_size: u32) -> (u64, u64) {
    let AllocBlock(start) = extent.start;
    (
        u64::from(start) * u64::from(block_size),
        u64::from(extent.count) * u64::from(block_size),
    )
}
