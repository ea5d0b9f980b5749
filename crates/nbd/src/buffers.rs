//! The memory of one connection: buffers that are reused, and a bound on those in use.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::layout::MAX_PAYLOAD;

/// Bytes in use at once, at most: the largest request and room beside it.
const BUDGET: usize = MAX_PAYLOAD as usize + (8 << 20);
/// Buffers larger than this are not kept.
const KEPT: usize = 1 << 20;
/// How many are kept.
const KEEP: usize = 4;

/// Where buffers come from and go back to.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// By the thread that receives.
    is_waited_for: bool,
    free: Vec<Vec<u8>>,
}

/// Bytes of a connection's budget; what they hold at first is arbitrary.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `len` bytes, at most [`MAX_PAYLOAD`]; waits until the connection has so many left. Only the
    /// thread that receives may wait here: those that free buffers must not.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let full = |state: &mut State| state.used + len > BUDGET && state.used > 0;
        let mut state = self.state();
        if full(&mut state) {
            state.is_waited_for = true;
            state = self
                .freed
                .wait_while(state, full)
                .unwrap_or_else(PoisonError::into_inner);
            state.is_waited_for = false;
        }
        state.used += len;
        let kept = state
            .free
            .iter()
            .position(|bytes| bytes.len() >= len)
            .map(|at| state.free.swap_remove(at));
        drop(state);
        Buffer {
            bytes: kept.unwrap_or_else(|| vec![0; len]),
            len,
            home: Arc::clone(self),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut state = self.home.state();
        state.used -= self.len;
        if bytes.len() <= KEPT && state.free.len() < KEEP {
            state.free.push(bytes);
        }
        // To wake nobody is a system call, too.
        if state.is_waited_for {
            self.home.freed.notify_one();
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds() {
        let buffers = Arc::new(Buffers::default());
        let first = buffers.take(MAX_PAYLOAD as usize);
        let second = buffers.take(8 << 20);
        std::thread::scope(|scope| {
            let third = scope.spawn(|| buffers.take(1).len());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!third.is_finished(), "over budget");
            drop(second);
            assert_eq!(third.join().unwrap(), 1);
        });
        drop(first);
        assert_eq!(buffers.state().used, 0);
    }
}
