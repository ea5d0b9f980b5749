//! The lease of the writer. Source: docs/formats/object-store.md §5.
//!
//! The right to write is the entry by which a writer took over: the log alone decides. The lease
//! only shows others that the writer is alive, so that they do not take over from it. They decide
//! by their own clock: a writer is gone if its lease object has not changed for longer than a
//! heartbeat takes.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::LAYER;
use super::RemoteOptions;
use super::layout::{Document, EntryPurpose, LeaseHolder, lease_key, log_key};
use super::log::{Appended, Log};
use super::periodic::PeriodicTask;
use crate::store::Put;
use crate::store::objects::{Objects, ObjectsExt};
use crate::{Error, Result, platform};

/// Number of heartbeats, and of checks of another writer's lease, in the time after which a lease
/// counts as abandoned.
const BEATS: u32 = 4;
/// Maximum number of attempts that lose against another writer.
const TRIES: usize = 16;

impl LeaseHolder {
    /// Returns this process as a holder.
    pub fn here() -> Self {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Self {
            host: platform::host_name(),
            process: std::process::id(),
            since,
        }
    }
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} on {} since {}",
            self.process,
            self.host,
            utc(self.since)
        )
    }
}

/// Formats a time as `2026-11-22 07:08:33 UTC`. Source: the calendar's own rules, counted in eras
/// of 400 years from a first of March.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let (year, day) = (
        era * 400 + year + u64::from(month <= 2),
        day - (153 * shifted + 2) / 5 + 1,
    );
    format!(
        "{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Takes over the right to write, if no writer holds it or its lease is abandoned. `announce` is
/// called with the newest state and the entry that takes over before it is put; an error from it
/// leaves everything unchanged.
pub(super) fn acquire(
    objects: &Arc<dyn Objects>,
    options: &RemoteOptions,
    announce: &dyn Fn(&Document, &Document) -> Result<()>,
) -> Result<Log> {
    for _ in 0..TRIES {
        let Some(mut log) = Log::load(&**objects)? else {
            Log::begin(&**objects, options.part)?;
            continue;
        };
        let held = log.state.what != EntryPurpose::Release;
        if held && !options.steal && !is_abandoned(&**objects, &log.state, options)? {
            return Err(in_use(&log.state.holder));
        }
        let mut entry = log.next(EntryPurpose::Take)?;
        entry.holder = LeaseHolder::here();
        entry.settled = log.state.settled && !held;
        announce(&log.state, &entry)?;
        match log.append(&**objects, entry)? {
            Appended::Done if log.is_void(&**objects)? => {
                objects.remove(&log_key(log.state.number))?;
            }
            Appended::Done => return Ok(log),
            Appended::Overtaken(other) if other.what == EntryPurpose::Take => {
                return Err(in_use(&other.holder));
            }
            Appended::Overtaken(_) => {}
        }
    }
    Err(Error::conflict(
        LAYER,
        "the image changes too fast to take over; try again",
    ))
}

fn in_use(holder: &LeaseHolder) -> Error {
    let message = format!("in use by {holder}; if that no longer runs, use --steal-lease");
    Error::conflict(LAYER, message)
}

/// Returns the error for a writer whose image another one took over.
pub(super) fn deposed(by: &LeaseHolder) -> Error {
    let message =
        format!("taken over by {by}: the image is read-only here, and unflushed changes are lost");
    Error::conflict(LAYER, message)
}

/// Watches the lease until its expiry. `false`: it was renewed, or the log has advanced.
fn is_abandoned(objects: &dyn Objects, state: &Document, options: &RemoteOptions) -> Result<bool> {
    let (key, next) = (lease_key(state.generation), log_key(state.number + 1));
    let first = objects.stat(&key)?;
    let began = Instant::now();
    while began.elapsed() < options.expiry {
        thread::sleep((options.expiry / BEATS / 2).min(Duration::from_secs(1)));
        let now = objects.stat(&key)?;
        let same = match (&first, &now) {
            (Some(first), Some(now)) => first.tag == now.tag && first.modified == now.modified,
            (None, None) => true,
            _ => false,
        };
        if !same || objects.stat(&next)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub(super) struct Heartbeat(#[expect(dead_code, reason = "held, not read")] PeriodicTask);

impl Heartbeat {
    /// Puts the lease object, and renews it periodically. The first put shows if the store is
    /// writable.
    pub(super) fn start(
        objects: Arc<dyn Objects>,
        state: &Document,
        expiry: Duration,
    ) -> Result<Self> {
        let (key, holder) = (lease_key(state.generation), state.holder.clone());
        let text = move |beat: u64| format!("{beat}: {holder}\n");
        objects.put(&key, text(0).as_bytes(), Put::IfAbsent)?;
        let mut beat = 0;
        let renew = move || {
            beat += 1;
            // A missed heartbeat is made up by the next one; correctness does not depend on the
            // lease.
            let _ = objects.put(&key, text(beat).as_bytes(), Put::Replace);
            true
        };
        PeriodicTask::start("lease", expiry / BEATS, renew).map(Self)
    }
}

/// Removes the lease objects of generations before `now`, which are no longer used.
pub(super) fn remove_old(objects: &dyn Objects, now: u64) -> Result<()> {
    let mut old = Vec::new();
    objects.list(".bandsaw/lease/", &mut |key, _| {
        old.extend((key < lease_key(now).as_str()).then(|| key.to_owned()));
        Ok(())
    })?;
    old.iter().try_for_each(|key| objects.remove(key).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_331_313), "2026-11-22 07:08:33 UTC");
        assert_eq!(utc(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
