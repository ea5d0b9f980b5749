//! The certainty of a file: its blocks compared with the free map and with the claims of files that have
//! newer records.

use std::ops::Range;
use std::sync::Arc;

use super::{BlockSet, Certainty, FoundRun, LossReason, LostRange};
use crate::Fork;
use crate::free::FreeMap;
use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, ExtentKind};

/// Largest number of lost ranges that are kept for a file. All bytes after them count as lost.
const MAX_LOSSES: usize = 4096;

/// A run of bytes of a fork, as a record states it.
#[derive(Debug, Clone)]
pub(crate) struct FileRun {
    pub(crate) fork: Fork,
    /// Offset in the fork, in bytes.
    pub(crate) start: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// Offset on the device; `None` if it is unknown.
    pub(crate) place: Option<u64>,
}

/// The state of the blocks of a volume while its files are judged, newest records first.
#[derive(Debug)]
pub(crate) struct Judge {
    /// The map of free bytes; `None` if it cannot be read.
    pub(crate) free: Option<Box<dyn FreeMap>>,
    /// The device that the map and the places refer to.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Size of a block in bytes.
    pub(crate) block_size: u64,
    /// Offset of block 0 on the device, in bytes.
    pub(crate) start: u64,
    /// End of the volume on the device, in bytes.
    pub(crate) end: u64,
    /// True if files that exist are among those that are judged.
    pub(crate) is_damaged: bool,
    pub(crate) claimed: BlockSet,
}

/// The certainty of a file.
#[derive(Debug)]
pub(crate) struct Judgment {
    pub(crate) certainty: Certainty,
    pub(crate) losses: Vec<LostRange>,
    pub(crate) runs: Vec<FoundRun>,
}

/// The parts of a file.
#[derive(Debug, Default)]
struct Parts {
    losses: Vec<LostRange>,
    /// Bytes in free blocks that nobody claims.
    free: u64,
    /// Bytes in blocks that are in use.
    used: u64,
    lost: u64,
}

impl Parts {
    fn lose(&mut self, fork: Fork, range: Range<u64>, reason: LossReason) {
        if range.is_empty() {
            return;
        }
        self.lost = self.lost.saturating_add(range.end - range.start);
        let count = self.losses.len();
        match self.losses.last_mut() {
            Some(last)
                if last.fork == fork
                    && last.range.end == range.start
                    && (last.reason == reason || count >= MAX_LOSSES) =>
            {
                last.range.end = range.end;
            }
            Some(last) if last.fork == fork && count >= MAX_LOSSES => {
                self.lost = self.lost.saturating_add(range.start - last.range.end);
                last.range.end = range.end;
            }
            _ => self.losses.push(LostRange {
                fork,
                range,
                reason,
            }),
        }
    }
}

impl Judge {
    /// Judges a file by the runs of both forks, in ascending order. If `claims`, its blocks are lost
    /// to files that are judged later.
    pub(crate) fn judge(&mut self, runs: &[FileRun], claims: bool) -> Result<Judgment> {
        let mut parts = Parts::default();
        let mut found = Vec::new();
        for run in runs.iter().filter(|run| run.len > 0) {
            let whole = run.start..run.start.saturating_add(run.len);
            let Some(place) = run.place else {
                parts.lose(run.fork, whole, LossReason::NoExtent);
                continue;
            };
            let end = place.checked_add(run.len).filter(|&end| end <= self.end);
            let Some(end) = end.filter(|_| place >= self.start) else {
                parts.lose(run.fork, whole, LossReason::Outside);
                continue;
            };
            found.push(FoundRun {
                fork: run.fork,
                start: run.start,
                range: place..end,
            });
            self.run(run, place..end, &mut parts)?;
        }
        if claims {
            for run in &found {
                let first = (run.range.start - self.start) / self.block_size;
                let end = (run.range.end - self.start).div_ceil(self.block_size);
                self.claimed.add(first..end);
            }
        }
        let is_existing = self.is_damaged && parts.free == 0 && parts.used > 0;
        let mut losses = parts.losses;
        let mut lost = parts.lost;
        if is_existing {
            losses.retain(|loss| loss.reason != LossReason::InUse);
            lost -= parts.used;
        }
        let left = parts.free + if is_existing { parts.used } else { 0 };
        let certainty = match (lost > 0, left > 0) {
            (false, _) if is_existing => Certainty::Existing,
            (false, _) => Certainty::Whole,
            (true, true) => Certainty::Partial,
            (true, false) => Certainty::NameOnly,
        };
        Ok(Judgment {
            certainty,
            losses,
            runs: found,
        })
    }

    /// Judges a run whose bytes on the device are `range`.
    fn run(&self, run: &FileRun, range: Range<u64>, parts: &mut Parts) -> Result<()> {
        let mut at = range.start;
        let in_fork = |at: u64| run.start + (at - range.start);
        while at < range.end {
            let block = (at - self.start) / self.block_size;
            let last = (range.end - self.start).div_ceil(self.block_size);
            let (is_claimed, claim_end) = self.claimed.run_at(block, last);
            let claim_end = (self.start + claim_end * self.block_size).min(range.end);
            if is_claimed {
                parts.lose(
                    run.fork,
                    in_fork(at)..in_fork(claim_end),
                    LossReason::Claimed,
                );
                at = claim_end;
                continue;
            }
            let free = match &self.free {
                Some(map) => map.free_from(at)?,
                None => None,
            };
            let free = free.filter(|free| free.start < claim_end);
            let used_end = free.as_ref().map_or(claim_end, |free| free.start.max(at));
            if used_end > at {
                parts.used = parts.used.saturating_add(used_end - at);
                parts.lose(run.fork, in_fork(at)..in_fork(used_end), LossReason::InUse);
                at = used_end;
                continue;
            }
            let free_end = free.map_or(claim_end, |free| free.end.min(claim_end));
            // The map returns ranges that are not empty; this ends the loop for any other.
            let free_end = free_end.max(at + 1).min(claim_end);
            while at < free_end {
                let extent = self.device.extent_at(at..free_end)?;
                let end = at + extent.len.clamp(1, free_end - at);
                match extent.kind {
                    ExtentKind::Hole => {
                        let lost = in_fork(at)..in_fork(end);
                        parts.lose(run.fork, lost, LossReason::Discarded);
                    }
                    _ => parts.free = parts.free.saturating_add(end - at),
                }
                at = end;
            }
        }
        Ok(())
    }
}
