//! `bandsaw timemachine diff`: the differences between two dates.

use bandsaw::fs::FileKind;
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::{Error, size};
use bandsaw_backups::{DifferenceKind, diff};
use clap::Args;
use serde::Serialize;

use super::backups::{BackupJson, BackupsArgs, conclude, described, show};
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::{Table, counted};

/// Show the differences between two dates
///
/// Files are compared by size and modification time, as rsync does. A folder that was added or removed
/// is one line with the number and the size of its files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm diff Mac.sparsebundle 2026-11-01 latest
  bandsaw tm diff Mac.sparsebundle 2026-11-01 2026-11-02 /Users/anna")]
pub(super) struct Diff {
    #[command(flatten)]
    at: BackupsArgs,
    /// The date of the older backup
    #[arg(value_name = "DATE1")]
    old: String,
    /// The date of the newer backup
    #[arg(value_name = "DATE2")]
    new: String,
    /// Compare only this folder or file
    #[arg(value_name = "PATH", default_value = "/", hide_default_value = true)]
    path: String,
}

/// The output of `--json`.
#[derive(Serialize)]
struct DiffReport {
    path: String,
    old: BackupJson,
    new: BackupJson,
    differences: Vec<DifferenceJson>,
    problems: Vec<ErrorInfo>,
}

#[derive(Serialize)]
struct DifferenceJson {
    /// `added`, `removed`, `changed` or `attributes`.
    kind: &'static str,
    backup_path: String,
    folder: bool,
    files: u64,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_before: Option<u64>,
}

impl Diff {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let read = self.at.read(true, output)?;
        let (old_number, old) = read.open(&self.old)?;
        let (new_number, new) = read.open(&self.new)?;
        let bar = Bar::new(output);
        let done = diff(&old, &new, &self.path, &bar)?;
        drop(bar);
        let differences = done.list.iter().map(|one| {
            let of = one.new.as_ref().or(one.old.as_ref());
            let before = one.old.as_ref().map(|old| old.size);
            DifferenceJson {
                kind: one.kind.name(),
                backup_path: one.path.clone(),
                folder: of.is_some_and(|of| of.kind == FileKind::Folder),
                files: one.files,
                size: one.bytes,
                size_before: before.filter(|_| one.kind == DifferenceKind::Changed),
            }
        });
        let report = DiffReport {
            path: read.address.image.to_string(),
            old: read.json(old_number)?,
            new: read.json(new_number)?,
            differences: differences.collect(),
            problems: described(&done.problems),
        };
        output.result(&report, |out| {
            let mut table = Table::new([false, true, true, false]);
            for one in &report.differences {
                let files = match one.folder && one.kind != "attributes" {
                    true => counted(one.files, "file", "files"),
                    false => String::new(),
                };
                let bytes = match one.kind {
                    "attributes" => String::new(),
                    _ => size::display(one.size).to_string(),
                };
                table.row([
                    one.kind.to_owned(),
                    files,
                    bytes,
                    output.name(&one.backup_path),
                ]);
            }
            write!(out, "{}", table.lines(""))
        })?;
        if !output.json() {
            show(done.problems.iter().map(ToString::to_string), output);
        }
        conclude(&done.problems.iter().collect::<Vec<&Error>>())
    }
}
