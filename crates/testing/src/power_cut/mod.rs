//! A store that yields every state that a power failure could leave.
//!
//! It records all operations: writes, discards, lengths and flushes for each file; names created,
//! renamed and removed, and syncs. [`PowerCut::crashes`] then iterates over the record. At each
//! point it yields the possible states of the store after a restart:
//!
//! * flushed contents and lengths and synced names are durable;
//! * any subset of the other changes survives: each is kept, lost, or torn between sectors of 512
//!   bytes. A sector has some contents that it had since the last flush, independent of its
//!   neighbors, so changes survive in any order;
//! * names and contents survive independently: a name may refer to an empty file, a full file may
//!   have lost its name;
//! * a rename is atomic: the file may be found under both names, never under none. A renamed folder
//!   has always one name;
//! * times survive independently of contents and names.
//!
//! [`PowerCut::folder`] is a folder of a host with such a disk: the names that are changed through it
//! are synced folder by folder, as the host does.
//!
//! This is stricter than any real file system and disk.

mod disk;
mod file;
mod folder;
mod names;
mod survival;

use std::fmt;
use std::sync::Arc;

use super::pages::Pages;
use bandsaw_core::device::{Access, BlockDevice};
use bandsaw_core::store::{
    Entry, Guard, Lock, Locks, Meta, Open, Put, Store, check_folder, check_name,
};
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Result};
use disk::{Disk, Event};
use file::PowerCutFile;
use names::FileId;

pub use folder::PowerCutFolder;
pub use survival::Survival;

const LAYER: &str = "power cut store";

/// A recording store in memory. Clones share it.
#[derive(Clone, Default)]
pub struct PowerCut {
    recorder: Arc<Mutex<Recorder>>,
    locks: Locks,
}

#[derive(Default)]
struct Recorder {
    /// The state before the first event.
    start: Disk,
    now: Disk,
    events: Vec<Event>,
}

/// The subset of changes neither flushed nor synced that survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// None of them.
    Nothing,
    /// All of them, as if the power had failed a moment later.
    Everything,
    /// A subset, chosen by this seed.
    Some(u64),
}

/// One state that a power failure could leave.
#[derive(Debug)]
pub struct Crash {
    /// Number of events before it; compare it with [`PowerCut::position`].
    pub position: usize,
    /// The changes that survived. With the position, it identifies this crash:
    /// [`PowerCut::crash_at`] reproduces it.
    pub keep: Keep,
    /// The state after the crash. All of it counts as durable.
    pub store: PowerCut,
}

impl PowerCut {
    /// Returns the number of events recorded so far.
    pub fn position(&self) -> usize {
        self.recorder.lock().events.len()
    }

    /// Returns the state that a crash now would leave.
    pub fn crash(&self, keep: Keep) -> PowerCut {
        Self::holding(self.recorder.lock().now.crash(keep))
    }

    /// Returns the state that a crash after the first `position` events would have left.
    pub fn crash_at(&self, position: usize, keep: Keep) -> PowerCut {
        let recorder = self.recorder.lock();
        let mut disk = recorder.start.clone();
        recorder.events[..position]
            .iter()
            .for_each(|event| disk.apply(event));
        Self::holding(disk.crash(keep))
    }

    /// Returns the crashes at every point of the record: two extremes, and `each` others that
    /// depend on `seed`.
    pub fn crashes(&self, seed: u64, each: u64) -> impl Iterator<Item = Crash> + use<> {
        self.crashes_from(0, seed, each)
    }

    /// Like [`crashes`](Self::crashes), from the point on where [`position`](Self::position) was
    /// `first`.
    pub fn crashes_from(
        &self,
        first: usize,
        seed: u64,
        each: u64,
    ) -> impl Iterator<Item = Crash> + use<> {
        let (mut disk, events) = {
            let recorder = self.recorder.lock();
            (recorder.start.clone(), recorder.events.clone())
        };
        events[..first].iter().for_each(|event| disk.apply(event));
        (first..=events.len()).flat_map(move |position| {
            if position > first {
                disk.apply(&events[position - 1]);
            }
            let some = (0..each).map(|n| Keep::Some(seed ^ (position as u64) << 20 ^ n));
            let keeps = [Keep::Nothing, Keep::Everything].into_iter().chain(some);
            let crash = |keep| Crash {
                position,
                keep,
                store: Self::holding(disk.crash(keep)),
            };
            keeps.map(crash).collect::<Vec<_>>()
        })
    }

    /// Returns the folder at `path` of a simulated host whose root is this store; the root for "".
    pub fn folder(&self, path: &str) -> PowerCutFolder {
        PowerCutFolder::new(self.clone(), path)
    }

    fn holding(disk: Disk) -> Self {
        let recorder = Recorder {
            start: disk.clone(),
            now: disk,
            events: Vec::new(),
        };
        Self {
            recorder: Arc::new(Mutex::new(recorder)),
            locks: Locks::default(),
        }
    }
}

impl Recorder {
    fn record(&mut self, event: Event) {
        self.now.apply(&event);
        self.events.push(event);
    }

    fn place(&mut self, name: &str, contents: Pages) -> FileId {
        let file = self.now.new_id();
        self.record(Event::Place {
            name: name.to_owned(),
            file,
            contents,
        });
        file
    }
}

impl fmt::Debug for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PowerCut")
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

impl Store for PowerCut {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        let mut recorder = self.recorder.lock();
        let file = match (mode, recorder.now.find(name)) {
            (Open::Read | Open::Write, None) | (Open::CreateNew, Some(_)) => return Ok(None),
            (_, Some(file)) => file,
            (_, None) => recorder.place(name, Pages::default()),
        };
        let access = if mode == Open::Read {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        Ok(Some(Arc::new(PowerCutFile::new(
            self.recorder.clone(),
            file,
            access,
        ))))
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_name(name)?;
        let mut recorder = self.recorder.lock();
        if cond == Put::IfAbsent && recorder.now.find(name).is_some() {
            return Ok(false);
        }
        let mut contents = Pages::default();
        contents.set_len(bytes.len() as u64);
        contents.write(0, bytes);
        recorder.place(name, contents);
        Ok(true)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        let recorder = self.recorder.lock();
        Ok(recorder.now.find(name).map(|file| recorder.now.meta(file)))
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut recorder = self.recorder.lock();
        let file = recorder
            .now
            .find(from)
            .ok_or_else(|| Error::not_found(LAYER, from))?;
        let contents = recorder.now.contents(file).clone();
        recorder.place(to, contents);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut recorder = self.recorder.lock();
        if recorder.now.find(from).is_none() {
            return Err(Error::not_found(LAYER, from));
        }
        if from != to {
            recorder.record(Event::Rename {
                from: from.to_owned(),
                to: to.to_owned(),
            });
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        check_name(name)?;
        let mut recorder = self.recorder.lock();
        let found = recorder.now.find(name).is_some();
        if found {
            recorder.record(Event::Remove {
                name: name.to_owned(),
            });
        }
        Ok(found)
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let names = self.recorder.lock().now.names.list(prefix);
        names
            .iter()
            .try_for_each(|name| each(Entry::new(name, &|| self.stat(name))))
    }

    fn sync(&self) -> Result<()> {
        let mut recorder = self.recorder.lock();
        if recorder.now.names.has_unsynced() {
            recorder.record(Event::Sync);
        }
        Ok(())
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        check_name(name)?;
        match mode {
            Lock::Exclusive => drop(self.open(name, Open::Create)?),
            Lock::Shared if self.stat(name)?.is_none() => return Ok(Guard::nothing()),
            Lock::Shared => {}
        }
        self.locks.acquire(name, mode)
    }
}
