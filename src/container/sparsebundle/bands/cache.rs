//! A cache of recently used bands with their open files. It is bounded, and sharded to reduce lock
//! contention between threads on different bands.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::BandIndex;
use super::slot::Slot;
use crate::size::to_usize;
use crate::sync::RwLock;

/// Number of shards. Adjacent bands are in different shards.
pub(super) const SHARDS: usize = 16;

/// The cached slots, by band.
pub(super) struct SlotCache {
    shards: [Shard; SHARDS],
    max_per_shard: usize,
}

#[derive(Default)]
struct Shard {
    slots: RwLock<HashMap<BandIndex, Arc<Slot>>>,
    /// Number of insertions; a slot's age is the number of insertions since its last use.
    clock: AtomicU64,
}

/// A slot; `crowded` is true if its shard exceeds its limit.
pub(super) struct CachedSlot {
    pub(super) slot: Arc<Slot>,
    pub(super) crowded: bool,
}

impl SlotCache {
    /// Creates a cache of about `most` slots.
    pub(super) fn new(most: usize) -> Self {
        Self {
            shards: Default::default(),
            max_per_shard: (most / SHARDS).max(1),
        }
    }

    fn shard(&self, index: BandIndex) -> &Shard {
        &self.shards[to_usize(index.0 % SHARDS as u64)]
    }

    /// Returns the slot of a band; creates it if necessary.
    pub(super) fn slot(&self, index: BandIndex) -> CachedSlot {
        let shard = self.shard(index);
        let now = shard.clock.load(Ordering::Relaxed);
        if let Some(slot) = shard.slots.read().get(&index) {
            slot.touch(now);
            return CachedSlot {
                slot: slot.clone(),
                crowded: false,
            };
        }
        let mut slots = shard.slots.write();
        let slot = slots
            .entry(index)
            .or_insert_with(|| Arc::new(Slot::new(index)))
            .clone();
        slot.touch(shard.clock.fetch_add(1, Ordering::Relaxed) + 1);
        CachedSlot {
            slot,
            crowded: slots.len() > self.max_per_shard,
        }
    }

    /// Evicts the clean, unused slots of the shard of `index` that are old. If there are none,
    /// returns the least recently used idle slot, which the caller must flush first.
    pub(super) fn evict_clean(&self, index: BandIndex) -> Option<Arc<Slot>> {
        let shard = self.shard(index);
        let long_ago = shard
            .clock
            .load(Ordering::Relaxed)
            .saturating_sub(self.max_per_shard as u64 * 7 / 8);
        let mut slots = shard.slots.write();
        let before = slots.len();
        let age = |slot: &Arc<Slot>| slot.last_use();
        // The only owner is the cache. The shard is locked, so no other can appear.
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

    /// Evicts a slot unless it is in use or dirty again. Returns true if it was evicted.
    pub(super) fn evict(&self, slot: Arc<Slot>) -> bool {
        let mut slots = self.shard(slot.index()).slots.write();
        // The two owners are the cache and this function. The shard is locked, so no third can
        // appear.
        let idle = Arc::strong_count(&slot) == 2 && !slot.is_dirty();
        if idle {
            slots.remove(&slot.index());
        }
        idle
    }

    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.slots.read().values().cloned());
        }
        all
    }
}

impl fmt::Debug for SlotCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotCache")
            .field("slots", &self.all().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a band of shard 0.
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
        assert!(cache.evict_clean(band(5)).is_none());
        let mut left: Vec<_> = cache
            .all()
            .iter()
            .map(|slot| slot.index().0 / SHARDS as u64)
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
        let oldest = cache.evict_clean(band(0)).unwrap();
        assert_eq!(oldest.index(), band(0));
        assert!(!cache.evict(oldest.clone()), "dirty");
        assert_eq!(cache.all().len(), 3);
        drop(oldest);
        let clean = cache.slot(band(9)).slot;
        assert!(!cache.evict(clean.clone()), "in use twice");
        drop(clean);
        assert!(cache.evict(cache.slot(band(9)).slot));
    }
}
