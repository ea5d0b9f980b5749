//! A bundle that comes into being: one commit tells of all of it, and before that there is nothing.
//!
//! Where nothing is, not even the log is begun until then: what is stored has names that only this
//! writer knows, so that whoever is quicker has the place, and what is given up is removed without
//! asking anybody. A bundle that is to be replaced is held by its lease meanwhile, and stays what
//! it is for everybody else.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::layout::{Document, LAYER, Name, OBJECTS, ObjectId, ROOT, What};
use super::lease::{self, Heartbeat};
use super::log::Log;
use super::shared::{Live, Shared};
use super::{Remote, RemoteOptions, Session};
use crate::device::Access;
use crate::store::objects::{Objects, has_any};
use crate::{Error, Kind, Result};

/// The generation of a bundle's first writer.
const FIRST: u64 = 1;

/// What a new bundle will be, once it is told of.
#[derive(Debug, Clone)]
pub(super) enum Draft {
    /// The first thing under its prefix.
    New(RemoteOptions),
    /// The successor of a bundle, whose lease is held.
    Replacing,
}

impl Remote {
    /// Begins a new bundle behind `objects`, to be filled and then [published](Self::publish).
    /// Until then nobody sees anything of it, a flush makes nothing durable, and dropping it
    /// removes what was stored.
    ///
    /// [`Kind::Conflict`] if there are files already, unless `overwrite` is set: they are replaced
    /// when this is published, and their snapshots stay.
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
        let shared = Arc::new(Shared::new(objects, &options, Some(log), None)?);
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

    /// Makes a [draft](Self::draft) the bundle that everybody sees, durably, in one commit.
    ///
    /// `go_on` is asked when all of it is stored and nothing of it told: an error from it leaves
    /// the draft a draft. [`Kind::Conflict`] if somebody else made one there meanwhile.
    pub fn publish(&self, go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let shared = self.shared();
        let Some(draft) = shared.draft().clone() else {
            return Ok(());
        };
        // What may fail for want of room does so while nothing is told of it.
        shared.store_all()?;
        go_on()?;
        if let Draft::New(options) = draft {
            let heartbeat = shared.take_place(&options)?;
            *self
                .session
                .heartbeat
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(heartbeat);
        }
        *shared.draft() = None;
        shared.commit()?;
        if shared.is_settled() {
            // The bundle is there without its plain names: whoever closes it brings up to date what
            // failed here.
            let _ = shared.checkpoint(&|_| Ok(()));
        }
        Ok(())
    }

    /// Returns whether no files are there.
    pub fn is_empty(&self) -> Result<bool> {
        is_empty(&*self.shared().objects, self.shared().log().as_ref())
    }
}

fn taken() -> Error {
    Error::new(
        Kind::Conflict,
        LAYER,
        "exists already, and overwriting it was not asked for",
    )
}

fn has_files(log: &Log) -> bool {
    log.state
        .names
        .values()
        .any(|name| matches!(name, Name::File(_)))
}

/// Returns whether nothing but what others may have left under `.bandsaw/` is there.
fn is_empty(objects: &dyn Objects, log: Option<&Log>) -> Result<bool> {
    if let Some(log) = log {
        return Ok(!has_files(log));
    }
    Ok(!has_any(objects, "", &|key| !key.starts_with(ROOT))?)
}

impl Log {
    /// What the log would tell that nobody has begun, to the first writer.
    fn blank(part: u64) -> Self {
        Self::of(Document {
            number: 0,
            id: 0,
            parent: 0,
            generation: FIRST,
            what: What::Change,
            part,
            settled: true,
            holder: Default::default(),
            names: BTreeMap::new(),
            snapshots: BTreeMap::new(),
        })
    }
}

impl Shared {
    /// `None`: it is no draft, or none any more.
    pub(super) fn draft(&self) -> MutexGuard<'_, Option<Draft>> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows nothing of what is there, and has the commit tell that it is gone.
    fn begin_draft(&self, draft: Draft) {
        *self.draft() = Some(draft);
        let mut live = self.live();
        let names: Vec<String> = live.keys().cloned().collect();
        live.values_mut().for_each(|name| *name = Live::Gone);
        drop(live);
        names.iter().for_each(|name| self.note_name(name));
    }

    fn store_all(&self) -> Result<()> {
        self.store_files(&self.open_files())
    }

    /// Begins the log where there is none, and takes the lease.
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
            let entry = log.next(What::Release)?;
            log.append(&*self.objects, entry)?;
            return Err(taken());
        }
        let heartbeat = Heartbeat::start(self.objects.clone(), &log.state, options.expiry)?;
        *self.log() = Some(log);
        Ok(heartbeat)
    }

    /// Gives a draft up: what was there before is all there is.
    pub(super) fn give_up(&self) -> Result<()> {
        let draft = self.draft().take();
        let removed = self.remove_own_objects();
        match draft {
            Some(Draft::Replacing) => self.release().and(removed),
            Some(Draft::New(_)) | None => {
                self.lose(Error::new(Kind::Conflict, LAYER, "was given up"));
                removed
            }
        }
    }

    /// Objects that nobody else ever knew of.
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
