//! `bandsaw evidence timeline`: the times of a manifest, in order.

use std::io::Write;
use std::path::PathBuf;

use bandsaw::store::FileMode;
use bandsaw_evidence::write_timeline;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::counted;

/// Write all times of a manifest, in order, as CSV
///
/// The columns are those that Timesketch imports, and the first eight those of plaso. A time that
/// several snapshots have in common is one line.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw evidence timeline disk.jsonl -o disk.csv")]
pub(super) struct Timeline {
    /// The manifest that `bandsaw evidence manifest` wrote
    #[arg(value_name = "MANIFEST", value_hint = ValueHint::FilePath)]
    manifest: PathBuf,
    /// Write the timeline to this file; - for standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct TimelineReport {
    path: String,
    manifest_path: String,
    events: u64,
    repeated: u64,
}

impl Timeline {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let to_stdout = self.output.as_os_str() == "-";
        if to_stdout {
            output.refuse_json("evidence timeline to standard output")?;
        }
        let mut manifest = super::open(&self.manifest)?;
        let bar = Bar::new(output);
        let mut write = |out: &mut dyn Write| {
            let done = write_timeline(&mut manifest, out, &bar);
            done.map_err(|error| error.in_file(&self.manifest))
        };
        if to_stdout {
            let mut out = output.stdout();
            write(&mut out)?;
            return Ok(out.flush()?);
        }
        let mode = FileMode::of(&self.manifest).unwrap_or(FileMode::PRIVATE);
        let mut file = NewFile::create_as(&self.output, self.overwrite, mode)?;
        let done = write(&mut file)?;
        file.finish()?;
        drop(bar);
        let report = TimelineReport {
            path: self.output.to_string_lossy().into_owned(),
            manifest_path: self.manifest.to_string_lossy().into_owned(),
            events: done.events,
            repeated: done.repeated,
        };
        output.done(&report, |out| {
            let events = counted(done.events, "event", "events");
            writeln!(out, "{}: {events}", output.name(&report.path))
        })
    }
}
