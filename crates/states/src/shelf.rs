//! The folder of a bundle's states.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::progress::Progress;
use bandsaw::store::{Guard, Local, Lock, Store};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result, platform};
use bandsaw_core::parallel;

use crate::bundle::{self, BundleFolder};
use crate::hash::hash;
use crate::manifest::{Manifest, Soundness};
use crate::sealed::Found;
use crate::{LAYER, failed};

/// The folder of states within the bundle.
const WITHIN: &str = ".bandsaw/states";
/// The lock of the folder of states.
const LOCK: &str = "lock";
/// Prefixes of states that are incomplete, and that are being removed.
pub(crate) const UNFINISHED: &str = ".new-";
pub(crate) const GOING: &str = ".gone-";
/// Threads that read files.
pub(crate) const THREADS: usize = 8;

/// The use that a state is of.
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
    /// Its use.
    pub condition: Condition,
}

impl State {
    /// Returns the contents of a state that is whole.
    pub fn whole(&self) -> Option<&Manifest> {
        match &self.condition {
            Condition::Whole(manifest) => Some(manifest),
            _ => None,
        }
    }

    /// Returns true if it is whole, and was found sound when it was made.
    pub fn is_sound(&self) -> bool {
        self.whole()
            .is_some_and(|manifest| manifest.check == Soundness::Sound)
    }
}

/// A folder of states of one bundle.
#[derive(Debug)]
pub struct Shelf {
    folder: PathBuf,
    store: Local,
}

impl Shelf {
    /// Returns the states of a bundle: those in it, or those in a folder named after it in `other`.
    pub fn of(bundle: &BundleFolder, other: Option<&Path>) -> Result<Self> {
        let folder = match other {
            None => bundle.path().join(WITHIN),
            Some(other) => other.join(bundle.name()?),
        };
        match fs::symlink_metadata(&folder) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("read metadata", &folder)(source)),
            Ok(meta) if !meta.is_dir() => {
                let message = "expected a folder of states";
                return Err(Error::unsupported(LAYER, message).in_file(folder));
            }
            Ok(_) if other.is_some() && is_within(&folder, bundle.path())? => {
                let message = "in the bundle itself; name another folder for the states";
                return Err(Error::invalid(LAYER, message).in_file(folder));
            }
            Ok(_) => {}
        }
        Ok(Self {
            store: Local::new(&folder),
            folder,
        })
    }

    /// Returns the states in a folder.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self {
            store: Local::new(&folder),
            folder,
        }
    }

    /// Returns the states without the handles of folders that were renamed since they were opened.
    pub(crate) fn reopened(&self) -> Self {
        Self {
            folder: self.folder.clone(),
            store: Local::new(&self.folder),
        }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn store(&self) -> &Local {
        &self.store
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
            taken => taken.map_err(|error| error.in_file(&self.folder)),
        }
    }

    /// Returns all states, the oldest first. Only metadata is read.
    pub fn list(&self) -> Result<Vec<State>> {
        let list = failed("list", &self.folder);
        let entries = match fs::read_dir(&self.folder) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(&list)?,
        };
        let mut states = Vec::new();
        for entry in entries {
            let entry = entry.map_err(&list)?;
            let Ok(id) = entry.file_name().into_string() else {
                continue;
            };
            if id.starts_with('.') || !entry.file_type().map_err(&list)?.is_dir() {
                continue;
            }
            let condition = self.condition(&id).unwrap_or_else(Condition::Unreadable);
            states.push(State { id, condition });
        }
        states.sort_by(|one, other| order(one).cmp(&order(other)));
        Ok(states)
    }

    fn condition(&self, id: &str) -> Result<Condition> {
        let incomplete = |why: &str| Ok(Condition::Incomplete(why.to_owned()));
        let manifest = match Manifest::get(&self.store, &format!("{id}/"))? {
            Found::Absent => return incomplete("its list of files is missing"),
            Found::Damaged => return incomplete("its list of files is damaged"),
            Found::OtherFormat(version) => return Ok(Condition::OtherFormat(version)),
            Found::Whole(manifest) => manifest,
        };
        let listing = bundle::list(&self.path(id))?;
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
        let state = state.ok_or_else(|| Error::not_found(LAYER, id).in_file(&self.folder))?;
        let path = self.path(id);
        match state.condition {
            Condition::Whole(manifest) => Ok(manifest),
            Condition::Incomplete(why) => Err(Error::new(
                Kind::Corrupt,
                LAYER,
                format!("the state is not whole: {why}"),
            )
            .in_file(path)),
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
                let found = hash(&self.store, &format!("{id}/{name}"), progress)?;
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
        platform::remove_leftovers(&self.folder, UNFINISHED);
        platform::remove_leftovers(&self.folder, GOING);
        loop {
            let name = format!("{prefix}{}", platform::own_suffix());
            let path = self.path(&name);
            match fs::symlink_metadata(&path) {
                Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(name),
                Err(source) => return Err(failed("look for an unused name", &path)(source)),
                Ok(_) => {} // left by a crash of a process with our number
            }
        }
    }

    /// Makes the names of the states durable.
    pub(crate) fn sync_names(&self) -> Result<()> {
        platform::sync_folder(&self.folder).map_err(failed("make the names durable", &self.folder))
    }
}

fn order(state: &State) -> (u64, &str) {
    let sequence = state.whole().map_or(0, |manifest| manifest.sequence);
    (sequence, &state.id)
}

/// Returns true if the first folder is the second one, or in it.
fn is_within(one: &Path, other: &Path) -> Result<bool> {
    let find = |path: &Path| fs::canonicalize(path).map_err(failed("find", path));
    Ok(find(one)?.starts_with(find(other)?))
}
