//! The memory budget of a bundle: bytes in memory, by whether they are stored elsewhere.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::pages::{ByteCounts, PAGE};
use crate::sync::{Mutex, MutexGuard};

/// The bytes that a bundle has in memory, and their limit.
#[derive(Debug)]
pub(super) struct Budget {
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
pub(super) struct MemoryCharge<'a>(&'a Budget, i64);

impl Drop for MemoryCharge<'_> {
    fn drop(&mut self) {
        self.0.used.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit: limit.max(64 * PAGE),
            used: AtomicI64::new(0),
            dirty: AtomicI64::new(0),
            spilled: AtomicI64::new(0),
            next_search: AtomicI64::new(0),
            clock: AtomicU64::new(0),
            pressure: Mutex::default(),
        }
    }

    /// Records changes of the counts.
    pub(super) fn count(&self, change: ByteCounts) {
        self.used.fetch_add(change.used, Ordering::Relaxed);
        self.dirty.fetch_add(change.dirty, Ordering::Relaxed);
        self.spilled.fetch_add(change.spilled, Ordering::Relaxed);
    }

    /// Counts bytes that are temporarily in memory.
    pub(super) fn charge(&self, bytes: u64) -> MemoryCharge<'_> {
        self.used.fetch_add(bytes as i64, Ordering::Relaxed);
        MemoryCharge(self, bytes as i64)
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
        self.used.load(Ordering::Relaxed) > self.limit as i64
    }

    /// Returns true if dirty memory has reached its limit.
    pub(super) fn is_dirty_full(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) >= (self.limit / 2) as i64
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
            dirty >= (self.limit / 4) as i64 && dirty >= self.next_search.load(Ordering::Relaxed);
        if is_due {
            self.next_search
                .store(dirty + step as i64, Ordering::Relaxed);
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
