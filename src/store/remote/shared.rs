//! What all files of an open bundle share: the store, what may be in memory, and whether anything
//! may be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use super::RemoteOptions;
use super::buffers::Buffers;
use super::cache::Cache;
use super::draft::Draft;
use super::file::File;
use super::helpers::Helpers;
use super::layout::{FileState, Holder, LAYER, Name, ObjectId, Plain};
use super::lease;
use super::log::{Log, random};
use super::pages::{Count, PAGE};
use crate::device::Access;
use crate::store::locks::Locks;
use crate::store::objects::Objects;
use crate::{Error, Kind, Result};

/// What stands under a name.
#[derive(Debug, Clone)]
pub(super) enum Live {
    /// A file that nobody has opened.
    Known(Arc<FileState>),
    /// A file that somebody has, or had, open.
    Open(Arc<File>),
    /// A file that was removed.
    Gone,
}

/// Names of which there is something to tell.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// To the store, by the next commit.
    pub(super) names: BTreeSet<String>,
    /// To the local disk, by the next flush, where that is what flushes do.
    pub(super) locally: BTreeSet<String>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) access: Access,
    pub(super) part: u64,
    pub(super) connections: usize,
    pub(super) memory: u64,
    /// There is no log: names are those of the objects themselves.
    pub(super) plain_only: bool,
    pub(super) locks: Locks,
    /// All names, as they are right now.
    pub(super) live: Mutex<BTreeMap<String, Live>>,
    pub(super) noted: Mutex<Noted>,
    pub(super) cache: Option<Cache>,
    /// What is committed. Held while something is being committed.
    pub(super) log: Mutex<Option<Log>>,
    /// Nothing is committed as long as it is something.
    pub(super) draft: Mutex<Option<Draft>>,
    /// Why nothing can be changed any more.
    lost: Mutex<Option<(Kind, String)>>,
    pub(super) generation: u64,
    session: u64,
    next_object: AtomicU64,
    /// Bytes in memory, and of those the ones that are nowhere else.
    pub(super) used: AtomicI64,
    pub(super) dirty: AtomicI64,
    /// Bytes on the local disk that are not in the store.
    pub(super) spilled: AtomicI64,
    clock: AtomicU64,
    /// Held shared by who looks where bytes are and then goes there, exclusively by who moves them.
    moving: RwLock<()>,
    /// Held by who makes room.
    pub(super) pressure: Mutex<()>,
    /// Who fetch what will be read.
    pub(super) readers: Helpers,
    /// Who store what was written.
    pub(super) writers: Helpers,
    /// For pages.
    pub(super) buffers: Buffers,
    /// How much must be in memory alone before it is looked for whole parts of it again.
    pub(super) behind: AtomicI64,
    /// When requests of a writer that was gone are surely over.
    pub(super) settles: Instant,
    /// The writer before did not close the bundle, or the one before that.
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
            Name::File(file) => Some((name.clone(), Live::Known(file.clone()))),
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
            noted: Mutex::default(),
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
            readers: Helpers::new("read ahead"),
            writers: Helpers::new("store"),
            buffers: Buffers::default(),
            behind: AtomicI64::new(0),
            settles: Instant::now() + options.grace,
            took_over: log.as_ref().is_some_and(|log| !log.state.settled),
            log: Mutex::new(log),
            objects,
        })
    }

    pub(super) fn live(&self) -> MutexGuard<'_, BTreeMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this is held, bytes stay where they are.
    pub(super) fn staying(&self) -> RwLockReadGuard<'_, ()> {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.moving.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name for a new object.
    pub(super) fn new_object(&self) -> ObjectId {
        let number = self.next_object.fetch_add(1, Ordering::Relaxed);
        ObjectId {
            generation: self.generation,
            session: self.session,
            number,
        }
    }

    /// Returns whether this writer made the object.
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

    /// Notes that the next commit has something to tell of a file.
    pub(super) fn note(&self, file: &File) {
        let known = file.noted.swap(true, Ordering::SeqCst);
        if !known
            || (self.local_cache().is_some() && !file.noted_locally.swap(true, Ordering::SeqCst))
        {
            self.note_name(&file.name);
        }
    }

    pub(super) fn note_name(&self, name: &str) {
        self.note_names([name]);
    }

    /// Notes names together: one commit, and one local flush, tells of all of them.
    pub(super) fn note_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            noted.names.insert(name.to_owned());
            if self.local_cache().is_some() {
                noted.locally.insert(name.to_owned());
            }
        }
    }

    pub(super) fn count(&self, count: Count) {
        self.used.fetch_add(count.used, Ordering::Relaxed);
        self.dirty.fetch_add(count.dirty, Ordering::Relaxed);
        self.spilled.fetch_add(count.spilled, Ordering::Relaxed);
    }

    /// Bytes that one fetch brings at most: a part of what may be in memory.
    pub(super) fn most_fetched(&self) -> u64 {
        (self.memory / 8).max(PAGE)
    }

    pub(super) fn open_files(&self) -> Vec<Arc<File>> {
        let live = self.live();
        live.values()
            .filter_map(|name| {
                if let Live::Open(file) = name {
                    Some(file.clone())
                } else {
                    None
                }
            })
            .collect()
    }

    /// Refuses changes of what is read-only, taken over by somebody else, or not known to be
    /// stored.
    pub(super) fn check_changeable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::read_only(LAYER));
        }
        match &*self.lost.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((kind, why)) => Err(Error::new(*kind, LAYER, why.clone())),
        }
    }

    /// Refuses all changes from now on.
    pub(super) fn lose(&self, error: Error) -> Error {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.get_or_insert_with(|| match error.kind() {
            Kind::Conflict => (Kind::Conflict, error.message().to_owned()),
            _ => (
                Kind::Io,
                format!("an earlier flush failed ({error}) and what it stored is not known; open it anew to change it"),
            ),
        });
        error
    }

    pub(super) fn deposed(&self, by: &Holder) -> Error {
        self.lose(lease::deposed(by))
    }

    /// Refuses a plain object that is not the one that a commit tells of.
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

    /// A plain object is not the one that a commit tells of.
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

    /// An object is not there any more, or is shorter than a commit says.
    pub(super) fn moved_on(&self, key: &str, offset: u64, found: Option<usize>) -> Error {
        if self.access == Access::ReadOnly {
            let message = "was changed by its writer since it was opened, and what it was then is not stored any more; open it anew";
            return Error::new(Kind::Conflict, LAYER, message).in_file(key);
        }
        match found {
            Some(n) => Error::corrupt(
                LAYER,
                offset + n as u64,
                "expected more bytes, found the end",
            )
            .in_file(key),
            None => Error::not_found(LAYER, key),
        }
    }
}
