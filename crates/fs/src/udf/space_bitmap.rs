//! The bitmap of the free blocks of a partition.

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::contents::{RunStorage, UdfContents};
use super::layout::{ShortAdRaw, SpaceBitmapRaw, TagRaw, tag_id};
use super::space::{BlockAddress, BlockSpace};
use super::tag::{TagFault, check_tag};

/// A bitmap, whose bits are set for free blocks.
#[derive(Debug)]
pub(super) struct SpaceBitmap {
    contents: UdfContents,
    /// Number of bits.
    pub(super) bits: u32,
    /// The blocks in which it is stored.
    pub(super) at: BlockAddress,
    pub(super) blocks: u64,
}

impl SpaceBitmap {
    /// Opens the bitmap of the partition with this index. `None`: it has none.
    pub(super) fn open(space: &BlockSpace, index: u16, raw: &ShortAdRaw) -> Result<Option<Self>> {
        let len = u64::from(raw.len.bytes());
        if len == 0 {
            return Ok(None);
        }
        let at = BlockAddress {
            partition: index,
            block: raw.block.get(),
        };
        let mut contents = UdfContents::new(space.device.clone(), len);
        let blocks = len.div_ceil(space.block_size);
        let (mut next, mut left) = (at, blocks);
        while left > 0 {
            let (start, contiguous) = space.place(next, left, 0)?;
            contents.push(contiguous * space.block_size, RunStorage::Recorded(start));
            left = left.saturating_sub(contiguous);
            next = next.plus(contiguous).unwrap_or(next);
        }
        contents.check_places()?;
        let damaged = |why: &dyn std::fmt::Display| {
            let message = format!("the space bitmap of partition {index} is damaged: {why}");
            let place = space.place(at, 1, 0).map_or(0, |(place, _)| place);
            Error::corrupt(LAYER, place, message)
        };
        let head_len = size_of::<TagRaw>() + usize::from(u16::MAX);
        let head_len = head_len.min(usize::try_from(len).unwrap_or(head_len));
        let head = contents.read_vec(0, head_len)?;
        let tag = check_tag(&head, at.block).map_err(|fault| damaged(&fault))?;
        if tag.identifier.get() != tag_id::SPACE_BITMAP {
            return Err(damaged(&TagFault::Identifier(tag.identifier.get())));
        }
        let (raw, _) =
            SpaceBitmapRaw::read_from_prefix(&head).map_err(|_| damaged(&TagFault::Truncated))?;
        let bytes = u64::from(raw.bits.get().div_ceil(8));
        if size_of::<SpaceBitmapRaw>() as u64 + bytes > len || u64::from(raw.bytes.get()) < bytes {
            return Err(damaged(&TagFault::Truncated));
        }
        Ok(Some(Self {
            contents,
            bits: raw.bits.get(),
            at,
            blocks,
        }))
    }

    /// Reads bytes of the bitmap.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let start = size_of::<SpaceBitmapRaw>() as u64;
        self.contents.read_vec(start + offset, len)
    }

    /// Returns the number of bytes of the bits.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.bits.div_ceil(8)).min(self.contents.info().len)
    }
}
