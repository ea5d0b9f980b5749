//! Locks that a panic does not poison: the state under a lock is consistent between statements, so
//! that other threads go on after one has panicked.
#![allow(
    clippy::disallowed_types,
    reason = "these are the locks to be used instead"
)]

use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

fn held<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn free<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Exclusive access to a value, as [`std::sync::Mutex`].
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        held(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock; blocks while it is held.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        held(self.0.lock())
    }

    /// Takes the lock; `None` if it is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        free(self.0.try_lock())
    }

    /// Returns the value, which cannot be locked meanwhile.
    pub fn get_mut(&mut self) -> &mut T {
        held(self.0.get_mut())
    }
}

/// Access to a value by many readers or one writer, as [`std::sync::RwLock`].
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        held(self.0.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading; blocks while a writer holds it.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        held(self.0.read())
    }

    /// Takes the lock for writing; blocks while it is held.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        held(self.0.write())
    }

    /// Takes the lock for writing; `None` if it is held.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        free(self.0.try_write())
    }

    /// Returns the value, which cannot be locked meanwhile.
    pub fn get_mut(&mut self) -> &mut T {
        held(self.0.get_mut())
    }
}

/// A condition that threads wait for, as [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Creates a condition without waiters.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Releases the lock until a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        held(self.0.wait(guard))
    }

    /// Releases the lock while `condition` is true.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        held(self.0.wait_while(guard, condition))
    }

    /// Releases the lock until a notification, for at most `timeout`. Also returns true if that has
    /// passed.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = held(self.0.wait_timeout(guard, timeout));
        (guard, result.timed_out())
    }

    /// Releases the lock while `condition` is true, for at most `timeout`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        held(self.0.wait_timeout_while(guard, timeout, condition)).0
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// A lock whose holder panicked can be taken, and its value is the last one.
    #[test]
    fn a_panic_does_not_poison() {
        let shared = Arc::new((Mutex::new(1), RwLock::new(1)));
        let theirs = Arc::clone(&shared);
        let panicked = thread::spawn(move || {
            let (mut one, mut other) = (theirs.0.lock(), theirs.1.write());
            (*one, *other) = (2, 2);
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!((*shared.0.lock(), *shared.1.read()), (2, 2));
        assert_eq!(shared.0.try_lock().map(|value| *value), Some(2));
        let (one, other) = Arc::into_inner(shared).unwrap();
        assert_eq!((one.into_inner(), other.into_inner()), (2, 2));
    }
}
