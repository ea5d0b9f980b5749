//! Repair of an image: damage is repaired if the image's own independent sources agree on the
//! correct state, and left to the user otherwise.
//!
//! The rules, and the files that implement them:
//!
//! * Layers are resolved from the outside in (`layers.rs`, `volumes.rs`). If two sources disagree and the other
//!   evidence (`open/gate/geometry.rs`, `open/gate/compare_lists.rs`) does not decide, the repair ends with
//!   [`Kind::Undecided`], and nothing is changed.
//! * All steps are performed on a [`Staged`] view of the stored bytes, with the code that opens
//!   any image. A dry run ends there. What could be read before is compared with the result
//!   (`losses.rs`) before anything is written.
//! * All data is saved (`undo.rs`, `log.rs`) beside the image (`target.rs`, `undo_store.rs`) before
//!   it is overwritten or removed. An interrupted repair is rolled back before the next one.

mod asif_copies;
mod fingerprint;
mod freed;
mod image_state;
mod layers;
mod log;
mod losses;
mod orphan_decision;
mod ranges;
mod revert;
mod save;
mod target;
mod undo;
mod undo_store;
mod volumes;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::layers::LayerRepair;
use crate::decision::{Alternative, Assumptions, Undecided};
use crate::device::Access;
use crate::fs::RepairStep;
use crate::open::key_cache::CachedKeys;
use crate::open::{
    self, Conclusion, Contents, Examination, Keys, OpenOptions, Scope, StoredImage, interrupted,
};
use crate::problem::{Problem, Problems, Severity};
use crate::progress::Progress;
use crate::store::{Open, Staged, Store};
use crate::{Error, Kind, Result};

pub use losses::VolumeLosses;
pub use revert::Undone;
pub use target::{Target, undo_folder};

const LAYER: &str = "repair";
/// Name of the list of losses in the undo data.
const LOSSES: &str = "losses.txt";
/// Layer name for steps within volumes.
const VOLUME: &str = "volume";

/// The mode of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Report the steps without changes.
    #[default]
    DryRun,
    /// Change the image.
    Apply,
}

/// A callback that decides whether these losses are accepted.
pub type Confirm<'a> = &'a dyn Fn(&[VolumeLosses]) -> Result<bool>;

/// Options of a repair.
#[derive(Clone)]
pub struct Options<'a> {
    /// Mode of the repair.
    pub mode: Mode,
    /// Assumptions made by the user.
    pub assume: Assumptions,
    /// True to accept losses.
    pub accept_loss: bool,
    /// Callback that is asked about losses otherwise. `None`: the repair stops.
    pub confirm: Option<Confirm<'a>>,
    /// Length of the disk, in bytes, to which it grows if its last volume is full and the repair
    /// needs room.
    pub grow: Option<u64>,
    /// Folder for undo data. `None`: beside the image.
    pub undo_dir: Option<&'a Path>,
    /// Folder of an unlinked temporary file for changes that do not fit in memory.
    pub temporary: PathBuf,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let (mode, assume, temporary) =
            (Mode::DryRun, Assumptions::default(), PathBuf::from("/tmp"));
        Self {
            mode,
            assume,
            accept_loss: false,
            confirm: None,
            grow: None,
            undo_dir: None,
            temporary,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("mode", &self.mode)
            .field("assume", &self.assume)
            .finish_non_exhaustive()
    }
}

/// Outcome of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// There was nothing that could be repaired.
    #[default]
    NothingToDo,
    /// The steps were performed, or would be in a dry run.
    Repaired,
    /// Sources disagree and the other evidence does not decide. Nothing was changed.
    Undecided,
    /// Contents of volumes would be lost, which was not accepted. Nothing was changed.
    LossRefused,
}

impl Outcome {
    /// Returns the stable name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NothingToDo => "nothing-to-do",
            Self::Repaired => "repaired",
            Self::Undecided => "undecided",
            Self::LossRefused => "loss-refused",
        }
    }
}

/// Result of a repair, or of a dry run.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Outcome.
    pub outcome: Outcome,
    /// Problems found before the repair.
    pub found: Problems,
    /// Layer and description of each step, in order.
    pub steps: Vec<(&'static str, RepairStep)>,
    /// Problems that were left, because no evidence determines the correct state.
    pub refused: Vec<Error>,
    /// True if the format cannot be changed in place: a compressed image or an encrypted archive.
    pub is_write_once: bool,
    /// The disagreement that stopped the repair. [`alternatives`](Self::alternatives) lists the
    /// possible assumptions.
    pub undecided: Option<Error>,
    /// The files and folders that volumes held before and do not hold afterwards.
    pub losses: Vec<VolumeLosses>,
    /// Problems that remain afterwards; the same as `found` if nothing was changed.
    pub remaining: Vec<Problem>,
    /// The verdict on the image afterwards, which is that of a check. `None`: the repair stopped
    /// for a decision.
    pub conclusion: Option<Conclusion>,
    /// The contents of the disk afterwards. `None`: the disk cannot be read, or the repair stopped.
    pub contents: Option<Contents>,
    /// Folder with the undo data.
    pub undo: Option<PathBuf>,
    /// The interrupted repair that was rolled back first.
    pub rolled_back: Option<Undone>,
    /// Text file with all losses, in that folder.
    pub losses_file: Option<PathBuf>,
}

impl Repaired {
    /// Returns the possible assumptions if the repair stopped for a decision.
    pub fn alternatives(&self) -> &[Alternative] {
        self.undecided.as_ref().map_or(&[], Undecided::of)
    }

    fn add(&mut self, layer: &'static str, steps: impl IntoIterator<Item = impl Into<RepairStep>>) {
        self.steps
            .extend(steps.into_iter().map(|step| (layer, step.into())));
    }

    /// Records the steps of a layer, or the reason why there are none. Returns `false` if it stays
    /// damaged, so that no layer above it must be written.
    fn record_layer(
        &mut self,
        layer: &'static str,
        found: Result<Vec<impl Into<RepairStep>>>,
    ) -> Result<bool> {
        match found {
            Ok(steps) => self.add(layer, steps),
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Corrupt
                        | Kind::OutOfRange
                        | Kind::Unsupported
                        | Kind::Limit
                        | Kind::Conflict
                ) =>
            {
                self.refused.push(error);
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }
}

/// Repairs the image at `path`, or reports the steps. If layers are on top of it, only the topmost
/// one is changed.
///
/// Returns an error if the image cannot be examined at all, for example because it is in use or the
/// passphrase is missing, or if writing fails: the image is then restored.
pub fn repair(
    path: &Path,
    options: &OpenOptions<'_>,
    chosen: &Options<'_>,
    progress: &dyn Progress,
) -> Result<Repaired> {
    let access = if chosen.mode == Mode::Apply {
        Access::ReadWrite
    } else {
        Access::ReadOnly
    };
    if open::snapshot::on_host(path)
        .map_err(|error| error.in_file(path))?
        .is_some()
    {
        return Err(open::snapshot::read_only().in_file(path));
    }
    if chosen.mode == Mode::Apply {
        open::overlays::make_missing(path, options)?;
    }
    let target =
        Target::at(path, options, chosen.undo_dir, access).map_err(|error| error.in_file(path))?;
    repair_target(&target, options, chosen, progress).map_err(|error| error.in_file(path))
}

/// Repairs an image that is already opened and locked, for example one in memory.
pub fn repair_target(
    target: &Target,
    options: &OpenOptions<'_>,
    chosen: &Options<'_>,
    progress: &dyn Progress,
) -> Result<Repaired> {
    let (image, rolled_back) = roll_back(target, chosen)?;
    let keys = options.keys.map(CachedKeys::new);
    let keys = keys.as_ref().map(|keys| keys as &dyn Keys);
    let options = &OpenOptions {
        access: Access::ReadWrite,
        keys,
        ..*options
    };
    let staged = Staged::new(image.clone(), chosen.temporary.clone());
    // Problems before and after are those of the newest state, even with a fallback.
    let newest = &OpenOptions {
        checkpoint: None,
        ..*options
    };
    let examine = |store: &Staged, scope| {
        let stored = stored(target, Arc::new(store.clone()), Open::Read)?;
        open::examine_stored(&target.path, stored, scope, newest, progress)
    };
    // No other process can have the image locked: it is locked here already.
    let untouched = Staged::new(image, chosen.temporary.clone());
    let mut before = examine(&untouched, Scope::Outside)?;
    let mut layers = LayerRepair::new(target, &staged, options, chosen, progress);
    match layers.run() {
        Ok(()) => {}
        Err(error) if error.kind() == Kind::Undecided => layers.done.undecided = Some(error),
        Err(error) => return Err(error),
    }
    let LayerRepair {
        mut done,
        found: within,
        remaining: left_within,
        unchecked,
        reached_volumes,
        changed_outside,
        rebuilt,
        write_once,
        ..
    } = layers;
    done.is_write_once = write_once.is_some();
    done.rolled_back = rolled_back;
    let is_changed = !done.steps.is_empty();
    // A repair that stops below the volumes has not examined them.
    let scope = if reached_volumes {
        Scope::Outside
    } else {
        Scope::All
    };
    if done.undecided.is_none() && !reached_volumes {
        before = examine(&untouched, Scope::All)?;
    }
    let found: Vec<_> = before.problems.listed().iter().map(duplicate).collect();
    if before.problems.count(Severity::Damage) > 0 {
        done.refused.extend(write_once);
    }
    let mut judged = if done.undecided.is_none() && changed_outside {
        examine(&staged, scope)?
    } else {
        before
    };
    judged.add_volumes(left_within, unchecked);
    record_findings(&mut done, found.into_iter().chain(within), judged);
    if done.undecided.is_some() {
        done.outcome = Outcome::Undecided;
        return Ok(done);
    }
    if !is_changed {
        return Ok(done);
    }
    // The repair of a volume knows its own losses.
    if changed_outside || options.checkpoint.is_some() {
        let compared = losses::compare(target, &untouched, &staged, options, &rebuilt, progress)?;
        done.losses.extend(compared);
    }
    if !is_loss_accepted(&done.losses, chosen)? {
        done.outcome = Outcome::LossRefused;
        return Ok(done);
    }
    undo::check_kinds(&staged)?;
    done.outcome = Outcome::Repaired;
    if chosen.mode == Mode::Apply {
        write_undo(target, &staged, options, chosen, &mut done)?;
    }
    Ok(done)
}

fn duplicate(problem: &Problem) -> Problem {
    Problem {
        severity: problem.severity,
        error: problem.error.duplicate(),
    }
}

/// Records the problems that were `found` in the image, and what is `left` after the repair.
fn record_findings(
    done: &mut Repaired,
    found: impl Iterator<Item = Problem>,
    mut left: Examination,
) {
    if done.undecided.is_none() {
        done.conclusion = Some(left.conclusion());
        done.contents = left.contents.take();
    }
    done.remaining = left.problems.into_iter().collect();
    for problem in found {
        done.found.add(problem.severity, problem.error);
    }
}

/// Returns true if nothing is certainly lost, or the caller accepts the losses.
fn is_loss_accepted(losses: &[VolumeLosses], chosen: &Options<'_>) -> Result<bool> {
    let is_certain = |found: &VolumeLosses| !found.losses.certain.is_empty();
    if !losses.iter().any(is_certain) || chosen.accept_loss {
        return Ok(true);
    }
    chosen.confirm.map_or(Ok(false), |confirm| confirm(losses))
}

/// Writes the repair with its undo data and the list of losses, and records their places in `done`.
fn write_undo(
    target: &Target,
    staged: &Staged,
    options: &OpenOptions<'_>,
    chosen: &Options<'_>,
    done: &mut Repaired,
) -> Result<()> {
    let text = losses::text(&done.losses);
    let notes = [(LOSSES, text.as_str())];
    let notes = if done.losses.is_empty() {
        &[][..]
    } else {
        &notes
    };
    if undo::write(target, staged, options, &chosen.temporary, notes)? {
        done.undo = target.undo()?.folder().map(Path::to_owned);
        done.losses_file = match (&done.undo, target.undo()?.repairs()?.last()) {
            (Some(folder), Some((number, _))) if !notes.is_empty() => {
                Some(folder.join(number.to_string()).join(LOSSES))
            }
            _ => None,
        };
    }
    Ok(())
}

/// Rolls back an interrupted repair. Returns the store with the restored image: in a dry run, a
/// staged view.
fn roll_back(target: &Target, chosen: &Options<'_>) -> Result<(Arc<dyn Store>, Option<Undone>)> {
    let image = target.store.clone();
    let undo = match (target.undo(), chosen.mode) {
        (Ok(undo), _) => undo,
        (Err(error), Mode::Apply) => return Err(error),
        (Err(_), Mode::DryRun) => return Ok((image, None)),
    };
    undo.check()?;
    if chosen.mode == Mode::Apply {
        return Ok((image, undo::roll_back(target)?));
    }
    if !interrupted::is_unfinished(undo.store())? {
        return Ok((image, None));
    }
    let view = Staged::new(image, chosen.temporary.clone());
    let done = undo::try_roll_back(target, &view, undo)?;
    Ok((Arc::new(view), done))
}

/// Undoes all repairs of the image at `path` that have undo data, the last first. If the image
/// changed between two of them, those before the change are [kept](Undone::kept).
/// [`Kind::Conflict`] if it changed after the last one.
pub fn undo(path: &Path, options: &OpenOptions<'_>, chosen: &Options<'_>) -> Result<Undone> {
    let target = target::at_for_undo(path, options, chosen).map_err(|error| error.in_file(path))?;
    undo::undo(&target, &chosen.temporary).map_err(|error| error.in_file(path))
}

/// Undoes all repairs of an image that is already opened and locked.
pub fn undo_target(target: &Target) -> Result<Undone> {
    undo::undo(target, &Options::default().temporary)
}

/// Fails with [`Kind::Conflict`] if a repair of the image at `path` was interrupted: only a repair
/// or its undo may change it. Undo data in a folder of the user's choice is not found.
pub fn check_not_interrupted(path: &Path) -> Result<()> {
    interrupted::refuse_or_warn(path, Access::ReadWrite).map(drop)
}

/// Removes the undo data and the quarantined files of the image at `path`.
pub fn commit(path: &Path, options: &OpenOptions<'_>, chosen: &Options<'_>) -> Result<Undone> {
    let target = target::at_for_undo(path, options, chosen).map_err(|error| error.in_file(path))?;
    commit_target(&target).map_err(|error| error.in_file(path))
}

/// Removes the undo data of an image that is already opened and locked.
pub fn commit_target(target: &Target) -> Result<Undone> {
    undo::commit(target)
}

/// Returns the stored bytes of a target, seen through `store`.
fn stored(target: &Target, store: Arc<dyn Store>, mode: Open) -> Result<StoredImage> {
    Ok(match target.file {
        None => StoredImage::Folder(store),
        Some(name) => StoredImage::File(
            store
                .open(name, mode)?
                .ok_or_else(|| Error::not_found(LAYER, name))?,
        ),
    })
}
