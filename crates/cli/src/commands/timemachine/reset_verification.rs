//! `bandsaw timemachine reset-verification`: the state of verification of macOS.

use std::ffi::OsString;

use bandsaw_states::{Change, commit, reset_verification, undo};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::open;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;

/// Make macOS forget that it refused a bundle
///
/// Sets VerificationState to 0 and removes RecoveryBackupDeclinedDate in the lists of the machine.
/// This does not repair anything: run `bandsaw check` first. The old lists are kept inside the
/// bundle: --undo brings them back, --commit removes them.
#[derive(Debug, Args)]
pub(super) struct ResetVerification {
    /// The sparse bundle
    #[arg(value_name = "BUNDLE", value_hint = ValueHint::DirPath)]
    bundle: OsString,
    /// Show what would be changed, and change nothing
    #[arg(long, conflicts_with_all = ["undo", "commit"])]
    dry_run: bool,
    /// Undo the last reset
    #[arg(long, conflicts_with = "commit")]
    undo: bool,
    /// Remove the lists that the last reset replaced
    #[arg(long)]
    commit: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ResetReport {
    path: String,
    /// `planned`, `reset`, `undone`, `committed` or `unchanged`.
    action: &'static str,
    /// Names of the lists.
    lists: Vec<String>,
}

impl ResetVerification {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let bundle = open(&self.bundle)?;
        let bar = Bar::new(output);
        let (action, lists) = if self.undo {
            undo(&bundle, Change::Verification, &bar)?;
            ("undone", Vec::new())
        } else if self.commit {
            commit(&bundle, Change::Verification)?;
            ("committed", Vec::new())
        } else {
            let lists = reset_verification(&bundle, self.dry_run, &bar)?.changed;
            let action = match (lists.is_empty(), self.dry_run) {
                (true, _) => "unchanged",
                (false, true) => "planned",
                (false, false) => "reset",
            };
            (action, lists)
        };
        drop(bar);
        let report = ResetReport {
            path: bundle.path().display().to_string(),
            action,
            lists,
        };
        output.done(&report, |out| {
            let name = output.name(&report.path);
            let lists = report.lists.join(", ");
            match report.action {
                "unchanged" => writeln!(out, "{name}: macOS recorded nothing"),
                "planned" => writeln!(out, "{name}: would be changed: {lists}"),
                "undone" => writeln!(out, "{name}: the old lists are back"),
                "committed" => writeln!(out, "{name}: the old lists are removed"),
                _ => writeln!(out, "{name}: changed {lists}"),
            }
        })
    }
}
