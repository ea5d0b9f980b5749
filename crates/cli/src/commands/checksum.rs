//! `bandsaw checksum`: one checksum over the disk in an image.

use std::ffi::OsString;

use bandsaw::ops::checksum::{Algorithm, checksum};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, Opening};

/// Compute a checksum of the disk in an image
///
/// The same disk has the same checksum in every format, so that images can be compared without
/// converting them. It is the checksum of the raw image that `bandsaw convert IMAGE -` writes. Use
/// `bandsaw verify` for the checksums stored in an image.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw checksum Docs.sparsebundle                  print the SHA-256
  bandsaw checksum App.dmg App.asif                   compare two images
  bandsaw checksum --type crc32 --json App.dmg        for programs")]
pub(crate) struct Checksum {
    /// The images to read
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required = true)]
    images: Vec<OsString>,
    /// Use crc32, md5, sha1, sha256, sha384 or sha512
    #[arg(long = "type", value_name = "TYPE", default_value_t)]
    algorithm: Algorithm,
    #[command(flatten)]
    opening: Opening,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ChecksumReport {
    schema: u32,
    #[serde(rename = "type")]
    algorithm: &'static str,
    images: Vec<Sum>,
}

#[derive(Serialize)]
struct Sum {
    image: String,
    format: &'static str,
    size: u64,
    checksum: String,
}

impl Checksum {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let mut images = Vec::with_capacity(self.images.len());
        for image in &self.images {
            let path = source::image(image)?;
            let image = self.opening.read(&path, output)?;
            let bar = Bar::new(output);
            let sum = checksum(&**image.disk(), self.algorithm, &bar)
                .map_err(|error| error.in_file(&path))?;
            let (format, size) = (image.format().code(), image.disk().info().len);
            images.push(Sum {
                image: path.to_string(),
                format,
                size,
                checksum: sum,
            });
        }
        let facts = ChecksumReport {
            schema: 1,
            algorithm: self.algorithm.name(),
            images,
        };
        output.facts(&facts, |out| {
            facts
                .images
                .iter()
                .try_for_each(|sum| writeln!(out, "{}  {}", sum.checksum, output.name(&sum.image)))
        })
    }
}
