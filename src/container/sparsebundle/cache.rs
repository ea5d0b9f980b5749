//! The bands met last, with their files open: bounded, and in shards so that threads on different
//! bands do not meet.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::BandIndex;
use super::slot::Slot;

/// Neighbouring bands fall in different shards.
pub(super) const SHARDS: usize = 16;

/// Slots by their band.
pub(super) struct SlotCache {
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
pub(super) struct CachedSlot {
    pub(super) slot: Arc<Slot>,
    pub(super) crowded: bool,
}

impl SlotCache {
    /// Room for about `most` slots.
    pub(super) fn new(most: usize) -> Self {
        Self {
            shards: Default::default(),
            most_per_shard: (most / SHARDS).max(1),
        }
    }

    fn shard(&self, index: BandIndex) -> &Shard {
        &self.shards[(index.0 % SHARDS as u64) as usize]
    }

    /// The slot of a band, made if there is none.
    pub(super) fn slot(&self, index: BandIndex) -> CachedSlot {
        let shard = self.shard(index);
        let now = shard.clock.load(Ordering::Relaxed);
        if let Some(slot) = shard
            .slots
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&index)
        {
            if slot.used.load(Ordering::Relaxed) != now {
                slot.used.store(now, Ordering::Relaxed);
            }
            return CachedSlot {
                slot: slot.clone(),
                crowded: false,
            };
        }
        let mut slots = shard.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .entry(index)
            .or_insert_with(|| Arc::new(Slot::new(index)))
            .clone();
        slot.used.store(
            shard.clock.fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        CachedSlot {
            slot,
            crowded: slots.len() > self.most_per_shard,
        }
    }

    /// Forgets the slots that were not used for long, in the shard of `index`, as far as nobody
    /// uses them and they are clean. Returns the one least recently used if that was none: it is to
    /// be flushed first.
    pub(super) fn forget_clean(&self, index: BandIndex) -> Option<Arc<Slot>> {
        let shard = self.shard(index);
        let long_ago = shard
            .clock
            .load(Ordering::Relaxed)
            .saturating_sub(self.most_per_shard as u64 * 7 / 8);
        let mut slots = shard.slots.write().unwrap_or_else(PoisonError::into_inner);
        let before = slots.len();
        let age = |slot: &Arc<Slot>| slot.used.load(Ordering::Relaxed);
        // One owner: the cache. With the shard locked nobody can become a second.
        let idle = |slot: &Arc<Slot>| Arc::strong_count(slot) == 1;
        slots.retain(|_, slot| age(slot) > long_ago || !idle(slot) || slot.is_dirty());
        if slots.len() < before {
            return None;
        }
        slots
            .values()
            .filter(|slot| idle(slot))
            .min_by_key(|slot| age(slot))
            .cloned()
    }

    /// Forgets a slot, unless somebody else uses it or it was changed again. `false`: it stays.
    pub(super) fn forget(&self, slot: Arc<Slot>) -> bool {
        let mut slots = self
            .shard(slot.index)
            .slots
            .write()
            .unwrap_or_else(PoisonError::into_inner);
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
            all.extend(
                shard
                    .slots
                    .read()
                    .unwrap_or_else(PoisonError::into_inner)
                    .values()
                    .cloned(),
            );
        }
        all
    }
}

impl fmt::Debug for SlotCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("slots", &self.all().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bands that share a shard.
    fn band(n: u64) -> BandIndex {
        BandIndex(n * SHARDS as u64)
    }

    #[test]
    fn slots_long_unused_go_at_once() {
        let cache = SlotCache::new(8 * SHARDS);
        let held = cache.slot(band(0)).slot;
        cache.slot(band(1)).slot.mark_dirty();
        for n in 2..8 {
            assert!(!cache.slot(band(n)).crowded);
        }
        assert!(cache.slot(band(8)).crowded);
        drop(cache.slot(band(2)));
        for n in 9..12 {
            drop(cache.slot(band(n)));
        }
        assert!(cache.forget_clean(band(5)).is_none());
        let mut left: Vec<_> = cache
            .all()
            .iter()
            .map(|slot| slot.index.0 / SHARDS as u64)
            .collect();
        left.sort();
        assert_eq!(
            left,
            [0, 1, 2, 5, 6, 7, 8, 9, 10, 11],
            "0 is in use, 1 is dirty, 2 was used since"
        );
        drop(held);
    }

    #[test]
    fn the_oldest_is_flushed_where_none_is_clean() {
        let cache = SlotCache::new(2 * SHARDS);
        for n in 0..3 {
            cache.slot(band(n)).slot.mark_dirty();
        }
        let oldest = cache.forget_clean(band(0)).unwrap();
        assert_eq!(oldest.index, band(0));
        assert!(!cache.forget(oldest.clone()), "dirty");
        assert_eq!(cache.all().len(), 3);
        drop(oldest);
        let clean = cache.slot(band(9)).slot;
        assert!(!cache.forget(clean.clone()), "in use twice");
        drop(clean);
        assert!(cache.forget(cache.slot(band(9)).slot));
    }
}
