//! The next step for a bundle and its states.

use std::collections::BTreeSet;

use bandsaw::Result;

use crate::bundle::{BundleFolder, INFO, Summary};
use crate::manifest::Soundness;
use crate::shelf::{Shelf, State};
use crate::swap::{Phase, Plan};
use crate::{Change, verification};

/// The next step, the most urgent one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// A change was interrupted: run its verb again.
    Interrupted(Change),
    /// The bundle cannot be opened, or macOS refuses it; the newest sound state, if there is one.
    Refused(Option<String>),
    /// A change is complete, and can be undone: commit it after a backup.
    Uncommitted(Change),
    /// No state is sound; the result of the check of the newest one that is whole, if there is one.
    NoState(Option<Soundness>),
    /// The bundle was changed since its newest sound state.
    Changed(String),
    /// The newest sound state is as the bundle.
    Kept(String),
}

impl Status {
    /// Returns the name for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Interrupted(_) => "interrupted",
            Self::Refused(_) => "refused",
            Self::Uncommitted(_) => "uncommitted",
            Self::NoState(_) => "no_state",
            Self::Changed(_) => "changed",
            Self::Kept(_) => "kept",
        }
    }

    /// Returns true if the bundle cannot be used as it is.
    pub const fn needs_attention(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::Refused(_))
    }
}

/// Returns the next step for a bundle. Only metadata is read.
pub fn status(bundle: &BundleFolder, shelf: &Shelf) -> Result<Status> {
    let mut uncommitted = None;
    for change in [Change::RollBack, Change::Verification] {
        match Plan::get(bundle, change)?.map(|plan| plan.phase) {
            None => {}
            Some(Phase::Done) => uncommitted = uncommitted.or(Some(change)),
            Some(_) => return Ok(Status::Interrupted(change)),
        }
    }
    let states = shelf.list()?;
    let newest = states.iter().rev().find(|state| state.is_sound());
    bundle.check_not_rebanding()?;
    if verification::is_refused(bundle)? || bundle.identity(INFO)?.is_none() {
        return Ok(Status::Refused(newest.map(|state| state.id.clone())));
    }
    if let Some(change) = uncommitted {
        return Ok(Status::Uncommitted(change));
    }
    let Some((id, manifest)) =
        newest.and_then(|state: &State| Some((&state.id, state.manifest()?)))
    else {
        let newest = states.iter().rev().find_map(State::manifest);
        return Ok(Status::NoState(newest.map(|manifest| manifest.check)));
    };
    let kept = Summary::of(manifest.files.iter().map(|(name, file)| (name, &file.live)));
    Ok(match bundle.summarize(&BTreeSet::new())? == kept {
        true => Status::Kept(id.clone()),
        false => Status::Changed(id.clone()),
    })
}
