//! Moving the end of a partition of an Apple partition map.
//!
//! Free space has entries of its own in such a map. An entry of free space after the partition
//! shrinks or grows with it, and never disappears, so that no entry has to be added or removed.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::{LAYER, MAX_ENTRIES, block_sizes, entry};
use crate::device::BlockDevice;
use crate::partition::layout::{ApmEntryRaw, DRIVER_DESCRIPTOR_SIGNATURE, DriverDescriptorRaw};
use crate::partition::{read, text};
use crate::{Error, Kind, Result};

/// Number of blocks left free after a partition that is followed by free space: as many as Apple's
/// tools leave at the end.
const TAIL: u32 = 10;

/// All entries of a map, and the one to be changed.
struct Entries {
    block: u32,
    all: Vec<ApmEntryRaw>,
    /// Index of the partition's entry.
    own: usize,
    /// Index of the entry of the free space after it.
    free: Option<usize>,
    /// Start block of the next entry after it that is not free space.
    next: Option<u32>,
}

/// Returns the maximum end of partition `number` on a disk of `disk_len` bytes, as a byte offset.
pub(in crate::partition) fn last_end(
    disk: &dyn BlockDevice,
    number: u32,
    disk_len: u64,
) -> Result<u64> {
    let map = Entries::read(disk, number)?;
    let first = map.all[map.own].first.get();
    let end = map
        .limit(disk_len)
        .saturating_sub(map.tail())
        .min(u64::from(first) + u64::from(u32::MAX));
    Ok(end * u64::from(map.block))
}

/// Returns the minimum length in bytes of a disk on which partition `number` ends at `end`.
pub(in crate::partition) fn disk_len_for(
    disk: &dyn BlockDevice,
    number: u32,
    end: u64,
) -> Result<u64> {
    let map = Entries::read(disk, number)?;
    let len = end.next_multiple_of(map.block.into()) + map.tail() * u64::from(map.block);
    Ok(len.next_multiple_of(disk.info().block.into()))
}

/// Moves the end of partition `number` to `range.end`, on a disk that will have `disk_len` bytes
/// and has at least as many now.
///
/// Each entry is a sector, and they are written in an order in which they never overlap. A crash in
/// between leaves space without an entry, which repeating the change repairs. Fails with
/// [`Kind::Conflict`] if there is not enough space.
pub(in crate::partition) fn change(
    disk: &dyn BlockDevice,
    disk_len: u64,
    number: u32,
    range: &Range<u64>,
) -> Result<()> {
    disk.info().check_writable(LAYER)?;
    let mut map = Entries::read(disk, number)?;
    let block = u64::from(map.block);
    let own = &map.all[map.own];
    let first = u64::from(own.first.get());
    if range.start != first * block || range.end <= range.start || !range.end.is_multiple_of(block)
    {
        let message = format!(
            "invalid range {range:?} of partition {number}: expected whole blocks of {block} from \
             block {first}"
        );
        return Err(Error::invalid(LAYER, message));
    }
    let (end, limit) = (range.end / block, map.limit(disk_len));
    if end + u64::from(map.free.is_some()) > limit {
        let message = format!(
            "partition {number} would end at block {end}, past the next partition or the end of \
             the disk at block {limit}"
        );
        return Err(Error::conflict(LAYER, message));
    }
    let too_long = |_| {
        Error::limit(
            LAYER,
            format!(
                "partition {number} would end at block {end}: a map supports blocks up to {}",
                u32::MAX
            ),
        )
    };
    let blocks = u32::try_from(end - first).map_err(too_long)?;
    let grows = blocks > own.blocks.get();
    set_blocks(&mut map.all[map.own], blocks);
    let mut changed = vec![map.own];
    if let Some(free) = map.free {
        map.all[free].first = u32::try_from(end).map_err(too_long)?.into();
        set_blocks(
            &mut map.all[free],
            u32::try_from(limit - end).unwrap_or(u32::MAX),
        );
        // Write the entries in an order in which they never overlap.
        changed.insert(if grows { 0 } else { 1 }, free);
    }
    for index in changed {
        put(disk, block * (index as u64 + 1), map.all[index].as_bytes())?;
    }
    put_descriptor(disk, disk_len)
}

impl Entries {
    /// Reads the map for a change of partition `number`.
    fn read(disk: &dyn BlockDevice, number: u32) -> Result<Self> {
        let mut maps: Vec<(u32, ApmEntryRaw)> = Vec::new();
        for block in block_sizes(disk)? {
            // The place where another map may begin can be an entry of the first map: only an entry
            // of the map itself is the head of a second one.
            let is_head =
                |raw: &ApmEntryRaw| maps.is_empty() || text(&raw.kind) == "Apple_partition_map";
            if maps.iter().all(|(known, _)| *known != block)
                && let Some(first) = entry(disk, block, 1)?.filter(is_head)
            {
                maps.push((block, first));
            }
        }
        let (block, first) = match maps.as_slice() {
            [map] => map,
            [] => {
                return Err(Error::new(
                    Kind::Corrupt,
                    LAYER,
                    "the partition no longer exists",
                ));
            }
            _ => {
                return Err(Error::unsupported(
                    LAYER,
                    "cannot change a map with several block sizes (CD)",
                ));
            }
        };
        let mut all = Vec::new();
        for index in 1..=first.entries.get().min(MAX_ENTRIES) {
            let raw = entry(disk, *block, index)?;
            all.push(raw.ok_or_else(|| {
                Error::new(
                    Kind::Corrupt,
                    LAYER,
                    format!("entry {index} of the map has no signature PM"),
                )
            })?);
        }
        let own = (number as usize)
            .checked_sub(1)
            .filter(|&own| own < all.len());
        let own = own.ok_or_else(|| Error::not_found(LAYER, format!("partition {number}")))?;
        let first = all[own].first.get();
        let behind = |raw: &&ApmEntryRaw| raw.first.get() > first;
        let next = all
            .iter()
            .filter(behind)
            .filter(|raw| !is_free(raw))
            .map(|raw| raw.first.get())
            .min();
        let free: Vec<_> = (0..all.len())
            .filter(|&index| is_free(&all[index]) && behind(&&all[index]))
            .filter(|&index| next.is_none_or(|next| all[index].first.get() < next))
            .collect();
        if free.len() > 1 {
            let message = format!(
                "unsupported: {} entries of free space after partition {number}",
                free.len()
            );
            return Err(Error::unsupported(LAYER, message));
        }
        Ok(Self {
            block: *block,
            own,
            free: free.first().copied(),
            next,
            all,
        })
    }

    /// Returns the block at which the partition and the free space after it must end on a disk of
    /// `disk_len` bytes.
    fn limit(&self, disk_len: u64) -> u64 {
        let end = (disk_len / u64::from(self.block)).min(u32::MAX.into());
        self.next.map_or(end, |next| end.min(next.into()))
    }

    /// Returns the number of blocks that remain free after the partition.
    fn tail(&self) -> u64 {
        self.free
            .map_or(0, |free| self.all[free].blocks.get().clamp(1, TAIL).into())
    }
}

fn is_free(raw: &ApmEntryRaw) -> bool {
    text(&raw.kind) == "Apple_Free"
}

/// Sets the length of a partition, and that of its data area if they were equal.
fn set_blocks(raw: &mut ApmEntryRaw, blocks: u32) {
    if raw.data_blocks == raw.blocks {
        raw.data_blocks = blocks.into();
    }
    raw.blocks = blocks.into();
}

/// Writes a structure and makes it durable, unless it is unchanged.
fn put(disk: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut there = vec![0; bytes.len()];
    disk.read_at(offset, &mut there)?;
    if there == bytes {
        return Ok(());
    }
    disk.write_at(offset, bytes)?;
    disk.flush()
}

/// Updates the number of blocks in the driver descriptor, if there is one.
fn put_descriptor(disk: &dyn BlockDevice, disk_len: u64) -> Result<()> {
    let mut raw = read::<DriverDescriptorRaw>(disk, 0)?;
    let block = u64::from(raw.block_size.get());
    if raw.signature != DRIVER_DESCRIPTOR_SIGNATURE || block == 0 || raw.block_count.get() == 0 {
        return Ok(());
    }
    raw.block_count = u32::try_from(disk_len / block).unwrap_or(u32::MAX).into();
    put(disk, 0, raw.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{AfterDiscard, Memory};
    use crate::partition::probe;
    use crate::partition::samples::apple_map;

    const LEN: u64 = 1 << 20;

    fn partitions(disk: &Memory) -> Vec<(String, Range<u64>)> {
        let map = probe(disk).unwrap().unwrap();
        assert!(map.problems.is_empty(), "{:?}", map.problems);
        map.partitions
            .into_iter()
            .map(|partition| (partition.kind, partition.range))
            .collect()
    }

    /// Returns a disk with a volume, with or without free space after it.
    fn disk(free: bool) -> Memory {
        let disk = Memory::zeros(LEN as usize);
        let hfs = (32 << 10..if free { LEN - 5120 } else { LEN }, "Apple_HFS");
        let free = free.then_some((LEN - 5120..LEN, "Apple_Free"));
        apple_map(
            &disk,
            &[Some(hfs), free].into_iter().flatten().collect::<Vec<_>>(),
        );
        disk
    }

    #[test]
    fn the_last_partition_follows_the_disk() {
        for free in [false, true] {
            let tail = if free { 5120 } else { 0 };
            let disk = disk(free);
            assert_eq!(last_end(&disk, 2, LEN).unwrap(), LEN - tail);
            disk.set_len(2 * LEN, AfterDiscard::Zeros).unwrap();
            assert_eq!(last_end(&disk, 2, 2 * LEN).unwrap(), 2 * LEN - tail);
            change(&disk, 2 * LEN, 2, &(32 << 10..2 * LEN - tail)).unwrap();
            let found = partitions(&disk);
            assert_eq!(found[1], ("Apple_HFS".to_owned(), 32 << 10..2 * LEN - tail));
            assert_eq!(
                found.get(2).map(|(_, range)| range.clone()),
                free.then_some(2 * LEN - tail..2 * LEN)
            );
            let descriptor = read::<DriverDescriptorRaw>(&disk, 0).unwrap();
            assert_eq!(u64::from(descriptor.block_count.get()), 2 * LEN / 512);

            let len = disk_len_for(&disk, 2, LEN / 2).unwrap();
            assert_eq!(len, LEN / 2 + tail);
            change(&disk, len, 2, &(32 << 10..LEN / 2)).unwrap();
            disk.set_len(len, AfterDiscard::Zeros).unwrap();
            let found = partitions(&disk);
            assert_eq!(found[1].1, 32 << 10..LEN / 2);
            assert_eq!(
                found.get(2).map(|(_, range)| range.clone()),
                free.then_some(LEN / 2..len)
            );
            let before = disk.to_vec();
            change(&disk, len, 2, &(32 << 10..LEN / 2)).unwrap();
            assert!(disk.to_vec() == before, "what is so already is left");
        }
    }

    #[test]
    fn within_a_disk_free_space_makes_room_for_it() {
        let disk = Memory::zeros(LEN as usize);
        let parts = [
            (32 << 10..256 << 10, "Apple_HFS"),
            (256 << 10..512 << 10, "Apple_Free"),
            (512 << 10..LEN, "Apple_UFS"),
        ];
        apple_map(&disk, &parts);
        assert_eq!(last_end(&disk, 2, LEN).unwrap(), (512 << 10) - 5120);
        change(&disk, LEN, 2, &(32 << 10..400 << 10)).unwrap();
        let found = partitions(&disk);
        assert_eq!(
            [&found[1].1, &found[2].1, &found[3].1],
            [
                &(32 << 10..400 << 10),
                &(400 << 10..512 << 10),
                &(512 << 10..LEN)
            ]
        );
        change(&disk, LEN, 2, &(32 << 10..64 << 10)).unwrap();
        assert_eq!(partitions(&disk)[2].1, 64 << 10..512 << 10);
    }

    #[test]
    fn impossible_changes_are_refused_before_writing() {
        let disk = disk(true);
        let before = disk.to_vec();
        for (number, range, kind) in [
            (2, 32 << 10..LEN, Kind::Conflict),
            (2, 32 << 10..LEN + 512, Kind::Conflict),
            (2, 32 << 10..(64 << 10) + 1, Kind::Invalid),
            (2, 64 << 10..128 << 10, Kind::Invalid),
            (2, 32 << 10..32 << 10, Kind::Invalid),
            (0, 32 << 10..64 << 10, Kind::NotFound),
            (9, 32 << 10..64 << 10, Kind::NotFound),
        ] {
            let error = change(&disk, LEN, number, &range).unwrap_err();
            assert_eq!(error.kind(), kind, "{number}, {range:?}: {error}");
        }
        assert!(disk.to_vec() == before);
        // A second map in larger blocks, as on a CD: its head is at the place of the fourth entry
        // of the first.
        disk.write_at(2048, &before[512..1024]).unwrap();
        assert_eq!(
            last_end(&disk, 2, LEN).unwrap_err().kind(),
            Kind::Unsupported
        );
    }
}
