//! The memory of a bundle for pages of all files, with one budget.

use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::buffers::{Buffers, PAGE};
use crate::sync::{Mutex, MutexGuard};

/// Byte counts of a page, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ByteCounts {
    /// Bytes in memory.
    pub(super) used: i64,
    /// Bytes in memory that are stored nowhere else.
    pub(super) dirty: i64,
    /// Bytes on the local disk that are not in the store.
    pub(super) spilled: i64,
}

/// Returns a number of bytes as a counter has it.
pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The bytes that a bundle has in memory, and their limit.
#[derive(Debug)]
pub(super) struct PageCache {
    /// Bytes of a part.
    part: u64,
    buffers: Buffers,
    /// Approximate maximum number of bytes in memory.
    limit: u64,
    /// Bytes in memory, and bytes of those that are stored nowhere else.
    used: AtomicI64,
    dirty: AtomicI64,
    /// Bytes on the local disk that are not in the store.
    spilled: AtomicI64,
    /// The amount of dirty memory at which completely written parts are searched again.
    next_search: AtomicI64,
    clock: AtomicU64,
    /// Held by the thread that makes room.
    pressure: Mutex<()>,
}

/// Bytes besides pages that count as memory until this is dropped.
pub(super) struct MemoryCharge<'a>(&'a PageCache, i64);

impl Drop for MemoryCharge<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl PageCache {
    /// Creates a cache of approximately `limit` bytes, for files in parts of `part` bytes.
    pub(super) fn new(limit: u64, part: u64) -> Self {
        Self {
            part,
            buffers: Buffers::default(),
            limit: limit.max(64 * PAGE),
            used: AtomicI64::new(0),
            dirty: AtomicI64::new(0),
            spilled: AtomicI64::new(0),
            next_search: AtomicI64::new(0),
            clock: AtomicU64::new(0),
            pressure: Mutex::default(),
        }
    }

    /// Returns the number of bytes of a part.
    pub(super) fn part(&self) -> u64 {
        self.part
    }

    /// Returns the numbers of the pages of a part.
    pub(super) fn pages_of(&self, part: u64) -> Range<u64> {
        let per_part = self.part / PAGE;
        part * per_part..(part + 1) * per_part
    }

    /// Returns the pool of memory for pages.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Records that pages which counted as `before` count as `after`.
    pub(super) fn count(&self, before: ByteCounts, after: ByteCounts) {
        let add = |count: &AtomicI64, change| {
            if change != 0 {
                count.fetch_add(change, Ordering::Relaxed);
            }
        };
        add(&self.used, after.used - before.used);
        add(&self.dirty, after.dirty - before.dirty);
        add(&self.spilled, after.spilled - before.spilled);
    }

    /// Counts bytes that are temporarily in memory.
    pub(super) fn charge(&self, bytes: u64) -> MemoryCharge<'_> {
        self.used.fetch_add(signed(bytes), Ordering::Relaxed);
        MemoryCharge(self, signed(bytes))
    }

    /// Returns the next time of the logical clock that orders uses of pages.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes of one fetch: a fraction of the limit.
    pub(super) fn max_fetched(&self) -> u64 {
        (self.limit / 8).max(PAGE)
    }

    /// Returns true if more is in memory than should be.
    pub(super) fn is_exceeded(&self) -> bool {
        self.used.load(Ordering::Relaxed) > signed(self.limit)
    }

    /// Returns true if dirty memory has reached its limit.
    pub(super) fn is_dirty_full(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) >= signed(self.limit / 2)
    }

    /// Returns the number of bytes on the local disk that are not in the store.
    pub(super) fn spilled(&self) -> i64 {
        self.spilled.load(Ordering::Relaxed)
    }

    /// Returns true if a quarter of the memory is dirty, and `step` bytes more than at the last
    /// search for completely written parts.
    pub(super) fn begin_search(&self, step: u64) -> bool {
        let dirty = self.dirty.load(Ordering::Relaxed);
        let is_due =
            dirty >= signed(self.limit / 4) && dirty >= self.next_search.load(Ordering::Relaxed);
        if is_due {
            self.next_search
                .store(dirty + signed(step), Ordering::Relaxed);
        }
        is_due
    }

    /// Permits the next search, after a part was stored.
    pub(super) fn permit_search(&self) {
        self.next_search.store(0, Ordering::Relaxed);
    }

    /// Excludes other threads from making room.
    pub(super) fn pressure(&self) -> MutexGuard<'_, ()> {
        self.pressure.lock()
    }

    /// Excludes other threads from making room. `None`: one does.
    pub(super) fn try_pressure(&self) -> Option<MutexGuard<'_, ()>> {
        self.pressure.try_lock()
    }
}
