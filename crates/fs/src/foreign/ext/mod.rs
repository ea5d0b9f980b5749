//! ext2, ext3 and ext4: the block bitmap of each block group.
//!
//! A group that was never initialized has no bitmap: only its own structures, and structures of
//! other groups in it, are used. If that does not match the count in its descriptor, the whole
//! group is treated as used.

pub(super) mod superblock;

use std::ops::Range;
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use super::layout::ext::{SUPERBLOCK, SuperblockRaw};
use crate::bitmap::{count_clear, run_at, set_bits};
use crate::block_map::{BlockFreeMap, BlockMap, MapEntry, MapReader};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};
use superblock::{Group, Superblock};

const LAYER: &str = "ext block bitmap";

/// Opens the free map of the volume on all of `device`.
pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<BlockFreeMap> {
    let mut raw = SuperblockRaw::new_zeroed();
    device
        .info()
        .check(LAYER, SUPERBLOCK, size_of::<SuperblockRaw>() as u64)?;
    device.read_at(SUPERBLOCK, raw.as_mut_bytes())?;
    let superblock = Superblock::parse(raw, device.info().len)?;
    let geometry = BlockMap {
        start: superblock.first * superblock.block_size,
        block_size: superblock.block_size,
        blocks: superblock.blocks - superblock.first,
        per_piece: superblock.per_group,
    };
    let disorder = superblock.disorder().map(Into::into);
    let mut ext = Ext {
        device,
        superblock,
        structures: Vec::new(),
        free: 0,
    };
    ext.look_at_groups()?;
    Ok(BlockFreeMap::new(LAYER, geometry, ext, disorder))
}

#[derive(Debug)]
struct Ext {
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    /// Blocks of the volume's own structures, ascending and disjoint; block 0 of the map is the
    /// first data block.
    structures: Vec<Range<u64>>,
    /// Number of free blocks of all groups, as their descriptors count them.
    free: u64,
}

impl Ext {
    /// Reads all descriptors and gathers the locations of the volume's structures. Structures of
    /// adjacent groups are mostly contiguous, so this takes little memory.
    fn look_at_groups(&mut self) -> Result<()> {
        let superblock = &self.superblock;
        let mut all = Vec::new();
        for index in 0..superblock.groups {
            let group = self.group(index)?;
            self.free += group.free;
            let first = index * superblock.per_group;
            let head = superblock.head_of(index).min(superblock.blocks_in(index));
            for (at, count) in [
                (superblock.first + first, head),
                (group.block_bitmap, 1),
                (group.inode_bitmap, 1),
                (group.inode_table, superblock.inode_table),
            ] {
                // No underflow: the descriptor was checked to be within the data blocks of the
                // volume.
                let at = at - superblock.first;
                match all.last_mut() {
                    Some(Range { end, .. }) if *end == at => *end = at + count,
                    _ => all.push(at..at + count),
                }
            }
        }
        all.sort_unstable_by_key(|run| run.start);
        all.dedup_by(|next, run| {
            let joins = next.start <= run.end;
            run.end = if joins {
                run.end.max(next.end)
            } else {
                run.end
            };
            joins
        });
        self.structures = all;
        Ok(())
    }

    fn group(&self, index: u64) -> Result<Group> {
        let bytes = self.device.read_vec(
            self.superblock.descriptor_at(index),
            self.superblock.descriptor_size,
        )?;
        self.superblock.group(index, &bytes)
    }

    /// Returns the structures in group `index`, in blocks relative to the group.
    fn structures_in(&self, index: u64) -> impl Iterator<Item = Range<usize>> + '_ {
        let first = index * self.superblock.per_group;
        let end = first + self.superblock.blocks_in(index);
        let from = self.structures.partition_point(|run| run.end <= first);
        let within = self.structures[from..]
            .iter()
            .take_while(move |run| run.start < end);
        // No truncation: at most as many as a block has bits.
        within.map(move |run| {
            to_usize(run.start.max(first) - first)..to_usize(run.end.min(end) - first)
        })
    }
}

impl MapReader for Ext {
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
        let group = self.group(index)?;
        // A multiple of 8, and no more bits than a block has.
        let len = (self.superblock.per_group / 8) as usize;
        if group.is_uninitialised {
            let mut bits = vec![0; len];
            self.structures_in(index)
                .for_each(|run| set_bits(&mut bits, run));
            let is_right = count_clear(&bits, count) as u64 == group.free;
            return Ok(if is_right {
                MapEntry::Bits(bits)
            } else {
                MapEntry::Used
            });
        }
        let at = group.block_bitmap * self.superblock.block_size;
        let bits = self.device.read_vec(at, len)?;
        let wrong = |message: String| {
            Error::corrupt(
                LAYER,
                at,
                format!("group {index}: {message}; run `e2fsck -f`"),
            )
        };
        if !self.superblock.is_bitmap_of(&group, &bits) {
            return Err(wrong("checksum mismatch of the bitmap".into()));
        }
        let free = count_clear(&bits, count) as u64;
        if free != group.free {
            return Err(wrong(format!(
                "the bitmap has {free} free blocks, but the descriptor records {}",
                group.free
            )));
        }
        match self
            .structures_in(index)
            .find(|run| run_at(&bits, run.start, run.end) != (true, run.end))
        {
            Some(run) => Err(wrong(format!(
                "blocks {run:?} of a structure of the volume are marked as free"
            ))),
            None => Ok(MapEntry::Bits(bits)),
        }
    }

    fn check(&self, map: &BlockFreeMap) -> Result<()> {
        if self.free != self.superblock.free {
            let message = format!(
                "the superblock records {} free blocks, but the group descriptors record {}; run \
                 `e2fsck -f`",
                self.superblock.free, self.free
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        // This verifies every bitmap.
        map.free().map(drop)
    }
}
