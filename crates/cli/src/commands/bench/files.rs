//! `bandsaw bench files`: how fast files are written and read in a folder.

use bandsaw::Kind;
use bandsaw_bench::folder::{self, Announced};
use bandsaw_bench::units::bytes;
use clap::Args;

use super::asked::{Asked, percent};
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::text::counted;

/// Measure how fast files are written and read in a folder
///
/// By default this is the gold standard: 16 sizes from 2 MB to 2 GB in random order, ten times,
/// written and then read in the same order, 160 files and 53.3 GB in all. They lie in a new folder
/// of their own in DIR, which is removed at the end, also by Ctrl-C.
///
/// Times are from opening a file to its last byte; for writing, those with the final flush are told
/// too. Speeds are bytes a second, and MB is a million bytes. The system's memory is kept out as
/// well as it goes: what became of that is in the results.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench files /mnt/disk --dry-run               what it would write
  bandsaw bench files /mnt/disk                         the gold standard
  bandsaw bench files . --scale 0.01 --sets 3           160 MB in 48 files
  bandsaw bench files . --single 1GB --caches direct    one file, around the cache
  bandsaw bench files . --random 20 -o run.json -o run.html")]
pub(crate) struct Files {
    #[command(flatten)]
    asked: Asked,
}

impl Files {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (settings, folder) = (self.asked.settings(0.0)?, self.asked.folder());
        let announced = Announced::new(folder, &settings);
        let announced = announced.advise(Kind::Limit, || {
            "`--scale 0.1` writes a tenth, `--sets` fewer files".to_owned()
        })?;
        let wear = percent(announced.room.wear(announced.bytes));
        let plan = format!(
            "{} of {} will be written to {} and read back; {} are free. A solid-state disk of this size is commonly rated for \
             being written 600 times: this is {wear} of that.",
            counted(announced.files.len() as u64, "file", "files"),
            bytes(announced.bytes),
            folder.display(),
            bytes(announced.room.free)
        );
        self.asked.run(&plan, output, |progress| {
            folder::run(folder, &settings, &announced, progress)
        })
    }
}
