//! `bandsaw timemachine forget`: removing old states.

use bandsaw_states::{Policy, forget};
use clap::Args;
use serde::Serialize;

use super::StatesArgs;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;

/// Remove old states by a policy
///
/// States that one of the options keeps stay, as in `restic forget`. The newest sound state always
/// stays, and before another one is removed, every file of it is read and compared with its hash.
/// States that are not whole, or of another version of the format, are neither counted nor removed.
#[derive(Debug, Args)]
pub(super) struct Forget {
    #[command(flatten)]
    at: StatesArgs,
    /// Keep the newest N states
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_last: u64,
    /// Keep the newest state of each of N days
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_daily: u64,
    /// Keep the newest state of each of N weeks
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep_weekly: u64,
    /// Show what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ForgetReport {
    path: String,
    dry_run: bool,
    kept: Vec<String>,
    removed: Vec<String>,
    ignored: Vec<String>,
}

impl Forget {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let (bundle, shelf) = self.at.open()?;
        let policy = Policy {
            last: self.keep_last,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
        };
        let bar = Bar::new(output);
        let done = forget(&shelf, policy, self.dry_run, &bar)
            .map_err(|error| error.in_file(bundle.path()))?;
        drop(bar);
        for id in &done.ignored {
            output.warn(&format!("{id} is not a whole state, and was left as it is"));
        }
        let report = ForgetReport {
            path: bundle.path().display().to_string(),
            dry_run: self.dry_run,
            kept: done.kept,
            removed: done.removed,
            ignored: done.ignored,
        };
        output.done(&report, |out| {
            let verb = if self.dry_run {
                "would remove"
            } else {
                "removed"
            };
            for id in &report.removed {
                writeln!(out, "{verb} {}", output.name(id))?;
            }
            for id in &report.kept {
                writeln!(out, "keep {}", output.name(id))?;
            }
            Ok(())
        })
    }
}
