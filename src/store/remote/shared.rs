//! What all files of an open bundle share: the store, what may be in memory, and whether anything may be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use super::RemoteOptions;
use super::cache::Cache;
use super::draft::Draft;
use super::file::File;
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
    memory: u64,
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
    used: AtomicI64,
    dirty: AtomicI64,
    /// Bytes on the local disk that are not in the store.
    spilled: AtomicI64,
    clock: AtomicU64,
    /// Held shared by who looks where bytes are and then goes there, exclusively by who moves them.
    moving: RwLock<()>,
    /// Held by who makes room.
    pub(super) pressure: Mutex<()>,
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
        ObjectId { generation: self.generation, session: self.session, number }
    }

    /// Whether this writer made the object.
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
        if !known || (self.local_cache().is_some() && !file.noted_locally.swap(true, Ordering::SeqCst)) {
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

    /// Forgets pages that were not used for long, where there are too many.
    pub(super) fn evict(&self) {
        if self.used.load(Ordering::Relaxed) <= self.memory as i64 {
            return;
        }
        let Ok(_one_at_a_time) = self.pressure.try_lock() else { return };
        let files = self.open_files();
        let mut used: Vec<u64> = Vec::new();
        for file in &files {
            let pages = file.pages();
            let elsewhere = pages.pages.values().filter(|page| page.is_elsewhere());
            used.extend(elsewhere.map(|page| page.used.load(Ordering::Relaxed)));
        }
        used.sort_unstable();
        // An eighth goes at a time, so that it is not looked for each page anew.
        let Some(before) = used.get(used.len() / 8) else { return };
        for file in &files {
            let count = file.pages_mut().forget_used_before(before + 1);
            self.count(count);
        }
        drop(files);
        self.forget_files();
    }

    pub(super) fn open_files(&self) -> Vec<Arc<File>> {
        let live = self.live();
        live.values().filter_map(|name| if let Live::Open(file) = name { Some(file.clone()) } else { None }).collect()
    }

    /// Forgets files that nobody has open and of which nothing is in memory.
    fn forget_files(&self) {
        for name in self.live().values_mut() {
            if let Live::Open(file) = name
                && Arc::strong_count(file) == 1
                && !file.noted.load(Ordering::SeqCst)
                && !file.noted_locally.load(Ordering::SeqCst)
                && file.pages().pages.is_empty()
            {
                let base = Arc::new(file.pages().base.clone());
                *name = Live::Known(base);
            }
        }
    }

    /// Whether enough is in memory that is nowhere else, and whether enough is on the local disk that is not in the store.
    fn is_full(&self) -> (bool, bool) {
        let spilled = self.spilled.load(Ordering::Relaxed);
        let half = (self.memory / 2) as i64;
        let is_full_of = |cache: &Cache| cache.is_full_of(spilled);
        (self.dirty.load(Ordering::Relaxed) >= half, self.cache.as_ref().is_some_and(is_full_of))
    }

    /// Waits until there is room for more that is not in the store: in memory by way of the local disk, and there by way of the
    /// store. Whoever writes faster than the store takes it helps it along.
    pub(super) fn make_room(&self) -> Result<()> {
        if self.is_full() == (false, false) {
            return Ok(());
        }
        {
            let _one_at_a_time = self.pressure.lock().unwrap_or_else(PoisonError::into_inner);
            let (memory_is_full, disk_is_full) = self.is_full();
            if !memory_is_full && !disk_is_full {
                return Ok(());
            }
            let mut parts = Vec::new();
            for file in self.open_files() {
                let oldest = |index: &u64| {
                    let pages = index * (self.part / PAGE)..(index + 1) * (self.part / PAGE);
                    file.pages().pages.range(pages).map(|(_, page)| page.used.load(Ordering::Relaxed)).max()
                };
                let dirty: Vec<u64> = file.pages().dirty.iter().copied().collect();
                parts.extend(dirty.iter().map(|index| (oldest(index), file.clone(), *index)));
            }
            // What was written last is likely to be written again.
            parts.sort_by_key(|(used, _, _)| *used);
            let keep = parts.len() / 4;
            parts.truncate(parts.len() - keep);
            let parts: Vec<_> = parts.into_iter().map(|(_, file, index)| (file, index)).collect();
            let cache = self.cache.as_ref().filter(|_| !disk_is_full);
            let is_spilled = cache.is_some_and(|cache| parts.iter().all(|(file, index)| file.spill(self, cache, *index)));
            if !is_spilled {
                self.store_parts(&parts)?;
            }
        }
        self.evict();
        Ok(())
    }

    /// Refuses changes of what is read-only, taken over by somebody else, or not known to be stored.
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
        if found.as_ref().is_some_and(|found| found.tag == plain.tag && found.len == plain.size) {
            return Ok(());
        }
        if self.access == Access::ReadOnly {
            return Err(self.moved_on(name, 0, Some(0)));
        }
        let changed = if found.is_some() { "was replaced" } else { "was removed" };
        let message = format!(
            "{changed} by something other than bandsaw since the last checkpoint; put the version with the tag {} back, or \
             remove everything under .bandsaw/ to take the bundle as its plain files are",
            plain.tag
        );
        Err(Error::new(Kind::Conflict, LAYER, message).in_file(name))
    }

    /// An object is not there any more, or is shorter than a commit says.
    pub(super) fn moved_on(&self, key: &str, offset: u64, found: Option<usize>) -> Error {
        if self.access == Access::ReadOnly {
            let message =
                "was changed by its writer since it was opened, and what it was then is not stored any more; open it anew";
            return Error::new(Kind::Conflict, LAYER, message).in_file(key);
        }
        match found {
            Some(n) => Error::corrupt(LAYER, offset + n as u64, "expected more bytes, found the end").in_file(key),
            None => Error::not_found(LAYER, key),
        }
    }
}
