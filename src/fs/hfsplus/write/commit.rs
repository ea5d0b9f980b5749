//! Making changes durable: contents, then the transaction, then what makes it count, then
//! everything in its place (§14.7).

use std::collections::BTreeMap;

use super::LAYER;
use super::buffer::PendingWrite;
use super::space::{Which, bytes_of};
use super::volume::Volume;
use crate::device::AfterDiscard;
use crate::fs::hfsplus::btree::Rank;
use crate::fs::hfsplus::layout::{AllocBlock, Extent};
use crate::{Error, Kind, Result};

impl Volume {
    /// Makes everything so far durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        let committed = self.try_commit();
        self.failed.note(committed)
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
        // Contents and the transaction, before what makes them count; and what the last commit put
        // in place.
        self.device.flush()?;
        log.journal.publish()?;
        self.device.flush()?;
        for (offset, bytes) in in_order(&runs, self.take_ranks()) {
            self.device.write_at(offset, bytes)?;
        }
        self.buffer.forget();
        let freed = self.bitmap.release();
        self.discard_free(freed.into_iter().map(|(start, end)| Extent {
            start: AllocBlock(start),
            count: end - start,
        }));
        Ok(())
    }

    /// Gives back the storage behind blocks that are free for certain: whatever happens, nothing
    /// will ever be read there.
    pub(super) fn discard_free(&self, freed: impl Iterator<Item = Extent>) {
        for extent in freed {
            let (start, len) = bytes_of(extent, self.read.header.block_size);
            // Best effort: what is not given back now, a trim finds free.
            let _ = self.device.discard(start..start + len, AfterDiscard::Any);
        }
    }

    fn take_ranks(&mut self) -> BTreeMap<u64, Rank> {
        let trees = [Which::Overflow, Which::Catalog, Which::Attributes];
        trees
            .into_iter()
            .flat_map(|which| {
                self.tree(which)
                    .map(|tree| tree.take_ranks())
                    .unwrap_or_default()
            })
            .collect()
    }

    /// Commits what waits if the operation under way would not fit in the same transaction.
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
            return Err(Error::new(Kind::Limit, LAYER, message));
        }
        self.commit()
    }
}

/// The parts of `runs` that belong together, by rank. What has none is no node: bitmap, headers.
fn in_order(runs: &[PendingWrite], ranks: BTreeMap<u64, Rank>) -> Vec<(u64, &[u8])> {
    let mut parts: Vec<(Rank, u64, &[u8])> = Vec::new();
    for (start, bytes) in runs {
        let mut at = *start;
        let end = at + bytes.len() as u64;
        while at < end {
            // A node that began before the run is in it as a whole or not at all.
            let rank = ranks.get(&at).copied().unwrap_or(Rank::Other);
            let until = ranks
                .range(at + 1..end)
                .next()
                .map_or(end, |(next, _)| *next);
            parts.push((
                rank,
                at,
                &bytes[(at - start) as usize..(until - start) as usize],
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
