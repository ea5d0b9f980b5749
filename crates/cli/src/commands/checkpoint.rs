//! `bandsaw checkpoint`: the plain objects of a bundle in a bucket, brought up to date.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::Kind;
use bandsaw::ops::checkpoint::checkpoint;
use bandsaw::store::Checkpointed;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Outcome};
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::progress::Bar;
use crate::source;
use crate::text::counted;

/// Update a bundle in a bucket for other programs
///
/// Changes to a bundle in a bucket are first committed below .bandsaw/. They are copied to the
/// names that macOS and other programs read (Info.plist, bands/...) when the bundle is closed. If
/// the writer is killed, they are not copied: `bandsaw info` reports this, and `bandsaw
/// checkpoint` copies them. The store itself copies the objects, so little is transferred over the
/// network. Bandsaw does not need the copies, as it reads the committed data. After a killed writer
/// the command waits for a minute, until none of its requests can still arrive.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw checkpoint s3://backups/Docs.sparsebundle
  bandsaw checkpoint --json s3://backups/Docs.sparsebundle            for programs
  bandsaw checkpoint --steal-lease s3://backups/Docs.sparsebundle     replace a dead writer")]
pub(crate) struct Checkpoint {
    /// The sparse bundle, in a bucket
    #[arg(value_name = "IMAGE", value_hint = ValueHint::Url)]
    image: OsString,
    #[command(flatten)]
    network_args: NetworkArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct CheckpointReport {
    path: String,
    /// Files copied to their plain names.
    copied_files: u64,
    /// Files whose plain objects were removed.
    removed_files: u64,
    /// Objects below .bandsaw/ that are no longer needed.
    cleared_objects: u64,
}

impl Checkpoint {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        let bar = Bar::new(output);
        let done = checkpoint(Path::new(&image), self.network_args.options(), &bar);
        drop(bar);
        let Checkpointed {
            copied,
            removed,
            cleared,
        } = done.advise(Kind::Cancelled, || {
            "run the command again to resume".to_owned()
        })?;
        let report = CheckpointReport {
            path: image.to_string(),
            copied_files: copied,
            removed_files: removed,
            cleared_objects: cleared,
        };
        output.done(&report, |out| {
            let name = output.name(&report.path);
            let copied = counted(copied, "file", "files");
            let removed = counted(removed, "file", "files");
            let cleared = counted(cleared, "object", "objects");
            write!(out, "{name}: copied {copied} to their plain names, ")?;
            writeln!(out, "removed {removed} and {cleared} unneeded ones")
        })
    }
}
