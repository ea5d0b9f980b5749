//! Eviction: clean pages are dropped, dirty ones are moved to the local disk or to the store.

use std::cmp::Reverse;
use std::sync::Arc;

use super::buffers::PAGE;
use super::cache::Cache;
use super::file::File;
use super::names::NameState;
use super::remote_state::RemoteState;
use crate::Result;

/// A dirty part, with the time of its last use.
struct DirtyPart {
    used: u64,
    file: Arc<File>,
    index: u64,
    /// All of it is in memory: storing it costs one request, and further writes are unlikely.
    is_whole: bool,
}

impl RemoteState {
    /// Evicts the least recently used pages, if there are too many.
    pub(super) fn evict(&self) {
        if !self.page_cache.is_exceeded() {
            return;
        }
        let Some(_one_at_a_time) = self.page_cache.try_pressure() else {
            return;
        };
        let files = self.names.open_files();
        let mut used: Vec<u64> = Vec::new();
        for file in &files {
            let pages = file.pages();
            let elsewhere = pages.pages.values().filter(|page| page.is_elsewhere());
            used.extend(elsewhere.map(|page| page.last_use.get()));
        }
        used.sort_unstable();
        // An eighth is evicted at a time, to avoid a search for each page.
        let Some(before) = used.get(used.len() / 8) else {
            return;
        };
        for file in &files {
            file.pages_mut().evict_used_before(before + 1);
        }
        drop(files);
        self.forget_files();
    }

    /// Forgets files that are not open and of which nothing is in memory.
    fn forget_files(&self) {
        for name in self.names.live().values_mut() {
            if let NameState::Open(file) = name
                && Arc::strong_count(file) == 1
                && !file.listed().is_any()
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
        let spilled = self.page_cache.spilled();
        let is_full_of = |cache: &Cache| cache.is_full_of(spilled);
        (
            self.page_cache.is_dirty_full(),
            self.cache.as_ref().is_some_and(is_full_of),
        )
    }

    /// Returns the dirty parts, the oldest first, without the quarter that was written last, which
    /// is likely to be written again.
    fn dirty_parts(&self) -> Vec<DirtyPart> {
        let mut parts = Vec::new();
        for file in self.names.open_files() {
            let pages = file.pages();
            for index in &pages.dirty {
                let (mut used, mut count) = (0, 0);
                for (_, page) in pages.pages.range(self.page_cache.pages_of(*index)) {
                    used = used.max(page.last_use.get());
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
        if self.cache.is_some() || !self.page_cache.begin_search(self.part / 2) {
            return;
        }
        for DirtyPart { file, index, .. } in
            self.dirty_parts().into_iter().filter(|part| part.is_whole)
        {
            let shared = self.clone();
            let store = move || {
                // The next flush reports an error: the part is dirty then.
                let _ = file.store_part(&shared, index);
                shared.page_cache.permit_search();
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
            let _one_at_a_time = self.page_cache.pressure();
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
