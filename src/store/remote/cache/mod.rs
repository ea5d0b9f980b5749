//! A cache of a bundle on a local disk. Source: docs/formats/object-store.md §10.
//!
//! ```text
//! lock       held by who uses the cache
//! blocks     the blocks, one after the other                                             blocks.rs
//! index      which bytes of the store are in which block; after a clean close only       index.rs
//! journal    what was flushed to the local disk and is not in the store                  journal.rs
//! ```
//!
//! Data read from the store is kept in blocks under the name of its object. Objects never change
//! and plain ones have a version tag, so that no block is ever stale, even if another writer
//! changes the bundle. Written data goes to blocks if memory is full, and when it is flushed
//! [locally](FlushTo::Local).

mod blocks;
mod index;
mod journal;
mod layout;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::LAYER;
use super::buffers::PAGE;
use super::layout::{ObjectId, Plain};
use super::page_cache::signed;
use crate::device::Access;
use crate::size::{narrow, to_usize};
use crate::store::{Guard, Lock, Store};
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, Kind, Result};
use blocks::Blocks;

pub(super) use blocks::Block;
pub(super) use journal::{Journal, NameRecord};

/// Names of files in the cache.
const LOCK: &str = "lock";
const BLOCKS: &str = "blocks";
const INDEX: &str = "index";
const JOURNAL: &str = "journal";

/// The minimum size of a cache, in bytes.
const LEAST: u64 = 16 << 20;

/// The place where a flush of a bundle in an object store makes data durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushTo {
    /// In the store.
    #[default]
    Store,
    /// In the cache, on this machine, and uploaded a little later; if this machine is lost before,
    /// the data is lost.
    Local,
}

/// Options of a cache of a bundle on a local disk.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// A folder used by this bundle only.
    pub folder: Arc<dyn Store>,
    /// The path of the folder, for messages.
    pub place: String,
    /// Maximum number of bytes of blocks in it; at least 16 MiB.
    pub size: u64,
    /// The place where a flush makes data durable.
    pub flush: FlushTo,
    /// Delay of the upload of locally flushed data.
    pub upload_after: Duration,
}

impl CacheOptions {
    /// Creates options for a cache of `size` bytes in `folder`, named `place` in messages; flushes
    /// go to the store.
    pub fn new(folder: Arc<dyn Store>, place: impl Into<String>, size: u64) -> Self {
        Self {
            folder,
            place: place.into(),
            size,
            flush: FlushTo::Store,
            upload_after: Duration::from_secs(5),
        }
    }
}

/// A position in the store: an object in one of its versions, and an offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The first half of a SHA-256.
    pub(super) object: [u8; 16],
    pub(super) offset: u64,
}

impl Key {
    pub(super) fn of_object(object: ObjectId, offset: u64) -> Self {
        Self {
            object: digest(&object.key()),
            offset,
        }
    }

    pub(super) fn of_plain(name: &str, plain: &Plain, offset: u64) -> Self {
        Self {
            object: digest(&format!("{name}\n{}\n{}", plain.size, plain.tag)),
            offset,
        }
    }

    /// Returns the position `bytes` later in the same object.
    pub(super) fn after(self, bytes: u64) -> Self {
        Self {
            offset: self.offset.saturating_add(bytes),
            ..self
        }
    }
}

fn digest(text: &str) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    half
}

#[derive(Debug)]
pub(super) struct Cache {
    store: Arc<dyn Store>,
    blocks: Arc<Blocks>,
    clean: Mutex<CleanBlocks>,
    /// Maximum number of bytes in blocks that are not in the store.
    max_spilled: i64,
    flush: FlushTo,
    upload_after: Duration,
    journal: Mutex<Journal>,
    place: String,
    _lock: Guard,
}

/// Blocks whose data is also in the store.
#[derive(Debug, Default)]
struct CleanBlocks {
    entries: HashMap<Key, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    block: Arc<Block>,
    /// Valid bytes of the block.
    len: u32,
    used: u64,
}

impl Cache {
    /// Opens the cache. Its journal may contain data that an earlier writer flushed and that is not
    /// in the store.
    pub(super) fn open(options: &CacheOptions, access: Access) -> Result<Self> {
        let store = options.folder.clone();
        let lock = store.lock(LOCK, Lock::Exclusive)?;
        let pending = journal::load(&*store).map_err(|error| {
            let place = &options.place;
            let message = format!(
                "{place} has flushed data that is not in the store, but cannot be read ({error}); \
                 remove the folder to discard it"
            );
            Error::new(error.kind(), LAYER, message)
        })?;
        let known = index::read_and_remove(&*store)?;
        let wanted = narrow::<u32>((options.size.max(LEAST) / PAGE).min(u32::MAX.into()));
        // Blocks that are not in the store are kept, even if the cache is to be smaller.
        let count = pending
            .blocks()
            .map(|(number, _)| number + 1)
            .max()
            .unwrap_or(0)
            .max(wanted);
        let blocks = Blocks::open(&*store, count)?;
        let mut taken: Vec<u32> = pending.blocks().map(|(number, _)| number).collect();
        taken.sort_unstable();
        let is_free = |block: u32| block < count && taken.binary_search(&block).is_err();
        let known: Vec<_> = known
            .into_iter()
            .filter(|entry| is_free(entry.block))
            .collect();
        let used = pending
            .blocks()
            .chain(known.iter().map(|entry| (entry.block, entry.sum)));
        let mut used = blocks.known(used).into_iter();
        let journal = Journal::new(store.clone(), pending, &mut used);
        let mut clean = CleanBlocks::default();
        for (entry, block) in known.into_iter().zip(used) {
            clean.clock += 1;
            clean.entries.insert(
                entry.key,
                Entry {
                    block,
                    len: entry.len,
                    used: clean.clock,
                },
            );
        }
        let flush = if access == Access::ReadOnly {
            FlushTo::Store
        } else {
            options.flush
        };
        Ok(Self {
            journal: Mutex::new(journal),
            store,
            blocks,
            clean: Mutex::new(clean),
            max_spilled: signed(u64::from(count) * PAGE / 2),
            flush,
            upload_after: options.upload_after,
            place: options.place.clone(),
            _lock: lock,
        })
    }

    /// Returns true if flushes of the bundle go to the cache.
    pub(super) fn takes_flushes(&self) -> bool {
        self.flush == FlushTo::Local
    }

    /// Returns the delay of the upload of flushed data.
    pub(super) fn upload_after(&self) -> Duration {
        self.upload_after
    }

    /// Returns the path of the folder, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock()
    }

    /// Returns true if the number of bytes in blocks that are not in the store has reached the
    /// limit.
    pub(super) fn is_full_of(&self, spilled: i64) -> bool {
        spilled >= self.max_spilled
    }

    /// Returns true if the bytes are cached.
    pub(super) fn has(&self, key: Key, len: usize) -> bool {
        self.clean
            .lock()
            .entries
            .get(&key)
            .is_some_and(|entry| entry.len as usize >= len)
    }

    /// Fills `page`, of [`PAGE`] bytes, of which the first `len` are needed. `false`: they are not
    /// cached.
    pub(super) fn get(&self, key: Key, len: usize, page: &mut [u8]) -> bool {
        let Some(block) = self.find(key, len) else {
            return false;
        };
        if block.read(page).is_ok() {
            return true;
        }
        // The block on the local disk is corrupt or unreadable; the data is still in the store.
        self.clean.lock().entries.remove(&key);
        false
    }

    /// Fills `into` with bytes of a page from offset `within`. `false`: they are not cached.
    pub(super) fn get_part(&self, key: Key, within: usize, into: &mut [u8]) -> bool {
        let block = self.find(key, within + into.len());
        block.is_some_and(|block| block.read_part(within, into).is_ok())
    }

    /// Returns the block with the first `len` bytes of a page, which it counts as used.
    fn find(&self, key: Key, len: usize) -> Option<Arc<Block>> {
        let mut clean = self.clean.lock();
        clean.clock += 1;
        let used = clean.clock;
        let entry = clean.entries.get_mut(&key);
        let entry = entry.filter(|entry| entry.len as usize >= len)?;
        entry.used = used;
        Some(entry.block.clone())
    }

    /// Caches bytes that are in the store, at most [`PAGE`], if there is room.
    pub(super) fn insert_clean(&self, key: Key, bytes: &[u8]) {
        if self.has(key, bytes.len()) {
            return;
        }
        let whole = bytes.len() as u64 == PAGE;
        let block = if whole {
            self.write(bytes)
        } else {
            let mut padded = bytes.to_vec();
            padded.resize(to_usize(PAGE), 0);
            self.write(&padded)
        };
        if let Some(block) = block {
            self.adopt(key, bytes.len(), block);
        }
    }

    /// Registers a block whose data is now in the store as well.
    pub(super) fn adopt(&self, key: Key, len: usize, block: Arc<Block>) {
        let mut clean = self.clean.lock();
        clean.clock += 1;
        let used = clean.clock;
        let replaced = clean.entries.insert(
            key,
            Entry {
                block,
                len: narrow(len),
                used,
            },
        );
        drop((clean, replaced));
    }

    /// Writes [`PAGE`] bytes to a block, evicting blocks that are in the store. `None`: there is no
    /// room.
    pub(super) fn write(&self, bytes: &[u8]) -> Option<Arc<Block>> {
        self.blocks.write(bytes).or_else(|| {
            self.evict_old_blocks();
            self.blocks.write(bytes)
        })
    }

    /// Evicts an eighth of the blocks that are in the store, the least recently used ones.
    fn evict_old_blocks(&self) {
        let mut clean = self.clean.lock();
        let mut used: Vec<u64> = clean.entries.values().map(|entry| entry.used).collect();
        if used.is_empty() {
            return;
        }
        let eighth = used.len() / 8;
        let (_, before, _) = used.select_nth_unstable(eighth);
        let before = *before;
        let mut gone = Vec::new();
        clean.entries.retain(|_, entry| {
            let stays = entry.used > before;
            if !stays {
                gone.push(entry.block.clone());
            }
            stays
        });
        drop((clean, gone));
    }

    /// Makes all written blocks durable.
    pub(super) fn flush_blocks(&self) -> Result<()> {
        self.blocks.flush()
    }

    /// Stores the index for the next use of the cache.
    fn close(&self) -> Result<()> {
        let clean = std::mem::take(&mut *self.clean.lock());
        let mut entries: Vec<_> = clean.entries.into_iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.used);
        if entries.is_empty() {
            return Ok(());
        }
        // The blocks are durable before an index refers to them.
        self.blocks.flush()?;
        index::put(&*self.store, &entries)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // Without an index the data is fetched again.
        let _ = self.close();
    }
}

/// Returns an error about a file of the cache.
fn odd(
    name: &'static str,
    at: usize,
    expected: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    Error::new(Kind::Corrupt, LAYER, expected)
        .at(at as u64)
        .in_part(name)
}
