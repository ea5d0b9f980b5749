//! The folder of a bundle's states.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::progress::Progress;
use bandsaw::store::{Guard, HostStore, Lock, NodeKind, names_in};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Reason, Result, platform};
use bandsaw_core::parallel;

use crate::LAYER;
use crate::bundle::{self, BundleFolder};
use crate::hash::hash;
use crate::manifest::{Manifest, Soundness};
use crate::sealed::Found;

/// The folder of states within the bundle.
const WITHIN: &str = ".bandsaw/states";
/// The lock of the folder of states.
const LOCK: &str = "lock";
/// Prefixes of states that are incomplete, and that are being removed.
pub(crate) const UNFINISHED: &str = ".new-";
pub(crate) const REMOVING: &str = ".gone-";
/// Threads that read files.
pub(crate) const THREADS: usize = 8;

/// The usability of a state.
#[derive(Debug)]
pub enum Condition {
    /// All of its files exist, with their lengths and times. Their contents were not read.
    Whole(Manifest),
    /// Its list or a file is missing, or is not as it was made; the reason.
    Incomplete(String),
    /// It has another version of the format: neither used nor removed.
    OtherFormat(u64),
    /// The host cannot read it: neither used nor removed.
    Unreadable(Error),
}

/// A state of a bundle.
#[derive(Debug)]
pub struct State {
    /// Its name.
    pub id: String,
    /// Its usability.
    pub condition: Condition,
}

impl State {
    /// Returns the contents of a state that is whole.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.condition {
            Condition::Whole(manifest) => Some(manifest),
            _ => None,
        }
    }

    /// Returns true if it is whole, and was found sound when it was made.
    pub fn is_sound(&self) -> bool {
        self.manifest()
            .is_some_and(|manifest| manifest.check == Soundness::Sound)
    }
}

/// A folder of states of one bundle.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    store: Arc<dyn HostStore>,
}

impl Shelf {
    /// Returns the states of a bundle: those in it, or those in a folder named after it in `other`.
    pub fn of(bundle: &BundleFolder, other: Option<&Path>) -> Result<Self> {
        let found = match other {
            None => bundle.store().attributes(WITHIN)?,
            Some(other) => bundle.store().elsewhere(other).attributes(bundle.name()?)?,
        };
        let folder = match other {
            None => bundle.path().join(WITHIN),
            Some(other) => other.join(bundle.name()?),
        };
        match found {
            None => {}
            Some(found) if found.kind != NodeKind::Folder => {
                let message = "expected a folder of states";
                return Err(Error::unsupported(LAYER, message).in_file(folder));
            }
            Some(_) if other.is_some() && is_within(&folder, bundle.path())? => {
                let message = "in the bundle itself; name another folder for the states";
                return Err(Error::invalid(LAYER, message).in_file(folder));
            }
            Some(_) => {}
        }
        Ok(Self::at(bundle.store().elsewhere(&folder)))
    }

    /// Returns the states in a folder.
    pub(crate) fn at(store: Arc<dyn HostStore>) -> Self {
        Self {
            folder: store.host_path(""),
            store,
        }
    }

    /// Returns the states without the handles of folders that were renamed since they were opened.
    pub(crate) fn reopened(&self) -> Result<Self> {
        // Another store does not know which names this one has changed.
        self.store.sync()?;
        Ok(Self::at(self.store.elsewhere(&self.folder)))
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns an error about a state that names the bundle first.
    pub(crate) fn named(&self, error: Error, name: &str) -> Error {
        self.store.named(error, name)
    }

    pub(crate) fn store(&self) -> &dyn HostStore {
        &*self.store
    }

    /// Returns the folder of a state.
    pub fn path(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// Keeps other processes from changing the states.
    pub(crate) fn lock(&self) -> Result<Guard> {
        match self.store.lock(LOCK, Lock::Exclusive) {
            // File servers without locks.
            Err(error) if error.kind() == Kind::Unsupported => Ok(Guard::nothing()),
            taken => taken.map_err(|error| self.named(error, "")),
        }
    }

    /// Returns the names of all states, in no order. Nothing of the states is read.
    pub fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in names_in(&*self.store, "")?.into_iter().flatten() {
            let Ok(id) = name.into_string() else {
                continue;
            };
            if id.starts_with('.') {
                continue;
            }
            let found = self.store.attributes(&id)?;
            if found.is_some_and(|found| found.kind == NodeKind::Folder) {
                names.push(id);
            }
        }
        Ok(names)
    }

    /// Returns all states, the oldest first. Only metadata is read.
    pub fn list(&self) -> Result<Vec<State>> {
        let mut states = Vec::new();
        for id in self.names()? {
            let condition = self.condition(&id).unwrap_or_else(Condition::Unreadable);
            states.push(State { id, condition });
        }
        states.sort_by(|one, other| order(one).cmp(&order(other)));
        Ok(states)
    }

    fn condition(&self, id: &str) -> Result<Condition> {
        let incomplete = |why: &str| Ok(Condition::Incomplete(why.to_owned()));
        let manifest = match Manifest::get(self.store(), &format!("{id}/"))? {
            Found::Absent => return incomplete("its list of files is missing"),
            Found::Damaged => return incomplete("its list of files is damaged"),
            Found::OtherFormat(version) => return Ok(Condition::OtherFormat(version)),
            Found::Whole(manifest) => manifest,
        };
        let listing = bundle::list(self.store(), id)?;
        for (name, file) in &manifest.files {
            match listing.get(name) {
                None => return incomplete(&format!("{name} is missing")),
                Some(found) if (found.len, found.modified) != (file.len, file.modified) => {
                    return incomplete(&format!("{name} was changed"));
                }
                Some(_) => {}
            }
        }
        Ok(Condition::Whole(manifest))
    }

    /// Returns the state named `id`, which must be whole.
    pub fn find(&self, id: &str) -> Result<Manifest> {
        let state = self.list()?.into_iter().find(|state| state.id == id);
        let state = state.ok_or_else(|| {
            let missing = Error::not_found(LAYER, id).because(Reason::NoSuchState);
            self.named(missing, "")
        })?;
        let path = self.path(id);
        match state.condition {
            Condition::Whole(manifest) => Ok(manifest),
            Condition::Incomplete(why) => {
                let message = format!("the state is not whole: {why}");
                Err(self.named(Error::new(Kind::Corrupt, LAYER, message), id))
            }
            Condition::OtherFormat(version) => Err(crate::sealed::other_format(version, &path)),
            Condition::Unreadable(error) => Err(error),
        }
    }

    /// Reads all files of a state; returns the names of those that are not as they were made.
    pub fn verify(
        &self,
        id: &str,
        manifest: &Manifest,
        progress: &dyn Progress,
    ) -> Result<Vec<String>> {
        progress.stage("verify", manifest.size());
        let damaged: Mutex<Vec<String>> = Mutex::default();
        parallel::each(
            parallel::cores(THREADS),
            manifest.files.iter(),
            || (),
            |(), (name, file), stop| {
                stop.check()?;
                let found = hash(self.store(), &format!("{id}/{name}"), progress)?;
                if found.as_ref().map(|(hash, len)| (hash, *len)) != Some((&file.hash, file.len)) {
                    damaged.lock().push(name.to_owned());
                }
                Ok(())
            },
        )?;
        let mut damaged = damaged.into_inner();
        damaged.sort();
        Ok(damaged)
    }

    /// Removes the leftovers of killed processes, and returns an unused name.
    pub(crate) fn unused_name(&self, prefix: &str) -> Result<String> {
        self.store.remove_leftovers("", UNFINISHED);
        self.store.remove_leftovers("", REMOVING);
        loop {
            let name = format!("{prefix}{}", platform::own_suffix());
            if self.store.attributes(&name)?.is_none() {
                return Ok(name);
            } // otherwise left by a crash of a process with our number
        }
    }

    /// Gives a folder of a new state its name, durably, or takes it from one that is removed.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        // All that the folder holds, before others see it under this name.
        self.store.sync()?;
        if !self.store.rename_folder(from, to)? {
            let message = "another folder has the name";
            return Err(self.named(Error::conflict(LAYER, message), to));
        }
        self.store.sync()
    }
}

fn order(state: &State) -> (u64, &str) {
    let sequence = state.manifest().map_or(0, |manifest| manifest.sequence);
    (sequence, &state.id)
}

/// Returns true if the first folder is the second one, or in it.
fn is_within(one: &Path, other: &Path) -> Result<bool> {
    let find = |path: &Path| {
        let found = fs::canonicalize(path);
        found.map_err(|source| Error::io(LAYER, "find", source).in_file(path))
    };
    Ok(find(one)?.starts_with(find(other)?))
}
