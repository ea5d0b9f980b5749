//! `bandsaw bench`: the speed and storage of folders and images.

mod articles;
mod compare;
mod files;
mod gate;
mod images;
mod result_files;
mod table;
mod workload_args;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::output::Output;

/// Measure the speed of folders and disk images
///
/// Whole files are written and read through the file system. Results are saved as JSON with every
/// sample, and shown as tables, CSV, plots, and an HTML page.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench files /Volumes/Fast --scale 0.1 -o fast.json -o fast.html
  bandsaw bench images . --scale 0.01 --type udsb,asif -o images.json -o images.html
  bandsaw bench articles . --quick -o results
  bandsaw bench compare before.json after.json
  bandsaw bench gate images.json --min-ratio 0.9")]
pub(crate) struct Bench {
    #[command(subcommand)]
    verb: BenchVerb,
}

#[derive(Debug, Subcommand)]
enum BenchVerb {
    Files(Box<files::Files>),
    Images(Box<images::Images>),
    Articles(articles::Articles),
    Compare(compare::Compare),
    Gate(gate::Gate),
}

impl Bench {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self.verb {
            BenchVerb::Files(verb) => verb.run(output),
            BenchVerb::Images(verb) => verb.run(output),
            BenchVerb::Articles(verb) => verb.run(output),
            BenchVerb::Compare(verb) => verb.run(output),
            BenchVerb::Gate(verb) => verb.run(output),
        }
    }
}
