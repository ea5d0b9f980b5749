//! A bounded write-back cache of metadata: changed values stay until they are written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

/// Values by key. Above `limit`, values that were not used recently are evicted.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    slots: HashMap<K, Slot<V>>,
    /// Keys in the order in which the eviction visits them.
    clock: VecDeque<K>,
    /// Keys of values that differ from the disk (dirty).
    changed: HashSet<K>,
    /// Keys of values that are being written; until that is done, they must not be read from the
    /// disk.
    writing: HashSet<K>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    used: AtomicBool,
}

impl<K: Copy + Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            slots: HashMap::new(),
            clock: VecDeque::new(),
            changed: HashSet::new(),
            writing: HashSet::new(),
            limit,
        }
    }

    /// Returns the maximum number of values, not counting dirty ones.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) fn get(&self, key: K) -> Option<&V> {
        let slot = self.slots.get(&key)?;
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed); // written only when it changes: many threads come by
        }
        Some(&slot.value)
    }

    /// Inserts a value that equals the one on disk.
    pub(super) fn insert(&mut self, key: K, value: V) {
        self.make_room();
        if self.clock.len() > 2 * self.limit.max(self.slots.len()) {
            self.clock = self.slots.keys().copied().collect(); // without the keys of values that were removed
        }
        if self
            .slots
            .insert(
                key,
                Slot {
                    value,
                    used: AtomicBool::new(false),
                },
            )
            .is_none()
        {
            self.clock.push_back(key);
        }
    }

    /// Returns a cached value for a change and marks it dirty.
    pub(super) fn change(&mut self, key: K) -> Option<&mut V> {
        let slot = self.slots.get_mut(&key)?;
        self.changed.insert(key);
        *slot.used.get_mut() = true;
        Some(&mut slot.value)
    }

    /// Returns a cached value for a change that does not affect the disk.
    pub(super) fn adjust(&mut self, key: K) -> Option<&mut V> {
        self.slots.get_mut(&key).map(|slot| &mut slot.value)
    }

    /// Returns all values for changes that do not affect the disk.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.values_mut().map(|slot| &mut slot.value)
    }

    /// Removes a value, dirty or not.
    pub(super) fn remove(&mut self, key: K) {
        self.slots.remove(&key);
        self.changed.remove(&key);
    }

    pub(super) fn changed(&self) -> impl Iterator<Item = (K, &V)> {
        self.changed
            .iter()
            .filter_map(|key| Some((*key, &self.slots.get(key)?.value)))
    }

    pub(super) fn count_changed(&self) -> usize {
        self.changed.len()
    }

    /// Returns the dirty values and marks them as being written.
    pub(super) fn take_changed(&mut self) -> Vec<(K, V)> {
        let taken: Vec<(K, V)> = self
            .changed()
            .map(|(key, value)| (key, value.clone()))
            .collect();
        self.writing.extend(self.changed.drain());
        taken
    }

    /// Marks the values that were being written as written.
    pub(super) fn written(&mut self) {
        self.writing.clear();
    }

    fn make_room(&mut self) {
        let mut tries = 2 * self.clock.len();
        while self.slots.len() >= self.limit && tries > 0 {
            tries -= 1;
            let Some(key) = self.clock.pop_front() else {
                return;
            };
            let Some(slot) = self.slots.get_mut(&key) else {
                continue;
            };
            let was_used = std::mem::take(slot.used.get_mut());
            if was_used || self.changed.contains(&key) || self.writing.contains(&key) {
                self.clock.push_back(key);
            } else {
                self.slots.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_tables_stay() {
        let mut cache = Cache::new(4);
        for key in 0..100 {
            cache.insert(key, key);
            if key % 50 == 0 {
                *cache.change(key).unwrap() += 1000;
            }
        }
        assert!(cache.slots.len() <= 4 && cache.clock.len() <= 5);
        assert_eq!(
            (cache.get(0), cache.get(50), cache.get(1)),
            (Some(&1000), Some(&1050), None)
        );
        assert_eq!(cache.take_changed().len(), 2);
        (200..300).for_each(|key| cache.insert(key, key));
        assert_eq!(cache.get(50), Some(&1050), "not on disk yet");
        cache.written();
        (300..400).for_each(|key| cache.insert(key, key));
        assert_eq!((cache.get(0), cache.count_changed()), (None, 0));
    }

    #[test]
    fn tables_in_use_stay_longer() {
        let mut cache = Cache::new(3);
        for key in 0..50 {
            cache.insert(key, key);
            assert!(cache.get(0).is_some(), "asked for all the time");
        }
        cache.remove(0);
        assert_eq!(cache.get(0), None);
        for key in 0..1000 {
            cache.insert(key, key);
            cache.remove(key);
        }
        assert!(cache.clock.len() < 10, "removed keys are remembered");
    }
}
