//! The location of the two copies of a GPT on their disk.

use std::ops::Range;

use super::{PRIMARY, last_block, read_backup, read_copy};
use crate::Result;
use crate::device::BlockDevice;

/// Byte ranges of one copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::partition) struct CopyRanges {
    pub(in crate::partition) header: Range<u64>,
    pub(in crate::partition) table: Range<u64>,
}

/// Returns the ranges of the primary copy and of the backup, each if it is valid. `block` is the
/// block size of the map.
pub(in crate::partition) fn copies(
    disk: &dyn BlockDevice,
    block: u32,
) -> Result<[Option<CopyRanges>; 2]> {
    let primary = read_copy(disk, block, PRIMARY)?.ok();
    let backup_at = primary.as_ref().map_or_else(
        || last_block(disk, block),
        |primary| primary.header.alternate_lba,
    );
    let backup = read_backup(disk, block, backup_at)?.ok();
    Ok([primary, backup].map(|copy| {
        let header = copy?.header;
        let bytes = |first: u64, len: u64| {
            let start = first * u64::from(block);
            start..start + len.next_multiple_of(block.into())
        };
        Some(CopyRanges {
            header: bytes(header.my_lba, block.into()),
            table: bytes(header.entries_lba, header.table_bytes()),
        })
    }))
}
