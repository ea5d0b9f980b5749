//! Locks of numbered units: a band, a chunk, or a page of a table.
//!
//! A container locks only the units that a request touches: shared for reads and writes in place,
//! exclusive to allocate, move or truncate them. Only units in use take memory.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::size::to_usize;
use crate::sync::{Condvar, Mutex};

/// Number of shards: more than the likely number of threads; a power of two, so that adjacent units
/// never share a shard.
const SHARDS: usize = 32;

/// A reader-writer lock for every number.
///
/// Requests are served in order, so that neither kind starves. A thread must not acquire a unit
/// that it holds already.
pub struct UnitLocks {
    shards: [Shard; SHARDS],
}

/// Aligned to a cache line, to avoid false sharing between threads.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    in_use: Mutex<Vec<InUse>>,
    released: Condvar,
}

struct InUse {
    unit: u64,
    shared: u32,
    /// Number of shared holds that are pins, which may be long-lived.
    pinned: u32,
    exclusive: bool,
    /// Queue of the waiting threads, first come, first served.
    waiting: VecDeque<u64>,
    next_turn: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitMode {
    Shared,
    Pinned,
    Exclusive,
    /// Exclusive, but does not wait for pins.
    ExclusiveUnlessPinned,
}

impl Default for UnitLocks {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Shard::default()),
        }
    }
}

impl UnitLocks {
    /// Acquires a shared lock of `unit`. Waits for exclusive holders.
    pub fn shared(&self, unit: u64) -> HeldUnit<&Self> {
        self.acquire(unit, UnitMode::Shared);
        HeldUnit {
            units: self,
            unit,
            hold: UnitMode::Shared,
        }
    }

    /// Acquires a shared lock of `unit` as a pin, which may be long-lived.
    pub fn pinned(self: &Arc<Self>, unit: u64) -> HeldUnit<Arc<Self>> {
        self.acquire(unit, UnitMode::Pinned);
        HeldUnit {
            units: self.clone(),
            unit,
            hold: UnitMode::Pinned,
        }
    }

    /// Acquires an exclusive lock of `unit`. Waits for all holders.
    pub fn exclusive(&self, unit: u64) -> HeldUnit<&Self> {
        self.acquire(unit, UnitMode::Exclusive);
        HeldUnit {
            units: self,
            unit,
            hold: UnitMode::Exclusive,
        }
    }

    /// As [`exclusive`](Self::exclusive), but gives up if the unit is pinned: a pin may last, and
    /// be the caller's own.
    pub fn exclusive_unless_pinned(&self, unit: u64) -> Option<HeldUnit<&Self>> {
        let held = self.acquire(unit, UnitMode::ExclusiveUnlessPinned);
        held.then_some(HeldUnit {
            units: self,
            unit,
            hold: UnitMode::Exclusive,
        })
    }

    fn shard(&self, unit: u64) -> &Shard {
        &self.shards[to_usize(unit % SHARDS as u64)]
    }

    /// Acquires a lock. Returns false if it is pinned and `hold` does not wait for pins.
    fn acquire(&self, unit: u64, hold: UnitMode) -> bool {
        let shard = self.shard(unit);
        let mut in_use = shard.in_use.lock();
        let Some(one) = in_use.iter_mut().find(|one| one.unit == unit) else {
            in_use.push(InUse::by_one(unit, hold));
            return true;
        };
        if one.waiting.is_empty() && one.admits(hold) {
            one.admit(hold);
            return true;
        }
        let turn = one.next_turn;
        one.next_turn += 1;
        one.waiting.push_back(turn);
        loop {
            // Always found: an entry with a waiting thread is kept.
            if let Some(one) = in_use.iter_mut().find(|one| one.unit == unit) {
                let admitted = one.waiting.front() == Some(&turn) && one.admits(hold);
                if admitted || (hold == UnitMode::ExclusiveUnlessPinned && one.pinned > 0) {
                    one.waiting.retain(|other| *other != turn);
                    if admitted {
                        one.admit(hold);
                    }
                    shard.released.notify_all(); // the next in the queue may be let in now
                    return admitted;
                }
            }
            in_use = shard.released.wait(in_use);
        }
    }

    fn release(&self, unit: u64, hold: UnitMode) {
        let shard = self.shard(unit);
        let mut in_use = shard.in_use.lock();
        let Some(index) = in_use.iter().position(|one| one.unit == unit) else {
            return;
        };
        let one = &mut in_use[index];
        match hold {
            UnitMode::Exclusive | UnitMode::ExclusiveUnlessPinned => one.exclusive = false,
            UnitMode::Shared | UnitMode::Pinned => one.shared -= 1,
        }
        one.pinned -= u32::from(hold == UnitMode::Pinned);
        if !one.waiting.is_empty() {
            shard.released.notify_all();
        } else if one.shared == 0 {
            in_use.swap_remove(index);
        }
    }
}

impl InUse {
    fn by_one(unit: u64, hold: UnitMode) -> Self {
        let mut one = Self {
            unit,
            shared: 0,
            pinned: 0,
            exclusive: false,
            waiting: VecDeque::new(),
            next_turn: 0,
        };
        one.admit(hold);
        one
    }

    fn admits(&self, hold: UnitMode) -> bool {
        !self.exclusive && (self.shared == 0 || matches!(hold, UnitMode::Shared | UnitMode::Pinned))
    }

    fn admit(&mut self, hold: UnitMode) {
        match hold {
            UnitMode::Exclusive | UnitMode::ExclusiveUnlessPinned => self.exclusive = true,
            UnitMode::Shared | UnitMode::Pinned => self.shared += 1,
        }
        self.pinned += u32::from(hold == UnitMode::Pinned);
    }
}

impl fmt::Debug for UnitLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held: usize = self
            .shards
            .iter()
            .map(|shard| shard.in_use.lock().len())
            .sum();
        f.debug_struct("UnitLocks").field("held", &held).finish()
    }
}

/// A lock of a unit, held until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct HeldUnit<U: Deref<Target = UnitLocks>> {
    units: U,
    unit: u64,
    hold: UnitMode,
}

impl<U: Deref<Target = UnitLocks>> Drop for HeldUnit<U> {
    fn drop(&mut self) {
        self.units.release(self.unit, self.hold);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_unit_is_shared_or_held_alone() {
        let units = UnitLocks::default();
        let units = Arc::new(units);
        let (first, second) = (units.shared(7), units.pinned(7));
        assert!(units.exclusive_unless_pinned(7).is_none());
        let neighbor = units.exclusive(7 + SHARDS as u64);
        drop(second);
        thread::scope(|scope| {
            let alone =
                scope.spawn(|| drop(units.exclusive_unless_pinned(7).expect("it is not pinned")));
            thread::sleep(Duration::from_millis(5));
            assert!(!alone.is_finished(), "somebody reads it");
            drop(first);
        });
        drop(neighbor);
        assert_eq!(format!("{units:?}"), "UnitLocks { held: 0 }");
    }

    #[test]
    fn neither_kind_starves() {
        let units = UnitLocks::default();
        let (inside, changes) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while changes.load(Ordering::SeqCst) < 100 {
                        let _held = units.shared(1);
                        assert_eq!(inside.load(Ordering::SeqCst), 0, "somebody is changing it");
                        thread::sleep(Duration::from_micros(50));
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while changes.load(Ordering::SeqCst) < 100 {
                        let _held = units.exclusive(1);
                        assert_eq!(
                            inside.fetch_add(1, Ordering::SeqCst),
                            0,
                            "two are changing it"
                        );
                        changes.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(changes.load(Ordering::SeqCst) >= 100);
    }
}
