//! Eviction: clean pages are dropped, dirty ones are moved to the local disk or to the store.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cache::Cache;
use super::file::File;
use super::pages::PAGE;
use super::shared::{NameState, Shared};
use crate::Result;

/// A dirty part, with the time of its last use.
struct DirtyPart {
    used: u64,
    file: Arc<File>,
    index: u64,
    /// All of it is in memory: storing it costs one request, and further writes are unlikely.
    is_whole: bool,
}

/// Bytes besides pages that count as memory until this is dropped.
pub(super) struct MemoryCharge<'a>(&'a Shared, i64);

impl Drop for MemoryCharge<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Counts bytes that are temporarily in memory.
    pub(super) fn in_memory(&self, bytes: u64) -> MemoryCharge<'_> {
        self.used.fetch_add(bytes as i64, Ordering::Relaxed);
        MemoryCharge(self, bytes as i64)
    }

    /// Evicts the least recently used pages, if there are too many.
    pub(super) fn evict(&self) {
        if self.used.load(Ordering::Relaxed) <= self.memory as i64 {
            return;
        }
        let Some(_one_at_a_time) = self.pressure.try_lock() else {
            return;
        };
        let files = self.open_files();
        let mut used: Vec<u64> = Vec::new();
        for file in &files {
            let pages = file.pages();
            let elsewhere = pages.pages.values().filter(|page| page.is_elsewhere());
            used.extend(elsewhere.map(|page| page.used.load(Ordering::Relaxed)));
        }
        used.sort_unstable();
        // An eighth is evicted at a time, to avoid a search for each page.
        let Some(before) = used.get(used.len() / 8) else {
            return;
        };
        for file in &files {
            let count = file.pages_mut().forget_used_before(before + 1);
            self.count(count);
        }
        drop(files);
        self.forget_files();
    }

    /// Forgets files that are not open and of which nothing is in memory.
    fn forget_files(&self) {
        for name in self.live().values_mut() {
            if let NameState::Open(file) = name
                && Arc::strong_count(file) == 1
                && !file.dirty_names.load(Ordering::SeqCst)
                && !file.noted_locally.load(Ordering::SeqCst)
                && file.pages().pages.is_empty()
            {
                let base = Arc::new(file.pages().base.clone());
                *name = NameState::Known(base);
            }
        }
    }

    /// Returns true, first, if dirty memory has reached its limit, and second, if the bytes on the
    /// local disk that are not in the store have.
    fn is_full(&self) -> (bool, bool) {
        let spilled = self.spilled.load(Ordering::Relaxed);
        let half = (self.memory / 2) as i64;
        let is_full_of = |cache: &Cache| cache.is_full_of(spilled);
        (
            self.dirty.load(Ordering::Relaxed) >= half,
            self.cache.as_ref().is_some_and(is_full_of),
        )
    }

    /// Returns the dirty parts, the oldest first, without the quarter that was written last, which
    /// is likely to be written again.
    fn dirty_parts(&self) -> Vec<DirtyPart> {
        let mut parts = Vec::new();
        for file in self.open_files() {
            let pages = file.pages();
            for index in &pages.dirty {
                let per_part = self.part / PAGE;
                let (mut used, mut count) = (0, 0);
                for (_, page) in pages.pages.range(index * per_part..(index + 1) * per_part) {
                    used = used.max(page.used.load(Ordering::Relaxed));
                    count += u64::from(page.is_memory_only());
                }
                let len = pages
                    .base
                    .len
                    .saturating_sub(index * self.part)
                    .min(self.part);
                parts.push(DirtyPart {
                    used,
                    file: file.clone(),
                    index: *index,
                    is_whole: count == len.div_ceil(PAGE),
                });
            }
        }
        parts.sort_by_key(|part| Reverse(part.used));
        let last = parts.len().div_ceil(4);
        parts.drain(..last.min(parts.len().saturating_sub(1)));
        parts.reverse();
        parts
    }

    /// Stores completely written parts in the background, once a quarter of the memory is dirty.
    /// Does nothing if there is a cache, which receives them first.
    pub(super) fn store_behind(self: &Arc<Self>) {
        let dirty = self.dirty.load(Ordering::Relaxed);
        if dirty < (self.memory / 4) as i64
            || dirty < self.behind.load(Ordering::Relaxed)
            || self.cache.is_some()
        {
            return;
        }
        self.behind
            .store(dirty + (self.part / 2) as i64, Ordering::Relaxed);
        for DirtyPart { file, index, .. } in
            self.dirty_parts().into_iter().filter(|part| part.is_whole)
        {
            let shared = self.clone();
            let store = move || {
                // The next flush reports an error: the part is dirty then.
                let _ = file.store_part(&shared, index);
                shared.behind.store(0, Ordering::Relaxed);
                drop(file);
                shared.evict();
            };
            if !self.writers.begin(self.connections, store) {
                return;
            }
        }
    }

    /// Waits until there is room for more dirty data: memory is written to the local disk, and that
    /// to the store. A thread that writes faster than the store accepts takes part in storing.
    pub(super) fn make_room(&self) -> Result<()> {
        self.evict();
        loop {
            if self.is_full() == (false, false) {
                return Ok(());
            }
            if !self.writers.wait_for_one() {
                break;
            }
        }
        {
            let _one_at_a_time = self.pressure.lock();
            let (memory_is_full, disk_is_full) = self.is_full();
            if !memory_is_full && !disk_is_full {
                return Ok(());
            }
            let parts: Vec<_> = self
                .dirty_parts()
                .into_iter()
                .map(|part| (part.file, part.index))
                .collect();
            let cache = self.cache.as_ref().filter(|_| !disk_is_full);
            let is_spilled = cache.is_some_and(|cache| {
                parts
                    .iter()
                    .all(|(file, index)| file.spill(self, cache, *index))
            });
            if !is_spilled {
                self.store_parts(&parts)?;
            }
        }
        self.evict();
        Ok(())
    }
}
