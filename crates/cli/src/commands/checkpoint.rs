//! `bandsaw checkpoint`: the plain names of a bundle in a bucket, brought up to date.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::Kind;
use bandsaw::ops::checkpoint::checkpoint;
use bandsaw::store::Checkpointed;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::reaching::Reaching;
use crate::source;
use crate::text::counted;

/// Bring the objects of a bundle in a bucket up to date for other programs
///
/// What is written to a bundle in a bucket is committed below .bandsaw/ first, and copied to the
/// names that macOS and others know (Info.plist, bands/...) when the bundle is closed. A writer
/// that was killed leaves that undone: `bandsaw info` says so, and this does it. The store itself
/// copies; little goes over the network. Nothing is lost without it, here: bandsaw reads what was
/// committed. After a writer that was killed it waits for a minute, until no request of that one
/// can still be on its way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw checkpoint s3://backups/Docs.sparsebundle
  bandsaw checkpoint --json s3://backups/Docs.sparsebundle            for programs
  bandsaw checkpoint --steal-lease s3://backups/Docs.sparsebundle     after a writer that is gone for good")]
pub(crate) struct Checkpoint {
    /// The sparse bundle, in a bucket
    #[arg(value_name = "IMAGE", value_hint = ValueHint::Url)]
    image: OsString,
    #[command(flatten)]
    reaching: Reaching,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    image: String,
    /// Files that were brought to their plain names.
    copied: u64,
    /// Files whose plain objects were removed.
    removed: u64,
    /// Objects below .bandsaw/ that nothing needs any more.
    cleared: u64,
}

impl Checkpoint {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.image)?;
        let bar = Bar::new(output);
        let done = checkpoint(Path::new(&image), self.reaching.reach(), &bar);
        drop(bar);
        let Checkpointed {
            copied,
            removed,
            cleared,
        } = done.advise(Kind::Cancelled, || {
            "what is done is done; the same command does the rest".to_owned()
        })?;
        let facts = Facts {
            schema: 1,
            image,
            copied,
            removed,
            cleared,
        };
        output.done(&facts, |out| {
            let name = output.name(&facts.image);
            let (copied, removed) = (counted(copied, "file", "files"), counted(removed, "file", "files"));
            let cleared = counted(cleared, "object", "objects");
            writeln!(out, "{name}: copied {copied} to their plain names, removed {removed}, and {cleared} that nothing needs")
        })
    }
}
