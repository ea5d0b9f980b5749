//! `bandsaw checksum`: one checksum over the disk in an image.

use std::ffi::OsString;

use bandsaw::address::ImagePath;
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::describe::ErrorInfo;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failures, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

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
    #[arg(long = "type", value_name = "TYPE", default_value = "sha256")]
    algorithm: Algorithm,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ChecksumReport {
    /// The name that `--type` takes.
    algorithm: String,
    images: Vec<Item>,
}

#[derive(Serialize)]
struct Item {
    path: String,
    #[serde(flatten)]
    sum: Option<Sum>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
}

#[derive(Serialize)]
struct Sum {
    format: &'static str,
    size: u64,
    checksum: String,
}

impl Checksum {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let mut images = Vec::with_capacity(self.images.len());
        let mut failures = Failures::default();
        for image in &self.images {
            let path = source::image(image)?;
            let (sum, error) = failures.split(self.sum(&path, output))?;
            images.push(Item {
                path: path.to_string(),
                sum,
                error,
            });
        }
        let report = ChecksumReport {
            algorithm: self.algorithm.name().to_lowercase(),
            images,
        };
        output.result(&report, |out| {
            report.images.iter().try_for_each(|item| match &item.sum {
                Some(sum) => writeln!(out, "{}  {}", sum.checksum, output.name(&item.path)),
                None => Ok(()),
            })
        })?;
        failures.end(output)
    }

    fn sum(&self, path: &ImagePath, output: &Output) -> Outcome<Sum> {
        let image = self.opening.read(path, output)?;
        let bar = Bar::new(output);
        let checksum =
            checksum(&**image.disk(), self.algorithm, &bar).map_err(|error| error.in_file(path))?;
        Ok(Sum {
            format: image.format().code(),
            size: image.disk().info().len,
            checksum,
        })
    }
}
