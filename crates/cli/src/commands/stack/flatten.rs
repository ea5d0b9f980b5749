//! `bandsaw stack flatten`: one image of a base and its layers.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use super::split;
use crate::commands::convert::{Convert, EncryptionArgs};
use crate::container_args::Container;
use crate::encryption_args::DecryptArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source::OpenArgs;

/// Write a base and its layers to one new image
///
/// The same as `bandsaw convert` with the layers as --shadow. The base and the layers are not
/// changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stack flatten disk.img monday.asif tuesday.asif now.asif
  bandsaw stack flatten base.asif changes.asif copy --format udsb")]
pub(crate) struct Flatten {
    /// The base, its layers from the bottom, and the new image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true, num_args = 2..)]
    images: Vec<OsString>,
    /// Copy a signed base, and drop its signature
    #[arg(long)]
    remove_signature: bool,
    #[command(flatten)]
    container: Container,
    #[command(flatten)]
    decrypting: DecryptArgs,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Flatten {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        let (base, mut layers) = split(&self.images)?;
        let target = layers
            .pop()
            .ok_or_else(|| Failure::usage("stack", "the last argument must be the new image"))?;
        let convert = Convert {
            source: base.as_path().into(),
            target: Some(target),
            remove_signature: self.remove_signature,
            container: self.container,
            opening: self.opening.with_layers(layers)?,
            encryption: EncryptionArgs {
                decrypting: self.decrypting,
                ..EncryptionArgs::default()
            },
            ..Convert::default()
        };
        convert.run(output)
    }
}
