//! `bandsaw join`: the files of a cut image made one again.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::container::udif::Cut;
use clap::{Args, ValueHint};

use super::segment::{self, Rewriting};
use crate::failure::Outcome;
use crate::output::Output;
use crate::source::Opening;

/// Make one file of an image that was cut into parts
///
/// The parts are found beside the first by their names, and checked to belong together; the
/// checksums of what they store are checked too. The chunks stay as they are compressed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw join Parts.dmg -o App.dmg
  bandsaw join Parts.dmg -o App.dmg --overwrite")]
pub(crate) struct Join {
    /// The first part, beside which the others lie
    #[arg(value_name = "FIRST.dmg", value_hint = ValueHint::FilePath)]
    first: OsString,
    /// The file to make
    #[arg(long, short, value_name = "WHOLE.dmg")]
    output: PathBuf,
    #[command(flatten)]
    rewriting: Rewriting,
    #[command(flatten)]
    opening: Opening,
}

impl Join {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        segment::write(
            &self.first,
            &self.output,
            Cut::Whole,
            &self.rewriting,
            &self.opening,
            output,
        )
    }
}
