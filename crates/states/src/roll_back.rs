//! The return of a bundle to one of its states.

use std::collections::BTreeMap;

use bandsaw::progress::Progress;
use bandsaw::size::counted;
use bandsaw::store::NodeKind;
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Reason, Result};
use bandsaw_core::parallel;

use crate::bundle::{BundleFolder, INFO, Listing, changed};
use crate::hash::{hash, hash_existing};
use crate::manifest::Manifest;
use crate::shelf::{Shelf, THREADS};
use crate::swap::{self, Phase, Plan, Step};
use crate::verification::{self, MACHINE};
use crate::{Change, LAYER};

/// The difference between a bundle and one of its states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollBackPlan {
    /// The name of the state.
    pub id: String,
    /// The time at which it was made, in nanoseconds since 1970.
    pub listed: i64,
    /// Names of files whose present contents are replaced.
    pub replaced: Vec<String>,
    /// Names of files that are taken away: the state does not have them.
    pub removed: Vec<String>,
    /// Names of files that come back: the bundle does not have them.
    pub restored: Vec<String>,
    /// Bytes of the state that are copied.
    pub copied: u64,
    /// Newer states that are passed over, as they are not sound or are damaged.
    pub skipped: Vec<String>,
}

impl RollBackPlan {
    /// Returns true if the bundle already is as in the state.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.removed.is_empty() && self.restored.is_empty()
    }
}

/// The result of [`roll_back`].
#[derive(Debug)]
pub enum RolledBack {
    /// The bundle is as in the state.
    Done(RollBackPlan),
    /// An interrupted run, to this state, was resumed.
    Resumed(String),
    /// An interrupted undo was completed.
    Undone,
}

/// Compares a bundle with the state `id`, or with its newest sound state, of which every file was
/// read. Changes nothing.
pub fn roll_back_plan(
    bundle: &BundleFolder,
    shelf: &Shelf,
    id: Option<&str>,
    progress: &dyn Progress,
) -> Result<RollBackPlan> {
    let _nobody_writes = bundle.lock_shared()?;
    refuse_interrupted(bundle)?;
    let (id, manifest, skipped) = choose(bundle, shelf, id, progress)?;
    let listing = bundle.list()?;
    compare(bundle, &listing, (id, &manifest), skipped, progress)
}

/// Returns the bundle to the state `id`, or to its newest sound state. Files that are replaced are
/// kept until [`commit`](swap::commit), and [`undo`](swap::undo) brings them back. Resumes an
/// interrupted run.
///
/// [`Kind::Conflict`] if the bundle is in use or changes meanwhile, or an earlier roll-back was not
/// committed.
pub fn roll_back(
    bundle: &BundleFolder,
    shelf: &Shelf,
    id: Option<&str>,
    progress: &dyn Progress,
) -> Result<RolledBack> {
    let _locks = bundle.lock_exclusive()?;
    if let Some(plan) = Plan::get(bundle, Change::RollBack)?
        && plan.phase != Phase::Done
    {
        if id.is_some_and(|id| id != plan.state) {
            return Err(interrupted(bundle));
        }
        let resumed = swap::resume(bundle, Change::RollBack, progress)?;
        return Ok(match resumed.map(|plan| (plan.phase, plan.state)) {
            Some((Phase::Done, state)) => RolledBack::Resumed(state),
            _ => RolledBack::Undone,
        });
    }
    swap::check_unused(bundle, Change::RollBack)?;
    let bundle = &bundle.reopened()?;
    let _states = shelf.lock()?;
    let (id, manifest, skipped) = choose(bundle, shelf, id, progress)?;
    let listing = bundle.list()?;
    let plan = compare(bundle, &listing, (id, &manifest), skipped, progress)?;
    if plan.is_empty() {
        return Ok(RolledBack::Done(plan));
    }
    let made =
        prepare(bundle, shelf, &plan, &manifest, &listing, progress).and_then(|mut moves| {
            swap::forget_hashes(bundle)?;
            swap::begin(bundle, Change::RollBack, &mut moves, progress)
        });
    if made.is_err() && Plan::get(bundle, Change::RollBack)?.is_none() {
        swap::remove(bundle, Change::RollBack)?;
    }
    made.map(|()| RolledBack::Done(plan))
}

fn interrupted(bundle: &BundleFolder) -> Error {
    let message = "a roll-back was interrupted; run it again without a state to resume";
    Error::conflict(LAYER, message).in_file(bundle.path())
}

fn refuse_interrupted(bundle: &BundleFolder) -> Result<()> {
    match Plan::get(bundle, Change::RollBack)? {
        Some(plan) if plan.phase != Phase::Done => Err(interrupted(bundle)),
        _ => Ok(()),
    }
}

/// Returns a state whose files are as they were made, with the names of those passed over.
fn choose(
    bundle: &BundleFolder,
    shelf: &Shelf,
    id: Option<&str>,
    progress: &dyn Progress,
) -> Result<(String, Manifest, Vec<String>)> {
    if let Some(id) = id {
        let manifest = shelf.find(id)?;
        let damaged = shelf.verify(id, &manifest, progress)?;
        if let Some(first) = damaged.first() {
            let message = format!(
                "the state is damaged: {}, {first} first",
                counted(damaged.len() as u64, "file", "files")
            );
            return Err(shelf.named(Error::new(Kind::Corrupt, LAYER, message), id));
        }
        return Ok((id.to_owned(), manifest, Vec::new()));
    }
    let mut skipped = Vec::new();
    for state in shelf.list()?.into_iter().rev() {
        if state.is_sound()
            && let Some(manifest) = state.manifest()
            && shelf.verify(&state.id, manifest, progress)?.is_empty()
        {
            return Ok((state.id.clone(), manifest.clone(), skipped));
        }
        skipped.push(state.id);
    }
    let message = if skipped.is_empty() {
        "there are no states of this bundle"
    } else {
        "no state is sound; name the one to return to"
    };
    let missing = Error::new(Kind::NotFound, LAYER, message).because(Reason::NoSuchState);
    Err(missing.in_file(bundle.path()))
}

fn compare(
    bundle: &BundleFolder,
    listing: &Listing,
    (id, manifest): (String, &Manifest),
    skipped: Vec<String>,
    progress: &dyn Progress,
) -> Result<RollBackPlan> {
    progress.stage(
        "compare",
        listing
            .values()
            .fold(0, |sum, file| sum.saturating_add(file.len)),
    );
    // Times are no proof here: rot leaves them as they are.
    let differing: Mutex<Vec<String>> = Mutex::default();
    let both = manifest
        .files
        .iter()
        .filter(|(name, _)| listing.contains_key(*name));
    parallel::each(
        parallel::cores(THREADS),
        both,
        || (),
        |(), (name, file), stop| {
            stop.check()?;
            // A band that cannot be read is to be replaced, too.
            let live = match hash(bundle.store(), name, progress) {
                Err(error) if error.kind() == Kind::Io => None,
                live => live?,
            };
            if live.is_none_or(|(hash, len)| hash != file.hash || len != file.len) {
                differing.lock().push(name.to_owned());
            }
            Ok(())
        },
    )?;
    let mut replaced = differing.into_inner();
    replaced.sort();
    let removed = listing
        .keys()
        .filter(|name| !manifest.files.contains_key(*name))
        .cloned()
        .collect();
    let restored: Vec<String> = manifest
        .files
        .keys()
        .filter(|name| !listing.contains_key(*name))
        .cloned()
        .collect();
    let len = |name: &String| manifest.files.get(name).map_or(0, |file| file.len);
    let copied = replaced
        .iter()
        .chain(&restored)
        .fold(0_u64, |sum, name| sum.saturating_add(len(name)));
    Ok(RollBackPlan {
        id,
        listed: manifest.listed,
        replaced,
        removed,
        restored,
        copied,
        skipped,
    })
}

/// Copies the files of the state that differ, and plans their exchange.
fn prepare(
    bundle: &BundleFolder,
    shelf: &Shelf,
    plan: &RollBackPlan,
    manifest: &Manifest,
    listing: &Listing,
    progress: &dyn Progress,
) -> Result<Plan> {
    progress.stage("copy", plan.copied);
    // The lists leave first and arrive last, so that nobody opens the bundle meanwhile.
    let mut names: Vec<&String> = plan.replaced.iter().chain(&plan.restored).collect();
    let verified = MACHINE.map(str::to_owned);
    let always = [INFO.to_owned()];
    for name in always.iter().chain(&verified) {
        if manifest.files.contains_key(name) && !names.contains(&name) {
            names.push(name);
        }
    }
    let steps: Mutex<BTreeMap<String, Step>> = Mutex::default();
    parallel::each(
        parallel::cores(THREADS),
        names.iter(),
        || (),
        |(), name, stop| {
            stop.check()?;
            progress.check()?;
            let step = prepare_file(bundle, shelf, plan, manifest, listing, name, progress)?;
            steps.lock().insert((*name).to_owned(), step);
            Ok(())
        },
    )?;
    let mut steps = steps.into_inner();
    for name in &plan.removed {
        let step = Step {
            old: listing.get(name).copied(),
            new: None,
        };
        steps.insert(name.clone(), step);
    }
    let mut untouched = listing.clone();
    untouched.retain(|name, _| !steps.contains_key(name));
    Ok(Plan {
        phase: Phase::Moving,
        state: plan.id.clone(),
        steps,
        untouched,
    })
}

fn prepare_file(
    bundle: &BundleFolder,
    shelf: &Shelf,
    plan: &RollBackPlan,
    manifest: &Manifest,
    listing: &Listing,
    name: &str,
    progress: &dyn Progress,
) -> Result<Step> {
    let file = manifest
        .files
        .get(name)
        .ok_or_else(|| Error::not_found(LAYER, name))?;
    let new = swap::new_name(Change::RollBack, name);
    let store = bundle.store();
    let kept = shelf.path(&plan.id).join(name);
    store.copy_from(&kept, &new)?;
    let (hash, _) = hash_existing(store, &new, progress)?;
    if hash != file.hash {
        let message = "the file was changed while it was copied";
        return Err(Error::new(Kind::Corrupt, LAYER, message).in_file(kept));
    }
    let is_reset = MACHINE.contains(&name) && verification::reset_prepared(store, &new)?;
    for like in [name, INFO, "token"] {
        let found = store.attributes(like)?;
        if found.is_some_and(|found| found.kind == NodeKind::File) {
            store.set_owner_of(&new, like)?;
            break;
        }
    }
    // The plan records the time, so it is set last, and durably.
    let modified = match is_reset {
        true => verification::prepared(bundle, &new)?.modified,
        false => file.modified,
    };
    store.set_modified(&new, modified)?;
    let old = listing.get(name).copied();
    if bundle.identity(name)? != old {
        return Err(changed(bundle.path()));
    }
    Ok(Step {
        old,
        new: Some(verification::prepared(bundle, &new)?),
    })
}
