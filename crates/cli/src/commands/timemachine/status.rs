//! `bandsaw timemachine status`: the next step.

use bandsaw::{Error, Kind};
use bandsaw_states::{Soundness, Status as Next, status};
use clap::Args;
use serde::Serialize;

use super::StatesArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Say in one line what to do next for a bundle
///
/// Only metadata is read. The exit code is 8 if macOS refuses the bundle, or a change of it was
/// interrupted.
#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    at: StatesArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct StatusReport {
    path: String,
    /// `interrupted`, `refused`, `uncommitted`, `no_state`, `changed` or `kept`.
    status: &'static str,
    /// The newest sound state.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    message: String,
}

impl Status {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let (bundle, shelf) = self.at.open()?;
        let next = status(&bundle, &shelf)?;
        let path = bundle.path().display().to_string();
        let report = StatusReport {
            message: message(&next, &path),
            status: next.name(),
            state: match &next {
                Next::Refused(state) => state.clone(),
                Next::Changed(state) | Next::Kept(state) => Some(state.clone()),
                Next::Interrupted(_) | Next::Uncommitted(_) | Next::NoState(_) => None,
            },
            path,
        };
        output.result(&report, |out| {
            writeln!(out, "{}", output.text(&report.message))
        })?;
        if next.needs_attention() {
            let error = Error::new(Kind::Corrupt, "states", "needs attention");
            return Err(Failure::from(error.in_file(bundle.path())).warned());
        }
        Ok(())
    }
}

/// Returns the next step for a bundle with states of which none is sound.
fn no_sound_state(newest: Soundness, path: &str) -> String {
    match newest {
        Soundness::Sound => format!("there is no sound state: run `bandsaw tm keep {path}`"),
        Soundness::Damaged => format!(
            "no state is sound, and the newest was damaged when it was kept: run `bandsaw check \
             {path}` to list the damage"
        ),
        Soundness::Locked => format!(
            "no state is known to be sound, as the bundle is encrypted: run `bandsaw tm keep \
             --passfile FILE {path}`"
        ),
        Soundness::Unknown => format!(
            "no state is known to be sound, as no volume was found that can be checked: run \
             `bandsaw check {path}`"
        ),
        Soundness::Unchecked => {
            format!("no state was checked: run `bandsaw tm keep {path}` without --no-check")
        }
    }
}

fn message(next: &Next, path: &str) -> String {
    match next {
        Next::Interrupted(change) => format!(
            "a change was interrupted: run `bandsaw {} {path}` to resume",
            change.verb()
        ),
        Next::Refused(Some(state)) => format!(
            "macOS refuses the bundle: run `bandsaw tm roll-back {path}` to return to {state}"
        ),
        Next::Refused(None) => format!(
            "macOS refuses the bundle, and there is no sound state: run `bandsaw check {path}`, \
             and if it is sound `bandsaw tm reset-verification {path}`"
        ),
        Next::Uncommitted(change) => format!(
            "a change can be undone: after the next good backup run `bandsaw {} {path} --commit`",
            change.verb()
        ),
        Next::NoState(None) => format!("there is no sound state: run `bandsaw tm keep {path}`"),
        Next::NoState(Some(newest)) => no_sound_state(*newest, path),
        Next::Changed(state) => {
            format!("changed since {state}: run `bandsaw tm keep {path}` after the backup")
        }
        Next::Kept(state) => format!("kept as {state}: nothing to do"),
    }
}
