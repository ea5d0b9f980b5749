//! The commit of changes: first file contents and the transaction, then the journal header that
//! makes it valid, then the writes in place (§14.7).

use std::collections::BTreeMap;

use super::LAYER;
use super::block_counts::bytes_of;
use super::space::TreeName;
use super::volume::Volume;
use crate::hfsplus::btree::WriteOrder;
use crate::hfsplus::layout::{AllocBlock, Extent};
use crate::write_buffer::PendingWrite;
use bandsaw_core::device::AfterDiscard;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};

impl Volume {
    /// Makes all completed operations durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        let committed = self.try_commit();
        self.failed.record(committed)
    }

    fn try_commit(&mut self) -> Result<()> {
        let runs = self.buffer.runs();
        let Some(log) = self.log.as_mut().filter(|_| !runs.is_empty()) else {
            return self.device.flush();
        };
        if !log.has_room(&runs) {
            self.device.flush()?;
            log.clear()?;
            self.device.flush()?;
        }
        log.journal.append(&runs)?;
        // File contents and the transaction must be durable before the journal header that makes it
        // valid, as must the writes in place of the last commit.
        self.device.flush()?;
        log.journal.publish()?;
        self.device.flush()?;
        for (offset, bytes) in in_order(&runs, self.take_ranks()) {
            self.device.write_at(offset, bytes)?;
        }
        self.buffer.clear_pending();
        let freed = self.bitmap.release();
        self.discard_free(freed.into_iter().map(|(start, end)| Extent {
            start: AllocBlock(start),
            count: end - start,
        }));
        Ok(())
    }

    /// Discards the storage of free blocks whose former contents are not needed any more, not even
    /// after a crash.
    pub(super) fn discard_free(&self, freed: impl Iterator<Item = Extent>) {
        for extent in freed {
            let (start, len) = bytes_of(extent, self.read.header.block_size);
            // Best effort: blocks that are not discarded now can be trimmed later.
            let _ = self.device.discard(start..start + len, AfterDiscard::Any);
        }
    }

    fn take_ranks(&mut self) -> BTreeMap<u64, WriteOrder> {
        let trees = [TreeName::Overflow, TreeName::Catalog, TreeName::Attributes];
        trees
            .into_iter()
            .flat_map(|which| {
                self.tree(which)
                    .map(|tree| tree.take_ranks())
                    .unwrap_or_default()
            })
            .collect()
    }

    /// Commits pending changes if the current operation would not fit in the same transaction.
    pub(super) fn commit_if_full(&mut self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let (len, page) = (self.buffer.len_if_kept(), self.buffer.page());
        if log.fits(len, page) && len <= self.options.cache as u64 {
            return Ok(());
        }
        let fits_alone = log.fits(self.buffer.current_len(), page);
        if !fits_alone {
            let message = format!(
                "{} bytes of changes at once do not fit in the journal",
                self.buffer.current_len()
            );
            return Err(Error::limit(LAYER, message));
        }
        self.commit()
    }
}

/// Splits `runs` into parts of the same rank and sorts them by it. Parts without a rank are not
/// nodes, but bitmap or headers.
fn in_order(runs: &[PendingWrite], ranks: BTreeMap<u64, WriteOrder>) -> Vec<(u64, &[u8])> {
    let mut parts: Vec<(WriteOrder, u64, &[u8])> = Vec::new();
    for (start, bytes) in runs {
        let mut at = *start;
        let end = at + bytes.len() as u64;
        while at < end {
            // A node that begins before the run is contained in it entirely or not at all.
            let rank = ranks.get(&at).copied().unwrap_or(WriteOrder::Other);
            let until = ranks
                .range(at + 1..end)
                .next()
                .map_or(end, |(next, _)| *next);
            parts.push((
                rank,
                at,
                &bytes[to_usize(at - start)..to_usize(until - start)],
            ));
            at = until;
        }
    }
    parts.sort_by_key(|(rank, offset, _)| (*rank, *offset));
    parts
        .into_iter()
        .map(|(_, offset, bytes)| (offset, bytes))
        .collect()
}
