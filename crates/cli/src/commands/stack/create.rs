//! `bandsaw stack create`: a new layer.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::container::stack::Role;
use bandsaw::device::Access;
use bandsaw::open::overlays::{LayerOptions, create_layer, open_layer};
use bandsaw::ops::describe::LayerInfo;
use bandsaw::{Kind, Reason, size};
use clap::{Args, ValueHint};

use super::{advise, split};
use crate::failure::{Failure, Outcome};
use crate::info_text;
use crate::output::Output;
use crate::source::{self, OpenArgs};

/// Create an empty layer over an image or other layers
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw stack create disk.img changes.asif                 over a raw image
  bandsaw stack create base.asif monday.asif tuesday.asif    over base.asif and monday.asif
  bandsaw stack create --size 200g base.asif larger.asif     with a larger disk
  bandsaw stack create --read-cache /net/base.asif cache.asif         cache a slow image")]
pub(crate) struct Create {
    /// The base, its layers from the bottom, and the new layer
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true, num_args = 2..)]
    images: Vec<OsString>,
    /// Create a cache of the data read from below
    ///
    /// A stack has at most one cache, with another layer above it.
    #[arg(long, conflicts_with = "size")]
    read_cache: bool,
    /// Set the size of the disk (default: that of the disk below)
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Set the block size of the layer: 512 or 4096
    ///
    /// The default is the sector size of the disk below.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    block_size: Option<u64>,
    /// Replace an existing image
    #[arg(long, visible_alias = "ov")]
    overwrite: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Create {
    pub(crate) fn run(self, output: &Output) -> Outcome {
        let (base, mut layers) = split(&self.images)?;
        let new = layers
            .pop()
            .ok_or_else(|| Failure::usage("stack", "the last argument must be the new layer"))?;
        let opening = self.opening.with_layers(layers)?;
        let options = LayerOptions {
            role: if self.read_cache {
                Role::Cache
            } else {
                Role::Overlay
            },
            len: self.size,
            block: self
                .block_size
                .map(|size| u32::try_from(size).unwrap_or(u32::MAX)),
            overwrite: self.overwrite,
        };
        let made = create_layer(
            &new,
            Path::new(&base),
            &opening.options(Access::ReadOnly),
            &options,
        );
        match made {
            Err(error) if error.reason() == Some(Reason::Exists) => {
                return Err(Failure::from(error).hint_if_exists(self.overwrite));
            }
            Err(error) if error.kind() == Kind::Conflict => return advise(Err(error)),
            made => made.map_err(|error| source::advise(error, &base))?,
        }
        let report = LayerInfo::new(&open_layer(&new, Access::ReadOnly)?)?;
        output.done(&report, |out| info_text::layer(&report, output, out))
    }
}
