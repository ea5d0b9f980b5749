//! Cache of ranges known to be data, so that reads need not query the extents each time.
//!
//! Only *data* is cached: a range that has become a hole meanwhile still reads correctly, as zeros.
//! So writes and discards need not invalidate anything.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bandsaw::size::to_usize;

/// Granularity of the cache, in bytes.
const GRAIN: u64 = 1 << 20;
/// Number of cached grains: those of 4 GiB.
const SLOTS: usize = 4096;

/// Cache of grains that contain only data.
#[derive(Debug)]
pub(crate) struct KnownData {
    /// Direct-mapped slots; each contains the number of a grain plus 1, or 0.
    slots: Box<[AtomicU64]>,
}

impl Default for KnownData {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl KnownData {
    fn slot(&self, grain: u64) -> &AtomicU64 {
        &self.slots[to_usize(grain % SLOTS as u64)]
    }

    /// Returns true if all of `range`, which is not empty, is known to be data.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        (range.start / GRAIN..=(range.end - 1) / GRAIN)
            .all(|grain| self.slot(grain).load(Ordering::Relaxed) == grain + 1)
    }

    /// Records that `range` is data.
    pub(crate) fn insert(&self, range: &Range<u64>) {
        let grains = range.start.div_ceil(GRAIN)..range.end / GRAIN;
        // Partial grains, such as a disk's last, are not cached.
        for grain in grains.take(SLOTS) {
            self.slot(grain).store(grain + 1, Ordering::Relaxed);
        }
    }

    /// Returns the range to query before reading at `offset`, on a device of `len` bytes: from the
    /// start of its grain to as far as the cache reaches.
    pub(crate) fn around(offset: u64, len: u64) -> Range<u64> {
        let start = offset - offset % GRAIN;
        start..start.saturating_add(GRAIN * SLOTS as u64).min(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_grains_are_known() {
        let known = KnownData::default();
        known.insert(&(1..3 * GRAIN));
        assert!(!known.covers(&(0..10)));
        assert!(known.covers(&(GRAIN..3 * GRAIN)));
        assert!(!known.covers(&(GRAIN..3 * GRAIN + 1)));
        // Another grain maps to the same slot.
        let far = (SLOTS as u64 + 1) * GRAIN;
        known.insert(&(far..far + GRAIN));
        assert!(known.covers(&(far..far + 1)) && !known.covers(&(GRAIN..GRAIN + 1)));
        known.insert(&(0..u64::MAX));
    }

    #[test]
    fn queries_are_rounded_to_whole_grains() {
        assert_eq!(KnownData::around(GRAIN + 5, 10 * GRAIN), GRAIN..10 * GRAIN);
        assert_eq!(KnownData::around(5, 1 << 50), 0..4 << 30);
    }
}
