//! Making a state of a bundle.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandsaw::fs::Timestamp;
use bandsaw::ops::repair::check_not_interrupted;
use bandsaw::progress::Progress;
use bandsaw::store::Open;
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};
use bandsaw_core::parallel;

use crate::LAYER;
use crate::bundle::{self, BundleFolder, INFO, Identity, Listing, changed};
use crate::hash::hash_existing;
use crate::manifest::{Manifest, Soundness, StateFile};
use crate::shelf::{Shelf, State, THREADS, UNFINISHED};

/// Age in nanoseconds from which a file's times can be trusted: a younger file can be changed again
/// without getting other times.
pub const SETTLED: i64 = 2_000_000_000;

/// The check of a state: returns the soundness of the bundle in a folder.
pub type Check<'a> = &'a dyn Fn(&Path) -> Result<Soundness>;

/// Options of [`keep`].
#[derive(Clone, Copy)]
pub struct KeepOptions<'a> {
    /// True to copy the whole bundle if no earlier state can share its files, and the file system
    /// cannot.
    pub whole_copy: bool,
    /// The check of the new state. `None`: it is not checked.
    pub check: Option<Check<'a>>,
}

impl std::fmt::Debug for KeepOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepOptions")
            .field("whole_copy", &self.whole_copy)
            .finish_non_exhaustive()
    }
}

/// The work of making a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepPlan {
    /// Bytes of all files.
    pub size: u64,
    /// Bytes of files that may have to be copied.
    pub copied: u64,
    /// True if the file system shares the storage of copies.
    pub shares_storage: bool,
    /// True if there is no earlier state.
    pub is_first: bool,
}

impl KeepPlan {
    /// Returns true if everything is copied and stored a second time.
    pub fn is_whole_copy(&self) -> bool {
        self.is_first && !self.shares_storage && self.copied > 0
    }
}

/// A new state.
#[derive(Debug)]
pub struct KeepReport {
    /// Its name.
    pub id: String,
    /// Its contents.
    pub manifest: Manifest,
    /// Number of files that it shares with earlier states.
    pub shared_files: u64,
}

/// Returns the work of making a state, without making it. Tries on the file system if it shares
/// storage, with one small file.
pub fn plan_keep(bundle: &BundleFolder, shelf: &Shelf) -> Result<KeepPlan> {
    let _nobody_writes = bundle.lock_shared()?;
    let _states = shelf.lock()?;
    let listing = listed(bundle)?;
    plan(bundle, shelf, &listing, previous(&shelf.list()?))
}

/// Makes a state of the bundle, durably.
///
/// [`Kind::Conflict`] if the bundle is in use or changes meanwhile; [`Kind::Undecided`] if
/// everything had to be copied and `options` do not permit that. Then no state is made.
pub fn keep(
    bundle: &BundleFolder,
    shelf: &Shelf,
    options: &KeepOptions<'_>,
    progress: &dyn Progress,
) -> Result<KeepReport> {
    check_not_interrupted(bundle.path())?;
    let _nobody_writes = bundle.lock_shared()?;
    let _states = shelf.lock()?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| Error::invalid(LAYER, "the clock is before 1970"))?;
    let listing = listed(bundle)?;
    let others = shelf.list()?;
    let plan = plan(bundle, shelf, &listing, previous(&others))?;
    if plan.is_whole_copy() && !options.whole_copy {
        let message = format!(
            "the first state is a copy of {} bytes: the file system cannot share storage",
            plan.copied
        );
        return Err(Error::new(Kind::Undecided, LAYER, message).in_file(bundle.path()));
    }
    let (bundle, shelf) = (&bundle.reopened()?, &shelf.reopened()?);
    let new = NewState {
        bundle,
        shelf,
        previous: previous(&others),
        folder: shelf.unused_name(UNFINISHED)?,
        counts: Mutex::default(),
    };
    let id = unused_id(&others, now);
    let sequence = next_sequence(&others);
    let made = new
        .fill(&listing, progress)
        .and_then(|files| {
            let counts = *new.counts.lock();
            Ok(Manifest {
                sequence,
                listed: i64::try_from(now.as_nanos()).unwrap_or(i64::MAX),
                bundle: bundle.name()?.to_owned(),
                check: Soundness::Unchecked,
                copied: counts.copied,
                files,
            })
        })
        .and_then(|manifest| new.finish(&id, manifest, options));
    if made.is_err() {
        // Best effort: the caller needs the original error.
        let _ = shelf.store().remove_tree(&new.folder);
    }
    made
}

/// Returns the position of a new state after these.
pub(crate) fn next_sequence(states: &[State]) -> u64 {
    let sequences = states.iter().filter_map(State::manifest);
    let last = sequences.map(|manifest| manifest.sequence).max();
    last.map_or(1, |last| last.saturating_add(1))
}

/// Returns the newest state that is whole.
fn previous(states: &[State]) -> Option<(&str, &Manifest)> {
    let mut newest = states.iter().rev();
    newest.find_map(|state| Some((state.id.as_str(), state.manifest()?)))
}

/// Lists a bundle of which a state can be made.
fn listed(bundle: &BundleFolder) -> Result<Listing> {
    let listing = bundle.list()?;
    if !listing.contains_key(INFO) {
        let message = "Info.plist is missing: a state of this bundle would be incomplete";
        return Err(Error::new(Kind::Corrupt, LAYER, message).in_file(bundle.path()));
    }
    Ok(listing)
}

fn plan(
    bundle: &BundleFolder,
    shelf: &Shelf,
    listing: &Listing,
    previous: Option<(&str, &Manifest)>,
) -> Result<KeepPlan> {
    let lens = |all: &mut dyn Iterator<Item = &Identity>| {
        all.fold(0_u64, |sum, file| sum.saturating_add(file.len))
    };
    let unchanged = |name: &str, file: &Identity| {
        previous.is_some_and(|(_, manifest)| known(manifest, name, file).is_some())
    };
    let mut to_copy = listing
        .iter()
        .filter(|(name, file)| !unchanged(name, file))
        .map(|(_, file)| file);
    let probe = shelf.unused_name(UNFINISHED)?;
    let copied = copy_file(bundle, shelf, INFO, &probe);
    shelf.store().remove(&probe)?;
    Ok(KeepPlan {
        size: lens(&mut listing.values()),
        copied: lens(&mut to_copy),
        shares_storage: copied?,
        is_first: previous.is_none(),
    })
}

/// Returns the file of the previous state that certainly has the contents of the bundle's file.
fn known<'a>(manifest: &'a Manifest, name: &str, live: &Identity) -> Option<&'a StateFile> {
    let file = manifest.files.get(name)?;
    let newest = live.changed.max(live.modified);
    let is_settled = newest.saturating_add(SETTLED) < manifest.listed;
    (file.live == *live && is_settled && file.len == live.len).then_some(file)
}

/// Copies a file of the bundle to the states. `true`: it shares the storage of the original.
fn copy_file(bundle: &BundleFolder, shelf: &Shelf, name: &str, to: &str) -> Result<bool> {
    shelf.store().copy_from(&bundle.path().join(name), to)
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    copied: u64,
    shared_files: u64,
}

struct NewState<'a> {
    bundle: &'a BundleFolder,
    shelf: &'a Shelf,
    previous: Option<(&'a str, &'a Manifest)>,
    /// The name of its folder until it is whole.
    folder: String,
    counts: Mutex<Counts>,
}

impl NewState<'_> {
    fn fill(
        &self,
        listing: &Listing,
        progress: &dyn Progress,
    ) -> Result<BTreeMap<String, StateFile>> {
        progress.stage(
            "keep",
            listing
                .values()
                .fold(0, |sum, file| sum.saturating_add(file.len)),
        );
        // macOS requires this folder, and the store creates it with its first file.
        let first = format!("{}/bands/0", self.folder);
        self.shelf.store().open(&first, Open::Create)?;
        self.shelf.store().remove(&first)?;
        let files: Mutex<BTreeMap<String, StateFile>> = Mutex::default();
        parallel::each(
            parallel::cores(THREADS),
            listing.iter(),
            || (),
            |(), (name, live), stop| {
                stop.check()?;
                progress.check()?;
                let file = self.file(name, live, progress)?;
                files.lock().insert(name.to_owned(), file);
                Ok(())
            },
        )?;
        Ok(files.into_inner())
    }

    /// Stores one file, shared with the previous state if it has not changed.
    fn file(&self, name: &str, live: &Identity, progress: &dyn Progress) -> Result<StateFile> {
        let store = self.shelf.store();
        let to = format!("{}/{name}", self.folder);
        let linked = |(id, file): (&str, &StateFile)| -> Result<Option<StateFile>> {
            let from = format!("{id}/{name}");
            // Rot of the times or the size would be kept with the new state.
            let found = bundle::identity(store, &from)?;
            let is_as_made =
                found.is_some_and(|found| (found.len, found.modified) == (file.len, file.modified));
            if !is_as_made || !store.link(&from, &to)? {
                return Ok(None);
            }
            self.counts.lock().shared_files += 1;
            Ok(Some(StateFile {
                live: *live,
                ..file.clone()
            }))
        };
        if let Some((id, manifest)) = self.previous
            && let Some(file) = known(manifest, name, live)
            && let Some(shared) = linked((id, file))?
        {
            progress.advance(live.len);
            return Ok(shared);
        }
        copy_file(self.bundle, self.shelf, name, &to)?;
        let (hash, len) = hash_existing(store, &to, progress)?;
        // Another time, but the same contents.
        if let Some((id, manifest)) = self.previous
            && let Some(file) = manifest.files.get(name)
            && (&file.hash, file.len) == (&hash, len)
        {
            store.remove(&to)?;
            if let Some(shared) = linked((id, file))? {
                return Ok(shared);
            }
            copy_file(self.bundle, self.shelf, name, &to)?;
        }
        store.set_modified(&to, live.modified)?;
        let kept = bundle::identity(store, &to)?.ok_or_else(|| Error::not_found(LAYER, &to))?;
        self.counts.lock().copied += len;
        Ok(StateFile {
            hash,
            len,
            modified: kept.modified,
            live: *live,
        })
    }

    /// Checks the state, and gives it its name.
    fn finish(
        &self,
        id: &str,
        mut manifest: Manifest,
        options: &KeepOptions<'_>,
    ) -> Result<KeepReport> {
        let live: Listing = manifest
            .files
            .iter()
            .map(|(name, file)| (name.clone(), file.live))
            .collect();
        if self.bundle.list()? != live {
            return Err(changed(self.bundle.path()));
        }
        let path = self.shelf.path(&self.folder);
        if let Some(check) = options.check {
            manifest.check = check(&path)?;
        }
        manifest.put(self.shelf.store(), &format!("{}/", self.folder))?;
        self.shelf.rename(&self.folder, id)?;
        Ok(KeepReport {
            id: id.to_owned(),
            manifest,
            shared_files: self.counts.lock().shared_files,
        })
    }
}

/// Returns the date as a name that no state has.
fn unused_id(others: &[State], now: Duration) -> String {
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let date = Timestamp::from_seconds(seconds).date_time().to_string();
    let date = date.replace(' ', "-").replace(':', "");
    let is_taken = |id: &String| others.iter().any(|other| other.id == *id);
    let mut ids = std::iter::once(date.clone()).chain((2_u64..).map(|n| format!("{date}-{n}")));
    ids.find(|id| !is_taken(id)).unwrap_or(date)
}
