//! The internal pool, which holds the space manager's own blocks in several versions, and the ring
//! of its bitmaps.

use std::ops::Range;

use super::{CheckedSpace, LAYER};
use crate::apfs::check::report::{Report, wrong};
use crate::apfs::layout::{NO_SLOT, Paddr};
use crate::bitmap::{run_at, set_bits};
use bandsaw_core::Result;
use bandsaw_core::size::{narrow, to_usize};

/// The used blocks of the pool.
#[derive(Debug)]
pub(super) struct Pool {
    /// Blocks of the pool.
    pub(super) run: Range<u64>,
    /// Bitmap of the blocks that are used or queued.
    used: Vec<u8>,
}

impl Pool {
    /// Returns a pool, which must be within the container.
    pub(super) fn new(run: Range<u64>) -> Self {
        // Small: the pool has three blocks for each 32768 of the container.
        let used = vec![0; to_usize((run.end - run.start).div_ceil(8))];
        Self { run, used }
    }

    /// Marks blocks of the pool that are in its free queue.
    pub(super) fn queue(&mut self, run: Range<u64>, report: &mut Report<'_>) {
        self.mark(run, "is in its free queue twice", report);
    }

    /// Marks a block as used. Returns false if it is not in the pool.
    pub(super) fn mark_used(&mut self, block: u64, report: &mut Report<'_>) -> bool {
        let inside = self.run.contains(&block);
        if inside {
            self.mark(
                block..block + 1,
                "is used twice, or in the free queue",
                report,
            );
        }
        inside
    }

    fn mark(&mut self, run: Range<u64>, twice: &str, report: &mut Report<'_>) {
        let bits = to_usize(run.start - self.run.start)..to_usize(run.end - self.run.start);
        if run_at(&self.used, bits.start, bits.end) != (false, bits.end) {
            report.damage(wrong(
                LAYER,
                format!("block {} of the pool, or one after it, {twice}", run.start),
            ));
        }
        set_bits(&mut self.used, bits);
    }
}

impl CheckedSpace<'_> {
    /// Compares the pool's own bitmaps with its used blocks, and checks the list of the ring's free
    /// slots.
    pub(super) fn check_pool(&self, report: &mut Report<'_>) -> Result<()> {
        let slots = self.slots(report);
        self.check_free_slots(&slots, report);
        let per_block = self.store.block_size.bytes();
        let mut wrong_from = None;
        for (index, slot) in slots.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            let block =
                self.store
                    .read(LAYER, Paddr(self.head.ring_base.get() + u64::from(slot)), 1)?;
            let expected = self.pool.used.get(index * per_block..).unwrap_or_default();
            for (at, found) in block.iter().enumerate() {
                let differs = *found ^ expected.get(at).copied().unwrap_or(0);
                if differs != 0 && wrong_from.is_none() {
                    let bit =
                        (index * per_block + at) as u64 * 8 + u64::from(differs.trailing_zeros());
                    wrong_from = Some((bit, *found & (1 << differs.trailing_zeros()) != 0));
                }
            }
        }
        if let Some((bit, marked)) = wrong_from {
            let block = self.pool.run.start + bit;
            match marked {
                true => report.warning(wrong(
                    LAYER,
                    format!("block {block} of the pool is marked as used, but nothing uses it"),
                )),
                false => report.damage(wrong(
                    LAYER,
                    format!("block {block} of the pool is in use, but marked as free"),
                )),
            }
        }
        Ok(())
    }

    /// Returns the slot of each of the pool's bitmaps.
    fn slots(&self, report: &mut Report<'_>) -> Vec<Option<u16>> {
        let bitmaps = u64::from(self.head.pool_bitmap_blocks.get());
        let needed = (self.pool.run.end - self.pool.run.start)
            .div_ceil(8 * u64::from(self.store.block_size.get()));
        (0..narrow::<u32>(bitmaps.min(needed)))
            .map(|index| {
                let slot = self.array16(self.head.pool_slots.get(), index);
                let slot = slot.filter(|&slot| u32::from(slot) < self.head.ring_blocks.get());
                if slot.is_none() {
                    report.damage(wrong(
                        LAYER,
                        format!("the pool's bitmap {index} has no slot in the ring"),
                    ));
                }
                let xid = self.array64(self.head.pool_xids.get(), index.into());
                if xid.is_none_or(|xid| xid == 0 || xid > self.xid.0) {
                    report.warning(wrong(
                        LAYER,
                        format!(
                            "bitmap {index} of the pool has an invalid transaction number: \
                             expected 1 to {}, the newest",
                            self.xid
                        ),
                    ));
                }
                slot
            })
            .collect()
    }

    /// Checks that the unused slots form one list.
    fn check_free_slots(&self, slots: &[Option<u16>], report: &mut Report<'_>) {
        let all = self.head.ring_blocks.get();
        let mut seen = vec![false; all as usize];
        for slot in slots.iter().flatten() {
            if std::mem::replace(&mut seen[usize::from(*slot)], true) {
                report.damage(wrong(
                    LAYER,
                    format!("slot {slot} of the ring holds two bitmaps of the pool"),
                ));
            }
        }
        let next = |slot: u16| self.array16(self.head.ring_free_next.get(), slot.into());
        let (mut at, mut last) = (self.head.ring_free_head.get(), NO_SLOT);
        while at != NO_SLOT {
            // Each slot occurs once, so the loop ends.
            match seen.get_mut(usize::from(at)) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    return report.damage(wrong(
                        LAYER,
                        format!("the list of free slots points to {at}, which is not free"),
                    ));
                }
            }
            last = at;
            at = next(at).unwrap_or(NO_SLOT);
        }
        if last != self.head.ring_free_tail.get() {
            let message = format!(
                "the list of free slots ends with {last}, expected {}",
                self.head.ring_free_tail
            );
            report.warning(wrong(LAYER, message));
        }
        if let Some(lost) = seen.iter().position(|seen| !seen) {
            report.warning(wrong(
                LAYER,
                format!("slot {lost} of the ring is neither used nor in the list of free ones"),
            ));
        }
    }
}
