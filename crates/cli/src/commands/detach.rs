//! `bandsaw detach`: the end of `attach`, `mount` and `serve`.

use clap::{Args, ValueHint};

use crate::attach::{self};
use crate::failure::Outcome;
use crate::output::Output;

/// Unmount an image, leave it clean, and end its server
///
/// Everything is durable then. An image that a program uses, by an open file or its working folder,
/// is left alone and the program named, unless --force is given. It is waited for until everything
/// is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw detach disk1               as `attach`, `mount` and `list` name it
  bandsaw detach /mnt/docs           the folder that it is mounted on
  bandsaw detach Docs.sparsebundle   the image itself")]
pub(crate) struct Detach {
    /// A device, the folder of a mount, or an image
    #[arg(value_name = "DEVICE|FOLDER|IMAGE", value_hint = ValueHint::AnyPath)]
    what: String,
    /// Also if programs use it, which then get errors
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
