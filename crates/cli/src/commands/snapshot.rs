//! `bandsaw snapshot`: snapshots of a sparse bundle.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::address::ImagePath;
use bandsaw::fs::Timestamp;
use bandsaw::ops::snapshot;
use bandsaw::{Error, Kind};
use clap::{Args, Subcommand, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::progress::Bar;
use crate::source;
use crate::text::{Table, rfc3339};

/// Create, list and restore snapshots of a sparse bundle
///
/// IMAGE@NAME reads a snapshot. In a bucket a snapshot copies no data: later changes are stored
/// beside the data that they replace. On this machine a snapshot is a bundle in
/// .bandsaw/snapshots/NAME inside the bundle. File systems with reflinks (btrfs, XFS, APFS) share
/// its storage until it changes; on others the bands that differ from the previous snapshot are
/// copied. The bundle must not be open for writing meanwhile. A snapshot of an encrypted bundle
/// opens with the passphrase that the bundle had when the snapshot was created. For snapshots
/// inside an APFS volume use IMAGE:VOLUME@SNAPSHOT.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw snapshot create Docs.sparsebundle before-update
  bandsaw snapshot list Docs.sparsebundle
  bandsaw snapshot restore Docs.sparsebundle before-update     discards later changes
  bandsaw snapshot delete Docs.sparsebundle before-update
  bandsaw snapshot create s3://backups/Docs.sparsebundle monday
  bandsaw ls Docs.sparsebundle@before-update:/                 read a snapshot
  bandsaw convert s3://backups/Docs.sparsebundle@monday monday.dmg")]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    verb: SnapshotVerb,
}

#[derive(Debug, Subcommand)]
enum SnapshotVerb {
    /// Create a snapshot
    Create(One),
    /// List snapshots, the oldest first
    List(All),
    /// Restore the bundle from a snapshot
    Restore(One),
    /// Delete a snapshot and free its space
    Delete(One),
}

#[derive(Debug, Args)]
struct One {
    /// The sparse bundle
    #[arg(value_name = "IMAGE", value_hint = ValueHint::DirPath)]
    image: OsString,
    /// The name of the snapshot
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    network_args: NetworkArgs,
}

#[derive(Debug, Args)]
struct All {
    /// The sparse bundle
    #[arg(value_name = "IMAGE", value_hint = ValueHint::DirPath)]
    image: OsString,
    #[command(flatten)]
    network_args: NetworkArgs,
}

/// The output of `--json`: the existing snapshots.
#[derive(Serialize)]
struct SnapshotsReport {
    path: String,
    snapshots: Vec<SnapshotJson>,
}

#[derive(Serialize)]
struct SnapshotJson {
    name: String,
    created: String,
    #[serde(skip)]
    at: Timestamp,
}

impl Snapshot {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        match &self.verb {
            SnapshotVerb::Create(one) => {
                let work = |image: &Path, bar: &Bar| {
                    snapshot::create(image, &one.name, one.network_args.options(), bar)
                };
                one.run(work, "saved as", output)
            }
            SnapshotVerb::Restore(one) => {
                let work = |image: &Path, bar: &Bar| {
                    snapshot::restore(image, &one.name, one.network_args.options(), bar)
                };
                one.run(work, "restored from", output)
            }
            SnapshotVerb::Delete(one) => {
                let work = |image: &Path, _: &Bar| {
                    snapshot::delete(image, &one.name, one.network_args.options())
                };
                one.run(work, "no longer has the snapshot", output)
            }
            SnapshotVerb::List(all) => all.run(output),
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
        let report = SnapshotsReport::of(image, &self.network_args)?;
        output.done(&report, |out| {
            writeln!(
                out,
                "{} {done} {}",
                output.name(&report.path),
                output.name(&self.name)
            )
        })
    }

    /// Adds a hint if the bundle exists but the snapshot does not.
    fn advise(&self, error: Error, image: &ImagePath) -> Failure {
        let others = || snapshot::list(Path::new(image), self.network_args.options());
        match error.kind() {
            Kind::NotFound
                if others()
                    .is_ok_and(|others| others.iter().all(|other| other.name != self.name)) =>
            {
                Failure::from(error)
                    .hint(format!("run `bandsaw snapshot list {image}` to list them"))
            }
            _ => error.into(),
        }
    }
}

impl All {
    fn run(&self, output: &Output) -> Outcome {
        let report = SnapshotsReport::of(source::image(&self.image)?, &self.network_args)?;
        output.result(&report, |out| {
            let mut table = Table::new([false, false]);
            for snapshot in &report.snapshots {
                table.row([snapshot.at.to_minute(), output.name(&snapshot.name)]);
            }
            write!(out, "{}", table.lines(""))
        })
    }
}

impl SnapshotsReport {
    fn of(image: ImagePath, network_args: &NetworkArgs) -> Outcome<Self> {
        let snapshots = snapshot::list(Path::new(&image), network_args.options())?;
        let report = snapshots.into_iter().map(|snapshot| {
            let at = Timestamp::from_seconds(i64::try_from(snapshot.created).unwrap_or(i64::MAX));
            SnapshotJson {
                name: snapshot.name,
                created: rfc3339(at),
                at,
            }
        });
        Ok(Self {
            snapshots: report.collect(),
            path: image.to_string(),
        })
    }
}
