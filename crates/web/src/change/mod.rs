//! Changes of images that visitors ask for, and their dry runs, through the same operations of the
//! library as the commands.

mod repairs;
mod upload;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bandsaw::device::Access;
use bandsaw::open::{self, Image, Keys, NetworkOptions, OpenOptions};
use bandsaw::ops::compact::{self, Cause};
use bandsaw::ops::repair::{self, Mode};
use bandsaw::ops::snapshot;
use bandsaw::progress::Progress;
use bandsaw::{Error, Reason, Result, size};

pub(crate) use self::upload::NewFile;
use crate::LAYER;
use crate::app::App;
use crate::change_log::Visitor;
use crate::job::JobResult;
use crate::key_ring::ImageKeys;
use crate::names::visible;
use crate::open_images::options;
use crate::roots::ChangePlace;
use crate::text;

/// Time that a change waits for requests that read the image.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A change of an image.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A compaction; true to free blocks of zeros, too.
    Compact {
        zeros: bool,
    },
    /// A repair with decisions of the visitor, as texts of `--assume`, and the losses that were
    /// accepted.
    Repair {
        assume: Vec<String>,
        accepted: Option<Vec<String>>,
    },
    /// The undoing of all repairs.
    Undo,
    /// The removal of the undo data of repairs.
    Commit,
    CreateSnapshot(String),
    RestoreSnapshot(String),
    DeleteSnapshot(String),
    /// A new file in a volume.
    Put(NewFile),
}

impl Change {
    /// Returns the change in words, as the log and pages show it.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Compact { zeros: false } => "compact".to_owned(),
            Self::Compact { zeros: true } => "compact with zeros".to_owned(),
            Self::Repair { assume, accepted } => {
                let mut all = "repair".to_owned();
                if !assume.is_empty() {
                    all.push_str(&format!(" with {}", assume.join(" ")));
                }
                if let Some(accepted) = accepted {
                    all.push_str(&format!(" with {} losses accepted", accepted.len()));
                }
                all
            }
            Self::Undo => "undo repairs".to_owned(),
            Self::Commit => "remove undo data".to_owned(),
            Self::CreateSnapshot(name) => format!("create snapshot {name}"),
            Self::RestoreSnapshot(name) => format!("restore snapshot {name}"),
            Self::DeleteSnapshot(name) => format!("delete snapshot {name}"),
            Self::Put(file) => {
                let folder = file.folder.trim_end_matches('/');
                format!("write {folder}/{} ({})", file.name, size::display(file.len))
            }
        }
    }
}

/// An image with everything that a change of it needs.
pub(crate) struct ChangeWork {
    pub(crate) app: Arc<App>,
    pub(crate) place: ChangePlace,
    pub(crate) keys: Option<ImageKeys>,
    pub(crate) visitor: Visitor,
}

impl ChangeWork {
    /// Runs a change without changing anything.
    pub(crate) fn plan(&self, change: &Change, progress: &dyn Progress) -> Result<JobResult> {
        self.place.check()?;
        match change {
            Change::Compact { zeros } => self.plan_compaction(*zeros, progress),
            Change::Repair { assume, .. } => {
                let done = self.repaired(Mode::DryRun, assume, None, progress)?;
                Ok(self.repair_plan(done, assume))
            }
            _ => Err(Error::invalid(LAYER, "there is no dry run of this change")),
        }
    }

    /// Changes the image, and writes that to the log.
    pub(crate) fn apply(&self, change: &Change, progress: &dyn Progress) -> Result<JobResult> {
        let shown = self.place.located().shown().display().to_string();
        let log = &self.app.log;
        let number = log.begin(self.visitor, &change.described(), &shown);
        let done = self.app.images.exclusive(self.place.located().identity());
        let done = done.and_then(|_exclusive| {
            progress.check()?;
            self.place.check()?;
            self.change(change, progress)
        });
        match done {
            Ok(result) => {
                log.end(number, !result.is_failure, &result.conclusion, &result.undo);
                Ok(result)
            }
            Err(error) => {
                let message = self.place.readable(&error.to_string());
                log.end(number, false, &message, "");
                Err(error)
            }
        }
    }

    fn change(&self, change: &Change, progress: &dyn Progress) -> Result<JobResult> {
        let path = self.place.path();
        let network = NetworkOptions::default();
        let done = |conclusion: &str, undo: &str| {
            Ok(JobResult {
                conclusion: conclusion.to_owned(),
                is_sound: true,
                undo: undo.to_owned(),
                ..JobResult::default()
            })
        };
        match change {
            Change::Compact { zeros } => self.compact(*zeros, progress),
            Change::Repair { assume, accepted } => {
                let repair = || self.repaired(Mode::Apply, assume, accepted.as_deref(), progress);
                Ok(self.repair_result(retry_while_in_use(progress, repair)?))
            }
            Change::Undo | Change::Commit => {
                let options = self.writing();
                let chosen = self.chosen(Mode::Apply);
                let finish = if matches!(change, Change::Undo) {
                    repair::undo
                } else {
                    repair::commit
                };
                let finished = retry_while_in_use(progress, || finish(&path, &options, &chosen))?;
                let (repairs, files) = (finished.repairs, finished.files);
                match change {
                    Change::Undo => done(
                        &format!("Repairs undone: {repairs}; files restored: {files}."),
                        "repair again",
                    ),
                    _ => done(
                        &format!("The undo data of {repairs} repairs was removed."),
                        "not possible",
                    ),
                }
            }
            Change::CreateSnapshot(name) => {
                retry_while_in_use(progress, || {
                    snapshot::create(&path, name, network, progress)
                })?;
                done(text::SNAPSHOT_CREATED, "delete the snapshot")
            }
            Change::RestoreSnapshot(name) => {
                retry_while_in_use(progress, || {
                    snapshot::restore(&path, name, network, progress)
                })?;
                done(
                    text::SNAPSHOT_RESTORED,
                    "not possible without another snapshot",
                )
            }
            Change::DeleteSnapshot(name) => {
                retry_while_in_use(progress, || snapshot::delete(&path, name, network))?;
                done(text::SNAPSHOT_DELETED, "not possible")
            }
            Change::Put(file) => {
                self.put(file, progress)?;
                done(
                    text::FILE_WRITTEN,
                    "remove the file, or write the former one",
                )
            }
        }
    }

    fn keys(&self) -> Option<&dyn Keys> {
        self.keys.as_ref().map(|keys| keys as &dyn Keys)
    }

    fn writing(&self) -> OpenOptions<'_> {
        OpenOptions {
            access: Access::ReadWrite,
            ..options(self.keys.as_ref())
        }
    }

    fn open_for_change(&self, progress: &dyn Progress) -> Result<Image> {
        let (path, options) = (self.place.path(), self.writing());
        let image = retry_while_in_use(progress, || open::open(&path, &options))?;
        self.place.check()?;
        Ok(image)
    }

    fn plan_compaction(&self, zeros: bool, progress: &dyn Progress) -> Result<JobResult> {
        let image = open::open(&self.place.path(), &options(self.keys.as_ref()))?;
        let plan = compact::plan(&image, &compaction(zeros), self.keys(), progress)?;
        let mut result = JobResult {
            conclusion: format!("{} would be freed.", size::display(plan.returns())),
            is_sound: true,
            ..JobResult::default()
        };
        let bytes = |count: u64| size::display(count).to_string();
        result.add_fact("Allocated now", bytes(plan.allocated));
        for (cause, freed) in &plan.causes {
            let what = match cause {
                Cause::FreeUnits => "In bands or chunks that are entirely free",
                Cause::FreeParts => "In free parts of others",
                Cause::Zeros => "In blocks that contain only zeros",
            };
            result.add_fact(what, bytes(*freed));
        }
        if plan.pending > 0 {
            result.add_fact("Held by older checkpoints", bytes(plan.pending));
        }
        self.add_skipped(&mut result, &plan.refused, &plan.orphans);
        result.next = Some(Change::Compact { zeros });
        Ok(result)
    }

    fn compact(&self, zeros: bool, progress: &dyn Progress) -> Result<JobResult> {
        let image = self.open_for_change(progress)?;
        let done = compact::compact(&image, &compaction(zeros), self.keys(), progress)?;
        let freed = done.before.saturating_sub(done.after);
        let mut result = JobResult {
            conclusion: format!("{} freed.", size::display(freed)),
            is_sound: true,
            undo: "none is needed: no file was changed".to_owned(),
            ..JobResult::default()
        };
        result.add_fact("Allocated before", size::display(done.before).to_string());
        result.add_fact("Allocated now", size::display(done.after).to_string());
        if !done.can_punch {
            result.advice.push(text::NO_HOLES.to_owned());
        }
        if !done.orphans.is_resolved() {
            result.conclusion = text::ORPHANS.to_owned();
            result.is_sound = false;
            result.is_failure = true;
        }
        self.add_skipped(&mut result, &done.refused, &done.orphans);
        Ok(result)
    }

    /// Adds what a compaction leaves alone.
    fn add_skipped(
        &self,
        result: &mut JobResult,
        refused: &[compact::SkippedVolume],
        orphans: &compact::OrphanReport,
    ) {
        for skipped in refused {
            let message = self.place.readable(skipped.error.message());
            result.add_fact(&skipped.place, format!("skipped: {}", visible(&message)));
        }
        if !orphans.found.is_empty() {
            let bytes = size::display(orphans.bytes());
            let fate = match &orphans.kept {
                Some(why) => format!("{bytes}, kept: {}", visible(&self.place.readable(why))),
                None => format!("{bytes}: nothing refers to them"),
            };
            result.add_fact("Stored data that belongs to no part of the disk", fate);
        }
    }
}

fn compaction(zeros: bool) -> compact::Options {
    compact::Options {
        zeros: zeros.then_some(true),
        battery_allowed: false,
    }
}

/// Tries again for a while if other requests read the image.
fn retry_while_in_use<T>(
    progress: &dyn Progress,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let end = Instant::now() + MAX_WAIT;
    loop {
        match attempt() {
            Err(error) if error.reason() == Some(Reason::InUse) && Instant::now() < end => {
                progress.check()?;
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}
