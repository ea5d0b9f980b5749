//! A hash of each band, which tells rot from changes.
//!
//! A band is faulty only if its contents differ from the hash while its length, both of its times
//! and its inode are the recorded ones: every write changes these. Anything else is a change, or
//! cannot be decided. If its times do not tell, but no volume had a transaction since, no Mac has
//! written it, and it is faulty, too.

mod record;
mod repair;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use bandsaw::ops::repair::check_not_interrupted;
use bandsaw::progress::Progress;
use bandsaw::store::{Guard, Lock, Store};
use bandsaw::sync::Mutex;
use bandsaw::{Kind, Result};
use bandsaw_core::parallel;
use serde::{Deserialize, Serialize};

use crate::bundle::{BundleFolder, Identity, Listing, changed};
use crate::hash::hash_existing;
use crate::keep::SETTLED;
use crate::shelf::THREADS;
use record::{Hashed, Record};

const LAYER: &str = "scrub";
/// The lock that keeps two runs apart.
const LOCK: &str = ".bandsaw/scrub.lock";

/// The reason why a band needs attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Its contents changed without a writer.
    Faulty,
    /// The host cannot read it.
    Unreadable,
    /// Its contents changed, and its times do not tell by whom.
    Unknown,
    /// It no longer exists.
    Missing,
}

impl Finding {
    /// Returns the name for programs and people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faulty => "faulty",
            Self::Unreadable => "unreadable",
            Self::Unknown => "unknown",
            Self::Missing => "missing",
        }
    }

    /// Returns true if data is lost, rather than possibly lost.
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Faulty | Self::Unreadable)
    }
}

/// Options of [`scrub`].
#[derive(Debug, Clone, Copy)]
pub struct ScrubOptions<'a> {
    /// Another copy of the bundle from which faulty bands are repaired.
    pub from: Option<&'a dyn Store>,
    /// True to record the present contents of bands that are unknown or missing. Faulty ones are
    /// never accepted.
    pub accept: bool,
    /// Number of bytes after which the progress is recorded.
    pub record_every: u64,
    /// The last transactions of all volumes in the bundle, as text of the caller's. `None`: they are not
    /// known.
    pub transactions: Option<&'a str>,
}

impl Default for ScrubOptions<'_> {
    fn default() -> Self {
        Self {
            from: None,
            accept: false,
            record_every: 4 << 30,
            transactions: None,
        }
    }
}

/// The result of [`scrub`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Number of bands that this run read.
    pub read: u64,
    /// Bytes that this run read.
    pub read_size: u64,
    /// Number of bands that have a hash for the first time.
    pub new: u64,
    /// Number of bands that were written since, by their times.
    pub changed: u64,
    /// Bands that need attention, by name.
    pub findings: Vec<(String, Finding)>,
    /// Names of bands that were repaired.
    pub repaired: Vec<String>,
    /// True if an interrupted run was resumed.
    pub resumed: bool,
}

/// Reads all bands and compares them with their hashes. An interrupted run is resumed.
///
/// [`Kind::Conflict`] if the bundle is in use or changes meanwhile, or if a repair of it was interrupted.
pub fn scrub(
    bundle: &BundleFolder,
    options: &ScrubOptions<'_>,
    progress: &dyn Progress,
) -> Result<Scrubbed> {
    check_not_interrupted(bundle.path())?;
    let _locks = match options.from {
        None => bundle.lock_shared()?,
        Some(_) => bundle.lock_exclusive()?,
    };
    let _alone = lock(bundle)?;
    let mut listing = bundle.list()?;
    listing.retain(|name, _| name.starts_with("bands/"));
    let (record, resumed) = Record::begin(bundle, options.accept)?;
    let unchanged_volumes =
        options.transactions.is_some() && record.transactions.as_deref() == options.transactions;
    let run = ScrubRun {
        bundle,
        options,
        unchanged_volumes,
        number: record.run,
        state: Mutex::new(State {
            record,
            done: Scrubbed {
                resumed,
                ..Scrubbed::default()
            },
            unrecorded: 0,
        }),
    };
    let read = run.read(&listing, progress);
    // An interruption keeps what was done.
    let mut state = run.state.into_inner();
    if let Err(error) = read {
        state.record.put(bundle)?;
        return Err(error);
    }
    if options.accept {
        state
            .record
            .bands
            .retain(|name, _| listing.contains_key(name));
    }
    let mut done = state.done;
    let found = |(name, band): (&String, &Hashed)| match listing.contains_key(name) {
        true => Some((name.clone(), band.finding?)),
        false => Some((name.clone(), Finding::Missing)),
    };
    done.findings = state.record.bands.iter().filter_map(found).collect();
    if let Some(from) = options.from {
        let repaired = repair::repair(bundle, from, &mut state.record, &done.findings, progress);
        if repaired.is_err() {
            state.record.put(bundle)?;
        }
        done.repaired = repaired?;
        done.findings
            .retain(|(name, _)| !done.repaired.contains(name));
    }
    state.record.complete = true;
    state.record.transactions = options.transactions.map(str::to_owned);
    state.record.put(bundle)?;
    Ok(done)
}

fn lock(bundle: &BundleFolder) -> Result<Guard> {
    match bundle.store().lock(LOCK, Lock::Exclusive) {
        // File servers without locks.
        Err(error) if error.kind() == Kind::Unsupported => Ok(Guard::nothing()),
        taken => taken,
    }
}

struct State {
    record: Record,
    done: Scrubbed,
    /// Bytes that were read since the record was stored.
    unrecorded: u64,
}

struct ScrubRun<'a> {
    bundle: &'a BundleFolder,
    options: &'a ScrubOptions<'a>,
    /// True if no volume had a transaction since the last complete run.
    unchanged_volumes: bool,
    number: u64,
    state: Mutex<State>,
}

impl ScrubRun<'_> {
    fn read(&self, listing: &Listing, progress: &dyn Progress) -> Result<()> {
        let todo: Vec<(&String, &Identity)> = {
            let state = self.state.lock();
            let is_done = |name: &String| {
                let band = state.record.bands.get(name);
                band.is_some_and(|band| band.run == self.number)
            };
            listing.iter().filter(|(name, _)| !is_done(name)).collect()
        };
        let total = todo
            .iter()
            .fold(0_u64, |sum, (_, file)| sum.saturating_add(file.len));
        progress.stage("scrub", total);
        parallel::each(
            parallel::cores(THREADS),
            todo.into_iter(),
            || (),
            |(), (name, file), stop| {
                stop.check()?;
                progress.check()?;
                self.band(name, file, progress)
            },
        )
        .map(drop)
    }

    fn band(&self, name: &str, file: &Identity, progress: &dyn Progress) -> Result<()> {
        let now = nanos_now();
        let hash = match hash_existing(self.bundle.store(), name, progress) {
            Ok((hash, _)) => Some(hash),
            Err(error) if error.kind() == Kind::Io => None,
            Err(error) => return Err(error),
        };
        if self.bundle.identity(name)? != Some(*file) {
            return Err(changed(self.bundle.path()));
        }
        let settled = file.changed.max(file.modified).saturating_add(SETTLED) < now;
        let mut state = self.state.lock();
        let State {
            record,
            done,
            unrecorded,
        } = &mut *state;
        done.read += 1;
        done.read_size = done.read_size.saturating_add(file.len);
        let old = record.bands.get(name).cloned();
        let present = |hash: String| Hashed {
            hash,
            file: *file,
            settled,
            run: self.number,
            finding: None,
        };
        let new = match (old, hash) {
            (None, Some(hash)) => {
                done.new += 1;
                present(hash)
            }
            // There is nothing to compare with, so the empty hash fits no copy.
            (None, None) => Hashed {
                finding: Some(Finding::Unreadable),
                ..present(String::new())
            },
            (Some(old), None) => old.found(Finding::Unreadable, self.number),
            (Some(old), Some(hash)) if old.hash == hash => present(hash),
            (Some(old), Some(hash)) => match old.judge(file) {
                None => {
                    done.changed += 1;
                    present(hash)
                }
                Some(Finding::Unknown) if self.unchanged_volumes => {
                    // A copy that fits may repair it: nobody wrote the file that is there.
                    Hashed {
                        file: *file,
                        ..old.found(Finding::Faulty, self.number)
                    }
                }
                Some(Finding::Unknown) if self.options.accept => present(hash),
                Some(finding) => old.found(finding, self.number),
            },
        };
        record.bands.insert(name.to_owned(), new);
        *unrecorded = unrecorded.saturating_add(file.len);
        if *unrecorded >= self.options.record_every {
            *unrecorded = 0;
            record.put(self.bundle)?;
        }
        Ok(())
    }
}

/// Returns the time of the clock, in nanoseconds since 1970.
pub fn nanos_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
