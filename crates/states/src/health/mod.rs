//! The health of bundles on a file server: a verdict on each, with its reasons.
//!
//! ```text
//! bundles.rs        the bundles in a folder
//! record_locks.rs   files that are locked, of a file server too       the bundle is in use
//! open_files.rs     files that are open through Samba                 the bundle is in use
//! known.rs          bundles that have not changed since they were found sound
//! contents.rs       the bands: damage, backups, space
//! growth.rs         growth from one check to the next
//! causes.rs         causes of failing backups that are not the bundle's
//! verdict.rs        the conclusion
//! ```

mod bundles;
mod causes;
mod contents;
mod growth;
mod known;
mod open_files;
mod record_locks;
mod verdict;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use bandsaw::container::sparsebundle;
use bandsaw::fs::Timestamp;
use bandsaw::open::OpenOptions;
use bandsaw::progress::Progress;
use bandsaw::store::Local;
use bandsaw::{Error, Kind, Result};
use bandsaw_backups::BundleLists;

pub use self::bundles::{FoundBundle, bundles_in, find_bundles};
pub use self::causes::Samba;
pub use self::contents::Contents;
use self::known::KnownBundle;
pub use self::open_files::OpenFiles;
use self::record_locks::RecordLocks;
pub use self::verdict::BundleVerdict;
use crate::{
    BundleFolder, PrivateCache, REFUSED, SETTLED, Shelf, Status, Summary, nanos_now, status,
};

/// Depth of the check of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The structure of the bundle, the partition map, and the first part of each volume.
    Quick,
    /// All structures.
    Full,
}

/// The options of a check.
#[derive(Debug)]
pub struct HealthOptions<'a> {
    /// The options of opening bundles, for reading.
    pub opening: OpenOptions<'a>,
    /// Depth of the check of a volume.
    pub depth: Depth,
    /// The folder in which sound bundles are remembered. `None`: they are not.
    pub cache: Option<PrivateCache>,
    /// True to read the bands of bundles that have not changed, too.
    pub reads_unchanged: bool,
    /// The age from which the last backup is too old.
    pub max_age: Option<Duration>,
    /// The time of the check.
    pub now: Timestamp,
    /// The configuration of the server.
    pub samba: Option<&'a Samba>,
    /// The files that clients of the server have open.
    pub open_files: Option<&'a OpenFiles>,
}

/// The health of a bundle. Fields are empty if unknown.
#[derive(Debug, Default)]
pub struct Health {
    /// The path of the bundle, for people.
    pub path: String,
    /// The verdict.
    pub verdict: BundleVerdict,
    /// The reasons of the verdict.
    pub reasons: Vec<String>,
    /// The time at which the last backup was finished, of the bundle's lists or its contents.
    pub last_backup: Option<Timestamp>,
    /// The state of verification that macOS recorded.
    pub verification_state: Option<i64>,
    /// The results of reading the bands.
    pub contents: Contents,
    /// Bytes by which the storage grew each day, in the last month at most.
    pub growth: Option<i64>,
    /// Free bytes of the file system on which the bundle is.
    pub host_free: Option<u64>,
    /// The newest sound state to which the bundle can return.
    pub sound_state: Option<String>,
    /// The time of the check that read the bands. `None`: this one did.
    pub unchanged_since: Option<Timestamp>,
    /// Causes of failing backups that are not the bundle's. They do not change the verdict.
    pub causes: Vec<String>,
}

impl Health {
    fn new(path: &Path) -> Self {
        Self {
            path: path.display().to_string(),
            ..Self::default()
        }
    }

    /// Returns the health of what an error prevents from being checked.
    pub fn of_error(path: &Path, error: &Error) -> Self {
        let mut health = Self::new(path);
        health.found(BundleVerdict::of_error(error), error.to_string());
        health
    }

    /// Adds a reason, and makes the verdict at least as bad.
    fn found(&mut self, verdict: BundleVerdict, reason: impl Into<String>) {
        self.verdict = self.verdict.max(verdict);
        self.reasons.push(reason.into());
    }

    /// Checks the bundle at `path`. A bundle that is in use, or that changes meanwhile, is never
    /// damaged. All errors but [`Kind::Cancelled`] are reasons of the verdict.
    pub fn check(
        path: &Path,
        options: &HealthOptions<'_>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut health = Self::new(path);
        let began = nanos_now();
        let summarize = |inodes: &BTreeSet<u64>| BundleFolder::open(path)?.summarize(inodes);
        let before = match use_by_others(path, options.open_files, summarize) {
            Ok((before, None)) => before,
            Ok((_, Some(reason))) => {
                health.found(BundleVerdict::InUse, reason);
                return Ok(health);
            }
            Err(error) => return Ok(Self::of_error(path, &error)),
        };
        let files = before.fingerprint();
        let done = health.examine(path, &files, options, progress);
        let sound = match done {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => {
                health.found(BundleVerdict::of_error(&error), error.to_string());
                None
            }
            Ok(sound) => sound,
        };
        let after = summarize(&BTreeSet::new());
        let is_same = after.is_ok_and(|after| after.fingerprint() == files);
        if !is_same || health.verdict == BundleVerdict::InUse {
            let mut busy = Self::new(path);
            let reason = match is_same {
                true => health.reasons.pop().unwrap_or_default(),
                false => "the bundle changed during the check".to_owned(),
            };
            busy.found(BundleVerdict::InUse, reason);
            busy.verification_state = health.verification_state;
            return Ok(busy);
        }
        // A file that was written just now can be written again without getting other times.
        let is_settled = before.newest_change().saturating_add(SETTLED) < began;
        if let Some(contents) = sound
            && is_settled
            && options.opening.reads_whole_image()
            && let Some(cache) = &options.cache
            && let Some(known) = KnownBundle::new(path, files, options.depth, options.now, contents)
        {
            known.remember(cache);
        }
        if health.verdict == BundleVerdict::Damaged
            && (health.sound_state.is_some()
                || health.contents.backups.is_some_and(|count| count > 0))
        {
            health.verdict = BundleVerdict::DamagedRestorable;
        }
        Ok(health)
    }

    /// Checks the bundle whose files have this fingerprint. Returns what was read if that is sound.
    fn examine(
        &mut self,
        path: &Path,
        files: &str,
        options: &HealthOptions<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<Contents>> {
        self.host_free = host_free(path);
        let lists = BundleLists::read(path);
        self.verification_state = lists.verification_state;
        self.last_backup = lists.last_backup();
        for problem in &lists.problems {
            self.found(BundleVerdict::NeedsAttention, problem.to_string());
        }
        self.states(path)?;
        let may_be_known = !options.reads_unchanged && options.opening.reads_whole_image();
        let cache = options.cache.as_ref();
        let known = cache
            .filter(|_| may_be_known)
            .and_then(|cache| KnownBundle::find(cache, path, files, options.depth))
            .filter(|_| !has_undo(path));
        let sound = match known {
            Some(known) => {
                // A bundle that is in use is reported as such, even if nothing has changed yet.
                let _locks = sparsebundle::lock_shared(&Local::new(path))
                    .map_err(|error| error.in_file(path))?;
                self.unchanged_since = Some(known.read_at());
                self.contents = known.contents();
                None
            }
            None => {
                let reasons = self.reasons.len();
                let contents = self.read(path, options, !lists.history.is_empty(), progress)?;
                self.contents = contents;
                let is_sound = self.reasons.len() == reasons && contents.size.is_some();
                is_sound.then_some(contents)
            }
        };
        let last = self.contents.last_backup.map(Timestamp::from_seconds);
        self.last_backup = self.last_backup.max(last);
        let growth = |bytes| KnownBundle::growth(cache?, path, options.now, bytes);
        self.growth = self.contents.allocated.and_then(growth);
        self.check_age(options);
        self.add_causes(path, options);
        progress.check()?;
        Ok(sound)
    }

    /// Takes the kept states and the state of verification into account.
    fn states(&mut self, path: &Path) -> Result<()> {
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
            self.found(BundleVerdict::NeedsAttention, reason);
        }
        Ok(())
    }

    /// Looks for causes that are not the bundle's.
    fn add_causes(&mut self, path: &Path, options: &HealthOptions<'_>) {
        if let Some(reason) = causes::full_host(path) {
            self.found(BundleVerdict::NeedsAttention, reason);
        }
        self.causes
            .extend(causes::quota(path, self.contents.allocated));
        if let Some(samba) = options.samba {
            self.causes
                .extend(samba.causes(path, self.contents.allocated));
        }
    }

    /// Compares the age of the last backup with the limit.
    fn check_age(&mut self, options: &HealthOptions<'_>) {
        let (Some(max_age), Some(_)) = (options.max_age, self.contents.backups) else {
            return;
        };
        let limit = i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX);
        match self.last_backup {
            None => self.found(BundleVerdict::NeedsAttention, "no backup is complete"),
            Some(last) if options.now.seconds.saturating_sub(last.seconds) > limit => {
                let reason = format!("the last backup is of {}", last.to_minute());
                self.found(BundleVerdict::NeedsAttention, reason);
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
pub fn use_by_others(
    path: &Path,
    open_files: Option<&OpenFiles>,
    summarize: impl FnOnce(&BTreeSet<u64>) -> Result<Summary>,
) -> Result<(Summary, Option<String>)> {
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
