//! `bandsaw stack`: layers over an image.

mod commit;
mod create;
mod flatten;
mod info;

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::address::ImagePath;
use bandsaw::{Error, Kind};
use clap::{Args, Subcommand};

use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::source;

/// Keep changes in layers over an unchanged image
///
/// A stack consists of a base (a raw image, an Apple sparse image, or any other readable image) and
/// layers over it. Each layer is an Apple sparse image (ASIF) with the blocks written since; macOS
/// calls these shadow files and stacked images. Only the topmost layer is written to. A layer does
/// not record the path of the image below it, so all files are named from the bottom, here as
/// arguments and for other verbs with --shadow. Each layer records a UUID of the image below, which
/// changes when that image is written to; a layer over another image is refused.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stack create disk.img changes.asif          create an empty layer
  bandsaw ls --shadow changes.asif disk.img           list the files of the stack
  bandsaw stack info disk.img changes.asif            show the layers
  bandsaw stack commit disk.img changes.asif          write the changes to the image
  bandsaw stack flatten disk.img changes.asif new.asif")]
pub(crate) struct Stack {
    #[command(subcommand)]
    verb: StackVerb,
}

#[derive(Debug, Subcommand)]
enum StackVerb {
    Create(create::Create),
    Info(info::Info),
    Commit(commit::Commit),
    Flatten(flatten::Flatten),
}

impl Stack {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        match self.verb {
            StackVerb::Create(verb) => verb.run(output),
            StackVerb::Info(verb) => verb.run(output),
            StackVerb::Commit(verb) => verb.run(output),
            StackVerb::Flatten(verb) => verb.run(output),
        }
    }
}

/// Splits the arguments into the base and its layers from the bottom.
fn split(images: &[OsString]) -> Outcome<(ImagePath, Vec<PathBuf>)> {
    let (base, layers) = images
        .split_first()
        .ok_or_else(|| Failure::usage("stack", "an image is required"))?;
    Ok((
        source::image(base)?,
        layers.iter().map(PathBuf::from).collect(),
    ))
}

/// Adds a hint to an error about layers that do not fit.
fn advise<T>(result: Result<T, Error>) -> Outcome<T> {
    let hint = || "name the files from the bottom: the base, then each layer".to_owned();
    result.advise(Kind::Conflict, hint)
}
