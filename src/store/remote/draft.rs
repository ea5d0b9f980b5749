//! A new bundle that becomes visible as a whole by one commit.
//!
//! In an empty place, not even the log is begun until then: the stored objects have names unique to
//! this writer, so that the place goes to the first writer that commits, and an abandoned draft is
//! removed without coordination. A bundle that is to be replaced is held by its lease in the
//! meantime, and does not change for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::LAYER;
use super::layout::{Document, EntryPurpose, Name, OBJECTS, ObjectId, ROOT};
use super::lease::{self, Heartbeat};
use super::log::Log;
use super::names::NameState;
use super::remote_state::{Draft, RemoteState};
use super::{Remote, RemoteOptions, Session};
use crate::device::Access;
use crate::store::objects::{Objects, has_any};
use crate::sync::Mutex;
use crate::{Error, Reason, Result};

/// The generation of a bundle's first writer.
const FIRST: u64 = 1;

impl Remote {
    /// Begins a new bundle behind `objects`, to be filled and then [published](Self::publish).
    /// Until then it is invisible, a flush makes nothing durable, and dropping it removes the
    /// stored objects.
    ///
    /// [`Kind::Conflict`](crate::Kind) if there are files already, unless `overwrite` is set: they are replaced
    /// when this is published, and their snapshots are kept.
    pub fn draft(
        objects: Arc<dyn Objects>,
        options: &RemoteOptions,
        overwrite: bool,
    ) -> Result<Arc<Self>> {
        let options = RemoteOptions {
            access: Access::ReadWrite,
            snapshot: None,
            cache: None,
            ..options.clone()
        };
        let known = Log::load(&*objects)?;
        let is_empty = is_empty(&*objects, known.as_ref())?;
        if !is_empty && !overwrite {
            return Err(taken());
        }
        let (log, heartbeat, draft) = if known.is_none() && is_empty {
            (Log::blank(options.part), None, Draft::New(options.clone()))
        } else {
            let log = lease::acquire(&objects, &options, &|_, _| Ok(()))?;
            let heartbeat = Heartbeat::start(objects.clone(), &log.state, options.expiry)?;
            (log, Some(heartbeat), Draft::Replacing)
        };
        let appeared = !overwrite && has_files(&log);
        let shared = Arc::new(RemoteState::new(objects, &options, Some(log), None)?);
        shared.begin_draft(draft);
        let remote = Arc::new(Self {
            session: Arc::new(Session {
                shared,
                heartbeat: Mutex::new(heartbeat),
                uploads: Mutex::new(None),
            }),
        });
        if appeared { Err(taken()) } else { Ok(remote) }
    }

    /// Makes a [draft](Self::draft) visible as the bundle, durably, in one commit.
    ///
    /// `confirm` is called after everything is stored and before the commit: an error from it leaves
    /// the draft a draft. [`Kind::Conflict`](crate::Kind) if another writer created a bundle there in the
    /// meantime.
    pub fn publish(&self, confirm: &dyn Fn() -> Result<()>) -> Result<()> {
        let shared = self.shared();
        let Some(draft) = shared.draft().clone() else {
            return Ok(());
        };
        // Steps that may run out of space come before anything is visible.
        shared.store_all()?;
        confirm()?;
        if let Draft::New(options) = draft {
            let heartbeat = shared.take_place(&options)?;
            *self.session.heartbeat.lock() = Some(heartbeat);
        }
        *shared.draft() = None;
        shared.commit()?;
        if shared.is_settled() {
            // The bundle is valid without its plain names: the next writer to close it completes a
            // failed checkpoint.
            let _ = shared.checkpoint(&|_| Ok(()));
        }
        Ok(())
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> Result<bool> {
        is_empty(&*self.shared().objects, self.shared().log().as_ref())
    }
}

fn taken() -> Error {
    Error::conflict(LAYER, "already exists").because(Reason::Exists)
}

fn has_files(log: &Log) -> bool {
    log.state
        .names
        .values()
        .any(|name| matches!(name, Name::File(_)))
}

/// Returns true if there is nothing except objects of others under `.bandsaw/`.
fn is_empty(objects: &dyn Objects, log: Option<&Log>) -> Result<bool> {
    if let Some(log) = log {
        return Ok(!has_files(log));
    }
    Ok(!has_any(objects, "", &|key| !key.starts_with(ROOT))?)
}

impl Log {
    /// Returns an empty log, not stored yet, for the first writer.
    fn blank(part: u64) -> Self {
        Self::of(Document {
            number: 0,
            id: 0,
            parent: 0,
            generation: FIRST,
            what: EntryPurpose::Change,
            part,
            settled: true,
            holder: Default::default(),
            names: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        })
    }
}

impl RemoteState {
    /// Hides the existing files, and makes the commit remove them.
    fn begin_draft(&self, draft: Draft) {
        *self.draft() = Some(draft);
        let mut live = self.names.live();
        let names: Vec<String> = live.keys().cloned().collect();
        live.values_mut().for_each(|name| *name = NameState::Gone);
        drop(live);
        self.mark_names_dirty(names.iter().map(String::as_str));
    }

    fn store_all(&self) -> Result<()> {
        self.store_files(&self.names.open_files())
    }

    /// Begins the log if there is none, and takes the lease.
    fn take_place(&self, options: &RemoteOptions) -> Result<Heartbeat> {
        let known = Log::load(&*self.objects)?;
        if known.is_some() || !is_empty(&*self.objects, None)? {
            return Err(taken());
        }
        let mut log = lease::acquire(
            &self.objects,
            &RemoteOptions {
                steal: false,
                ..options.clone()
            },
            &|_, _| Ok(()),
        )?;
        if log.state.generation != FIRST || has_files(&log) {
            let entry = log.next(EntryPurpose::Release)?;
            log.append(&*self.objects, entry)?;
            return Err(taken());
        }
        let heartbeat = Heartbeat::start(self.objects.clone(), &log.state, options.expiry)?;
        *self.log() = Some(log);
        Ok(heartbeat)
    }

    /// Abandons a draft: the previous contents are unchanged.
    pub(super) fn give_up(&self) -> Result<()> {
        let draft = self.draft().take();
        let removed = self.remove_own_objects();
        match draft {
            Some(Draft::Replacing) => self.release().and(removed),
            Some(Draft::New(_)) | None => {
                self.lose(Error::conflict(LAYER, "the new image was discarded"));
                removed
            }
        }
    }

    /// Removes objects that no other writer references.
    fn remove_own_objects(&self) -> Result<()> {
        let mut own = Vec::new();
        self.objects.list(OBJECTS, &mut |key, _| {
            own.extend(ObjectId::from_key(key).filter(|id| self.is_own(*id)));
            Ok(())
        })?;
        own.iter()
            .try_for_each(|id| self.objects.remove(&id.key()).map(drop))
    }
}
