//! The two copies of a GPT: their location on the disk, and the comparison of their geometry.

use std::ops::Range;

use super::repair::differ;
use super::{Copy, PRIMARY, block_sizes, last_block, read_backup, read_copy};
use crate::device::BlockDevice;
use crate::{Error, Result};

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

/// A difference in geometry between two valid copies.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The error of [`Kind::Undecided`](crate::Kind::Undecided) with both alternatives.
    pub(crate) undecided: Error,
    /// If both copies have the same partitions, each beginning at the same block: the number of
    /// each, and its smaller end as a byte offset. An interrupted change of a partition's end
    /// leaves such copies.
    pub(crate) common_ends: Option<Vec<(u32, u64)>>,
}

/// Compares the partitions and the blocks for partitions in both copies, if both are valid and the
/// backup is at the place in the primary. GUIDs, names and attributes are not compared.
pub(crate) fn difference(disk: &dyn BlockDevice) -> Result<Option<Difference>> {
    for block in block_sizes(disk) {
        let Ok(primary) = read_copy(disk, block, PRIMARY)? else {
            continue;
        };
        let Ok(backup) = read_backup(disk, block, primary.header.alternate_lba)? else {
            return Ok(None);
        };
        let (ours, theirs) = (places(&primary), places(&backup));
        let usable = |copy: &Copy| (copy.header.first_usable, copy.header.last_usable);
        if ours == theirs && usable(&primary) == usable(&backup) {
            return Ok(None);
        }
        let starts = |places: &[(u32, u64, u64)]| -> Vec<(u32, u64)> {
            places
                .iter()
                .map(|(number, first, _)| (*number, *first))
                .collect()
        };
        let common_ends = (starts(&ours) == starts(&theirs)).then(|| {
            let ends = ours.iter().zip(&theirs);
            ends.map(|((number, _, one), (_, _, other))| {
                let end = (*one).min(*other).saturating_add(1);
                (*number, end.saturating_mul(block.into()))
            })
            .collect()
        });
        return Ok(Some(Difference {
            undecided: differ(&primary, &backup),
            common_ends,
        }));
    }
    Ok(None)
}

/// Returns number, first block and last block of each partition.
fn places(copy: &Copy) -> Vec<(u32, u64, u64)> {
    copy.entries()
        .map(|(number, raw)| (number, raw.first.get(), raw.last.get()))
        .collect()
}
