//! State shared by all files of an open bundle: the store, the memory budget, and the permission to
//! change anything.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use super::RemoteOptions;
use super::buffers::Buffers;
use super::cache::Cache;
use super::draft::Draft;
use super::file::File;
use super::layout::{FileState, LAYER, LeaseHolder, Name, ObjectId, Plain};
use super::lease;
use super::log::{Log, random};
use super::pages::{ByteCounts, PAGE};
use super::task_pool::TaskPool;
use crate::device::Access;
use crate::store::locks::Locks;
use crate::store::objects::Objects;
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, Kind, Result};

/// The state of a name.
#[derive(Debug, Clone)]
pub(super) enum NameState {
    /// A file that has not been opened.
    Known(Arc<FileState>),
    /// A file that is, or was, open.
    Open(Arc<File>),
    /// A file that was removed.
    Gone,
}

/// Names with uncommitted changes.
#[derive(Debug, Default)]
pub(super) struct DirtyNames {
    /// For the next commit to the store.
    pub(super) names: BTreeSet<String>,
    /// For the next flush to the local disk, if flushes go there.
    pub(super) writeback: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) access: Access,
    pub(super) part: u64,
    pub(super) connections: usize,
    pub(super) memory: u64,
    /// There is no log: the names are those of the objects themselves.
    pub(super) plain_only: bool,
    pub(super) locks: Locks,
    /// The current state of all names.
    pub(super) live: Mutex<BTreeMap<String, NameState>>,
    pub(super) dirty_names: Mutex<DirtyNames>,
    pub(super) cache: Option<Cache>,
    /// The committed state. Locked during a commit.
    pub(super) log: Mutex<Option<Log>>,
    /// Nothing is committed while there is a draft.
    pub(super) draft: Mutex<Option<Draft>>,
    /// The reason why nothing can be changed any more.
    lost: Mutex<Option<(Kind, String)>>,
    pub(super) generation: u64,
    session: u64,
    next_object: AtomicU64,
    /// Bytes in memory, and bytes of those that are stored nowhere else.
    pub(super) used: AtomicI64,
    pub(super) dirty: AtomicI64,
    /// Bytes on the local disk that are not in the store.
    pub(super) spilled: AtomicI64,
    clock: AtomicU64,
    /// Held shared while bytes are located and read, exclusively while they are moved.
    moving: RwLock<()>,
    /// Held by the thread that makes room.
    pub(super) pressure: Mutex<()>,
    /// Tasks that prefetch data.
    pub(super) readers: TaskPool,
    /// Tasks that store written data.
    pub(super) writers: TaskPool,
    /// Memory for pages.
    pub(super) buffers: Buffers,
    /// The amount of dirty memory at which completely written parts are searched again.
    pub(super) behind: AtomicI64,
    /// The time after which no request of a previous writer can arrive.
    pub(super) settles: Instant,
    /// The previous writer, or the one before it, did not close the bundle.
    pub(super) took_over: bool,
}

impl Shared {
    pub(super) fn new(
        objects: Arc<dyn Objects>,
        options: &RemoteOptions,
        log: Option<Log>,
        cache: Option<Cache>,
    ) -> Result<Self> {
        let names = log.iter().flat_map(|log| &log.state.names);
        let live = names.filter_map(|(name, known)| match known {
            Name::File(file) => Some((name.clone(), NameState::Known(file.clone()))),
            Name::Gone | Name::Done => None,
        });
        Ok(Self {
            access: options.access,
            part: log.as_ref().map_or(options.part, |log| log.state.part),
            connections: options.connections.max(1),
            memory: options.memory.max(64 * PAGE),
            plain_only: log.is_none(),
            locks: Locks::default(),
            live: Mutex::new(live.collect()),
            dirty_names: Mutex::default(),
            cache,
            draft: Mutex::default(),
            lost: Mutex::default(),
            generation: log.as_ref().map_or(0, |log| log.state.generation),
            session: random()?,
            next_object: AtomicU64::new(0),
            used: AtomicI64::new(0),
            dirty: AtomicI64::new(0),
            spilled: AtomicI64::new(0),
            clock: AtomicU64::new(0),
            moving: RwLock::default(),
            pressure: Mutex::default(),
            readers: TaskPool::new("read ahead"),
            writers: TaskPool::new("store"),
            buffers: Buffers::default(),
            behind: AtomicI64::new(0),
            settles: Instant::now() + options.grace,
            took_over: log.as_ref().is_some_and(|log| !log.state.settled),
            log: Mutex::new(log),
            objects,
        })
    }

    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<String, NameState>> {
        self.live.lock()
    }

    /// Prevents moving of bytes while it is held.
    pub(super) fn staying(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read()
    }

    pub(super) fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.moving.write()
    }

    /// Returns a name for a new object.
    pub(super) fn new_object(&self) -> ObjectId {
        let number = self.next_object.fetch_add(1, Ordering::Relaxed);
        ObjectId {
            generation: self.generation,
            session: self.session,
            number,
        }
    }

    /// Returns true if this writer created the object.
    pub(super) fn is_own(&self, object: ObjectId) -> bool {
        object.session == self.session
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn version_of(&self, file: &FileState) -> u64 {
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        hasher.finish()
    }

    /// Lists a file for the next commit.
    pub(super) fn note(&self, file: &File) {
        let known = file.dirty_names.swap(true, Ordering::SeqCst);
        if !known
            || (self.local_cache().is_some() && !file.noted_locally.swap(true, Ordering::SeqCst))
        {
            self.note_name(&file.name);
        }
    }

    pub(super) fn note_name(&self, name: &str) {
        self.note_names([name]);
    }

    /// Lists names together: one commit, and one local flush, includes all of them.
    pub(super) fn note_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut dirty_names = self.dirty_names.lock();
        for name in names {
            dirty_names.names.insert(name.to_owned());
            if self.local_cache().is_some() {
                dirty_names.writeback.insert(name.to_owned());
            }
        }
    }

    pub(super) fn count(&self, count: ByteCounts) {
        self.used.fetch_add(count.used, Ordering::Relaxed);
        self.dirty.fetch_add(count.dirty, Ordering::Relaxed);
        self.spilled.fetch_add(count.spilled, Ordering::Relaxed);
    }

    /// Returns the maximum number of bytes of one fetch: a fraction of the memory budget.
    pub(super) fn max_fetched(&self) -> u64 {
        (self.memory / 8).max(PAGE)
    }

    pub(super) fn open_files(&self) -> Vec<Arc<File>> {
        let live = self.live();
        live.values()
            .filter_map(|name| {
                if let NameState::Open(file) = name {
                    Some(file.clone())
                } else {
                    None
                }
            })
            .collect()
    }

    /// Refuses changes if the bundle is read-only, was taken over by another writer, or may not be
    /// stored.
    pub(super) fn check_changeable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::read_only(LAYER));
        }
        match &*self.lost.lock() {
            None => Ok(()),
            Some((kind, why)) => Err(Error::new(*kind, LAYER, why.clone())),
        }
    }

    /// Refuses all changes from now on.
    pub(super) fn lose(&self, error: Error) -> Error {
        let mut lost = self.lost.lock();
        lost.get_or_insert_with(|| match error.kind() {
            Kind::Conflict => (Kind::Conflict, error.message().to_owned()),
            _ => (
                Kind::Io,
                format!(
                    "an earlier flush failed ({error}) and may have lost changes; open the \
                         image again to change it"
                ),
            ),
        });
        error
    }

    pub(super) fn deposed(&self, by: &LeaseHolder) -> Error {
        self.lose(lease::deposed(by))
    }

    /// Refuses a plain object that is not the one in the commit.
    pub(super) fn check_plain(&self, name: &str, plain: &Plain) -> Result<()> {
        let found = self.objects.stat(name)?;
        if found
            .as_ref()
            .is_some_and(|found| found.tag == plain.tag && found.len == plain.size)
        {
            return Ok(());
        }
        Err(self.replaced(name, plain, found.is_some()))
    }

    /// Returns the error about a plain object that is not the one in the commit.
    pub(super) fn replaced(&self, name: &str, plain: &Plain, is_there: bool) -> Error {
        if self.access == Access::ReadOnly {
            return self.moved_on(name, 0, Some(0));
        }
        let changed = if is_there {
            "was replaced"
        } else {
            "was removed"
        };
        let message = format!(
            "{changed} by something other than bandsaw since the last checkpoint; put the version with the tag {} back, or \
             remove everything under .bandsaw/ to take the bundle as its plain files are",
            plain.tag
        );
        Error::new(Kind::Conflict, LAYER, message).in_file(name)
    }

    /// Returns the error about an object that is missing, or shorter than committed.
    pub(super) fn moved_on(&self, key: &str, offset: u64, found: Option<usize>) -> Error {
        if self.access == Access::ReadOnly {
            let message = "changed by its writer since it was opened; open the image again";
            return Error::new(Kind::Conflict, LAYER, message).in_file(key);
        }
        match found {
            Some(n) => Error::corrupt(LAYER, offset + n as u64, "unexpected end").in_file(key),
            None => Error::not_found(LAYER, key),
        }
    }
}
