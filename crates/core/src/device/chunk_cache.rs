//! A bounded cache of decoded chunks. Concurrent requests for a chunk decode it once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::Result;
use crate::sync::{Mutex, MutexGuard};

/// The plain bytes of a chunk, once it is decoded.
type ChunkSlot = Arc<Mutex<Option<Arc<Vec<u8>>>>>;

/// The most recently used chunks, up to a limit in bytes. Chunks being decoded, or still in use by
/// readers, do not count. `K` numbers the chunks.
#[derive(Debug)]
pub struct ChunkCache<K> {
    most: usize,
    inner: Mutex<Inner<K>>,
    /// Held while a chunk is decoded that is longer than those of macOS, to bound the memory when
    /// many cores decode.
    one_by_one: Mutex<()>,
}

#[derive(Debug)]
struct Inner<K> {
    slots: HashMap<K, CacheEntry>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct CacheEntry {
    slot: ChunkSlot,
    bytes: usize,
    used: u64,
}

impl<K: Copy + Eq + Hash> ChunkCache<K> {
    /// Creates an empty cache of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        let inner = Inner {
            slots: HashMap::new(),
            bytes: 0,
            clock: 0,
        };
        Self {
            most,
            inner: Mutex::new(inner),
            one_by_one: Mutex::default(),
        }
    }

    /// Returns the bytes of a chunk. Calls `decode` unless it is cached or being decoded.
    pub fn get(
        &self,
        index: K,
        decode: impl FnOnce() -> Result<Arc<Vec<u8>>>,
    ) -> Result<Arc<Vec<u8>>> {
        let slot = self.slot(index);
        let mut plain = slot.lock();
        if let Some(plain) = &*plain {
            return Ok(plain.clone());
        }
        // A failure leaves the slot empty: each waiting thread then retries.
        let bytes = decode()?;
        *plain = Some(bytes.clone());
        drop(plain);
        self.account(index, bytes.len());
        Ok(bytes)
    }

    /// Returns true if a chunk is cached or being decoded.
    pub fn expects(&self, index: K) -> bool {
        self.inner.lock().slots.contains_key(&index)
    }

    /// Waits for the right to decode a chunk that is larger than the usual ones.
    pub fn lock_for_large_chunk(&self) -> MutexGuard<'_, ()> {
        self.one_by_one.lock()
    }

    /// Empties the cache, to make memory available.
    pub fn clear(&self) {
        let mut inner = self.inner.lock();
        inner.slots.retain(|_, entry| entry.bytes == 0);
        inner.bytes = 0;
    }

    fn slot(&self, index: K) -> ChunkSlot {
        let mut inner = self.inner.lock();
        inner.clock += 1;
        let used = inner.clock;
        let entry = inner.slots.entry(index).or_insert_with(|| CacheEntry {
            slot: ChunkSlot::default(),
            bytes: 0,
            used,
        });
        entry.used = used;
        entry.slot.clone()
    }

    /// Adds the size of a decoded chunk and evicts the least recently used ones down to the limit.
    fn account(&self, index: K, bytes: usize) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.slots.get_mut(&index) {
            let before = std::mem::replace(&mut entry.bytes, bytes);
            inner.bytes += bytes - before.min(bytes);
        }
        while inner.bytes > self.most {
            let oldest = inner
                .slots
                .iter()
                .filter(|(other, entry)| **other != index && entry.bytes > 0)
                .min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(oldest, _)| *oldest) else {
                return;
            };
            if let Some(entry) = inner.slots.remove(&oldest) {
                inner.bytes -= entry.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_decode_for_many_readers_and_a_bound() {
        let (cache, decodes) = (ChunkCache::<u32>::new(1000), AtomicUsize::new(0));
        let read = |n: u32| {
            let decode = || {
                decodes.fetch_add(1, Ordering::SeqCst);
                Ok(Arc::new(vec![n as u8; 400]))
            };
            assert_eq!(cache.get(n, decode).unwrap()[..], [n as u8; 400]);
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| read(1));
            }
        });
        assert_eq!(decodes.load(Ordering::SeqCst), 1);
        read(2);
        read(1);
        read(3);
        assert!(!cache.expects(2), "the one unused for longest went");
        assert!(cache.expects(1) && cache.expects(3));
        assert_eq!(decodes.load(Ordering::SeqCst), 3);
        cache.clear();
        assert!(!cache.expects(1));
        read(1);
        assert_eq!(
            (decodes.load(Ordering::SeqCst), cache.inner.lock().bytes),
            (4, 400)
        );
    }

    #[test]
    fn a_failure_is_not_kept() {
        let cache = ChunkCache::<u32>::new(1000);
        let failed = cache.get(1, || Err(crate::Error::corrupt("x", 0, "y")));
        assert!(failed.is_err());
        assert!(cache.get(1, || Ok(Arc::new(vec![1]))).is_ok());
    }
}
