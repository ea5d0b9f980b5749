//! `bandsaw join`: the segments of an image, joined to one file.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::container::udif::SplitMethod;
use clap::{Args, ValueHint};

use super::segment::{self, RewriteArgs};
use crate::encryption_args::DecryptArgs;
use crate::failure::Outcome;
use crate::output::Output;
use crate::source::OpenArgs;

/// Join the segments of an image to one file
///
/// The other segments are found by their names beside the first. The command checks that they
/// belong together, and compares their checksums. Chunks are copied without recompressing them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw join Parts.dmg -o App.dmg
  bandsaw join Parts.dmg -o App.dmg --overwrite")]
pub(crate) struct Join {
    /// The first segment, with the others in the same folder
    #[arg(value_name = "FIRST.dmg", value_hint = ValueHint::FilePath)]
    first: OsString,
    /// The file to write
    #[arg(long, short, value_name = "WHOLE.dmg")]
    output: PathBuf,
    #[command(flatten)]
    rewriting: RewriteArgs,
    #[command(flatten)]
    decrypting: DecryptArgs,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Join {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        segment::write(
            &self.first,
            &self.output,
            SplitMethod::Whole,
            &self.rewriting,
            self.decrypting,
            &self.opening,
            output,
        )
    }
}
