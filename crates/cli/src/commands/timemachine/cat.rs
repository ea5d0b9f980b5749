//! `bandsaw timemachine cat`: files of a backup.

use std::ffi::OsString;
use std::io::Write;

use bandsaw::Error;
use bandsaw::fs::{FileKind, Fork};
use clap::Args;

use super::backups::{BackupsArgs, date_and_path};
use crate::commands::cat::copy;
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Print files of a backup
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm cat Mac.sparsebundle latest:/Users/anna/letter.txt
  bandsaw tm cat Mac.sparsebundle 2026-11-01:/Users/anna/letter.txt > letter.txt")]
pub(super) struct Cat {
    #[command(flatten)]
    at: BackupsArgs,
    /// The dates and paths of the files
    #[arg(value_name = "DATE:/PATH", required = true)]
    places: Vec<OsString>,
}

impl Cat {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("cat")?;
        let read = self.at.read(true, output)?;
        let mut out = output.stdout();
        for place in &self.places {
            let (date, Some(path)) = date_and_path(place)? else {
                return Err(Failure::usage("date", "expected DATE:/PATH of a file"));
            };
            let (_, open) = read.open(date)?;
            for found in open.resolve_all(path)? {
                if found.attributes.kind != FileKind::File {
                    return Err(Error::invalid("cat", "is not a file")
                        .named(found.path)
                        .into());
                }
                copy(&*open.fs.open(found.attributes.id, Fork::Data)?, &mut out)?;
            }
        }
        Ok(out.flush()?)
    }
}
