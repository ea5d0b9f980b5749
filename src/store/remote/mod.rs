//! A bundle in an object store, accessed like a folder. Source: docs/formats/object-store.md.
//!
//! ```text
//! Info.plist, token, bands/<hex>   the bundle itself, as of the last checkpoint      checkpoint.rs
//! .bandsaw/log/<number>            commits, one for each flush                       log.rs, commit.rs; their bytes: layout.rs
//! .bandsaw/manifest/<number>       all commits up to a number, so that few are read  log.rs
//! .bandsaw/lease/<generation>      says that a writer is alive                       lease.rs
//! .bandsaw/objects/<unique>        what commits and snapshots point to               file.rs
//! ```
//!
//! [`Remote`] lists the files ([`store`]), each file holds its [`pages`], and one
//! [`page_cache`] has the memory for them all ([`eviction`]). [`task_pool`] prefetch data ([`prefetch`]) and store
//! written data. A new bundle is a [`draft`] first. A [`cache`] on a local disk holds data that
//! exceeds the memory, and local flushes ([`writeback`]).

mod buffers;
mod cache;
mod checkpoint;
mod commit;
mod draft;
mod eviction;
mod fetch;
mod fields;
mod file;
mod layout;
mod lease;
mod log;
mod names;
mod page_cache;
mod pages;
mod periodic;
mod prefetch;
mod remote_state;
mod snapshots;
mod store;
mod task_pool;
mod writeback;

use std::sync::Arc;
use std::time::Duration;

use super::objects::Objects;
use crate::device::Access;
use crate::sync::Mutex;
use crate::{Error, Result};
use cache::Cache;
use layout::Document;
use lease::Heartbeat;
use log::Log;
use periodic::PeriodicTask;
use remote_state::RemoteState;

pub use cache::{CacheOptions, FlushTo};
pub use checkpoint::{Checkpointed, Status};
pub use layout::LeaseHolder;
pub use snapshots::Snapshot;

const LAYER: &str = "object store";

/// Options of opening a bundle in an object store.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// The access mode. A writer has the bundle alone; a read-only open writes nothing and keeps
    /// the state at the time of opening.
    pub access: Access,
    /// Opens a snapshot, read-only.
    pub snapshot: Option<String>,
    /// Takes the bundle over from a writer that appears to be alive.
    pub steal: bool,
    /// Approximate maximum number of bytes of contents kept in memory.
    pub memory: u64,
    /// Number of concurrent requests.
    pub connections: usize,
    /// Time without a heartbeat after which a writer counts as gone.
    pub expiry: Duration,
    /// Time during which requests of a writer that is gone may still arrive.
    pub grace: Duration,
    /// A cache on a local disk. A [draft](Remote::draft) has none.
    pub cache: Option<CacheOptions>,
    /// Maximum number of bytes of an object, a power of two; for bundles written for the first
    /// time.
    pub part: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            access: Access::ReadOnly,
            snapshot: None,
            steal: false,
            memory: 128 << 20,
            connections: 8,
            expiry: Duration::from_secs(30),
            grace: Duration::from_secs(60),
            cache: None,
            part: 8 << 20,
        }
    }
}

/// An open bundle in an object store, as the [`Store`](super::Store) of its files.
///
/// A flush of any file, and [`sync`](super::Store::sync), is one commit of all changes so far
/// (unless it goes to a [cache](FlushTo::Local)): a reader that opens the bundle sees all of it or
/// nothing. When the last reference to this and its files is dropped, changes are committed and the
/// bundle is released for the next writer; [`close`](Self::close) does that and reports errors.
#[derive(Debug)]
pub struct Remote {
    session: Arc<Session>,
}

/// State that lives as long as the bundle or any of its files is open.
#[derive(Debug)]
struct Session {
    shared: Arc<RemoteState>,
    /// `None` after closing, and for read-only bundles.
    heartbeat: Mutex<Option<Heartbeat>>,
    /// The upload of locally flushed data.
    uploads: Mutex<Option<PeriodicTask>>,
}

impl Remote {
    /// Opens the bundle behind `objects`. [`Kind::Conflict`](crate::Kind), naming the holder, if another process
    /// writes it; also if the cache holds flushed data that is not in the store, and another writer
    /// has changed the bundle since. Otherwise that data is committed first.
    pub fn open(objects: Arc<dyn Objects>, options: &RemoteOptions) -> Result<Arc<Self>> {
        if !options.part.is_power_of_two() || options.part < buffers::PAGE || options.part > 1 << 30
        {
            return Err(Error::invalid(
                LAYER,
                "expected a power of two from 64 KiB to 1 GiB for the size of objects",
            ));
        }
        if options.snapshot.is_some() && options.access == Access::ReadWrite {
            return Err(Error::read_only(LAYER));
        }
        let cache = options
            .cache
            .as_ref()
            .map(|cache| Cache::open(cache, options.access))
            .transpose()?;
        let check_fits = |state: Option<&Document>| match &cache {
            Some(cache) => cache.journal().check_fits(&*objects, state, cache.place()),
            None => Ok(()),
        };
        let (log, heartbeat) = match options.access {
            Access::ReadOnly => {
                let log = Log::load(&*objects)?;
                check_fits(log.as_ref().map(|log| &log.state))?;
                (log, None)
            }
            Access::ReadWrite => {
                let log = lease::acquire(&objects, options, &|state, entry| {
                    check_fits(Some(state))?;
                    cache
                        .as_ref()
                        .map_or(Ok(()), |cache| cache.journal().announce(entry))
                })?;
                let heartbeat = Heartbeat::start(objects.clone(), &log.state, options.expiry)?;
                (Some(log), Some(heartbeat))
            }
        };
        let shared = Arc::new(RemoteState::new(objects, options, log, cache)?);
        match &options.snapshot {
            Some(name) => shared.show_snapshot(name)?,
            None => shared.replay(),
        }
        let session = Arc::new(Session {
            shared,
            heartbeat: Mutex::new(heartbeat),
            uploads: Mutex::new(None),
        });
        session.shared.commit()?;
        *session.uploads.lock() = session.shared.begin_uploads()?;
        Ok(Arc::new(Self { session }))
    }

    fn shared(&self) -> &Arc<RemoteState> {
        &self.session.shared
    }

    /// Returns the number of this writer, counted from the first one; of a read-only bundle, that
    /// of the last writer.
    pub fn generation(&self) -> u64 {
        self.shared().generation
    }

    /// Commits all changes, brings the plain names [up to date](Self::checkpoint) unless that has
    /// to wait, and releases the bundle for the next writer. Nothing can be changed afterwards.
    pub fn close(&self) -> Result<()> {
        self.session.close()
    }
}

impl Session {
    fn close(&self) -> Result<()> {
        drop(self.uploads.lock().take());
        self.shared.readers.close();
        self.shared.writers.close();
        let mut heartbeat = self.heartbeat.lock();
        if self.shared.draft().is_some() {
            let given_up = self.shared.give_up();
            *heartbeat = None;
            return given_up;
        }
        if heartbeat.is_none() {
            return Ok(());
        }
        let checkpoint = || {
            if self.shared.is_settled() {
                return self.shared.checkpoint(&|_| Ok(())).map(drop);
            }
            // Plain names have to wait; removing unreferenced objects does not.
            self.shared
                .log()
                .as_mut()
                .map_or(Ok(0), |log| self.shared.clear(log))
                .map(drop)
        };
        let closed = self.shared.with_flushes_to_store(|| {
            // The bundle is valid without it: the next writer can do it as well.
            let plain = checkpoint();
            self.shared.release().and(plain)
        });
        *heartbeat = None;
        closed
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Callers that need the result have called it before.
        let _ = self.close();
    }
}
