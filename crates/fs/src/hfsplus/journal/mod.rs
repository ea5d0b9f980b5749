//! The journal: changes not yet written in place, applied over the volume without modifying it
//! (§14).

#[cfg(feature = "testing")]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
mod fixture;
mod replay;
mod replayed;
mod write;

use std::sync::Arc;

use zerocopy::IntoBytes;

#[cfg(feature = "testing")]
pub use self::fixture::{add_journal, reseal_journal, sample_journals};
use super::layout::{
    AllocBlock, BLOCK_LIST_SIZES, JOURNAL_HEADER_CHECKSUM, JOURNAL_HEADER_SIZES,
    JOURNAL_HEADER_SUMMED, JournalChecksum, JournalHeaderRaw, JournalInfoBlockRaw, JournalOrder,
    VolumeHeader, journal_flags,
};
use super::read_structure;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "hfs+ journal";

/// A journal with a valid header.
#[derive(Debug)]
pub(super) struct Journal {
    device: Arc<dyn BlockDevice>,
    /// Offset on the volume, in bytes.
    at: u64,
    /// Size in bytes; within the volume.
    size: u64,
    order: JournalOrder,
    /// Size of the header in bytes; the ring of transactions extends from here to `size`.
    header_size: u32,
    /// Size of a block list in bytes.
    list_size: u32,
    /// Position of the first pending transaction.
    start: u64,
    /// Position of the free space, as far as the header is up to date.
    end: u64,
    /// Sequence number of the last transaction, as far as the header is up to date.
    sequence: u32,
}

/// The effect of a journal with pending transactions.
#[derive(Debug)]
pub(super) struct PendingJournal {
    /// The volume with the changes applied.
    pub(super) device: Arc<dyn BlockDevice>,
    /// The error that ended the replay; the transactions before it are applied.
    pub(super) problem: Option<Error>,
}

/// Returns the volume on `device` with its journal replayed, `None` if no transaction is pending.
/// Memory is used for the offsets of the changes only; their contents are read from the journal.
pub(super) fn pending(
    device: &Arc<dyn BlockDevice>,
    header: &VolumeHeader,
) -> Result<Option<PendingJournal>> {
    let Some(journal) = Journal::find(device, header)? else {
        return Ok(None);
    };
    if journal.start == journal.end {
        // The contents of the ring are older than the blocks in place.
        return Ok(None);
    }
    let (patches, problem) = journal.replay()?;
    let device: Arc<dyn BlockDevice> = Arc::new(replayed::Replayed::new(device.clone(), patches));
    Ok(Some(PendingJournal { device, problem }))
}

/// Mark in the reserved part of the info block of a journal that exists for one mount only.
pub(super) const TRANSIENT: &[u8] = b"bandsaw: one mount only";

/// Returns true if the volume has a journal for one mount only, and that mount was interrupted.
pub(super) fn is_transient(device: &dyn BlockDevice, header: &VolumeHeader) -> bool {
    let at = AllocBlock(header.raw.journal_info_block.get()).offset(header.block_size);
    let info: Result<JournalInfoBlockRaw> = read_structure(device, at);
    header.raw.journal_info_block != 0
        && info.is_ok_and(|info| info.reserved.starts_with(TRANSIENT))
}

impl Journal {
    /// Returns the bytes of the volume that hold its transactions, old ones among them.
    pub(super) fn ring(&self) -> std::ops::Range<u64> {
        self.at + u64::from(self.header_size)..self.at + self.size
    }

    /// Returns the journal of a volume, `None` if it was never used.
    pub(super) fn find(
        device: &Arc<dyn BlockDevice>,
        header: &VolumeHeader,
    ) -> Result<Option<Self>> {
        let info_block = AllocBlock(header.raw.journal_info_block.get());
        if info_block.0 == 0 || info_block.0 >= header.total_blocks {
            let message = format!(
                "invalid info block {info_block}: the volume has {} blocks",
                header.total_blocks
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        let at = info_block.offset(header.block_size);
        let info: JournalInfoBlockRaw = read_structure(&**device, at)?;
        let flags = info.flags.get();
        if flags & journal_flags::NEEDS_INIT != 0 {
            return Ok(None);
        }
        if flags & journal_flags::IN_VOLUME == 0 {
            return Err(
                Error::unsupported(LAYER, "unsupported: the journal is on another device").at(at),
            );
        }
        let (offset, size) = (info.offset.get(), info.size.get());
        device.info().check(LAYER, offset, size)?;
        Self::parse(device, offset, size).map(Some)
    }

    fn parse(device: &Arc<dyn BlockDevice>, at: u64, room: u64) -> Result<Self> {
        let raw: JournalHeaderRaw = read_structure(&**device, at)?;
        let corrupt = |message: String| Error::corrupt(LAYER, at, message);
        let order = JournalOrder::of(&raw)
            .ok_or_else(|| corrupt("expected a journal header (JNLx)".to_owned()))?;
        let sum = JournalChecksum::of_header(
            &raw.as_bytes()[..JOURNAL_HEADER_SUMMED],
            JOURNAL_HEADER_CHECKSUM,
        );
        if sum != order.u32(raw.checksum) {
            return Err(corrupt(format!(
                "checksum mismatch: computed {sum:#010x}, stored {:#010x}",
                order.u32(raw.checksum)
            )));
        }
        let (header_size, list_size) = (order.u32(raw.header_size), order.u32(raw.block_list_size));
        let size = order.u64(raw.size);
        let sizes_fit = JOURNAL_HEADER_SIZES.contains(&header_size)
            && BLOCK_LIST_SIZES.contains(&list_size)
            && size <= room
            && u64::from(header_size) + u64::from(list_size) <= size;
        if !sizes_fit {
            let message = format!(
                "invalid sizes: header {header_size}, lists {list_size}, journal {size} of {room} \
                 bytes"
            );
            return Err(corrupt(message));
        }
        let (start, end) = (order.u64(raw.start), order.u64(raw.end));
        let ring = u64::from(header_size)..=size;
        if !ring.contains(&start) || !ring.contains(&end) {
            return Err(corrupt(format!(
                "invalid range of transactions, {start} to {end}: expected {ring:?}"
            )));
        }
        let sequence = order.u32(raw.sequence);
        Ok(Self {
            device: device.clone(),
            at,
            size,
            order,
            header_size,
            list_size,
            start,
            end,
            sequence,
        })
    }
}
