//! State shared by all files of an open bundle: the store, the memory budget, and the permission to
//! change anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::LAYER;
use super::RemoteOptions;
use super::cache::Cache;
use super::file::File;
use super::layout::{LeaseHolder, Name, ObjectId, Plain};
use super::lease;
use super::log::{Log, random};
use super::names::{NameState, Names};
use super::page_cache::PageCache;
use super::task_pool::TaskPool;
use crate::device::Access;
use crate::store::Locks;
use crate::store::objects::Objects;
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, Kind, Result};

#[derive(Debug)]
pub(super) struct RemoteState {
    pub(super) objects: Arc<dyn Objects>,
    pub(super) access: Access,
    pub(super) part: u64,
    pub(super) connections: usize,
    /// Memory for pages.
    pub(super) page_cache: Arc<PageCache>,
    /// There is no log: the names are those of the objects themselves.
    pub(super) plain_only: bool,
    pub(super) locks: Locks,
    pub(super) names: Names,
    pub(super) cache: Option<Cache>,
    commits: Commits,
    pub(super) generation: u64,
    new_objects: NewObjects,
    /// Tasks that prefetch data.
    pub(super) readers: TaskPool,
    /// Tasks that store written data.
    pub(super) writers: TaskPool,
    /// The time after which no request of a previous writer can arrive.
    pub(super) settles: Instant,
    /// The previous writer, or the one before it, did not close the bundle.
    pub(super) took_over: bool,
}

/// The commits of a bundle, and the reasons why there are none.
#[derive(Debug)]
struct Commits {
    /// The committed state. Locked during a commit.
    log: Mutex<Option<Log>>,
    /// Nothing is committed while there is a draft.
    draft: Mutex<Option<Draft>>,
    /// The reason why nothing can be changed any more.
    lost: Mutex<Option<(Kind, String)>>,
    /// Held shared while bytes are located and read, exclusively while they are moved.
    moving: RwLock<()>,
}

/// The kind of a new bundle before its commit.
#[derive(Debug, Clone)]
pub(super) enum Draft {
    /// The first bundle under its prefix.
    New(RemoteOptions),
    /// The successor of a bundle, whose lease is held.
    Replacing,
}

/// The names of the objects that this writer creates.
#[derive(Debug)]
struct NewObjects {
    session: u64,
    next: AtomicU64,
}

impl RemoteState {
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
        let part = log.as_ref().map_or(options.part, |log| log.state.part);
        Ok(Self {
            access: options.access,
            part,
            connections: options.connections.max(1),
            page_cache: Arc::new(PageCache::new(options.memory, part)),
            plain_only: log.is_none(),
            locks: Locks::default(),
            names: Names::new(live.collect()),
            cache,
            generation: log.as_ref().map_or(0, |log| log.state.generation),
            new_objects: NewObjects {
                session: random()?,
                next: AtomicU64::new(0),
            },
            readers: TaskPool::new("read ahead"),
            writers: TaskPool::new("store"),
            settles: Instant::now() + options.grace,
            took_over: log.as_ref().is_some_and(|log| !log.state.settled),
            commits: Commits {
                log: Mutex::new(log),
                draft: Mutex::default(),
                lost: Mutex::default(),
                moving: RwLock::default(),
            },
            objects,
        })
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Option<Log>> {
        self.commits.log.lock()
    }

    /// Returns the draft; `None`: it is no draft, or no longer one.
    pub(super) fn draft(&self) -> MutexGuard<'_, Option<Draft>> {
        self.commits.draft.lock()
    }

    /// Prevents moving of bytes while it is held.
    pub(super) fn staying(&self) -> RwLockReadGuard<'_, ()> {
        self.commits.moving.read()
    }

    pub(super) fn moving(&self) -> RwLockWriteGuard<'_, ()> {
        self.commits.moving.write()
    }

    /// Returns a name for a new object.
    pub(super) fn new_object(&self) -> ObjectId {
        let number = self.new_objects.next.fetch_add(1, Ordering::Relaxed);
        ObjectId {
            generation: self.generation,
            session: self.new_objects.session,
            number,
        }
    }

    /// Returns true if this writer created the object.
    pub(super) fn is_own(&self, object: ObjectId) -> bool {
        object.session == self.new_objects.session
    }

    /// Lists a file for the next commit.
    pub(super) fn mark_dirty(&self, file: &File) {
        if file.listed().begin(self.local_cache().is_some()) {
            self.mark_names_dirty([file.name()]);
        }
    }

    /// Lists names together: one commit, and one local flush, includes all of them.
    pub(super) fn mark_names_dirty<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        self.names.mark_dirty(names, self.local_cache().is_some());
    }

    /// Refuses changes if the bundle is read-only, was taken over by another writer, or may not be
    /// stored.
    pub(super) fn check_changeable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(Error::read_only(LAYER));
        }
        match &*self.commits.lost.lock() {
            None => Ok(()),
            Some((kind, why)) => Err(Error::new(*kind, LAYER, why.clone())),
        }
    }

    /// Refuses all changes from now on.
    pub(super) fn lose(&self, error: Error) -> Error {
        let mut lost = self.commits.lost.lock();
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
            return self.missing_object(name, 0, Some(0));
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
        Error::conflict(LAYER, message).in_part(name)
    }

    /// Returns the error about an object that is missing, or shorter than committed.
    pub(super) fn missing_object(&self, key: &str, offset: u64, found: Option<usize>) -> Error {
        if self.access == Access::ReadOnly {
            let message = "changed by its writer since it was opened; open the image again";
            return Error::conflict(LAYER, message).in_part(key);
        }
        match found {
            Some(n) => {
                let message = "the object is shorter than committed";
                Error::corrupt(LAYER, offset + n as u64, message).in_part(key)
            }
            None => Error::not_found(LAYER, key),
        }
    }
}
