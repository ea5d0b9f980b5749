//! The bands met last, with their files open: bounded, and in shards so that threads on different bands do not meet.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::BandIndex;
use super::slot::Slot;

/// Neighbouring bands fall in different shards.
pub(super) const SHARDS: usize = 16;

/// Slots by their band.
pub(super) struct Cache {
    shards: [Shard; SHARDS],
    most_per_shard: usize,
}

#[derive(Default)]
struct Shard {
    slots: RwLock<HashMap<BandIndex, Arc<Slot>>>,
    /// Counts insertions: the age of a slot is how many came after its last use.
    clock: AtomicU64,
}

/// A slot, and whether its shard holds more than it should.
pub(super) struct Found {
    pub(super) slot: Arc<Slot>,
    pub(super) crowded: bool,
}

impl Cache {
    /// Room for about `most` slots.
    pub(super) fn new(most: usize) -> Self {
        Self { shards: Default::default(), most_per_shard: (most / SHARDS).max(1) }
    }

    fn shard(&self, index: BandIndex) -> &Shard {
        &self.shards[(index.0 % SHARDS as u64) as usize]
    }

    /// The slot of a band, made if there is none.
    pub(super) fn slot(&self, index: BandIndex) -> Found {
        let shard = self.shard(index);
        let now = shard.clock.load(Ordering::Relaxed);
        if let Some(slot) = shard.slots.read().unwrap_or_else(PoisonError::into_inner).get(&index) {
            if slot.used.load(Ordering::Relaxed) != now {
                slot.used.store(now, Ordering::Relaxed);
            }
            return Found { slot: slot.clone(), crowded: false };
        }
        let mut slots = shard.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.entry(index).or_insert_with(|| Arc::new(Slot::new(index))).clone();
        slot.used.store(shard.clock.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Found { slot, crowded: slots.len() > self.most_per_shard }
    }

    /// The slot least recently used of those that nobody uses, in the shard of `index`.
    pub(super) fn oldest_idle(&self, index: BandIndex) -> Option<Arc<Slot>> {
        let slots = self.shard(index).slots.read().unwrap_or_else(PoisonError::into_inner);
        let idle = slots.values().filter(|slot| Arc::strong_count(slot) == 1);
        idle.min_by_key(|slot| slot.used.load(Ordering::Relaxed)).cloned()
    }

    /// Forgets a slot, unless somebody else uses it or it was changed again. `false`: it stays.
    pub(super) fn forget(&self, slot: Arc<Slot>) -> bool {
        let mut slots = self.shard(slot.index).slots.write().unwrap_or_else(PoisonError::into_inner);
        // Two: the cache's and ours. With the shard locked nobody can get a third.
        let idle = Arc::strong_count(&slot) == 2 && !slot.is_dirty();
        if idle {
            slots.remove(&slot.index);
        }
        idle
    }

    /// All slots.
    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.slots.read().unwrap_or_else(PoisonError::into_inner).values().cloned());
        }
        all
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("slots", &self.all().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_idle_slot_goes_first() {
        let cache = Cache::new(3 * SHARDS);
        let band = |n: u64| BandIndex(n * SHARDS as u64);
        let first = cache.slot(band(0)).slot;
        for n in 1..3 {
            assert!(!cache.slot(band(n)).crowded);
        }
        drop(cache.slot(band(1)));
        assert!(cache.slot(band(3)).crowded);
        drop(cache.slot(band(1)));
        let oldest = cache.oldest_idle(band(9)).unwrap();
        assert_eq!(oldest.index, band(2), "0 is in use, 1 was used since");
        assert!(cache.forget(oldest));
        let used = cache.slot(band(1)).slot;
        assert!(!cache.forget(used.clone()), "in use");
        drop(used);
        let dirty = cache.slot(band(3)).slot;
        dirty.mark_dirty();
        assert!(!cache.forget(dirty), "not flushed");
        assert_eq!(cache.all().len(), 3);
        drop(first);
    }
}
