//! `bandsaw timemachine roll-back`: return to a state.

use std::io::{self, Write};

use bandsaw::Kind;
use bandsaw_states::{
    Change, RollBackPlan, RolledBack, Shelf, commit, roll_back, roll_back_plan, undo,
};
use clap::Args;
use serde::Serialize;

use super::{StatesArgs, timestamp};
use crate::failure::{Advise, Outcome};
use crate::info_writer::exact;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::{counted, rfc3339};

/// Return a bundle to one of its states
///
/// Without STATE, to the newest one that was found sound when it was made, and of which every file
/// still has its hash. Backups made after that are lost. Files that are replaced are kept inside the
/// bundle: --undo brings them back exactly, --commit removes them. The verification state is reset,
/// so that macOS does not refuse the bundle. After an interruption, run the command again to resume;
/// until then macOS cannot open the bundle, and so cannot change it. The next backup takes longer:
/// the record of changes that macOS has does not reach back, so it compares all files.
#[derive(Debug, Args)]
pub(super) struct RollBack {
    #[command(flatten)]
    at: StatesArgs,
    /// The state, by its name in `bandsaw tm states`
    #[arg(value_name = "STATE")]
    state: Option<String>,
    /// Show what would be replaced, and change nothing
    #[arg(long, conflicts_with_all = ["undo", "commit"])]
    dry_run: bool,
    /// Undo the last roll-back
    #[arg(long, conflicts_with_all = ["commit", "state"])]
    undo: bool,
    /// Remove the files that the last roll-back replaced
    #[arg(long, conflicts_with = "state")]
    commit: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct RollBackReport {
    path: String,
    /// `planned`, `rolled_back`, `resumed`, `undone`, `committed` or `unchanged`.
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    replaced: Vec<String>,
    removed: Vec<String>,
    restored: Vec<String>,
    copied_size: u64,
    skipped: Vec<String>,
}

impl RollBackReport {
    fn new(path: String, action: &'static str) -> Self {
        Self {
            path,
            action,
            state: None,
            created: None,
            replaced: Vec::new(),
            removed: Vec::new(),
            restored: Vec::new(),
            copied_size: 0,
            skipped: Vec::new(),
        }
    }

    fn of_plan(path: String, action: &'static str, plan: RollBackPlan) -> Self {
        Self {
            path,
            action: if plan.is_empty() { "unchanged" } else { action },
            created: Some(rfc3339(timestamp(plan.listed))),
            state: Some(plan.id),
            replaced: plan.replaced,
            removed: plan.removed,
            restored: plan.restored,
            copied_size: plan.copied,
            skipped: plan.skipped,
        }
    }
}

impl RollBack {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let (bundle, shelf) = self.at.open()?;
        let path = bundle.path().display().to_string();
        let state = self.state.as_deref();
        let bar = Bar::new(output);
        let (report, listed) = if self.undo {
            undo(&bundle, Change::RollBack, &bar).advise(Kind::Cancelled, || resume_hint(&path))?;
            (RollBackReport::new(path, "undone"), None)
        } else if self.commit {
            commit(&bundle, Change::RollBack)?;
            (RollBackReport::new(path, "committed"), None)
        } else if self.dry_run {
            let plan = roll_back_plan(&bundle, &shelf, state, &bar)
                .advise(Kind::NotFound, || list_hint(&path, &shelf))?;
            let listed = plan.listed;
            (RollBackReport::of_plan(path, "planned", plan), Some(listed))
        } else {
            let done = roll_back(&bundle, &shelf, state, &bar)
                .advise(Kind::NotFound, || list_hint(&path, &shelf))
                .advise(Kind::Cancelled, || resume_hint(&path))?;
            match done {
                RolledBack::Done(plan) => {
                    let listed = plan.listed;
                    (
                        RollBackReport::of_plan(path, "rolled_back", plan),
                        Some(listed),
                    )
                }
                RolledBack::Resumed(state) => {
                    let report = RollBackReport {
                        state: Some(state),
                        ..RollBackReport::new(path, "resumed")
                    };
                    (report, None)
                }
                RolledBack::Undone => (RollBackReport::new(path, "undone"), None),
            }
        };
        drop(bar);
        for id in &report.skipped {
            output.warn(&format!("{id} is passed over: it is not sound, or damaged"));
        }
        output.done(&report, |out| write(&report, listed, output, out))
    }
}

fn list_hint(bundle: &str, shelf: &Shelf) -> String {
    match shelf.list() {
        Ok(states) if states.is_empty() => {
            format!("run `bandsaw timemachine keep {bundle}` to keep one")
        }
        _ => format!("run `bandsaw tm states {bundle}` to list the states"),
    }
}

fn resume_hint(bundle: &str) -> String {
    format!("run `bandsaw tm roll-back {bundle}` to resume")
}

fn write(
    report: &RollBackReport,
    listed: Option<i64>,
    output: &Output,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = output.name(&report.path);
    let state = output.name(report.state.as_deref().unwrap_or_default());
    match report.action {
        "unchanged" => return writeln!(out, "{name}: already is as in {state}"),
        "undone" => return writeln!(out, "{name}: the roll-back is undone"),
        "committed" => return writeln!(out, "{name}: the replaced files are removed"),
        "resumed" => writeln!(out, "{name}: resumed, now as in {state}")?,
        "planned" => writeln!(out, "{name}: would return to {state}")?,
        _ => writeln!(out, "{name}: now as in {state}")?,
    }
    if let Some(listed) = listed {
        let count = report.replaced.len() + report.removed.len() + report.restored.len();
        writeln!(
            out,
            "  lost: all backups after {} UTC, which changed {}",
            timestamp(listed).to_minute(),
            counted(count as u64, "file", "files")
        )?;
        writeln!(
            out,
            "  {} replaced, {} taken away, {} come back, {} copied",
            report.replaced.len(),
            report.removed.len(),
            report.restored.len(),
            exact(report.copied_size)
        )?;
    }
    if report.action != "planned" {
        writeln!(
            out,
            "  next: macOS compares all files in its next backup, which takes longer; then run \
             `bandsaw tm roll-back --commit`, or --undo before it"
        )?;
    }
    Ok(())
}
