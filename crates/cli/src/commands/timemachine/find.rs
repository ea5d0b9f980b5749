//! `bandsaw timemachine find`: names over all dates.

use bandsaw::ops::describe::ErrorInfo;
use bandsaw::{Error, Kind};
use bandsaw_backups::{Glob, find};
use clap::Args;
use serde::Serialize;

use super::backups::{BackupJson, BackupsArgs, conclude, described, show};
use crate::failure::Outcome;
use crate::node::Node;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::{Table, counted};

/// Find files and folders by name over all dates
///
/// NAME is that of the file itself, without folders; * stands for any characters, ? for one, and
/// [a-z] for one of several. Each path is printed once, with the first and the last date that has it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm find Mac.sparsebundle letter.txt
  bandsaw tm find Mac.sparsebundle '*.pages'     quoted, so that the shell leaves it alone
  bandsaw tm find -i Mac.sparsebundle 'invoice*'")]
pub(super) struct Find {
    #[command(flatten)]
    at: BackupsArgs,
    /// The name, which may have wildcards
    #[arg(value_name = "NAME")]
    name: String,
    /// Ignore upper and lower case
    #[arg(long, short)]
    ignore_case: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct FindReport {
    path: String,
    found: Vec<FoundJson>,
    problems: Vec<ErrorInfo>,
}

#[derive(Serialize)]
struct FoundJson {
    backup_path: String,
    /// The object in the last of the backups.
    node: Node,
    first: BackupJson,
    last: BackupJson,
    backup_count: usize,
}

impl Find {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let read = self.at.read_one_machine(output)?;
        let bar = Bar::new(output);
        let glob = Glob::new(&self.name, self.ignore_case);
        let done = find(&read.backups, &glob, &bar)?;
        drop(bar);
        let unread: Vec<Error> = done
            .unread
            .into_iter()
            .map(|(number, error)| unreadable(&read.date(number), error))
            .collect();
        let own = read.backups.problems();
        let problems: Vec<&Error> = own.iter().chain(&unread).chain(&done.problems).collect();
        let mut found = Vec::with_capacity(done.found.len());
        for one in done.found.iter().filter(|_| output.json()) {
            let (_, open) = (one.last, read.backups.open(one.last)?);
            let name = one.path.rsplit('/').next().unwrap_or_default();
            let place = format!("{}{}", open.path, one.path);
            found.push(FoundJson {
                backup_path: one.path.clone(),
                node: Node::new(&*open.fs, name, &place, &one.attributes)?,
                first: read.json(one.first)?,
                last: read.json(one.last)?,
                backup_count: one.count,
            });
        }
        let report = FindReport {
            path: read.address.image.to_string(),
            found,
            problems: described(problems.iter().copied()),
        };
        output.result(&report, |out| {
            let mut table = Table::new([false, false, true, false]);
            for one in &done.found {
                table.row([
                    read.date(one.first),
                    read.date(one.last),
                    counted(one.count as u64, "backup", "backups"),
                    output.name(&one.path),
                ]);
            }
            write!(out, "{}", table.lines(""))
        })?;
        if !output.json() {
            let new = unread.iter().chain(&done.problems);
            show(
                new.map(ToString::to_string).collect::<Vec<_>>().into_iter(),
                output,
            );
        }
        conclude(&problems)?;
        match done.found.is_empty() {
            false => Ok(()),
            true => Err(
                Error::new(Kind::NotFound, "backups", "no backup has such a name")
                    .named(&self.name)
                    .into(),
            ),
        }
    }
}

/// Returns the error about a backup that cannot be read.
pub(super) fn unreadable(date: &str, error: Error) -> Error {
    let message = format!("the backup of {date} cannot be read");
    Error::new(error.kind(), "backups", message).caused_by(error)
}
