//! `bandsaw bench` in a build without the feature `bench`.

use std::ffi::OsString;

use bandsaw::Error;
use clap::Args;

use crate::failure::Outcome;
use crate::output::Output;

/// Measure the speed of folders and disk images (not in this build)
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

impl Bench {
    pub(crate) fn run(self, _: &Output) -> Outcome {
        let why = "this build does not support benchmarks (feature `bench`)";
        Err(Error::unsupported("bench", why).into())
    }
}
