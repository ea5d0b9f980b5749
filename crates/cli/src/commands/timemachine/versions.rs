//! `bandsaw timemachine versions`: the versions of a file.

use bandsaw::fs::Timestamp;
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::{Error, Kind, Reason};
use bandsaw_backups::versions;
use clap::Args;
use serde::Serialize;

use super::backups::{BackupJson, BackupsArgs, conclude, described, show};
use super::find::unreadable;
use crate::failure::Outcome;
use crate::node::Node;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::{Table, counted};

/// List the versions of a file over all dates
///
/// Each version has the time of its last change (UTC), its size, and the first and the last date that
/// has it. A version is told from another by the number of the file on the volume, its size and that
/// time, not by its contents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm versions Mac.sparsebundle /Users/anna/letter.txt
  bandsaw tm versions Mac.sparsebundle '/Macintosh HD/Users/anna/letter.txt'")]
pub(super) struct Versions {
    #[command(flatten)]
    at: BackupsArgs,
    /// The path of the file
    ///
    /// It begins with the name of a volume of the Mac, which may be left out if only one volume has
    /// the path.
    #[arg(value_name = "PATH")]
    path: String,
}

/// The output of `--json`.
#[derive(Serialize)]
struct VersionsReport {
    path: String,
    versions: Vec<VersionJson>,
    /// The number of backups without the file.
    absent_count: usize,
    problems: Vec<ErrorInfo>,
}

#[derive(Serialize)]
struct VersionJson {
    backup_path: String,
    node: Node,
    /// The backups with this version.
    backups: Vec<BackupJson>,
}

impl Versions {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let read = self.at.read_one_machine(output)?;
        let bar = Bar::new(output);
        let done = versions(&read.backups, &self.path, &bar)?;
        drop(bar);
        let unread: Vec<Error> = done
            .unread
            .into_iter()
            .map(|(number, error)| unreadable(&read.date(number), error))
            .collect();
        let problems: Vec<&Error> = read.backups.problems().iter().chain(&unread).collect();
        let mut found = Vec::new();
        for version in done.versions.iter().filter(|_| output.json()) {
            let first = version.backups.first().copied().unwrap_or(0);
            let open = read.backups.open(first)?;
            let name = version.path.rsplit('/').next().unwrap_or_default();
            let place = format!("{}{}", open.path, version.path);
            found.push(VersionJson {
                backup_path: version.path.clone(),
                node: Node::new(&*open.fs, name, &place, &version.attributes)?,
                backups: version
                    .backups
                    .iter()
                    .map(|&number| read.json(number))
                    .collect::<Outcome<_>>()?,
            });
        }
        let report = VersionsReport {
            path: read.address.image.to_string(),
            versions: found,
            absent_count: done.absent.len(),
            problems: described(problems.iter().copied()),
        };
        output.result(&report, |out| {
            let mut table = Table::new([false, true, true, false]);
            for version in &done.versions {
                let (first, last) = (version.backups.first(), version.backups.last());
                let date = |number: Option<&usize>| {
                    number.map_or_else(String::new, |&number| read.date(number))
                };
                let dates = match version.backups.len() {
                    1 => date(first),
                    _ => format!("{} to {}", date(first), date(last)),
                };
                let modified = version.attributes.modified;
                table.row([
                    modified.map_or_else(|| "-".to_owned(), Timestamp::to_minute),
                    version.attributes.size.to_string(),
                    counted(version.backups.len() as u64, "backup", "backups"),
                    dates,
                ]);
            }
            write!(out, "{}", table.lines(""))
        })?;
        if !output.json() {
            show(unread.iter().map(ToString::to_string), output);
            let absent = done.absent.len() as u64;
            if absent > 0 && !done.versions.is_empty() {
                let backups = counted(absent, "backup does", "backups do");
                output.note(&format!("{backups} not have it"));
            }
        }
        conclude(&problems)?;
        match done.versions.is_empty() {
            false => Ok(()),
            true => Err(
                Error::new(Kind::NotFound, "backups", "no backup has this path")
                    .because(Reason::NoSuchPath)
                    .named(&self.path)
                    .into(),
            ),
        }
    }
}
