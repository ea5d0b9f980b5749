//! Repairing an image: what its own independent sources agree on is put right, everything else is
//! left to the user.
//!
//! The rule, and who keeps it:
//!
//! * Layers are resolved from the outside in (`layers.rs`). Where two sources disagree and the rest
//!   of the evidence (`evidence.rs`, `lists.rs`) does not decide, [`Kind::Undecided`] ends the
//!   repair, and nothing is changed.
//! * All steps are made on a [`Staged`] view of the stored bytes, through the code that opens any
//!   image. A dry run ends there; the result is counted (`losses.rs`) before anything is written.
//! * Nothing is overwritten or removed before it is kept (`undo.rs`) beside the image
//!   (`target.rs`).

mod evidence;
mod keys;
mod layers;
mod lists;
mod losses;
mod target;
mod undo;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::keys::Remembered;
use self::layers::Work;
use self::undo::check_finished;
use crate::decision::{Alternative, Assumptions, Undecided};
use crate::device::Access;
use crate::open::{self, Keys, OpenOptions, StoredImage};
use crate::problem::{Problem, Problems};
use crate::progress::Progress;
use crate::store::{Open, Staged, Store};
use crate::{Error, Kind, Result};

pub use losses::Loss;
pub use target::{Target, undo_folder};
pub use undo::Undone;

const LAYER: &str = "repair";
/// The layer of steps within volumes.
const VOLUME: &str = "volume";

/// Whether to repair, or only to tell what would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum How {
    /// Nothing is changed.
    #[default]
    DryRun,
    /// The image is changed.
    Apply,
}

/// Who is asked whether volumes may hold fewer files afterwards.
pub type Confirm<'a> = &'a dyn Fn(&[Loss]) -> Result<bool>;

/// How to repair.
#[derive(Clone)]
pub struct Options<'a> {
    /// Whether anything is written.
    pub how: How,
    /// What the user has decided.
    pub assume: Assumptions,
    /// True if volumes may hold fewer files afterwards.
    pub accept_loss: bool,
    /// Who is asked about that otherwise. `None`: the repair stops.
    pub confirm: Option<Confirm<'a>>,
    /// The folder for undo data. `None`: beside the image.
    pub undo_dir: Option<&'a Path>,
    /// The folder of a file without a name for changes that do not fit in memory.
    pub temporary: PathBuf,
}

impl Default for Options<'_> {
    fn default() -> Self {
        let (how, assume, temporary) = (How::DryRun, Assumptions::default(), PathBuf::from("/tmp"));
        Self {
            how,
            assume,
            accept_loss: false,
            confirm: None,
            undo_dir: None,
            temporary,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("how", &self.how)
            .field("assume", &self.assume)
            .finish_non_exhaustive()
    }
}

/// What became of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outcome {
    /// There was nothing that could be repaired.
    #[default]
    NothingToDo,
    /// The steps were made, or would be.
    Repaired,
    /// Sources disagree and the rest does not decide. Nothing was changed.
    Undecided,
    /// Volumes would hold fewer files, which nobody accepted. Nothing was changed.
    LossRefused,
}

impl Outcome {
    /// Its name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NothingToDo => "nothing-to-do",
            Self::Repaired => "repaired",
            Self::Undecided => "undecided",
            Self::LossRefused => "loss-refused",
        }
    }
}

/// What was repaired, or would be.
#[derive(Debug, Default)]
pub struct Repaired {
    /// What became of it.
    pub outcome: Outcome,
    /// What was wrong before.
    pub found: Problems,
    /// Layer and sentence of each step, in their order.
    pub steps: Vec<(&'static str, String)>,
    /// What is wrong and was left, because nothing tells what is right.
    pub refused: Vec<Error>,
    /// The disagreement that stopped the repair; [`alternatives`](Self::alternatives) are what can
    /// be assumed.
    pub undecided: Option<Error>,
    /// Volumes that hold fewer files afterwards.
    pub losses: Vec<Loss>,
    /// What is wrong afterwards; the same as `found` where nothing was changed.
    pub remaining: Vec<Problem>,
    /// The folder with the undo data.
    pub undo: Option<PathBuf>,
}

impl Repaired {
    /// What can be assumed where the repair stopped for a decision.
    pub fn alternatives(&self) -> &[Alternative] {
        self.undecided.as_ref().map_or(&[], Undecided::of)
    }

    fn add(&mut self, layer: &'static str, steps: impl IntoIterator<Item = String>) {
        self.steps
            .extend(steps.into_iter().map(|step| (layer, step)));
    }

    /// The steps of a layer, or why there are none. `false`: it stays damaged, and nothing above it
    /// must be written.
    fn take(&mut self, layer: &'static str, found: Result<Vec<String>>) -> Result<bool> {
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

/// Repairs the image at `path`, or tells what would be done. With layers over it only the topmost
/// is changed.
///
/// An error is one that keeps all of it from being looked at (the image is in use, or its
/// passphrase missing), or one of writing: the image is then as it was.
pub fn repair(
    path: &Path,
    options: &OpenOptions<'_>,
    chosen: &Options<'_>,
    progress: &dyn Progress,
) -> Result<Repaired> {
    let access = if chosen.how == How::Apply {
        Access::ReadWrite
    } else {
        Access::ReadOnly
    };
    if options.shadows.is_empty() && !path.is_file() {
        open::refuse_old_numbering(
            path,
            &OpenOptions {
                access: Access::ReadOnly,
                ..*options
            },
        )
        .map_err(|error| error.in_file(path))?;
    }
    if chosen.how == How::Apply {
        open::stack::make_missing(path, options)?;
    }
    let target =
        Target::at(path, options, chosen.undo_dir, access).map_err(|error| error.in_file(path))?;
    repair_target(&target, options, chosen, progress).map_err(|error| error.in_file(path))
}

/// The same of an image that is opened and locked already, one in memory for example.
pub fn repair_target(
    target: &Target,
    options: &OpenOptions<'_>,
    chosen: &Options<'_>,
    progress: &dyn Progress,
) -> Result<Repaired> {
    match (&target.vault, chosen.how) {
        (Ok(vault), _) => check_finished(vault)?,
        (Err(_), How::Apply) => drop(target.vault()?),
        (Err(_), How::DryRun) => {}
    }
    let keys = options.keys.map(Remembered::new);
    let keys = keys.as_ref().map(|keys| keys as &dyn Keys);
    let options = &OpenOptions {
        access: Access::ReadWrite,
        keys,
        ..*options
    };
    let staged = Staged::new(target.store.clone(), chosen.temporary.clone());
    // Whatever is fallen back to, the newest state is what is wrong before and right afterwards.
    let newest = &OpenOptions {
        checkpoint: None,
        ..*options
    };
    let outside = |store: Arc<dyn Store>| {
        let stored = stored(target, store, Open::Read)?;
        open::examine_outside(&target.path, stored, newest, progress).map(|found| found.problems)
    };
    // Nobody locks what is locked here already.
    let untouched = Staged::new(target.store.clone(), chosen.temporary.clone());
    let before = outside(Arc::new(untouched.clone()))?;
    let mut work = Work::new(target, &staged, options, chosen, progress);
    match work.run() {
        Ok(()) => {}
        Err(error) if error.kind() == Kind::Undecided => work.done.undecided = Some(error),
        Err(error) => return Err(error),
    }
    let Work {
        mut done,
        found: within,
        remaining: left_within,
        changed_outside,
        ..
    } = work;
    let is_changed = !done.steps.is_empty();
    let after = if done.undecided.is_none() && changed_outside {
        Some(outside(Arc::new(staged.clone()))?)
    } else {
        None
    };
    let kept = |problem: &Problem| Problem {
        severity: problem.severity,
        error: problem.error.duplicate(),
    };
    match after {
        Some(after) => done.remaining.extend(after),
        None => done.remaining.extend(before.listed().iter().map(kept)),
    }
    for problem in before.into_iter().chain(within) {
        done.found.add(problem.severity, problem.error);
    }
    done.remaining.extend(left_within);
    if done.undecided.is_some() {
        done.outcome = Outcome::Undecided;
        return Ok(done);
    }
    if !is_changed {
        return Ok(done);
    }
    let changed_volumes = done.steps.iter().any(|(layer, _)| *layer == VOLUME);
    done.losses = losses::of(
        target,
        &untouched,
        &staged,
        options,
        changed_volumes,
        progress,
    )?;
    let accepted = done.losses.is_empty() || chosen.accept_loss;
    if !accepted
        && !chosen
            .confirm
            .map_or(Ok(false), |confirm| confirm(&done.losses))?
    {
        done.outcome = Outcome::LossRefused;
        return Ok(done);
    }
    done.outcome = Outcome::Repaired;
    if chosen.how == How::Apply && undo::write(target, &staged)? {
        done.undo = target.vault()?.folder().map(Path::to_owned);
    }
    Ok(done)
}

/// Undoes all repairs of the image at `path` whose undo data is there, the last first. Refused with
/// [`Kind::Conflict`] if the image changed since.
pub fn undo(path: &Path, options: &OpenOptions<'_>, chosen: &Options<'_>) -> Result<Undone> {
    let target = target::at_for_undo(path, options, chosen).map_err(|error| error.in_file(path))?;
    undo_target(&target).map_err(|error| error.in_file(path))
}

/// The same of an image that is opened and locked already.
pub fn undo_target(target: &Target) -> Result<Undone> {
    undo::undo(target)
}

/// Removes the undo data and the quarantined files of the image at `path`.
pub fn commit(path: &Path, options: &OpenOptions<'_>, chosen: &Options<'_>) -> Result<Undone> {
    let target = target::at_for_undo(path, options, chosen).map_err(|error| error.in_file(path))?;
    commit_target(&target).map_err(|error| error.in_file(path))
}

/// The same of an image that is opened and locked already.
pub fn commit_target(target: &Target) -> Result<Undone> {
    undo::commit(target)
}

/// The stored bytes of a target, seen through `store`.
fn stored(target: &Target, store: Arc<dyn Store>, how: Open) -> Result<StoredImage> {
    Ok(match &target.file {
        None => StoredImage::Folder(store),
        Some(name) => StoredImage::File(
            store
                .open(name, how)?
                .ok_or_else(|| Error::not_found(LAYER, name))?,
        ),
    })
}
