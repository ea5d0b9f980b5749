//! `bandsaw bench files`: the speed of files in a folder.

use bandsaw::Kind;
use bandsaw_bench::folder::{self, RunPlan};
use bandsaw_bench::plan::SETS;
use bandsaw_bench::units::bytes;
use clap::Args;

use super::workload_args::{WorkloadArgs, percent};
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::text::counted;

/// Measure the speed of files in a folder
///
/// By default 16 sizes from 2 MB to 2 GB are written in random order, ten times, and then read in
/// the same order: 160 files and 53.3 GB in all. The files are in a new folder in DIR, which is
/// removed at the end, or after Ctrl-C.
///
/// Times last from opening a file to its last byte; for writing, times with the final flush are
/// shown too. Speeds are in bytes per second, and 1 MB is a million bytes. The effect of the page
/// cache is avoided as far as possible, and recorded in the results.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench files /mnt/disk --dry-run               show the plan
  bandsaw bench files /mnt/disk                         the default: 160 files, 53.3 GB
  bandsaw bench files . --scale 0.01 --sets 3           160 MB in 48 files
  bandsaw bench files . --single 1GB --caches direct    one file, without the page cache
  bandsaw bench files . --random 20 -o run.json -o run.html")]
pub(crate) struct Files {
    #[command(flatten)]
    workload: WorkloadArgs,
}

impl Files {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (settings, folder) = (self.workload.settings(0.0, SETS)?, self.workload.folder());
        let announced = RunPlan::new(folder, &settings);
        let announced = announced.advise(Kind::Limit, || {
            "use `--scale 0.1` to write a tenth, or `--sets` to write fewer files".to_owned()
        })?;
        let wear = percent(announced.room.wear(announced.bytes));
        let plan = format!(
            "{} of {} will be written to {} and read back; {} are free. Solid-state disks of this size are typically rated for \
             600 full writes: this is {wear} of that.",
            counted(announced.files.len() as u64, "file", "files"),
            bytes(announced.bytes),
            folder.display(),
            bytes(announced.room.free)
        );
        self.workload.run(&plan, output, |progress| {
            folder::run(folder, &settings, &announced, progress)
        })
    }
}
