//! Removing old states by a policy.

use std::collections::BTreeSet;

use bandsaw::fs::{DateTime, Timestamp};
use bandsaw::progress::Progress;
use bandsaw::size::counted;
use bandsaw::{Error, Kind, Result};

use crate::LAYER;
use crate::manifest::Manifest;
use crate::shelf::{REMOVING, Shelf, State};

/// The states to keep, as restic's `forget` counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    /// The newest ones.
    pub last: u64,
    /// The newest one of each of so many days that have one, in UTC.
    pub daily: u64,
    /// The newest one of each of so many weeks, which begin on Monday.
    pub weekly: u64,
}

/// The result of [`forget`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgotten {
    /// Names of the states that stay, the oldest first.
    pub kept: Vec<String>,
    /// Names of the states that were removed, or are to be.
    pub removed: Vec<String>,
    /// Names of states that are not whole, or of another version: neither counted nor removed.
    pub ignored: Vec<String>,
}

/// Removes the states that a policy does not keep. The newest sound state always stays; before
/// another one is removed, every file of it is read.
///
/// [`Kind::Invalid`] if the policy keeps nothing, [`Kind::Conflict`] if no state is sound,
/// [`Kind::Corrupt`] if the newest sound state is damaged. Then nothing is removed.
pub fn forget(
    shelf: &Shelf,
    policy: Policy,
    dry_run: bool,
    progress: &dyn Progress,
) -> Result<Forgotten> {
    if policy == Policy::default() {
        let message = "the policy keeps nothing";
        return Err(Error::invalid(LAYER, message));
    }
    let _states = shelf.lock()?;
    let states = shelf.list()?;
    let mut forgotten = choose(&states, policy);
    if forgotten.removed.is_empty() {
        return Ok(forgotten);
    }
    let newest = states.iter().rev().find(|state| state.is_sound());
    let Some((newest, manifest)) = newest.and_then(|state| Some((&state.id, state.manifest()?)))
    else {
        let message = "no state is sound, so none is removed";
        return Err(shelf.named(Error::conflict(LAYER, message), ""));
    };
    check_whole(shelf, newest, manifest, progress)?;
    if forgotten.removed.contains(newest) {
        forgotten.removed.retain(|id| id != newest);
        let is_kept = |state: &&State| state.id == *newest || forgotten.kept.contains(&state.id);
        forgotten.kept = states
            .iter()
            .filter(is_kept)
            .map(|state| state.id.clone())
            .collect();
    }
    if !dry_run {
        for id in &forgotten.removed {
            progress.check()?;
            let going = shelf.unused_name(REMOVING)?;
            shelf.rename(id, &going)?;
            shelf.store().remove_tree(&going)?;
        }
        shelf.store().sync()?;
    }
    Ok(forgotten)
}

fn check_whole(
    shelf: &Shelf,
    id: &str,
    manifest: &Manifest,
    progress: &dyn Progress,
) -> Result<()> {
    let damaged = shelf.verify(id, manifest, progress)?;
    match damaged.first() {
        None => Ok(()),
        Some(first) => {
            let message = format!(
                "the newest sound state is damaged ({}, {first} first), so none is removed",
                counted(damaged.len() as u64, "file", "files")
            );
            Err(shelf.named(Error::new(Kind::Corrupt, LAYER, message), id))
        }
    }
}

/// Applies the policy to states that are whole.
fn choose(states: &[State], policy: Policy) -> Forgotten {
    let mut kept = BTreeSet::new();
    let newest_first = || {
        let states = states.iter().enumerate().rev();
        states.filter_map(|(at, state)| Some((at, state.manifest()?.listed)))
    };
    kept.extend(newest_first().take(length(policy.last)).map(|(at, _)| at));
    for (count, days) in [(policy.daily, 1), (policy.weekly, 7)] {
        let mut seen = BTreeSet::new();
        for (at, listed) in newest_first() {
            if seen.len() < length(count) && seen.insert(period(listed, days)) {
                kept.insert(at);
            }
        }
    }
    let mut forgotten = Forgotten {
        kept: Vec::new(),
        removed: Vec::new(),
        ignored: Vec::new(),
    };
    for (at, state) in states.iter().enumerate() {
        let list = match state.manifest() {
            None => &mut forgotten.ignored,
            Some(_) if kept.contains(&at) => &mut forgotten.kept,
            Some(_) => &mut forgotten.removed,
        };
        list.push(state.id.clone());
    }
    forgotten
}

fn length(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the number of a period of so many days, in UTC. Weeks begin on Monday: 1 January 1970 was
/// a Thursday.
fn period(nanos: i64, days: i64) -> i64 {
    let day = nanos.div_euclid(86_400_000_000_000);
    let since_monday = if days == 7 { day + 3 } else { day };
    since_monday.div_euclid(days)
}

impl State {
    /// Returns the date of a state that is whole, in UTC.
    pub fn date(&self) -> Option<DateTime> {
        let seconds = self.manifest()?.listed.div_euclid(1_000_000_000);
        Some(Timestamp::from_seconds(seconds).date_time())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks_begin_on_monday() {
        let at = |day: i64| day * 86_400_000_000_000;
        // 5 January 1970 was a Monday.
        let week = |day| period(at(day), 7);
        assert_eq!(week(4), week(10));
        assert_ne!(week(3), week(4));
        assert_ne!(week(10), week(11));
    }
}
