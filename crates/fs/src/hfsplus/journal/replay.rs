//! Iteration over the transactions of a journal (§14.3, §14.4).

use zerocopy::FromBytes;

use super::replayed::Patches;
use super::{Journal, LAYER};
use crate::hfsplus::layout::{
    BLOCK_LIST_CHECKSUM, BLOCK_LIST_SUMMED, BlockInfoRaw, BlockListHeaderRaw, JournalChecksum,
    KILLED_BLOCK, block_list_flags,
};
use bandsaw_core::{Error, Result};

/// A block that a transaction changes.
#[derive(Debug, Clone, Copy)]
struct JournalBlock {
    /// Target offset on the volume in bytes; `None` for a killed block, which is not to be written.
    target: Option<u64>,
    len: u32,
    /// Checksum of its bytes, if the list has one.
    checksum: Option<u32>,
}

/// A valid block list.
#[derive(Debug)]
struct BlockList {
    /// True for the first list of its transaction.
    first: bool,
    /// Sequence number of its transaction; 0 in old journals.
    sequence: u32,
    blocks: Vec<JournalBlock>,
    /// Bytes of the list and its blocks in the ring.
    len: u64,
}

impl Journal {
    /// Returns the pending changes. Before the end recorded in the header, an invalid list is a
    /// problem, and the transaction that it may belong to is dropped. Past that end, where the
    /// header may be out of date, an invalid list marks the actual end of the journal.
    pub(super) fn replay(&self) -> Result<(Patches, Option<Error>)> {
        let mut whole = Patches::default();
        // Changes of the transaction that is being read, which is complete when the next one
        // begins.
        let mut current = Patches::default();
        let (mut at, mut last_sequence, mut walked) = (self.wrap(self.start), 0, 0);
        let end = self.wrap(self.end);
        let mut past_end = false;
        while walked < self.ring_len() {
            past_end |= at == end && walked > 0;
            if past_end && last_sequence == 0 {
                break;
            }
            let broken = |message: String| {
                Error::corrupt(LAYER, self.at + at, format!("block list: {message}"))
            };
            let list = match self.list(at)? {
                Ok(list) if !past_end || continues(list.sequence, last_sequence) => list,
                Err(message) if !past_end => return Ok((whole, Some(broken(message)))),
                _ => break,
            };
            if list.first {
                whole.append(std::mem::take(&mut current));
            }
            match self.check_blocks(at, &list)? {
                Ok(()) => self.add_patches(at, &list, &mut current),
                Err(message) if !past_end => return Ok((whole, Some(broken(message)))),
                Err(_) => break,
            }
            (last_sequence, walked) = (list.sequence, walked + list.len);
            at = self.advance(at, list.len);
        }
        whole.append(current);
        Ok((whole, None))
    }

    /// Returns the list at position `at` of the ring, or the reason why it is invalid.
    fn list(&self, at: u64) -> Result<Result<BlockList, String>> {
        let mut bytes = vec![0; self.list_size as usize];
        self.read_ring(at, &mut bytes)?;
        Ok(self.parse_list(&bytes))
    }

    /// Compares the blocks of the list at `at` with their checksums.
    fn check_blocks(&self, at: u64, list: &BlockList) -> Result<Result<(), String>> {
        let mut at = self.advance(at, self.list_size.into());
        for block in &list.blocks {
            if let (Some(expected), Some(_)) = (block.checksum, block.target)
                && self.checksum(at, block.len)? != expected
            {
                return Ok(Err(format!(
                    "checksum mismatch of the block at {at} of the journal: expected \
                     {expected:#010x}"
                )));
            }
            at = self.advance(at, block.len.into());
        }
        Ok(Ok(()))
    }

    fn parse_list(&self, bytes: &[u8]) -> Result<BlockList, String> {
        let order = self.order;
        let cut_short = || "is truncated".to_owned();
        let (head, infos) = BlockListHeaderRaw::ref_from_prefix(bytes).map_err(|_| cut_short())?;
        let sum = JournalChecksum::of_header(
            bytes.get(..BLOCK_LIST_SUMMED).ok_or_else(cut_short)?,
            BLOCK_LIST_CHECKSUM,
        );
        if sum != order.u32(head.checksum) {
            return Err(format!(
                "checksum mismatch: computed {sum:#010x}, stored {:#010x}",
                order.u32(head.checksum)
            ));
        }
        let count = usize::from(order.u16(head.num_blocks));
        let (infos, _) =
            <[BlockInfoRaw]>::ref_from_prefix_with_elems(infos, count).map_err(|_| cut_short())?;
        let Some((itself, infos)) = infos.split_first() else {
            return Err("the list has no blocks".to_owned());
        };
        let flags = order.u32(head.flags);
        let blocks = infos
            .iter()
            .map(|info| self.block(info, flags & block_list_flags::CHECKSUMS != 0));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let len = blocks.iter().fold(u64::from(self.list_size), |len, block| {
            len + u64::from(block.len)
        });
        if len != u64::from(order.u32(head.bytes_used)) || len > self.ring_len() {
            return Err(format!(
                "the list has {len} bytes of blocks, expected {}",
                order.u32(head.bytes_used)
            ));
        }
        Ok(BlockList {
            first: flags & block_list_flags::FIRST != 0,
            sequence: order.u32(itself.checksum),
            blocks,
            len,
        })
    }

    fn block(&self, info: &BlockInfoRaw, has_checksum: bool) -> Result<JournalBlock, String> {
        let (number, len) = (self.order.u64(info.number), self.order.u32(info.size));
        let checksum = Some(self.order.u32(info.checksum)).filter(|&sum| has_checksum && sum != 0);
        if number == KILLED_BLOCK {
            return Ok(JournalBlock {
                target: None,
                len,
                checksum,
            });
        }
        let target = number.checked_mul(self.header_size.into());
        let volume = self.device.info().len;
        match target.and_then(|target| target.checked_add(len.into())) {
            Some(end) if end <= volume && len > 0 => Ok(JournalBlock {
                target,
                len,
                checksum,
            }),
            _ => Err(format!(
                "block {number} of {len} bytes is past the end of the volume of {volume} bytes"
            )),
        }
    }

    /// Adds the blocks of the list at `at` to `patches`.
    fn add_patches(&self, at: u64, list: &BlockList, patches: &mut Patches) {
        let mut at = self.advance(at, self.list_size.into());
        for block in &list.blocks {
            let len = u64::from(block.len);
            if let Some(target) = block.target {
                let before_wrap = len.min(self.size - at);
                patches.insert(target, before_wrap, self.at + at);
                patches.insert(
                    target + before_wrap,
                    len - before_wrap,
                    self.at + u64::from(self.header_size),
                );
            }
            at = self.advance(at, len);
        }
    }

    fn checksum(&self, mut at: u64, len: u32) -> Result<u32> {
        let mut sum = JournalChecksum::default();
        let mut buf = [0; 4096];
        let mut left = len as usize;
        while left > 0 {
            let now = &mut buf[..left.min(4096)];
            self.read_ring(at, now)?;
            sum.update(now);
            (at, left) = (self.advance(at, now.len() as u64), left - now.len());
        }
        Ok(sum.finish())
    }

    /// Returns the size of the ring in bytes.
    pub(super) fn ring_len(&self) -> u64 {
        self.size - u64::from(self.header_size)
    }

    /// Maps the end of the ring to its beginning.
    pub(super) fn wrap(&self, at: u64) -> u64 {
        if at == self.size {
            self.header_size.into()
        } else {
            at
        }
    }

    /// Returns the position `len` bytes after `at`, which is in the ring.
    pub(super) fn advance(&self, at: u64, len: u64) -> u64 {
        let within = (at - u64::from(self.header_size) + len) % self.ring_len();
        u64::from(self.header_size) + within
    }

    /// Fills `buf`, which is no longer than the ring, from position `at` of the journal.
    fn read_ring(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let before_wrap = buf
            .len()
            .min(usize::try_from(self.size - at).unwrap_or(usize::MAX));
        let (first, second) = buf.split_at_mut(before_wrap);
        self.device.read_at(self.at + at, first)?;
        self.device
            .read_at(self.at + u64::from(self.header_size), second)
    }
}

/// Returns true if a list past the end recorded in the header still belongs to the journal: only
/// consecutive sequence numbers do.
fn continues(sequence: u32, last: u32) -> bool {
    sequence == last || sequence == last.wrapping_add(1)
}
