//! The blocks that are known to be in use, for a check.

use bandsaw_core::device::zeros;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::LAYER;
use super::space::{BlockAddress, BlockSpace, MappedPartition};
use crate::bitmap::{run_at, set_bits};

/// A bit for each block of each partition, set if it is in use. Blocks of a virtual partition are those
/// of the one in which it is stored.
#[derive(Debug)]
pub(super) struct BlockOwners {
    bits: Vec<Vec<u8>>,
}

impl BlockOwners {
    pub(super) fn new(space: &BlockSpace) -> Result<Self> {
        // Of a partition that the device does not hold, its part on the device.
        let most = space.device.info().len / space.block_size;
        let bits = space.partitions.iter().map(|partition| {
            let blocks = match partition {
                MappedPartition::Virtual { .. } => 0,
                _ => partition.blocks(space.block_size).min(most),
            };
            zeros(to_usize(blocks.div_ceil(8)))
        });
        Ok(Self {
            bits: bits.collect::<Result<_>>()?,
        })
    }

    /// Marks blocks as used. Fails if they are not in the partition, or if one of them is used already.
    pub(super) fn take(&mut self, space: &BlockSpace, at: BlockAddress, blocks: u64) -> Result<()> {
        let Some(partition) = space.partitions.get(usize::from(at.partition)) else {
            return Err(corrupt(at, "is outside of every partition"));
        };
        if let MappedPartition::Virtual { base, .. } = partition {
            for number in 0..blocks {
                let virtual_block = at
                    .plus(number)
                    .ok_or_else(|| corrupt(at, "has no number"))?;
                let (place, _) = space.place(virtual_block, 1, 0)?;
                let start = space.partitions.get(usize::from(*base));
                let start = start
                    .and_then(MappedPartition::range)
                    .map_or(0, |range| range.start);
                let block = place.saturating_sub(start) / space.block_size;
                let stored = BlockAddress {
                    partition: *base,
                    block: u32::try_from(block).unwrap_or(u32::MAX),
                };
                self.set(stored, 1)?;
            }
            return Ok(());
        }
        if u64::from(at.block) + blocks > partition.blocks(space.block_size) {
            return Err(corrupt(
                at,
                format!("is out of range: {blocks} blocks from it on exceed the partition"),
            ));
        }
        self.set(at, blocks)
    }

    fn set(&mut self, at: BlockAddress, blocks: u64) -> Result<()> {
        let bits = self.bits.get_mut(usize::from(at.partition));
        let bits = bits.map(Vec::as_mut_slice).unwrap_or_default();
        let start = u64::from(at.block);
        let all = bits.len() as u64 * 8;
        if start + blocks > all {
            return Err(corrupt(
                at,
                "is past the end of the volume: it may be truncated",
            ));
        }
        if blocks == 0 {
            return Ok(());
        }
        let range = to_usize(start)..to_usize(start + blocks);
        let (is_used, until) = run_at(bits, range.start, range.end);
        set_bits(bits, range.clone());
        match is_used || until < range.end {
            true => Err(corrupt(at, "or one after it is used twice")),
            false => Ok(()),
        }
    }

    /// Returns the bits of a partition.
    pub(super) fn bits(&self, partition: usize) -> &[u8] {
        self.bits
            .get(partition)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

fn corrupt(at: BlockAddress, why: impl std::fmt::Display) -> Error {
    let message = format!("block {} of partition {} {why}", at.block, at.partition);
    Error::new(Kind::Corrupt, LAYER, message)
}
