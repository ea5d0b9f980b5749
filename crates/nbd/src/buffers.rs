//! Memory of a connection: reusable buffers with a limit on their total size.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::layout::MAX_PAYLOAD;
use bandsaw::sync::{Condvar, Mutex};

/// Maximum total size of buffers in use, in bytes: the largest request and some reserve.
const BUDGET: usize = MAX_PAYLOAD as usize + (8 << 20);
/// Maximum size of a buffer that is kept for reuse, in bytes.
const KEPT: usize = 1 << 20;
/// Maximum number of buffers kept for reuse.
const KEEP: usize = 4;

/// Pool of buffers.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// True while the receiving thread waits.
    is_waited_for: bool,
    free: Vec<Vec<u8>>,
}

/// A buffer that counts towards the connection's limit; its initial contents are arbitrary.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Returns a buffer of `len` bytes, at most [`MAX_PAYLOAD`]; blocks until the limit permits it.
    /// Only the receiving thread may wait here, because the worker threads free buffers.
    pub(crate) fn acquire(self: &Arc<Self>, len: usize) -> Buffer {
        let full = |state: &mut State| state.used + len > BUDGET && state.used > 0;
        let mut state = self.state.lock();
        if full(&mut state) {
            state.is_waited_for = true;
            state = self.freed.wait_while(state, full);
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
        let mut state = self.home.state.lock();
        state.used -= self.len;
        if bytes.len() <= KEPT && state.free.len() < KEEP {
            state.free.push(bytes);
        }
        // Notifying costs a system call even without a waiter.
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
        let first = buffers.acquire(MAX_PAYLOAD as usize);
        let second = buffers.acquire(8 << 20);
        std::thread::scope(|scope| {
            let third = scope.spawn(|| buffers.acquire(1).len());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!third.is_finished(), "over budget");
            drop(second);
            assert_eq!(third.join().unwrap(), 1);
        });
        drop(first);
        assert_eq!(buffers.state.lock().used, 0);
    }
}
