//! `bandsaw snapshot`: states of a sparse bundle that are kept under names.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::fs::Timestamp;
use bandsaw::ops::snapshot;
use bandsaw::{Error, Kind};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::reaching::Reaching;
use crate::source;
use crate::text::{Table, minute, rfc3339};

/// Keep a sparse bundle as it is now under a name, and go back to that
///
/// In a bucket nothing is copied for it: what changes afterwards is stored beside what it replaces.
/// On this machine a snapshot is a bundle of its own in .bandsaw/snapshots/NAME inside the bundle;
/// IMAGE@NAME reads it, wherever it is. File systems with reflinks (btrfs, XFS, APFS) share the
/// storage until something changes, and elsewhere the bands are copied that differ from the
/// snapshot before. Nobody may write the bundle meanwhile. A snapshot of an encrypted bundle opens
/// with the passphrase that it had then. Snapshots within an APFS volume are something else:
/// IMAGE:VOLUME@SNAPSHOT reads those.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw snapshot create Docs.sparsebundle before-update
  bandsaw snapshot list Docs.sparsebundle
  bandsaw snapshot restore Docs.sparsebundle before-update     what changed since is lost
  bandsaw snapshot delete Docs.sparsebundle before-update
  bandsaw snapshot create s3://backups/Docs.sparsebundle monday
  bandsaw ls Docs.sparsebundle@before-update:/                 to be read by every verb, without restoring it
  bandsaw convert s3://backups/Docs.sparsebundle@monday monday.dmg")]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keep the bundle as it is now
    Create(One),
    /// List the snapshots, the oldest first
    List(All),
    /// Make the bundle what it was when the snapshot was made
    Restore(One),
    /// Forget a snapshot, and give back what only that one took
    Delete(One),
}

#[derive(Debug, Args)]
struct One {
    /// The sparse bundle
    #[arg(value_name = "IMAGE", value_hint = ValueHint::DirPath)]
    image: OsString,
    /// The snapshot
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    reaching: Reaching,
}

#[derive(Debug, Args)]
struct All {
    /// The sparse bundle
    #[arg(value_name = "IMAGE", value_hint = ValueHint::DirPath)]
    image: OsString,
    #[command(flatten)]
    reaching: Reaching,
}

/// What `--json` prints: the snapshots that there are now.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    image: String,
    snapshots: Vec<SnapshotFacts>,
}

#[derive(Serialize)]
struct SnapshotFacts {
    name: String,
    created: String,
    #[serde(skip)]
    at: Timestamp,
}

impl Snapshot {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match &self.verb {
            Verb::Create(one) => {
                let work = |image: &Path, bar: &Bar| {
                    snapshot::create(image, &one.name, one.reaching.reach(), bar)
                };
                one.run(work, "is kept as", output)
            }
            Verb::Restore(one) => {
                let work = |image: &Path, bar: &Bar| {
                    snapshot::restore(image, &one.name, one.reaching.reach(), bar)
                };
                one.run(work, "is again what it was as", output)
            }
            Verb::Delete(one) => {
                let work = |image: &Path, _: &Bar| {
                    snapshot::delete(image, &one.name, one.reaching.reach())
                };
                one.run(work, "has no longer the snapshot", output)
            }
            Verb::List(all) => all.run(output),
        }
    }
}

impl One {
    fn run(
        &self,
        work: impl FnOnce(&Path, &Bar) -> bandsaw::Result<()>,
        done: &str,
        output: &Output,
    ) -> Outcome {
        let image = source::image(&self.image)?;
        let bar = Bar::new(output);
        work(Path::new(&image), &bar).map_err(|error| self.advise(error, &image))?;
        drop(bar);
        let facts = Facts::of(image, &self.reaching)?;
        output.done(&facts, |out| {
            writeln!(
                out,
                "{} {done} {}",
                output.name(&facts.image),
                output.name(&self.name)
            )
        })
    }

    /// Where the bundle is there and the snapshot is not, others may be.
    fn advise(&self, error: Error, image: &str) -> Failure {
        let others = || snapshot::list(Path::new(image), self.reaching.reach());
        match error.kind() {
            Kind::NotFound
                if others()
                    .is_ok_and(|others| others.iter().all(|other| other.name != self.name)) =>
            {
                Failure::from(error).hint(format!("`bandsaw snapshot list {image}` shows them"))
            }
            _ => error.into(),
        }
    }
}

impl All {
    fn run(&self, output: &Output) -> Outcome {
        let facts = Facts::of(source::image(&self.image)?, &self.reaching)?;
        output.facts(&facts, |out| {
            let mut table = Table::new([false, false]);
            for snapshot in &facts.snapshots {
                table.row([minute(snapshot.at), output.name(&snapshot.name)]);
            }
            write!(out, "{}", table.lines(""))
        })
    }
}

impl Facts {
    fn of(image: String, reaching: &Reaching) -> Outcome<Self> {
        let snapshots = snapshot::list(Path::new(&image), reaching.reach())?;
        let facts = snapshots.into_iter().map(|snapshot| {
            let at = Timestamp::from_seconds(i64::try_from(snapshot.created).unwrap_or(i64::MAX));
            SnapshotFacts {
                name: snapshot.name,
                created: rfc3339(at),
                at,
            }
        });
        Ok(Self {
            schema: 1,
            snapshots: facts.collect(),
            image,
        })
    }
}
