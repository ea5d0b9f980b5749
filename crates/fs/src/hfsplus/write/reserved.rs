//! Reservation of blocks for files that grow in small steps, so that files that grow alternately
//! are not interleaved and fragmented.
//!
//! Reserved blocks are free in the bitmap and in all counts. Only the search for free blocks in
//! memory skips them; nothing is stored, so a crash loses no space. If free blocks are short, all
//! reservations are dropped.

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

use crate::hfsplus::layout::{AllocBlock, Cnid, Extent};

/// Minimum and maximum number of bytes reserved for a file; within these, as many as it has.
const AHEAD: Range<u64> = 64 << 10..8 << 20;

/// A fork: file number and fork type.
pub(super) type ForkId = (Cnid, u8);

/// The reservations: at most one run of blocks for each fork.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// Runs, from start to end; disjoint.
    runs: BTreeMap<u32, u32>,
    starts: HashMap<ForkId, u32>,
}

impl Reservations {
    /// Reserves `run` for a fork, and drops its previous reservation. `run` must not overlap other
    /// reservations.
    pub(super) fn reserve(&mut self, owner: ForkId, run: Range<u32>) {
        self.give_up(owner);
        if !run.is_empty() {
            self.starts.insert(owner, run.start);
            self.runs.insert(run.start, run.end);
        }
    }

    /// Drops the reservation of a fork.
    pub(super) fn give_up(&mut self, owner: ForkId) {
        if let Some(start) = self.starts.remove(&owner) {
            self.runs.remove(&start);
        }
    }

    /// Drops all reservations.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Passes the parts of a free run to `each` that are not reserved for forks other than `owner`.
    pub(super) fn around(
        &self,
        run: Extent,
        owner: Option<ForkId>,
        each: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let own = owner.and_then(|owner| self.starts.get(&owner));
        let (mut at, end) = (run.start.0, run.start.0 + run.count);
        let before = self
            .runs
            .range(..at)
            .next_back()
            .filter(|(_, until)| **until > at);
        let others = before
            .into_iter()
            .chain(self.runs.range(at..end))
            .filter(|(start, _)| Some(*start) != own);
        for (start, until) in others
            .map(|(start, until)| (*start, *until))
            .chain([(end, end)])
        {
            if start > at {
                each(Extent {
                    start: AllocBlock(at),
                    count: start - at,
                })?;
            }
            at = at.max(until);
        }
        ControlFlow::Continue(())
    }
}

/// Returns the number of blocks to reserve for a fork of `have` blocks on a volume with `free` free
/// blocks.
pub(super) fn ahead(have: u32, free: u32, block_size: u32) -> u32 {
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(block_size)).unwrap_or(u32::MAX);
    // If free space is short, reservations are small.
    have.clamp(
        blocks(AHEAD.start),
        blocks(AHEAD.end).max(blocks(AHEAD.start)),
    )
    .min(free / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ForkId = (Cnid(20), 0);
    const OTHER: ForkId = (Cnid(21), 0);

    fn around(reserved: &Reservations, run: Range<u32>, owner: Option<ForkId>) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let run = Extent {
            start: AllocBlock(run.start),
            count: run.end - run.start,
        };
        let _ = reserved.around(run, owner, &mut |part| {
            found.push((part.start.0, part.start.0 + part.count));
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn reserved_blocks_are_stepped_over() {
        let mut reserved = Reservations::default();
        reserved.reserve(ONE, 10..20);
        reserved.reserve(OTHER, 30..40);
        assert_eq!(
            around(&reserved, 0..50, None),
            [(0, 10), (20, 30), (40, 50)]
        );
        assert_eq!(around(&reserved, 15..35, None), [(20, 30)]);
        assert_eq!(around(&reserved, 12..18, None), []);
        assert_eq!(around(&reserved, 0..50, Some(ONE)), [(0, 30), (40, 50)]);
        reserved.reserve(ONE, 12..14);
        assert_eq!(
            around(&reserved, 0..50, None),
            [(0, 12), (14, 30), (40, 50)]
        );
        reserved.give_up(OTHER);
        assert_eq!(around(&reserved, 13..50, None), [(14, 50)]);
        reserved.clear();
        assert!(reserved.is_empty());
        assert_eq!(around(&reserved, 0..50, None), [(0, 50)]);
    }

    #[test]
    fn no_more_is_kept_than_a_file_has_and_a_volume_can_spare() {
        assert_eq!(ahead(1, 1 << 20, 4096), 16);
        assert_eq!(ahead(100, 1 << 20, 4096), 100);
        assert_eq!(ahead(1 << 20, 1 << 20, 4096), 2048);
        assert_eq!(ahead(100, 160, 4096), 10);
        assert_eq!(
            ahead(100, 1 << 20, 1 << 24),
            0,
            "a block is more than is kept"
        );
    }
}
