//! The health of bundles on a file server, for `bandsaw health` and `bandsaw watch`.

mod causes;
mod growth;
mod known;
mod notify;
pub(crate) mod on_sound;
mod open_files;
mod record_locks;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bandsaw::container::sparsebundle;
use bandsaw::device::Access;
use bandsaw::fs::Timestamp;
use bandsaw::open::{self, Examination, Image};
use bandsaw::ops::usage::ImageUsage;
use bandsaw::problem::Severity;
use bandsaw::progress::Progress;
use bandsaw::store::Local;
use bandsaw::{Error, Kind, Reason};
use bandsaw_backups::{BackupState, Backups, BundleLists, volumes_of};
use bandsaw_states::{
    BundleFolder, REFUSED, SETTLED, Shelf, Soundness, Status, Summary, nanos_now, status,
};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub(crate) use self::causes::Samba;
use self::known::{Contents, KnownBundle};
pub(crate) use self::notify::{run_key, run_on_change};
pub(crate) use self::open_files::OpenFiles;
use self::record_locks::RecordLocks;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::OpenArgs;
use crate::text::counted;

/// Number of folders below the one that is named in which bundles are looked for.
const DEPTH: usize = 4;
/// Folders of file servers that hold copies or metadata.
const SKIPPED: [&str; 5] = [
    "@eaDir",
    "#recycle",
    "#snapshot",
    "lost+found",
    "Network Trash Folder",
];

/// The verdict on a bundle, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Sound,
    InUse,
    Locked,
    Unknown,
    NeedsAttention,
    Unreadable,
    DamagedRestorable,
    Damaged,
}

impl Verdict {
    /// All verdicts.
    pub(crate) const ALL: [Self; 8] = [
        Self::Sound,
        Self::InUse,
        Self::Locked,
        Self::Unknown,
        Self::NeedsAttention,
        Self::Unreadable,
        Self::DamagedRestorable,
        Self::Damaged,
    ];

    /// Returns the name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::InUse => "in use",
            Self::Locked => "locked",
            Self::Unknown => "unknown",
            Self::NeedsAttention => "needs attention",
            Self::Unreadable => "unreadable",
            Self::DamagedRestorable => "damaged, restore possible",
            Self::Damaged => "damaged",
        }
    }

    /// Returns the verdict of a check.
    pub(crate) fn of(soundness: Soundness) -> Self {
        match soundness {
            Soundness::Sound => Self::Sound,
            Soundness::Damaged => Self::Damaged,
            Soundness::Locked => Self::Locked,
            Soundness::Unknown | Soundness::Unchecked => Self::Unknown,
        }
    }

    /// Returns the verdict of an error. What cannot be read is never absent, and what is in use is
    /// never damaged.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error.kind() {
            Kind::Conflict if error.reason() == Some(Reason::InUse) => Self::InUse,
            Kind::Corrupt => Self::Damaged,
            Kind::WrongKey => Self::Locked,
            Kind::Conflict | Kind::Undecided => Self::NeedsAttention,
            _ => Self::Unreadable,
        }
    }
}

/// Returns the failure for the worst verdict of a round over bundles.
pub(crate) fn conclude(layer: &'static str, worst: Option<Verdict>) -> Outcome {
    let failed = |kind, message| Err(Failure::from(Error::new(kind, layer, message)));
    match worst {
        Some(Verdict::Sound | Verdict::InUse) => Ok(()),
        None => failed(Kind::NotFound, "no sparse bundle was found"),
        Some(Verdict::Damaged | Verdict::DamagedRestorable) => {
            failed(Kind::Corrupt, "a bundle is damaged")
        }
        Some(Verdict::Unreadable) => failed(Kind::Io, "a bundle or folder cannot be read"),
        Some(Verdict::Locked | Verdict::Unknown | Verdict::NeedsAttention) => {
            failed(Kind::Corrupt, "a bundle needs attention").map_err(Failure::warned)
        }
    }
}

/// Returns the conclusion of a round, also if the command that tells of changes failed.
pub(crate) fn conclude_with_command(
    concluded: Outcome,
    notified: Outcome,
    output: &Output,
) -> Outcome {
    match (concluded, notified) {
        (Ok(()), notified) => notified,
        (concluded, Ok(())) => concluded,
        (concluded, Err(failure)) => {
            let _ = failure.report(output);
            concluded
        }
    }
}

/// Returns the bundles in a folder and those below it, and what cannot be read there. States are no
/// bundles.
pub(crate) fn bundles(folder: &Path) -> Vec<Result<PathBuf, (PathBuf, Error)>> {
    let mut found = Vec::new();
    look_in(folder, DEPTH, &mut found);
    let path = |one: &Result<PathBuf, (PathBuf, Error)>| match one {
        Ok(path) | Err((path, _)) => path.clone(),
    };
    found.sort_by_key(path);
    found
}

/// Returns the bundle at `path`, or those in the folder there.
pub(crate) fn find_bundles(path: &Path) -> Vec<Result<PathBuf, (PathBuf, Error)>> {
    match bundle_kind(path) {
        Ok(FolderKind::Bundle) => vec![Ok(path.to_owned())],
        _ => bundles(path),
    }
}

fn look_in(folder: &Path, depth: usize, found: &mut Vec<Result<PathBuf, (PathBuf, Error)>>) {
    let unreadable = |path: &Path, source: io::Error| {
        let error = Error::io("health", "read", source).in_file(path);
        Err((path.to_owned(), error))
    };
    let entries = match fs::read_dir(folder) {
        Err(source) => {
            found.push(unreadable(folder, source));
            return;
        }
        Ok(entries) => entries,
    };
    for entry in entries {
        let entry = match entry {
            Err(source) => {
                found.push(unreadable(folder, source));
                continue;
            }
            Ok(entry) => entry,
        };
        let path = entry.path();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        match fs::metadata(&path) {
            Err(source) => found.push(unreadable(&path, source)),
            Ok(meta) if !meta.is_dir() => {}
            Ok(_) => match bundle_kind(&path) {
                Err(error) => found.push(Err((path, error))),
                Ok(FolderKind::Bundle) => found.push(Ok(path)),
                Ok(FolderKind::State) => {}
                Ok(FolderKind::Other) => {
                    let name = entry.file_name();
                    let name = name.to_string_lossy();
                    let is_skipped = name.starts_with('.') || SKIPPED.contains(&&*name);
                    // A link could lead out of the share, or back into it.
                    if depth > 0 && !is_link && !is_skipped {
                        look_in(&path, depth - 1, found);
                    }
                }
            },
        }
    }
}

enum FolderKind {
    /// A bundle, also one that has lost its lists.
    Bundle,
    /// A kept state of a bundle.
    State,
    Other,
}

fn bundle_kind(path: &Path) -> bandsaw::Result<FolderKind> {
    let store = Local::new(path);
    if sparsebundle::is_state(&store)? {
        return Ok(FolderKind::State);
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    let has_name = matches!(extension, Some("sparsebundle" | "backupbundle"));
    let is_bundle = sparsebundle::is_bundle(&store)? || (has_name && path.join("bands").is_dir());
    Ok(match is_bundle {
        true => FolderKind::Bundle,
        false => FolderKind::Other,
    })
}

/// Depth of the check of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Depth {
    /// The structure of the bundle, the partition map, and the first part of each volume
    Quick,
    /// All structures, as `bandsaw check` does
    Full,
}

/// The options of a check.
pub(crate) struct HealthOptions<'a> {
    pub(crate) opening: &'a OpenArgs,
    pub(crate) depth: Depth,
    /// True to read the bands of bundles that have not changed, too.
    pub(crate) full: bool,
    /// The age from which the last backup is too old.
    pub(crate) max_age: Option<Duration>,
    pub(crate) now: Timestamp,
    /// The configuration of the server.
    pub(crate) samba: Option<&'a Samba>,
    /// The files that clients of the server have open.
    pub(crate) open_files: Option<&'a OpenFiles>,
}

/// The health of a bundle. Fields are empty if unknown.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) path: String,
    pub(crate) verdict: Verdict,
    /// The reasons of the verdict.
    pub(crate) reasons: Vec<String>,
    /// The time at which the last backup was finished.
    pub(crate) last_backup: Option<Timestamp>,
    /// Number of complete backups.
    pub(crate) backups: Option<u64>,
    pub(crate) verification_state: Option<i64>,
    /// Bytes of storage of the bundle.
    pub(crate) allocated: Option<u64>,
    /// Bytes by which that grew each day, in the last month at most.
    pub(crate) growth: Option<i64>,
    /// Bytes that compaction would return.
    pub(crate) reclaimable: Option<u64>,
    /// Size of the disk in the bundle.
    pub(crate) size: Option<u64>,
    /// Free bytes of the volumes in it.
    pub(crate) free: Option<u64>,
    /// Free bytes of the file system on which the bundle is.
    pub(crate) host_free: Option<u64>,
    /// The newest sound state to which the bundle can return.
    pub(crate) sound_state: Option<String>,
    /// The time of the check that read the bands. `None`: this one did.
    pub(crate) unchanged_since: Option<Timestamp>,
    /// Causes of failing backups that are not the bundle's. They do not change the verdict.
    pub(crate) causes: Vec<String>,
}

impl Health {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.display().to_string(),
            verdict: Verdict::Sound,
            reasons: Vec::new(),
            last_backup: None,
            backups: None,
            verification_state: None,
            allocated: None,
            growth: None,
            reclaimable: None,
            size: None,
            free: None,
            host_free: None,
            sound_state: None,
            unchanged_since: None,
            causes: Vec::new(),
        }
    }

    /// Returns the health of what an error prevents from being checked.
    pub(crate) fn of_error(path: &Path, error: &Error) -> Self {
        let mut health = Self::new(path);
        health.found(Verdict::of_error(error), error.to_string());
        health
    }

    /// Adds a reason, and makes the verdict at least as bad.
    fn found(&mut self, verdict: Verdict, reason: impl Into<String>) {
        self.verdict = self.verdict.max(verdict);
        self.reasons.push(reason.into());
    }

    /// Checks the bundle at `path`. A bundle that is in use, or that changes meanwhile, is never
    /// damaged. Fails only if it is canceled.
    pub(crate) fn check(
        path: &Path,
        options: &HealthOptions<'_>,
        bar: &Bar,
    ) -> bandsaw::Result<Self> {
        let mut health = Self::new(path);
        let began = nanos_now();
        let summarize = |inodes: &BTreeSet<u64>| BundleFolder::open(path)?.summarize(inodes);
        let before = match use_by_others(path, options.open_files, summarize) {
            Ok((before, None)) => before,
            Ok((_, Some(reason))) => {
                health.found(Verdict::InUse, reason);
                return Ok(health);
            }
            Err(error) => return Ok(Self::of_error(path, &error)),
        };
        let files = before.fingerprint();
        let done = health.examine(path, &files, options, bar);
        let sound = match done {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => {
                health.found(Verdict::of_error(&error), error.to_string());
                None
            }
            Ok(sound) => sound,
        };
        let after = summarize(&BTreeSet::new());
        let is_same = after.is_ok_and(|after| after.fingerprint() == files);
        if !is_same || health.verdict == Verdict::InUse {
            let mut busy = Self::new(path);
            let reason = match is_same {
                true => health.reasons.pop().unwrap_or_default(),
                false => "the bundle changed during the check".to_owned(),
            };
            busy.found(Verdict::InUse, reason);
            busy.verification_state = health.verification_state;
            return Ok(busy);
        }
        // A file that was written just now can be written again without getting other times.
        let is_settled = before.newest_change().saturating_add(SETTLED) < began;
        if let Some(contents) = sound
            && is_settled
            && options.opening.is_of_whole_image()
            && let Some(known) = KnownBundle::new(path, files, options.depth, options.now, contents)
        {
            known.remember();
        }
        if health.verdict == Verdict::Damaged
            && (health.sound_state.is_some() || health.backups.is_some_and(|count| count > 0))
        {
            health.verdict = Verdict::DamagedRestorable;
        }
        Ok(health)
    }

    /// Checks the bundle whose files have this fingerprint. Returns what was read if that is sound.
    fn examine(
        &mut self,
        path: &Path,
        files: &str,
        options: &HealthOptions<'_>,
        bar: &Bar,
    ) -> bandsaw::Result<Option<Contents>> {
        self.host_free = host_free(path);
        let lists = BundleLists::read(path);
        self.verification_state = lists.verification_state;
        self.last_backup = lists.last_backup();
        for problem in &lists.problems {
            self.found(Verdict::NeedsAttention, problem.to_string());
        }
        self.states(path)?;
        let may_be_known = !options.full && options.opening.is_of_whole_image();
        let known = may_be_known
            .then(|| KnownBundle::find(path, files, options.depth))
            .flatten()
            .filter(|_| !has_undo(path));
        let sound = match known {
            Some(known) => {
                // A bundle that is in use is reported as such, even if nothing has changed yet.
                let _locks = sparsebundle::lock_shared(&Local::new(path))
                    .map_err(|error| error.in_file(path))?;
                self.unchanged_since = Some(known.read_at());
                self.take(known.contents());
                None
            }
            None => {
                let reasons = self.reasons.len();
                let contents = self.read(path, options, !lists.history.is_empty(), bar)?;
                self.take(contents);
                let is_sound = self.reasons.len() == reasons && contents.size.is_some();
                is_sound.then_some(contents)
            }
        };
        let growth = |bytes| KnownBundle::growth(path, options.now, bytes);
        self.growth = self.allocated.and_then(growth);
        self.check_age(options);
        self.add_causes(path, options);
        (bar as &dyn Progress).check()?;
        Ok(sound)
    }

    /// Adds what was read from the bands.
    fn take(&mut self, contents: Contents) {
        let last = contents.last_backup.map(Timestamp::from_seconds);
        self.last_backup = self.last_backup.max(last);
        self.backups = contents.backups;
        self.allocated = contents.allocated;
        self.reclaimable = contents.reclaimable;
        self.size = contents.size;
        self.free = contents.free;
    }

    /// Reads the bands.
    fn read(
        &mut self,
        path: &Path,
        options: &HealthOptions<'_>,
        has_history: bool,
        bar: &Bar,
    ) -> bandsaw::Result<Contents> {
        let mut contents = Contents::default();
        let opening = options.opening.options(Access::ReadOnly);
        let checked = match options.depth {
            Depth::Full => self.judge(open::examine(path, &opening, bar))?,
            Depth::Quick => self.quick(path, options)?,
        };
        if checked == Verdict::Locked {
            return Ok(contents);
        }
        // A restore is possible if files of a damaged bundle can be read.
        let image = match open::open(path, &opening) {
            Err(_) if checked >= Verdict::DamagedRestorable => return Ok(contents),
            image => image?,
        };
        match self.backups(&image, options, has_history) {
            Err(_) if checked >= Verdict::DamagedRestorable => return Ok(contents),
            found => (contents.backups, contents.last_backup) = found?,
        }
        if let Ok(usage) = ImageUsage::of(&image, Some(options.opening.keys()), bar) {
            contents.allocated = Some(usage.host.allocated);
            contents.size = Some(usage.disk);
            contents.reclaimable = Some(usage.returns());
            let free = usage.volumes.iter().filter_map(|one| Some(one.space?.free));
            contents.free = free.reduce(u64::saturating_add);
        }
        Ok(contents)
    }

    /// Takes the kept states and the state of verification into account.
    fn states(&mut self, path: &Path) -> bandsaw::Result<()> {
        let bundle = BundleFolder::open(path)?;
        let shelf = Shelf::of(&bundle, None)?;
        let states = shelf.list()?;
        let newest = states.iter().rev().find(|state| state.is_sound());
        self.sound_state = newest.map(|state| state.id.clone());
        let next = status(&bundle, &shelf)?;
        if next.needs_attention() {
            let reason = match &next {
                Status::Refused(_) if self.verification_state == Some(REFUSED) => {
                    "macOS refuses the bundle"
                }
                Status::Refused(_) => "the bundle has lost its lists",
                _ => "a change of the bundle was interrupted",
            };
            let reason = format!("{reason}: run `bandsaw tm status {}`", path.display());
            self.found(Verdict::NeedsAttention, reason);
        }
        Ok(())
    }

    /// Adds the result of a full check.
    fn judge(&mut self, examined: bandsaw::Result<Examination>) -> bandsaw::Result<Verdict> {
        let reason = match &examined {
            Err(error) => error.to_string(),
            Ok(found) => {
                let mut damage = found.problems.listed().iter();
                let first = damage.find(|problem| problem.severity == Severity::Damage);
                first.map_or_else(String::new, |problem| problem.error.to_string())
            }
        };
        let verdict = Verdict::of(Soundness::of(examined)?);
        if verdict != Verdict::Sound {
            let reason = match (reason.is_empty(), verdict) {
                (true, Verdict::Locked) => "encrypted: no passphrase was given".to_owned(),
                (true, Verdict::Unknown) => "a part of it cannot be checked".to_owned(),
                _ => reason,
            };
            self.found(verdict, reason);
        }
        Ok(verdict)
    }

    /// Opens the bundle, and checks the first part of each volume.
    fn quick(&mut self, path: &Path, options: &HealthOptions<'_>) -> bandsaw::Result<Verdict> {
        let opening = options.opening.options(Access::ReadOnly);
        let image = match open::open(path, &opening) {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::WrongKey) => {
                let verdict = Verdict::of_error(&error);
                self.found(verdict, error.to_string());
                return Ok(verdict);
            }
            image => image?,
        };
        let volumes = image.volumes().iter();
        let mut verdict = Verdict::Unknown;
        for volume in volumes.filter(|volume| volume.format.is_checked()) {
            let found = match volume.find_damage() {
                Ok(None) => {
                    verdict = if verdict == Verdict::Unknown {
                        Verdict::Sound
                    } else {
                        verdict
                    };
                    continue;
                }
                Ok(Some(error)) => error,
                Err(error) if error.kind() == Kind::Corrupt => error,
                Err(error) => return Err(error),
            };
            self.found(Verdict::Damaged, found.to_string());
            verdict = Verdict::Damaged;
        }
        if verdict == Verdict::Unknown {
            self.found(verdict, "no volume that can be checked");
        }
        Ok(verdict)
    }

    /// Returns the number of complete backups, and the time of the last one; no number if the bundle
    /// is not of backups.
    fn backups(
        &mut self,
        image: &Image,
        options: &HealthOptions<'_>,
        has_history: bool,
    ) -> bandsaw::Result<(Option<u64>, Option<i64>)> {
        let volumes = match volumes_of(image, None, Some(options.opening.keys())) {
            Err(error) if error.kind() == Kind::WrongKey => {
                self.found(Verdict::Locked, error.to_string());
                return Ok((None, None));
            }
            volumes => volumes?,
        };
        let backups = Backups::read(volumes);
        let complete = backups.all().iter();
        let complete = complete.filter(|one| one.state == BackupState::Complete);
        let is_of_backups = has_history || !backups.all().is_empty();
        if !is_of_backups && backups.problems().is_empty() {
            return Ok((None, None));
        }
        if let Some(problem) = backups.problems().first() {
            let parts = counted(backups.problems().len() as u64, "part", "parts");
            let reason = format!("cannot read {parts} of the backups: {problem}");
            self.found(Verdict::NeedsAttention, reason);
        }
        let newest = complete.clone().filter_map(|one| one.completed).max();
        Ok((
            Some(complete.count() as u64),
            newest.map(|newest| newest.seconds),
        ))
    }

    /// Looks for causes that are not the bundle's.
    fn add_causes(&mut self, path: &Path, options: &HealthOptions<'_>) {
        if let Some(reason) = causes::full_host(path) {
            self.found(Verdict::NeedsAttention, reason);
        }
        self.causes.extend(causes::quota(path, self.allocated));
        if let Some(samba) = options.samba {
            self.causes.extend(samba.causes(path, self.allocated));
        }
    }

    /// Compares the age of the last backup with the limit.
    fn check_age(&mut self, options: &HealthOptions<'_>) {
        let (Some(max_age), Some(_)) = (options.max_age, self.backups) else {
            return;
        };
        let limit = i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX);
        match self.last_backup {
            None => self.found(Verdict::NeedsAttention, "no backup is complete"),
            Some(last) if options.now.seconds.saturating_sub(last.seconds) > limit => {
                let reason = format!("the last backup is of {}", crate::text::minute(last));
                self.found(Verdict::NeedsAttention, reason);
            }
            Some(_) => return,
        }
        // Nothing else is wrong with the bundle.
        if self.reasons.len() == 1 {
            self.causes.extend(causes::UNSEEN.map(str::to_owned));
        }
    }
}

/// Returns what `summarize` says of the files of the bundle at `path`, and the reason why it is in use, as far as
/// its server shows that: a client of Samba has a file open, or a program holds a record lock, as netatalk does
/// for open files.
pub(crate) fn use_by_others(
    path: &Path,
    open_files: Option<&OpenFiles>,
    summarize: impl FnOnce(&BTreeSet<u64>) -> bandsaw::Result<Summary>,
) -> bandsaw::Result<(Summary, Option<String>)> {
    let locks = RecordLocks::on_file_system_of(path);
    let files = summarize(&locks.inodes())?;
    let open = open_files.and_then(|files| files.within(path));
    let open = open.map(|file| format!("open through Samba: {}", file.display()));
    let reason = open.or_else(|| locks.describe(files.found()));
    Ok((files, reason))
}

/// Returns true unless there is no undo data of a repair beside the bundle. An interrupted repair is
/// found by reading only.
fn has_undo(path: &Path) -> bool {
    let path = path.components().as_path();
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut undo = real.into_os_string();
    undo.push(".undo");
    let meta = fs::symlink_metadata(undo);
    !meta.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Returns the free bytes of the file system at `path` for its users; `None` if unknown.
fn host_free(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}
