//! `bandsaw stack`: layers over an image.

mod commit;
mod create;
mod flatten;
mod info;

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::{Error, Kind};
use clap::{Args, Subcommand};

use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::source;

/// Keep what changes in layers over an image that stays as it is
///
/// A stack is a base (a raw or Apple sparse image, or any other that can be read) and layers over
/// it, each an Apple sparse image (ASIF) with the blocks that were written since: what macOS makes
/// as shadow files and stacked images. Only the topmost layer is ever written. No layer says where
/// the image below it is: all are named, from the bottom, here as arguments and for every other
/// verb by --shadow. Each layer knows the image below by a UUID that changes when that image is
/// written to, and is refused over any other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stack create disk.img changes.asif          an empty layer
  bandsaw ls --shadow changes.asif disk.img           what is on the two together
  bandsaw stack info disk.img changes.asif            how they lie over each other
  bandsaw stack commit disk.img changes.asif          put the changes into the image
  bandsaw stack flatten disk.img changes.asif new.asif")]
pub(crate) struct Stack {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(create::Create),
    Info(info::Info),
    Commit(commit::Commit),
    Flatten(flatten::Flatten),
}

impl Stack {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self.verb {
            Verb::Create(verb) => verb.run(output),
            Verb::Info(verb) => verb.run(output),
            Verb::Commit(verb) => verb.run(output),
            Verb::Flatten(verb) => verb.run(output),
        }
    }
}

/// The base, and the files over it from the bottom.
fn split(images: &[OsString]) -> Outcome<(String, Vec<PathBuf>)> {
    let (base, layers) = images
        .split_first()
        .ok_or_else(|| Failure::usage("stack", "an image is expected"))?;
    Ok((
        source::image(base)?,
        layers.iter().map(PathBuf::from).collect(),
    ))
}

/// What to do about layers that do not fit.
fn advise<T>(result: Result<T, Error>) -> Outcome<T> {
    let hint = || {
        "name the files from the bottom: the base, then each layer over the one it was made over"
            .to_owned()
    };
    result.advise(Kind::Conflict, hint)
}
