//! Modification of a valid GPT: end and type of a partition, and the length of the disk.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::{FromBytes, IntoBytes};

use super::create::protective_mbr;
use super::{Copy, Header, LAYER, PRIMARY, block_sizes, read_backup, read_copy};
use crate::device::{AfterDiscard, BlockDevice};
use crate::partition::kind::PROTECTIVE;
use crate::partition::layout::{GptEntryRaw, MbrRaw};
use crate::partition::read;
use crate::{Error, Kind, Result};

/// Alignment of the end of a partition in bytes.
const ALIGN: u64 = 4096;

/// A change of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Partition number.
    pub number: u32,
    /// New byte range on the disk, in whole blocks; `None` to keep the present one.
    pub range: Option<Range<u64>>,
    /// New type; `None` to keep the present one.
    pub type_guid: Option<Uuid>,
}

/// Returns the maximum end of the last partition on a disk of `disk_len` bytes with this map, as a
/// byte offset.
pub(crate) fn last_end(disk: &dyn BlockDevice, disk_len: u64) -> Result<u64> {
    let header = at_length(&primary(disk)?.header, disk_len)?;
    let end = (header.last_usable + 1) * u64::from(header.block);
    Ok(end - end % ALIGN)
}

/// Returns the minimum length in bytes of a disk with this map whose last partition ends at `end`.
pub fn disk_len_for(disk: &dyn BlockDevice, end: u64) -> Result<u64> {
    let header = primary(disk)?.header;
    let block = u64::from(header.block);
    Ok(end.next_multiple_of(block.max(ALIGN)) + (header.table_blocks() + 1) * block)
}

/// Applies these changes to the map and adapts it to a disk of `disk_len` bytes. The device must be
/// at least as long; a longer one has to be truncated afterwards.
///
/// The new backup is durable before the primary is overwritten, and the old backup is removed last.
/// After a crash, the map is the old or the new one, or one that `repair` restores from its backup.
/// Fails with [`Kind::Conflict`] if partitions would overlap or exceed the end.
pub fn change(disk: &dyn BlockDevice, disk_len: u64, changes: &[Change]) -> Result<()> {
    plan_change(disk, disk_len, changes)?.apply()
}

/// A planned change of a map, before anything is written.
#[derive(Debug)]
pub struct PlannedChange<'a> {
    disk: &'a dyn BlockDevice,
    disk_len: u64,
    old: Copy,
    new: Copy,
}

/// Plans [`change`] without writing; fails in the same cases.
pub(crate) fn plan_change<'a>(
    disk: &'a dyn BlockDevice,
    disk_len: u64,
    changes: &[Change],
) -> Result<PlannedChange<'a>> {
    disk.info().check_writable(LAYER)?;
    let old = primary(disk)?;
    let mut new = Copy {
        header: at_length(&old.header, disk_len)?,
        table: old.table.clone(),
    };
    for change in changes {
        edit(&mut new, change)?;
    }
    check_places(&new)?;
    new.header.entries_crc = crc32fast::hash(&new.table);
    Ok(PlannedChange {
        disk,
        disk_len,
        old,
        new,
    })
}

impl PlannedChange<'_> {
    /// Writes the change in the order described for [`change`].
    pub fn apply(self) -> Result<()> {
        let Self {
            disk,
            disk_len,
            old,
            new,
        } = self;
        if new.header == old.header && new.table == old.table {
            return Ok(());
        }
        let backup = new.backup()?;
        backup.write(disk)?;
        new.write(disk)?;
        put_mbr(disk, disk_len / u64::from(new.header.block))?;
        remove_old_backup(disk, &old, &backup, disk_len)
    }
}

/// Returns the primary copy of a map whose copies are both valid and agree.
fn primary(disk: &dyn BlockDevice) -> Result<Copy> {
    let mut damage = None;
    for block in block_sizes(disk) {
        match read_copy(disk, block, PRIMARY)? {
            Ok(primary) => {
                let backup = read_backup(disk, block, primary.header.alternate_lba)?;
                return match backup {
                    Ok(backup) if backup.agrees_with(&primary) => Ok(primary),
                    Ok(_) => Err(Error::new(
                        Kind::Corrupt,
                        LAYER,
                        "the two copies of the partition map differ: run `bandsaw repair` first",
                    )),
                    Err(error) => {
                        let message = "the backup of the partition map cannot be used: run \
                                       `bandsaw repair` first";
                        Err(Error::new(Kind::Corrupt, LAYER, message).caused_by(error))
                    }
                };
            }
            Err(error) => damage = damage.or(Some(error)),
        }
    }
    Err(damage.unwrap_or_else(|| {
        Error::new(
            Kind::Corrupt,
            LAYER,
            "the primary copy of the map is missing: run `bandsaw repair`",
        )
    }))
}

/// Returns the header for a disk of another length.
fn at_length(header: &Header, disk_len: u64) -> Result<Header> {
    let last = (disk_len / u64::from(header.block)).saturating_sub(1);
    let last_usable = last
        .checked_sub(header.table_blocks() + 1)
        .filter(|&last| last >= header.first_usable);
    let last_usable = last_usable.ok_or_else(|| {
        Error::limit(
            LAYER,
            format!("{disk_len} bytes are too few for a partition"),
        )
    })?;
    Ok(Header {
        alternate_lba: last,
        last_usable,
        ..header.clone()
    })
}

fn edit(copy: &mut Copy, change: &Change) -> Result<()> {
    let (size, block) = (
        copy.header.entry_size as usize,
        u64::from(copy.header.block),
    );
    let place = (change.number as usize)
        .checked_sub(1)
        .and_then(|index| index.checked_mul(size));
    let bytes = place.and_then(|at| copy.table.get_mut(at..at + size_of::<GptEntryRaw>()));
    let entry = bytes
        .and_then(|bytes| GptEntryRaw::mut_from_bytes(bytes).ok())
        .filter(|entry| entry.type_guid != [0; 16]);
    let entry =
        entry.ok_or_else(|| Error::not_found(LAYER, format!("partition {}", change.number)))?;
    if let Some(range) = &change.range {
        if range.is_empty()
            || !range.start.is_multiple_of(block)
            || !range.end.is_multiple_of(block)
        {
            let message = format!(
                "partition {} at bytes {range:?} is not a whole number of blocks of {block}",
                change.number
            );
            return Err(Error::invalid(LAYER, message));
        }
        (entry.first, entry.last) = ((range.start / block).into(), (range.end / block - 1).into());
    }
    if let Some(type_guid) = change.type_guid {
        entry.type_guid = type_guid.to_bytes_le();
    }
    Ok(())
}

/// Fails if partitions overlap or are outside of the usable blocks.
fn check_places(copy: &Copy) -> Result<()> {
    let mut ranges: Vec<_> = copy
        .entries()
        .map(|(number, raw)| (raw.first.get(), raw.last.get(), number))
        .collect();
    ranges.sort_unstable();
    let outside = ranges.iter().find(|(first, last, _)| {
        *first < copy.header.first_usable || *last > copy.header.last_usable
    });
    if let Some((.., number)) = outside {
        let message = format!("partition {number} would lie past the end of the disk");
        return Err(Error::conflict(LAYER, message));
    }
    match ranges.windows(2).find(|two| two[1].0 <= two[0].1) {
        Some(two) => Err(Error::conflict(
            LAYER,
            format!("partitions {} and {} would overlap", two[0].2, two[1].2),
        )),
        None => Ok(()),
    }
}

/// Updates the number of blocks in a protective MBR to `blocks`. Other contents of block 0 are
/// preserved.
fn put_mbr(disk: &dyn BlockDevice, blocks: u64) -> Result<()> {
    let mut mbr = read::<MbrRaw>(disk, 0)?;
    // A hybrid MBR describes partitions to systems without GPT. Its protective entry need not cover the disk.
    if !mbr.is_protective() || mbr.has_own_partitions() {
        return Ok(());
    }
    if let Some(entry) = mbr
        .entries
        .iter_mut()
        .find(|entry| entry.kind == PROTECTIVE)
    {
        entry.blocks = protective_mbr(blocks).entries[0].blocks;
    }
    disk.write_at(0, mbr.as_bytes())?;
    disk.flush()
}

/// Zeros the blocks of an obsolete backup, except those that are past the end of the disk or part
/// of the new one.
fn remove_old_backup(disk: &dyn BlockDevice, old: &Copy, new: &Copy, disk_len: u64) -> Result<()> {
    let block = u64::from(old.header.block);
    let place = old.header.alternate_lba;
    if place == new.header.my_lba {
        return Ok(());
    }
    let range = place * block..((place + 1) * block).min(disk_len);
    let taken = new.header.entries_lba * block..(new.header.my_lba + 1) * block;
    if range.is_empty() || range.start < taken.end && taken.start < range.end {
        return Ok(());
    }
    // Programs that search a disk for lost maps would find an obsolete one.
    disk.discard(range, AfterDiscard::Zeros)?;
    disk.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDeviceExt, Memory};
    use crate::partition::gpt::{NewPartition, create};
    use crate::partition::{APPLE_APFS, APPLE_HFS, Partition, probe};

    const LEN: u64 = 1 << 20;

    /// Returns a disk with two partitions, with free space before, between and after them.
    fn disk(block: u32) -> Memory {
        let disk = Memory::zeros(LEN as usize);
        let partition = |range, number: u8| {
            let guid = Uuid::from_bytes([number; 16]);
            NewPartition {
                range,
                type_guid: APPLE_HFS,
                guid,
                name: format!("number {number}"),
            }
        };
        let partitions = [
            partition(64 << 10..256 << 10, 1),
            partition(512 << 10..768 << 10, 2),
        ];
        create(&disk, block, Uuid::from_bytes([9; 16]), &partitions).unwrap();
        disk
    }

    fn partitions(disk: &Memory) -> Vec<Partition> {
        let map = probe(disk).unwrap().unwrap();
        assert!(map.problems.is_empty(), "{:?}", map.problems);
        map.partitions
    }

    fn moved(number: u32, range: Range<u64>) -> Change {
        Change {
            number,
            range: Some(range),
            type_guid: None,
        }
    }

    #[test]
    fn other_fields_stay() {
        for block in [512, 4096] {
            let disk = disk(block);
            let before = partitions(&disk);
            let other = Change {
                number: 1,
                range: None,
                type_guid: Some(APPLE_APFS),
            };
            change(&disk, LEN, &[other, moved(2, 600 << 10..800 << 10)]).unwrap();
            let after = partitions(&disk);
            assert_eq!(
                (after[0].kind.as_str(), after[1].kind.as_str()),
                ("Apple_APFS", "Apple_HFS")
            );
            assert_eq!(
                (&after[0].range, &after[1].range),
                (&before[0].range, &(600 << 10..800 << 10))
            );
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(
                    (before.guid, &before.name, before.flags),
                    (after.guid, &after.name, after.flags)
                );
            }
            let bytes = disk.to_vec();
            change(&disk, LEN, &[moved(2, 600 << 10..800 << 10)]).unwrap();
            assert_eq!(disk.to_vec(), bytes, "what is so already is left");
        }
    }

    #[test]
    fn the_backup_goes_to_the_new_end() {
        for block in [512, 4096] {
            let disk = disk(block);
            disk.set_len(2 * LEN, AfterDiscard::Zeros).unwrap();
            change(&disk, 2 * LEN, &[]).unwrap();
            partitions(&disk);
            let old = disk
                .read_vec(LEN - u64::from(block), block as usize)
                .unwrap();
            assert!(
                old.iter().all(|byte| *byte == 0),
                "the old backup is no map any more"
            );
            let end = last_end(&disk, 2 * LEN).unwrap();
            change(&disk, 2 * LEN, &[moved(2, 512 << 10..end)]).unwrap();
            assert_eq!(partitions(&disk)[1].range.end, end);
            let error = change(&disk, LEN, &[]).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{error}");

            let len = disk_len_for(&disk, 768 << 10).unwrap();
            change(&disk, len, &[moved(2, 512 << 10..768 << 10)]).unwrap();
            disk.set_len(len, AfterDiscard::Zeros).unwrap();
            assert_eq!(partitions(&disk)[1].range.end, 768 << 10);
            assert_eq!(last_end(&disk, len).unwrap(), 768 << 10);
            let error = plan_change(&disk, len - u64::from(block), &[]).unwrap_err();
            assert_eq!(error.kind(), Kind::Conflict, "{error}");
        }
    }

    #[test]
    fn impossible_changes_are_refused_before_writing() {
        let disk = disk(512);
        let bytes = disk.to_vec();
        for (wanted, kind) in [
            (moved(1, 64 << 10..520 << 10), Kind::Conflict),
            (moved(2, 512 << 10..LEN), Kind::Conflict),
            (moved(1, 512..256 << 10), Kind::Conflict),
            (moved(1, 64 << 10..(256 << 10) + 1), Kind::Invalid),
            (moved(1, 64 << 10..64 << 10), Kind::Invalid),
            (moved(0, 64 << 10..256 << 10), Kind::NotFound),
            (moved(3, 800 << 10..900 << 10), Kind::NotFound),
            (moved(u32::MAX, 800 << 10..900 << 10), Kind::NotFound),
        ] {
            let error = change(&disk, LEN, std::slice::from_ref(&wanted)).unwrap_err();
            assert_eq!(error.kind(), kind, "{wanted:?}: {error}");
        }
        assert_eq!(
            change(&disk, 512 * 40, &[]).unwrap_err().kind(),
            Kind::Limit
        );
        assert_eq!(disk.to_vec(), bytes);
        // A map with one copy lost or different must be repaired first.
        for at in [512, LEN - 512] {
            disk.write_at(at, &[0; 16]).unwrap();
            assert_eq!(change(&disk, LEN, &[]).unwrap_err().kind(), Kind::Corrupt);
            disk.write_at(at, &bytes[at as usize..at as usize + 16])
                .unwrap();
        }
        change(&disk, LEN, &[]).unwrap();
    }
}
