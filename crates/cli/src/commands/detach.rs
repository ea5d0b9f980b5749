//! `bandsaw detach`: the end of `attach`, `mount` and `serve`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::attach::{self};
use crate::failure::Outcome;
use crate::output::Output;

/// Detach an image and end its server
///
/// The volumes are unmounted cleanly, and the command returns when all data is on stable storage.
/// If a program still uses the image, through an open file or its working folder, the program is
/// named and nothing is detached unless --force is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw detach disk1               the device that `bandsaw list` shows
  bandsaw detach /mnt/docs           the mount point
  bandsaw detach Docs.sparsebundle   the image")]
pub(crate) struct Detach {
    /// A device, a mount point, or an image
    #[arg(value_name = "DEVICE|FOLDER|IMAGE", value_hint = ValueHint::AnyPath)]
    what: OsString,
    /// Detach an image in use; programs get I/O errors
    #[arg(long, short)]
    force: bool,
}

impl Detach {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let detached = attach::detach(&self.what, self.force)?;
        output.done(&detached, |out| {
            writeln!(out, "{} detached", detached.device)
        })
    }
}
