//! The blocks of a logical volume: their places on the device, whatever kind of partition they are in,
//! and the descriptors in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::LAYER;
use super::contents::{RunStorage, UdfContents};
use super::layout::{AddressRaw, TagRaw};
use super::tag::{TagFault, check_tag};

/// The entry of a virtual allocation table without a block.
const NO_BLOCK: u32 = u32::MAX;

/// A block of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockAddress {
    /// Index of the partition's map.
    pub(super) partition: u16,
    pub(super) block: u32,
}

/// A partition by one of the maps of a logical volume.
#[derive(Debug)]
pub(super) enum MappedPartition {
    /// Not known yet: it is stored in a partition whose map follows, or in itself.
    Unresolved,
    /// Blocks as they are.
    Plain(PartitionRange),
    /// Blocks in packets, of which some are stored elsewhere.
    Sparable {
        range: PartitionRange,
        /// In blocks.
        packet: u32,
        /// The byte at which the packet with this first block is stored.
        spared: BTreeMap<u32, u64>,
    },
    /// Blocks by a table of their places in another partition.
    Virtual {
        base: u16,
        table: UdfContents,
        /// Offset of the first entry in the table, in bytes.
        first: u64,
        /// Number of entries.
        entries: u32,
    },
    /// Blocks of a file of another partition, and of its mirror if that has blocks of its own.
    Metadata { copies: Vec<UdfContents> },
}

/// The blocks of a partition on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionRange {
    /// The number in its descriptor.
    pub(super) number: u16,
    /// In bytes.
    pub(super) start: u64,
    pub(super) blocks: u32,
}

/// The blocks of a logical volume.
#[derive(Debug)]
pub(super) struct BlockSpace {
    pub(super) device: Arc<dyn BlockDevice>,
    /// In bytes.
    pub(super) block_size: u64,
    pub(super) partitions: Vec<MappedPartition>,
}

/// A block with a descriptor whose tag is right.
#[derive(Debug)]
pub(super) struct DescriptorBlock {
    pub(super) address: BlockAddress,
    /// Byte of the device.
    pub(super) offset: u64,
    pub(super) tag: TagRaw,
    pub(super) bytes: Vec<u8>,
}

impl From<AddressRaw> for BlockAddress {
    fn from(raw: AddressRaw) -> Self {
        Self {
            partition: raw.partition.get(),
            block: raw.block.get(),
        }
    }
}

impl BlockAddress {
    /// Returns the block that is this number of blocks further.
    pub(super) fn plus(self, blocks: u64) -> Option<Self> {
        let block = u64::from(self.block).checked_add(blocks)?;
        Some(Self {
            block: u32::try_from(block).ok()?,
            ..self
        })
    }
}

impl MappedPartition {
    /// Returns the number of blocks. 0: it is not known.
    pub(super) fn blocks(&self, block_size: u64) -> u64 {
        match self {
            Self::Unresolved => 0,
            Self::Plain(range) | Self::Sparable { range, .. } => range.blocks.into(),
            Self::Virtual { entries, .. } => (*entries).into(),
            Self::Metadata { copies, .. } => copies
                .first()
                .map_or(0, |file| file.info().len / block_size),
        }
    }

    /// Returns the place on the device if blocks are not stored in another partition.
    pub(super) fn range(&self) -> Option<&PartitionRange> {
        match self {
            Self::Plain(range) | Self::Sparable { range, .. } => Some(range),
            _ => None,
        }
    }

    /// Returns the number of copies of its blocks.
    pub(super) fn copies(&self) -> usize {
        match self {
            Self::Metadata { copies, .. } => copies.len(),
            _ => 1,
        }
    }
}

impl BlockSpace {
    /// Returns the number of copies of the blocks of a partition.
    pub(super) fn copies(&self, partition: u16) -> usize {
        let found = self.partitions.get(usize::from(partition));
        found.map_or(1, MappedPartition::copies)
    }

    /// Returns the place of blocks on the device: the first byte, and how many of them are contiguous.
    /// `blocks` must not be 0. `copy` is below [`copies`](Self::copies), or the first is used.
    pub(super) fn place(&self, at: BlockAddress, blocks: u64, copy: usize) -> Result<(u64, u64)> {
        let Some(partition) = self.partitions.get(usize::from(at.partition)) else {
            return Err(self.no_block(at, "there is no such partition"));
        };
        let first = u64::from(at.block);
        let all = partition.blocks(self.block_size);
        if first >= all {
            return Err(self.no_block(at, format!("the partition has {all} blocks")));
        }
        if blocks > all - first && !matches!(partition, MappedPartition::Virtual { .. }) {
            let message = format!("{blocks} blocks from here on, but the partition has {all}");
            return Err(self.no_block(at, message));
        }
        match partition {
            MappedPartition::Unresolved => Err(self.no_block(at, "a partition contains itself")),
            MappedPartition::Plain(range) => Ok((range.start + first * self.block_size, blocks)),
            MappedPartition::Sparable {
                range,
                packet,
                spared,
            } => {
                if spared.is_empty() {
                    return Ok((range.start + first * self.block_size, blocks));
                }
                let within = at.block % packet;
                let start = match spared.get(&(at.block - within)) {
                    Some(elsewhere) => elsewhere + u64::from(within) * self.block_size,
                    None => range.start + first * self.block_size,
                };
                Ok((start, blocks.min(u64::from(packet - within))))
            }
            MappedPartition::Virtual {
                base, table, first, ..
            } => {
                let offset = first + u64::from(at.block) * size_of::<u32>() as u64;
                let block = u32::from_le_bytes(table.read_array(offset)?);
                if block == NO_BLOCK {
                    return Err(self.no_block(at, "the virtual allocation table has no block"));
                }
                let base = BlockAddress {
                    partition: *base,
                    block,
                };
                match self.partitions.get(usize::from(base.partition)) {
                    Some(partition) if partition.range().is_some() => self.place(base, 1, 0),
                    _ => Err(self.no_block(at, "a virtual partition is in another one")),
                }
            }
            MappedPartition::Metadata { copies, .. } => {
                let file = copies.get(copy).or_else(|| copies.first());
                let Some(file) = file else {
                    return Err(self.no_block(at, "there is no metadata file"));
                };
                let offset = first * self.block_size;
                let (storage, len) = file.locate(offset, blocks * self.block_size)?;
                match storage {
                    // An extent that ends within a block holds no whole one there.
                    RunStorage::Recorded(start) if len >= self.block_size => {
                        Ok((start, len / self.block_size))
                    }
                    _ => Err(self.no_block(at, "the metadata file is not recorded here")),
                }
            }
        }
    }

    /// Reads the descriptor in a block. Of a partition with a mirror, the first copy that is right
    /// counts. `None` of `wanted` is any.
    pub(super) fn descriptor(
        &self,
        at: BlockAddress,
        wanted: &[u16],
        what: &'static str,
    ) -> Result<DescriptorBlock> {
        let mut failed = None;
        for copy in 0..self.copies(at.partition) {
            match self.descriptor_of(at, wanted, what, copy) {
                Err(error) if error.kind() == Kind::Corrupt => failed = failed.or(Some(error)),
                other => return other,
            }
        }
        Err(failed.unwrap_or_else(|| self.no_block(at, "it has no copy")))
    }

    /// Reads the descriptor in one copy of a block.
    pub(super) fn descriptor_of(
        &self,
        at: BlockAddress,
        wanted: &[u16],
        what: &'static str,
        copy: usize,
    ) -> Result<DescriptorBlock> {
        let (offset, _) = self.place(at, 1, copy)?;
        if offset + self.block_size > self.device.info().len {
            let message = format!("the {what} is past the end of the volume: it may be truncated");
            return Err(Error::corrupt(LAYER, offset, message));
        }
        let bytes = self.device.read_vec(offset, to_usize(self.block_size))?;
        let tag = match check_tag(&bytes, at.block) {
            Ok(tag) if wanted.contains(&tag.identifier.get()) => Ok(tag),
            Ok(tag) => Err(TagFault::Identifier(tag.identifier.get())),
            Err(fault) => Err(fault),
        };
        let tag = tag.map_err(|fault| {
            let message = format!(
                "the {what} in block {} of partition {} is damaged: {fault}",
                at.block, at.partition
            );
            Error::corrupt(LAYER, offset, message)
        })?;
        Ok(DescriptorBlock {
            address: at,
            offset,
            tag,
            bytes,
        })
    }

    fn no_block(&self, at: BlockAddress, why: impl std::fmt::Display) -> Error {
        let message = format!(
            "block {} of partition {} does not exist: {why}",
            at.block, at.partition
        );
        Error::new(Kind::Corrupt, LAYER, message)
    }
}
