//! Writing and applying transactions (§14.3 to §14.5).

use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use super::{Journal, LAYER};
use crate::hfsplus::layout::{
    BLOCK_LIST_CHECKSUM, BLOCK_LIST_SUMMED, BlockInfoRaw, BlockListHeaderRaw, JOURNAL_ENDIAN,
    JOURNAL_HEADER_CHECKSUM, JOURNAL_HEADER_SUMMED, JOURNAL_MAGIC, JournalChecksum,
    JournalHeaderRaw, JournalOrder, block_list_flags,
};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Result};

/// Sizes in bytes of a block list in a new journal, and in one that is too short for that.
const LIST_SIZES: (u32, u32) = (8192, 4096);
/// Journals shorter than this have short lists.
const SHORT: u64 = 256 << 10;
/// Bytes copied at a time when transactions are applied.
const PIECE: u64 = 1 << 20;

impl Journal {
    /// Creates an empty journal of `size` bytes at byte `at` of the volume, which is not written
    /// yet. `sequence` should be a random number, so that remains of an older journal in the same
    /// place do not look like a continuation.
    pub(in crate::hfsplus) fn new(
        device: Arc<dyn BlockDevice>,
        at: u64,
        size: u64,
        sequence: u32,
    ) -> Self {
        let header_size = device.info().block;
        let list_size = if size < SHORT {
            LIST_SIZES.1
        } else {
            LIST_SIZES.0
        };
        let start = header_size.into();
        Self {
            device,
            at,
            size,
            order: JournalOrder::Little,
            header_size,
            list_size,
            start,
            end: start,
            sequence,
        }
    }

    /// Returns the alignment of blocks in bytes.
    pub(in crate::hfsplus) fn sector(&self) -> u32 {
        self.header_size
    }

    /// Returns true if `bytes` of blocks in `pieces` runs fit in one transaction.
    pub(in crate::hfsplus) fn fits(&self, bytes: u64, pieces: usize) -> bool {
        self.len_of(bytes, pieces) < self.ring_len()
    }

    /// Returns true if there is space for a transaction in addition to those recorded in the
    /// header.
    pub(in crate::hfsplus) fn has_room(&self, bytes: u64, pieces: usize) -> bool {
        let taken = (self.ring_len() + self.end - self.start) % self.ring_len();
        taken + self.len_of(bytes, pieces) < self.ring_len()
    }

    fn len_of(&self, bytes: u64, pieces: usize) -> u64 {
        bytes + pieces.div_ceil(self.per_list()).max(1) as u64 * u64::from(self.list_size)
    }

    /// Returns the maximum number of blocks of one list.
    fn per_list(&self) -> usize {
        // One entry describes the list itself, and the head takes the space of one.
        self.list_size as usize / size_of::<BlockInfoRaw>() - 2
    }

    /// Writes a transaction to the free part of the ring. It takes effect with
    /// [`publish`](Self::publish), once both it and the header are durable. By then, earlier
    /// transactions must be durable in place.
    pub(in crate::hfsplus) fn append(&mut self, runs: &[(u64, Vec<u8>)]) -> Result<()> {
        let bytes = runs.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        if !self.has_room(bytes, runs.len()) {
            return Err(Error::limit(
                LAYER,
                format!(
                    "{bytes} bytes of changes exceed the journal of {} bytes",
                    self.size
                ),
            ));
        }
        // Skip one number, so that a transaction that is durable before its header is never taken
        // for the next one.
        self.sequence = self.sequence.wrapping_add(2).max(2);
        let begin = self.wrap(self.end);
        let mut at = begin;
        for (index, list) in runs.chunks(self.per_list()).enumerate() {
            self.write_ring(at, &self.list_of(list, index == 0))?;
            at = self.advance(at, self.list_size.into());
            for (_, bytes) in list {
                self.write_ring(at, bytes)?;
                at = self.advance(at, bytes.len() as u64);
            }
        }
        (self.start, self.end) = (begin, at);
        Ok(())
    }

    /// Empties the journal, when all transactions are durable in place. Takes effect with
    /// [`publish`](Self::publish).
    pub(in crate::hfsplus) fn clear(&mut self) {
        self.start = self.end;
    }

    /// Writes the header.
    pub(in crate::hfsplus) fn publish(&self) -> Result<()> {
        let order = self.order;
        let mut raw = JournalHeaderRaw {
            magic: order.put_u32(JOURNAL_MAGIC),
            endian: order.put_u32(JOURNAL_ENDIAN),
            start: order.put_u64(self.start),
            end: order.put_u64(self.end),
            size: order.put_u64(self.size),
            block_list_size: order.put_u32(self.list_size),
            checksum: [0; 4],
            header_size: order.put_u32(self.header_size),
            sequence: order.put_u32(self.sequence),
        };
        let sum = JournalChecksum::of_header(
            &raw.as_bytes()[..JOURNAL_HEADER_SUMMED],
            JOURNAL_HEADER_CHECKSUM,
        );
        raw.checksum = order.put_u32(sum);
        self.device.write_at(self.at, raw.as_bytes())
    }

    /// Writes the pending changes in place, makes them durable, and empties the journal. Refuses a
    /// damaged journal, because the missing changes are unknown.
    pub(in crate::hfsplus) fn apply(&mut self) -> Result<()> {
        if self.start == self.end {
            return Ok(());
        }
        let (patches, problem) = self.replay()?;
        if let Some(problem) = problem {
            return Err(problem);
        }
        for (target, len, source) in patches.iter() {
            let mut done = 0;
            while done < len {
                let mut piece = vec![0; to_usize(PIECE.min(len - done))];
                self.device.read_at(source + done, &mut piece)?;
                self.device.write_at(target + done, &piece)?;
                done += piece.len() as u64;
            }
        }
        self.device.flush()?;
        self.clear();
        // The transactions may have had higher numbers than the header.
        self.sequence = self.sequence.wrapping_add(1 << 16);
        self.publish()?;
        self.device.flush()
    }

    fn list_of(&self, runs: &[(u64, Vec<u8>)], first: bool) -> Vec<u8> {
        let order = self.order;
        let bytes: u64 = runs.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let entries = narrow::<u16>(self.per_list() + 1); // lists have at most 2^20 bytes
        let mut head = BlockListHeaderRaw::new_zeroed();
        head.max_blocks = order.put_u16(entries);
        head.num_blocks = order.put_u16(narrow::<u16>(runs.len()) + 1);
        head.bytes_used = order.put_u32(narrow(u64::from(self.list_size) + bytes)); // less than the ring
        head.flags = order
            .put_u32(block_list_flags::CHECKSUMS | if first { block_list_flags::FIRST } else { 0 });
        let mut list = head.as_bytes().to_vec();
        let mut own = BlockInfoRaw::new_zeroed();
        own.checksum = order.put_u32(self.sequence);
        list.extend_from_slice(own.as_bytes());
        for (offset, bytes) in runs {
            let mut sum = JournalChecksum::default();
            sum.update(bytes);
            let info = BlockInfoRaw {
                number: order.put_u64(offset / u64::from(self.header_size)),
                size: order.put_u32(narrow(bytes.len())),
                checksum: order.put_u32(sum.finish()),
            };
            list.extend_from_slice(info.as_bytes());
        }
        let sum = JournalChecksum::of_header(&list[..BLOCK_LIST_SUMMED], BLOCK_LIST_CHECKSUM);
        list[BLOCK_LIST_CHECKSUM].copy_from_slice(&order.put_u32(sum));
        list.resize(self.list_size as usize, 0);
        list
    }

    /// Writes `bytes`, which fit in the ring, at position `at` of the journal, wrapping around at
    /// its end.
    fn write_ring(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let before_wrap = bytes
            .len()
            .min(usize::try_from(self.size - at).unwrap_or(usize::MAX));
        let (first, second) = bytes.split_at(before_wrap);
        self.device.write_at(self.at + at, first)?;
        self.device
            .write_at(self.at + u64::from(self.header_size), second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::Kind;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    /// Sends transactions of many sizes through a small ring: each can be replayed once it is
    /// published, and until then the one before.
    #[test]
    fn published_transactions_are_replayed() {
        const RING: u64 = 64 << 10;
        for order in [JournalOrder::Little, JournalOrder::Big] {
            let device: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(1 << 20));
            let at = (1 << 20) - RING;
            let mut journal = Journal {
                order,
                ..Journal::new(device.clone(), at, RING, u32::MAX - 8)
            };
            journal.publish().unwrap();
            for round in 1..60_u8 {
                let runs: Vec<_> = (0..u64::from(round % 7) + 1)
                    .map(|n| (n * 4096, vec![round; 512 * (1 + n as usize)]))
                    .collect();
                let bytes = runs.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                assert!(journal.fits(bytes, runs.len()));
                if !journal.has_room(bytes, runs.len()) {
                    journal.clear();
                    journal.publish().unwrap();
                }
                journal.append(&runs).unwrap();
                let found = Journal::parse(&device, at, RING).unwrap();
                if found.start != found.end {
                    let (unpublished, problem) = found.replay().unwrap();
                    assert!(problem.is_none(), "round {round}: {problem:?}");
                    for (_, _, source) in unpublished.iter() {
                        assert_ne!(
                            device.read_vec(source, 1).unwrap(),
                            [round],
                            "counts before it is published"
                        );
                    }
                }
                journal.publish().unwrap();
                if round % 3 == 0 {
                    continue;
                }
                let mut found = Journal::parse(&device, at, RING).unwrap();
                assert_eq!(found.order, order);
                found.apply().unwrap();
                for (offset, bytes) in &runs {
                    assert_eq!(
                        device.read_vec(*offset, bytes.len()).unwrap(),
                        *bytes,
                        "round {round}"
                    );
                }
            }
        }
    }

    #[test]
    fn transactions_larger_than_the_journal_are_refused() {
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(1 << 20));
        let mut journal = Journal::new(device, 512 << 10, 32 << 10, 1);
        assert!(!journal.fits(32 << 10, 1));
        assert_eq!(
            journal
                .append(&[(0, vec![1; 32 << 10])])
                .unwrap_err()
                .kind(),
            Kind::Limit
        );
    }
}
