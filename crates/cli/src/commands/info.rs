//! `bandsaw info`: the layers and contents of an image.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::device::Access;
use bandsaw::open::Layer;
use bandsaw::ops::describe::ImageInfo;
use bandsaw::ops::space::{FreeSpace, SpaceMap};
use bandsaw::{Kind, Reason, open};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::band_usage::BandsJson;
use super::stat::Stat;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::{band_map, image_report, in_use, info_text};

/// Show the format, layers and volumes of an image
///
/// Only the necessary parts of a compressed image are decoded, so that this information has not
/// been compared with the checksums. Every verb that reads files or the disk checks the chunks that
/// it reads, and `bandsaw verify` compares all checksums.
///
/// Of an image that Bandsaw has mounted, attached or served for writing, the format, the size and
/// the use are shown, as nothing else may read it meanwhile.
///
/// Of a file or folder in an image (IMAGE:/PATH) this shows what `bandsaw stat` does.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw info Docs.sparsebundle             format, sizes, bands, partitions, volumes
  bandsaw Docs.sparsebundle                  the same
  bandsaw info --json Docs.sparsebundle      for programs
  bandsaw info --map Docs.sparsebundle       with a map of allocated bands
  bandsaw info --passfile key Secret.dmg     an encrypted image
  bandsaw info --shadow over.asif disk.img   an image with a layer over it
  bandsaw info --image-format udrw rom.bin   as a raw image")]
pub(crate) struct Info {
    /// The image to show
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Draw a map of the bands, chunks or pieces of the disk
    ///
    /// The map shows which of them are allocated, and how much of each is free.
    #[arg(long)]
    map: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct InfoReport<'a> {
    #[serde(flatten)]
    report: &'a ImageInfo,
    /// The bands, with `--map`, of images that can be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    map: Option<BandsJson>,
}

impl Info {
    /// Returns the verb for this image.
    pub(super) fn of(image: OsString, opening: OpenArgs) -> Self {
        Self {
            image,
            map: false,
            opening,
        }
    }

    /// Prints everything that is known, even if the image opens only in part; the reason for that
    /// is the failure.
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.image)?;
        if address.path.is_some() {
            return Stat::of(self.image.clone(), self.opening.clone()).run(output);
        }
        let path = source::image(&self.image)?;
        let mut report = ImageInfo::new(path.to_string());
        let mut drawing = None;
        let stopped = match self.opening.open(&path, Access::ReadOnly) {
            Ok(image) => {
                let bar = Bar::new(output);
                let done = report.add_image(&image, &bar);
                let failed = done.and_then(|()| image_report::opened(&mut report)).err();
                if report.damage.is_none() && image.bundle().is_some() {
                    let options = self.opening.options(Access::ReadOnly);
                    report.damage = open::wrong_band_size(Path::new(&path), &options)
                        .map_err(|error| error.in_file(&path))?;
                }
                if self.map {
                    drawing = SpaceMap::of(&image, &FreeSpace::of(&image), &bar)
                        .map_err(|error| error.in_file(&path))?;
                }
                failed.map(Failure::from)
            }
            Err(failure) => {
                let user = match failure.reason() {
                    Some(Reason::InUse) => in_use::entry_of(path.as_path()),
                    _ => None,
                };
                if let Some(entry) = user {
                    image_report::add_use(&mut report, &entry);
                    None
                } else {
                    let (layers, _) =
                        open::trace(Path::new(&path), &self.opening.options(Access::ReadOnly));
                    // There is nothing to show of a file that is not recognized.
                    let is_encrypted = layers
                        .iter()
                        .any(|layer| matches!(layer, Layer::Archive(_) | Layer::Crypt(_)));
                    if layers.is_empty() || (failure.kind() == Kind::Unsupported && !is_encrypted) {
                        return Err(failure);
                    }
                    // The failure to open is more important than a failure to examine a layer.
                    let _ = report.add_layers(&layers, &Bar::new(output));
                    Some(failure)
                }
            }
        };
        let drawn = drawing.as_ref().map(|map| BandsJson::new(map, true));
        output.result(
            &InfoReport {
                report: &report,
                map: drawn,
            },
            |out| {
                info_text::write(&report, output, out)?;
                drawing
                    .as_ref()
                    .map_or(Ok(()), |drawing| band_map::write(drawing, output, out))
            },
        )?;
        image_report::warn(&report, output);
        let damage = || {
            report
                .damage
                .take()
                .map(|error| error.in_file(&path).into())
        };
        stopped.or_else(damage).map_or(Ok(()), Err)
    }
}
