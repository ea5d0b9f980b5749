//! A pool of page buffers, which is freed when the bundle is closed.
//!
//! Buffers that many threads allocate individually stay with the allocator when they are freed, in
//! several arenas: a program then uses a multiple of the memory that is in use. So they are cut
//! from large allocations, and returned to a free list.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::BytesMut;

use crate::size::to_usize;
use crate::sync::Mutex;

/// Bytes of a page, the unit of fetching, caching and dirty tracking.
pub(super) const PAGE: u64 = 64 << 10;

/// Bytes of one allocation. Large enough for a memory mapping of its own with every known allocator
/// (glibc uses one from 32 MiB on, independent of its adaptive threshold): its pages are committed
/// as they are used, and it is freed as a whole.
const MAPPED: usize = 40 << 20;

/// Free buffers, and memory for more.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Free>>);

#[derive(Debug, Default)]
struct Free {
    returned: Vec<BytesMut>,
    /// Memory that was not used yet.
    fresh: BytesMut,
}

/// A buffer of [`PAGE`] bytes, returned to the pool on drop.
pub(super) struct Buffer {
    bytes: BytesMut,
    home: Buffers,
}

impl Buffers {
    /// Returns a buffer with arbitrary contents.
    pub(super) fn acquire(&self) -> Buffer {
        let mut free = self.0.lock();
        let bytes = match free.returned.pop() {
            Some(bytes) => bytes,
            None => {
                if free.fresh.is_empty() {
                    free.fresh = BytesMut::zeroed(MAPPED);
                }
                free.fresh.split_to(to_usize(PAGE))
            }
        };
        drop(free);
        Buffer {
            bytes,
            home: self.clone(),
        }
    }

    /// Returns enough buffers for `bytes`.
    pub(super) fn take_for(&self, bytes: u64) -> Vec<Buffer> {
        (0..bytes.div_ceil(PAGE)).map(|_| self.acquire()).collect()
    }

    /// Returns a buffer of zeros.
    pub(super) fn zeros(&self) -> Buffer {
        let mut buffer = self.acquire();
        buffer.fill(0);
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        self.home.0.lock().returned.push(bytes);
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = self.home.acquire();
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let buffers = Buffers::default();
        let mut first = buffers.acquire();
        first.fill(7);
        let mut copy = first.clone();
        copy[0] = 1;
        assert_eq!(
            (first[0], copy[0], copy[1], copy.len()),
            (7, 1, 7, PAGE as usize)
        );
        let places = [first.as_ptr(), copy.as_ptr()];
        drop((first, copy));
        let again = buffers.take_for(PAGE + 1);
        assert_eq!(again.len(), 2);
        assert!(again.iter().all(|buffer| places.contains(&buffer.as_ptr())));
        assert!(buffers.zeros().iter().all(|byte| *byte == 0));
        // More than one allocation.
        let many = buffers.take_for(MAPPED as u64 + PAGE);
        let mut places: Vec<_> = many
            .iter()
            .chain(&again)
            .map(|buffer| buffer.as_ptr())
            .collect();
        places.sort_unstable();
        assert!(
            places
                .windows(2)
                .all(|pair| pair[1] as usize - pair[0] as usize >= PAGE as usize)
        );
    }
}
