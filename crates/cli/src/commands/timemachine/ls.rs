//! `bandsaw timemachine ls`: a folder of a backup.

use std::ffi::OsString;
use std::io::Write;

use bandsaw::fs::{Entry, FileKind};
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
/// the path. Without a path the volumes are listed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm ls Mac.sparsebundle latest
  bandsaw tm ls -l Mac.sparsebundle 2026-11-01:/Users/anna
  bandsaw tm ls Mac.sparsebundle \"2026-11-01 14:30:/Users/anna\"
  bandsaw tm ls Mac.sparsebundle yesterday:/Users")]
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
        let found = open.resolve(path.unwrap_or_default())?;
        let is_folder = found.attributes.kind == FileKind::Folder;
        let entries = match is_folder {
            true => node::entries(&*open.fs, found.attributes.id)?,
            false => vec![Entry {
                name: found.path.rsplit('/').next().unwrap_or_default().to_owned(),
                attributes: found.attributes.clone(),
            }],
        };
        if !output.json() {
            let mut out = output.stdout();
            print(&*open.fs, &entries, self.long, output, &mut out)?;
            return Ok(out.flush()?);
        }
        let place = open.path_of(&found);
        let nodes = entries.iter().map(|entry| {
            let path = match is_folder {
                true => format!("{place}/{}", entry.name),
                false => place.clone(),
            };
            Node::new(&*open.fs, &entry.name, &path, &entry.attributes)
        });
        let report = Listing {
            path: read.address.image.to_string(),
            backup: read.json(number)?,
            entries: nodes.collect::<bandsaw::Result<_>>()?,
            backup_path: shown(&found.path),
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
