//! `bandsaw timemachine ls`: a folder of a backup.

use std::ffi::OsString;
use std::io::Write;

use bandsaw::fs::{Entry, FileKind};
use bandsaw_backups::Located;
use clap::Args;
use serde::Serialize;

use super::backups::{BackupJson, BackupsArgs, date_and_path};
use crate::commands::ls::print;
use crate::failure::Outcome;
use crate::node::{self, Node};
use crate::output::Output;

/// List a folder of a backup
///
/// A path begins with the name of a volume of the Mac, which may be left out if only one volume has
/// the path. Without a path the volumes are listed. In a path * stands for any characters of a name, ? for
/// one, and [a-z] for one of several; if it stands for several objects, these are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm ls Mac.sparsebundle latest
  bandsaw tm ls -l Mac.sparsebundle 2026-11-01:/Users/anna
  bandsaw tm ls Mac.sparsebundle \"2026-11-01 14:30:/Users/anna\"
  bandsaw tm ls Mac.sparsebundle yesterday:/Users
  bandsaw tm ls -l Mac.sparsebundle 'latest:/Users/*/Documents/*.pages'")]
pub(super) struct Ls {
    #[command(flatten)]
    at: BackupsArgs,
    /// The date of a backup, and a folder or file in it
    ///
    /// A date is for example 2026-11-01, "2026-11-01 14:30", latest, oldest, yesterday or "3 days
    /// ago", by the Mac's clock. If several backups have the date, they are listed.
    #[arg(value_name = "DATE[:/PATH]")]
    place: OsString,
    /// Show modes, owners, sizes, dates (UTC) and link targets
    #[arg(long, short)]
    long: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Listing {
    path: String,
    backup: BackupJson,
    /// The path within the backup.
    backup_path: String,
    entries: Vec<Node>,
}

impl Ls {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let (date, path) = date_and_path(&self.place)?;
        let read = self.at.read(true, output)?;
        let (number, open) = read.open(date)?;
        let path = path.unwrap_or_default();
        let found = open.resolve_all(path)?;
        // The entries, each with its path within the backup.
        let (base, entries) = match found.as_slice() {
            [one] if one.attributes.kind == FileKind::Folder => {
                let entries = node::entries(&*open.fs, one.attributes.id)?.into_iter();
                let path = |entry: &Entry| format!("{}/{}", one.path, entry.name);
                let entries = entries.map(|entry| (path(&entry), entry));
                (one.path.clone(), entries.collect::<Vec<_>>())
            }
            found => {
                let name = |one: &Located| match found.len() {
                    1 => one.path.rsplit('/').next().unwrap_or_default().to_owned(),
                    _ => one.path.clone(),
                };
                let entries = found.iter().map(|one| {
                    let entry = Entry {
                        name: name(one),
                        attributes: one.attributes.clone(),
                    };
                    (one.path.clone(), entry)
                });
                let base = match found {
                    [one] => one.path.clone(),
                    _ => path.to_owned(),
                };
                (base, entries.collect())
            }
        };
        if !output.json() {
            let entries: Vec<Entry> = entries.into_iter().map(|(_, entry)| entry).collect();
            let mut out = output.stdout();
            print(&*open.fs, &entries, self.long, output, &mut out)?;
            return Ok(out.flush()?);
        }
        let nodes = entries.iter().map(|(path, entry)| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let path = format!("{}{path}", open.path);
            Node::new(&*open.fs, name, &path, &entry.attributes)
        });
        let report = Listing {
            path: read.address.image.to_string(),
            backup: read.json(number)?,
            entries: nodes.collect::<bandsaw::Result<_>>()?,
            backup_path: shown(&base),
        };
        output.result(&report, |_| Ok(()))
    }
}

/// Returns a path within a backup as it is shown.
pub(super) fn shown(path: &str) -> String {
    match path {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}
