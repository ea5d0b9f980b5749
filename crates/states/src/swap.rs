//! An exchange of files of a bundle for prepared ones, which can be resumed and undone.
//!
//! ```text
//! FOLDER/plan.json   the phase, and all files with their numbers
//! FOLDER/new/        prepared files; after an undo, those that it replaced
//! FOLDER/old/        files of the bundle that were replaced
//! ```
//!
//! Property lists are removed first and restored last: a bundle without them cannot be opened, so it is
//! not written while an exchange is interrupted. Once they are restored, other programs may have changed
//! files, and nothing is moved any more.

use std::collections::BTreeMap;

use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result, platform};
use serde::{Deserialize, Serialize};

use crate::bundle::{BundleFolder, INFO, Identity, Listing, changed};
use crate::{Change, LAYER, sealed};

const FORMAT: u64 = 1;
const PLAN: &str = "plan.json";
/// The folder of all changes.
const OURS: &str = ".bandsaw";
/// Prefix of the name of a folder that is being removed.
const REMOVING: &str = ".gone-";

/// The progress of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Files are being moved.
    Moving,
    /// All files were moved. The replaced ones are kept until the change is committed.
    Done,
    /// Files are being moved back.
    Undoing,
    /// All files were moved back.
    Undone,
}

/// A file that is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The bundle's file. `None`: it has none.
    pub(crate) old: Option<Identity>,
    /// The prepared file. `None`: the bundle's file is only taken away.
    pub(crate) new: Option<Identity>,
}

/// An exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) phase: Phase,
    /// The name of the state whose files are prepared; empty if it is none.
    pub(crate) state: String,
    /// The files that are exchanged, by name.
    pub(crate) steps: BTreeMap<String, Step>,
    /// All other files of the bundle.
    pub(crate) untouched: Listing,
}

impl Plan {
    /// Reads the plan of a change. `None`: there is none.
    pub(crate) fn get(bundle: &BundleFolder, change: Change) -> Result<Option<Self>> {
        sealed::expect(bundle.store(), &plan_name(change), FORMAT)
    }

    fn put(&self, bundle: &BundleFolder, change: Change) -> Result<()> {
        sealed::put(bundle.store(), &plan_name(change), FORMAT, self)?;
        bundle.store().sync()
    }

    /// Returns the bundle's files before the exchange.
    fn before(&self) -> Listing {
        self.listing(|step| step.old)
    }

    fn listing(&self, of: impl Fn(&Step) -> Option<Identity>) -> Listing {
        let steps = self.steps.iter();
        let mut all: Listing = steps
            .filter_map(|(name, step)| Some((name.clone(), of(step)?)))
            .collect();
        all.extend(
            self.untouched
                .iter()
                .map(|(name, file)| (name.clone(), *file)),
        );
        all
    }
}

fn plan_name(change: Change) -> String {
    format!("{}{PLAN}", change.folder())
}

/// Returns true for a file that others look at first.
fn is_list(name: &str) -> bool {
    !name.contains('/') && (name.ends_with(".plist") || name.ends_with(".bckup"))
}

/// Returns the name of a prepared file.
pub(crate) fn new_name(change: Change, name: &str) -> String {
    format!("{}new/{name}", change.folder())
}

/// Removes what a killed preparation left. [`Kind::Conflict`] if there is undo data of an earlier
/// change, which only its owner commits or undoes.
pub(crate) fn check_unused(bundle: &BundleFolder, change: Change) -> Result<()> {
    let old = format!("{}old", change.folder());
    if Plan::get(bundle, change)?.is_some() || bundle.store().attributes(&old)?.is_some() {
        let verb = change.verb();
        let message = format!(
            "undo data of an earlier `bandsaw {verb}` exists; run it with --undo, or with --commit \
             to remove that data, first"
        );
        return Err(Error::conflict(LAYER, message).in_file(bundle.path()));
    }
    remove(bundle, change)
}

/// Removes the folder of a change.
pub(crate) fn remove(bundle: &BundleFolder, change: Change) -> Result<()> {
    let store = bundle.store();
    store.remove_leftovers(OURS, REMOVING);
    let folder = change.folder().trim_end_matches('/');
    if store.attributes(folder)?.is_none() {
        return Ok(());
    }
    let going = format!("{OURS}/{REMOVING}{}", platform::own_suffix());
    if !store.rename_folder(folder, &going)? {
        let message = "another folder has the name";
        return Err(store.named(Error::conflict(LAYER, message), OURS));
    }
    store.sync()?;
    store.remove_tree(&going)
}

/// Exchanges the files, durably, if the bundle still is as it was planned.
pub(crate) fn begin(
    bundle: &BundleFolder,
    change: Change,
    plan: &mut Plan,
    progress: &dyn Progress,
) -> Result<()> {
    bundle.store().sync()?;
    if bundle.list()? != plan.before() {
        return Err(changed(bundle.path()));
    }
    plan.phase = Phase::Moving;
    plan.put(bundle, change)?;
    forward(bundle, change, plan, progress)
}

/// Completes an interrupted exchange or undo. `None`: there is none; otherwise its plan, of which
/// nothing is left if it was undone.
pub(crate) fn resume(
    bundle: &BundleFolder,
    change: Change,
    progress: &dyn Progress,
) -> Result<Option<Plan>> {
    let Some(mut plan) = Plan::get(bundle, change)? else {
        return Ok(None);
    };
    match plan.phase {
        Phase::Moving => {
            let sides = |step: &Step| (step.old, step.new);
            let is_untouched = !any_moved(bundle, change, &plan, ("new/", "old/"), sides)?;
            if is_untouched && bundle.list()? != plan.before() {
                // Nothing was moved, and others have used the bundle since.
                remove(bundle, change)?;
                return Err(changed(bundle.path()));
            }
            forward(bundle, change, &mut plan, progress)?;
        }
        Phase::Undoing => {
            let sides = |step: &Step| (step.new, step.old);
            let is_untouched = !any_moved(bundle, change, &plan, ("old/", "new/"), sides)?;
            if is_untouched && let Err(error) = check_as_left(bundle, change, &plan) {
                plan.phase = Phase::Done;
                plan.put(bundle, change)?;
                return Err(error);
            }
            back(bundle, change, &mut plan, progress)?;
        }
        Phase::Undone => remove(bundle, change)?,
        Phase::Done => {}
    }
    Ok(Some(plan))
}

fn forward(
    bundle: &BundleFolder,
    change: Change,
    plan: &mut Plan,
    progress: &dyn Progress,
) -> Result<()> {
    let sides = |step: &Step| (step.old, step.new);
    move_all(bundle, change, plan, ("new/", "old/"), sides, progress)?;
    progress.check()?;
    plan.phase = Phase::Done;
    plan.put(bundle, change)
}

fn back(
    bundle: &BundleFolder,
    change: Change,
    plan: &mut Plan,
    progress: &dyn Progress,
) -> Result<()> {
    let sides = |step: &Step| (step.new, step.old);
    move_all(bundle, change, plan, ("old/", "new/"), sides, progress)?;
    progress.check()?;
    plan.phase = Phase::Undone;
    plan.put(bundle, change)?;
    progress.check()?;
    remove(bundle, change)
}

/// Undoes a change exactly: every file is the one that it was, with its times. Completes an
/// interrupted change first.
///
/// [`Kind::NotFound`] if there is nothing to undo, [`Kind::Conflict`] if the bundle was changed
/// since: then it is left as it is.
pub fn undo(bundle: &BundleFolder, change: Change, progress: &dyn Progress) -> Result<()> {
    let _locks = bundle.lock_exclusive()?;
    let Some(mut plan) = resume(bundle, change, progress)? else {
        return Err(nothing(bundle, "nothing to undo"));
    };
    if plan.phase == Phase::Undone {
        return Ok(());
    }
    check_as_left(bundle, change, &plan)?;
    forget_hashes(bundle)?;
    plan.phase = Phase::Undoing;
    plan.put(bundle, change)?;
    back(bundle, change, &mut plan, progress)
}

/// Removes the files that a complete change replaced. It can no longer be undone.
pub fn commit(bundle: &BundleFolder, change: Change) -> Result<()> {
    let _locks = bundle.lock_exclusive()?;
    match Plan::get(bundle, change)? {
        None => Err(nothing(bundle, "nothing to commit")),
        Some(plan) if plan.phase == Phase::Done => remove(bundle, change),
        Some(_) => {
            let message = "the change was interrupted; run it again to resume";
            Err(Error::conflict(LAYER, message).in_file(bundle.path()))
        }
    }
}

fn nothing(bundle: &BundleFolder, message: &'static str) -> Error {
    Error::new(Kind::NotFound, LAYER, message).in_file(bundle.path())
}

/// Checks that the files are those that the change left.
fn check_as_left(bundle: &BundleFolder, change: Change, plan: &Plan) -> Result<()> {
    let found = bundle.list()?;
    let left = match change {
        Change::RollBack => plan.listing(|step| step.new),
        // Other files of the bundle are not its concern.
        Change::Verification => {
            let steps = plan.steps.iter();
            steps
                .filter_map(|(name, step)| Some((name.clone(), step.new?)))
                .collect()
        }
    };
    let is_same = |(name, file): (&String, &Identity)| {
        let now = found.get(name);
        now.is_some_and(|now| match plan.untouched.get(name) {
            Some(_) => now == file,
            None => now.is_same_file(file),
        })
    };
    let has_more = change == Change::RollBack && found.len() != left.len();
    if has_more || !left.iter().all(is_same) {
        let message = "the bundle was changed since; an undo would mix old and new files. Run the \
                       command with --commit to keep the bundle as it is";
        return Err(Error::conflict(LAYER, message).in_file(bundle.path()));
    }
    Ok(())
}

/// Removes the hashes of bands: they are those of other contents.
pub(crate) fn forget_hashes(bundle: &BundleFolder) -> Result<()> {
    bundle.store().remove(HASHES)?;
    bundle.store().sync()
}

/// The hashes of bands, of `scrub`.
pub(crate) const HASHES: &str = ".bandsaw/hashes.json";

/// Returns true if a file has already been moved, in the direction of [`move_all`].
fn any_moved(
    bundle: &BundleFolder,
    change: Change,
    plan: &Plan,
    (from, to): (&str, &str),
    sides: impl Fn(&Step) -> (Option<Identity>, Option<Identity>),
) -> Result<bool> {
    for (name, step) in &plan.steps {
        let (_, given) = sides(step);
        let find = |part: &str| bundle.identity(&format!("{}{part}{name}", change.folder()));
        if find(to)?.is_some() || (given.is_some() && find(from)?.is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A file that is moved out of the bundle, and one that takes its place.
struct Move<'a> {
    name: &'a str,
    taken: Option<Identity>,
    given: Option<Identity>,
    /// Place of the file that is given.
    from: String,
    /// Place of the file that is taken.
    to: String,
}

impl Move<'_> {
    fn is_done(&self, bundle: &BundleFolder) -> Result<bool> {
        let live = bundle.identity(self.name)?;
        // A power cut can leave a renamed file under both names.
        let is_live = |other: Identity| live.is_some_and(|live| live.inode == other.inode);
        let arrived = self.given.is_none() || bundle.identity(&self.from)?.is_none_or(is_live);
        let aside = bundle.identity(&self.to)?;
        let left = self.taken.is_none() || aside.is_some_and(|aside| !is_live(aside));
        Ok(arrived && left)
    }

    /// Moves the file of the bundle away.
    fn move_out(&self, bundle: &BundleFolder) -> Result<()> {
        let Some(taken) = self.taken else {
            return Ok(());
        };
        let is_taken = |file: Identity| file.is_same_file(&taken);
        let live = bundle.identity(self.name)?;
        match bundle.identity(&self.to)? {
            None if live.is_some_and(is_taken) => bundle.store().rename(self.name, &self.to),
            None => Err(self.not_as_planned(bundle)),
            // One file under both names.
            Some(aside) if is_taken(aside) && live.is_some_and(is_taken) => {
                bundle.store().remove(self.name).map(drop)
            }
            Some(_) => Ok(()),
        }
    }

    /// Moves the file that is given into the bundle.
    fn move_in(&self, bundle: &BundleFolder) -> Result<()> {
        let live = bundle.identity(self.name)?;
        let Some(given) = self.given else {
            return match live {
                None => Ok(()),
                Some(_) => Err(self.not_as_planned(bundle)),
            };
        };
        let is_given = |file: Identity| file.is_same_file(&given);
        match (bundle.identity(&self.from)?, live) {
            (Some(prepared), None) if is_given(prepared) => {
                // The store creates a missing folder, and syncs it with the others.
                bundle.store().rename(&self.from, self.name)
            }
            // One file under both names.
            (Some(prepared), Some(live)) if is_given(prepared) && is_given(live) => {
                bundle.store().remove(&self.from).map(drop)
            }
            (None, Some(live)) if is_given(live) => Ok(()),
            _ => Err(self.not_as_planned(bundle)),
        }
    }

    fn not_as_planned(&self, bundle: &BundleFolder) -> Error {
        let message = "the file was changed by another program while the exchange of files was \
                       interrupted; nothing more is moved";
        bundle
            .store()
            .named(Error::conflict(LAYER, message), self.name)
    }
}

fn move_all(
    bundle: &BundleFolder,
    change: Change,
    plan: &Plan,
    (from, to): (&str, &str),
    sides: impl Fn(&Step) -> (Option<Identity>, Option<Identity>),
    progress: &dyn Progress,
) -> Result<()> {
    let moves: Vec<Move<'_>> = plan
        .steps
        .iter()
        .map(|(name, step)| {
            let (taken, given) = sides(step);
            Move {
                name,
                taken,
                given,
                from: format!("{}{from}{name}", change.folder()),
                to: format!("{}{to}{name}", change.folder()),
            }
        })
        .collect();
    let mut all_done = true;
    for one in &moves {
        all_done &= one.is_done(bundle)?;
    }
    if all_done {
        // The lists have arrived: others may have changed the files since.
        return Ok(());
    }
    // `Info.plist` leaves first and arrives last.
    let (mut lists, others): (Vec<_>, Vec<_>) = moves.iter().partition(|one| is_list(one.name));
    lists.sort_by_key(|one| (one.name == INFO, one.name));
    for list in lists.iter().rev() {
        progress.check()?;
        list.move_out(bundle)?;
    }
    bundle.store().sync()?;
    for other in &others {
        progress.check()?;
        other.move_out(bundle)?;
    }
    // Names become durable in any order: no file may arrive before the old one is kept.
    bundle.store().sync()?;
    for other in &others {
        progress.check()?;
        other.move_in(bundle)?;
    }
    bundle.store().sync()?;
    for list in &lists {
        progress.check()?;
        list.move_in(bundle)?;
        bundle.store().sync()?;
    }
    Ok(())
}
