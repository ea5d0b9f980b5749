//! `bandsaw stack info`: the layers of a stack.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::split;
use crate::commands::info;
use crate::failure::Outcome;
use crate::output::Output;
use crate::source::OpenArgs;

/// Show the layers of a stack and the disk that they form
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stack info disk.img monday.asif tuesday.asif
  bandsaw stack info --json disk.img monday.asif")]
pub(crate) struct Info {
    /// The base, then the layers from the bottom
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true)]
    images: Vec<OsString>,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Info {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (base, layers) = split(&self.images)?;
        info::Info::of(base.as_path().into(), self.opening.with_layers(layers)?).run(output)
    }
}
