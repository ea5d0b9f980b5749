//! Buffers that are used again: memory that the system has just given back has to be zeroed and mapped anew, which takes longer than
//! to copy into it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Buffers of one size.
#[derive(Debug)]
pub(super) struct Spare {
    len: usize,
    most: usize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Spare {
    /// Of `len` bytes each, of which `most` are kept.
    pub(super) fn new(len: usize, most: usize) -> Self {
        Self { len, most, buffers: Mutex::default() }
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with anything in it.
    pub(super) fn take(&self) -> Vec<u8> {
        let found = self.buffers().pop();
        found.unwrap_or_else(|| vec![0; self.len])
    }

    /// Gives buffers back. Those that are not of this size go, and what is too much.
    pub(super) fn give(&self, given: impl IntoIterator<Item = Vec<u8>>) {
        let mut buffers = self.buffers();
        let room = self.most.saturating_sub(buffers.len());
        buffers.extend(given.into_iter().filter(|buffer| buffer.len() == self.len).take(room));
    }
}
