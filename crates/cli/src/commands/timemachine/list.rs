//! `bandsaw timemachine list`: the backups by date.

use std::path::Path;

use bandsaw::ops::describe::{ErrorInfo, Message};
use bandsaw::{Error, size};
use bandsaw_backups::{BackupDate, BackupState, Backups, BundleLists};
use clap::Args;
use serde::Serialize;

use super::backups::{BackupJson, BackupsArgs, conclude, described, show};
use crate::failure::Outcome;
use crate::output::Output;
use crate::text::{Table, rfc3339};

/// List the backups by date, the oldest first
///
/// Dates are those of the Mac's clock. The size is that of the files that were copied, where the
/// backup records it. A backup that is not complete may lack files. Only metadata is read; what
/// cannot be read is named, and then the exit code is not 0.
#[derive(Debug, Args)]
pub(super) struct ListBackups {
    #[command(flatten)]
    at: BackupsArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ListReport {
    path: String,
    machines: Vec<String>,
    backups: Vec<BackupJson>,
    /// The name of the newest complete backup, if there is one machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    latest: Option<String>,
    /// The lists that macOS keeps in a bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<BundleJson>,
    notes: Vec<Message>,
    problems: Vec<ErrorInfo>,
}

#[derive(Serialize)]
struct BundleJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    host_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification_state: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<String>,
    /// The number of backups in the history.
    recorded_count: usize,
    /// Backups in the history that are not on the volume.
    missing: Vec<String>,
}

impl ListBackups {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let read = self.at.read(false, output)?;
        let backups = &read.backups;
        let folder = Path::new(&read.address.image);
        let lists = folder.is_dir().then(|| BundleLists::read(folder));
        let is_whole = self.at.machine.is_none() && read.address.volume.is_none();
        let missing = match &lists {
            Some(lists) if is_whole => missing(lists, backups),
            _ => Vec::new(),
        };
        let mut notes = backups.notes().to_vec();
        if !missing.is_empty() {
            let count = missing.len();
            notes.push(format!(
                "{count} backups in the history of the bundle are not on the volume: {} first",
                missing[0]
            ));
        }
        let of_bundle = lists.iter().flat_map(|lists| &lists.problems);
        let problems: Vec<&Error> = backups.problems().iter().chain(of_bundle).collect();
        let machines = backups.machines();
        let latest = match machines.len() {
            1 => backups.latest().and_then(|at| backups.all().get(at)),
            _ => None,
        };
        let report = ListReport {
            path: read.address.image.to_string(),
            backups: backups.all().iter().map(BackupJson::new).collect(),
            latest: latest.map(|latest| latest.name.clone()),
            bundle: lists.as_ref().map(|lists| BundleJson {
                host_uuid: lists.host_uuid.clone(),
                model: lists.model.clone(),
                verification_state: lists.verification_state,
                verified: lists.verified.map(rfc3339),
                recorded_count: lists.history.len(),
                missing,
            }),
            notes: notes.iter().map(Message::new).collect(),
            problems: described(problems.iter().copied()),
            machines,
        };
        output.result(&report, |out| {
            let mut table = Table::new([false, true, false, false]);
            for backup in backups.all() {
                let state = match backup.state {
                    BackupState::Complete => "",
                    BackupState::InProgress => "in progress",
                    BackupState::Interrupted => "interrupted",
                };
                let bytes = backup.copied.map(|bytes| size::display(bytes).to_string());
                table.row([
                    backup.date.to_string(),
                    bytes.unwrap_or_default(),
                    state.to_owned(),
                    output.name(&backup.machine),
                ]);
            }
            write!(out, "{}", table.lines(""))
        })?;
        if !output.json() {
            notes.iter().for_each(|note| output.note(note));
            show(problems.iter().map(ToString::to_string), output);
        }
        conclude(&problems)
    }
}

/// Returns the names of the backups in the history of a bundle that are not on its volumes.
fn missing(lists: &BundleLists, backups: &Backups) -> Vec<String> {
    let dates: std::collections::HashSet<BackupDate> =
        backups.all().iter().map(|backup| backup.date).collect();
    let names = lists.history.iter().filter_map(|one| one.name.as_ref());
    let is_missing = |name: &&String| {
        let date = name.split('.').next().and_then(BackupDate::parse);
        date.is_some_and(|date| !dates.contains(&date))
    };
    names.filter(is_missing).cloned().collect()
}
