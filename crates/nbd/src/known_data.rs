//! Where data is known to be, so that reads need not ask for holes again and again.
//!
//! Only *data* is remembered: what has become a hole meanwhile still reads right, as zeros. That is
//! why nothing has to be forgotten when something is written or discarded.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes remembered as one.
const GRAIN: u64 = 1 << 20;
/// How many grains are remembered at a time: those of 4 GiB.
const SLOTS: usize = 4096;

/// Grains that hold nothing but data, as far as remembered.
#[derive(Debug)]
pub(crate) struct KnownData {
    /// Each grain has one slot that it may be in; the slot holds the grain's number plus 1.
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
        &self.slots[(grain % SLOTS as u64) as usize]
    }

    /// Returns whether all of `range`, which is not empty, is known to be data.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        (range.start / GRAIN..=(range.end - 1) / GRAIN)
            .all(|grain| self.slot(grain).load(Ordering::Relaxed) == grain + 1)
    }

    /// `range` was found to be data.
    pub(crate) fn note(&self, range: &Range<u64>) {
        let grains = range.start.div_ceil(GRAIN)..range.end / GRAIN;
        // A disk's last grain is rarely whole; it is asked about each time.
        for grain in grains.take(SLOTS) {
            self.slot(grain).store(grain + 1, Ordering::Relaxed);
        }
    }

    /// What is worth asking about, on a device of `len` bytes, before reading at `offset`: from the
    /// beginning of its grain as far as can be remembered.
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
        known.note(&(1..3 * GRAIN));
        assert!(!known.covers(&(0..10)));
        assert!(known.covers(&(GRAIN..3 * GRAIN)));
        assert!(!known.covers(&(GRAIN..3 * GRAIN + 1)));
        // Another grain takes the slot.
        let far = (SLOTS as u64 + 1) * GRAIN;
        known.note(&(far..far + GRAIN));
        assert!(known.covers(&(far..far + 1)) && !known.covers(&(GRAIN..GRAIN + 1)));
        known.note(&(0..u64::MAX));
    }

    #[test]
    fn what_is_asked_about() {
        assert_eq!(KnownData::around(GRAIN + 5, 10 * GRAIN), GRAIN..10 * GRAIN);
        assert_eq!(KnownData::around(5, 1 << 50), 0..4 << 30);
    }
}
