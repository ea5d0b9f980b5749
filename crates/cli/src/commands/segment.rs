//! `bandsaw segment`: a compressed image, split into files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::container::udif::SplitMethod;
use bandsaw::ops::segment::{SegmentOptions, segment};
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::encryption_args::DecryptArgs;
use crate::failure::{Advise, Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Split a compressed image into files of limited size
///
/// NAME.dmg contains the tables, and NAME.002.dmgpart and so on only data. Chunks are copied
/// without recompressing them. The segments open together through the first if they are in one
/// folder; `bandsaw join` joins them to one file.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw segment App.dmg -o Parts.dmg --size 650m
  bandsaw segment App.dmg -o Parts.dmg --count 4 --first-size 100m
  bandsaw segment Signed.dmg -o Parts.dmg --size 2g --remove-signature")]
pub(crate) struct Segment {
    /// The image: UDRO, UDCO, UDZO, UDBZ, ULFO or ULMO
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// The first file, whose name ends in .dmg
    #[arg(long, short, value_name = "NAME.dmg")]
    pub(crate) output: PathBuf,
    /// Limit the size of each file, as 650m or 650MB
    #[arg(long, value_name = "SIZE", value_parser = size::parse, visible_alias = "segment-size", required_unless_present = "count")]
    pub(crate) size: Option<u64>,
    /// Split into this many files of similar size
    #[arg(
        long,
        value_name = "N",
        visible_alias = "segment-count",
        conflicts_with = "size"
    )]
    pub(crate) count: Option<u32>,
    /// Limit the size of the first file
    #[arg(long, value_name = "SIZE", value_parser = size::parse, visible_alias = "first-segment-size")]
    pub(crate) first_size: Option<u64>,
    #[command(flatten)]
    pub(crate) rewriting: RewriteArgs,
    #[command(flatten)]
    pub(crate) decrypting: DecryptArgs,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// Permissions to discard data when a file is rewritten.
#[derive(Debug, Default, Args)]
pub(crate) struct RewriteArgs {
    /// Replace existing files
    #[arg(long, visible_alias = "ov")]
    pub(crate) overwrite: bool,
    /// Rewrite a signed image, and drop its signature
    #[arg(long)]
    pub(crate) remove_signature: bool,
}

impl RewriteArgs {
    /// Adds a hint to a refusal.
    pub(crate) fn advise(&self, error: Error) -> Failure {
        Failure::from(error).hint_if_exists(self.overwrite)
    }
}

/// The output of `--json`.
#[derive(Serialize)]
struct SegmentReport {
    /// The image that was read.
    path: String,
    segments: Vec<SegmentFile>,
}

#[derive(Serialize)]
struct SegmentFile {
    path: String,
    size: u64,
}

impl Segment {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let cut = match (self.count, self.size) {
            (Some(parts), _) => SplitMethod::Count {
                first: self.first_size,
                parts,
            },
            (None, Some(each)) => SplitMethod::Size {
                first: self.first_size.unwrap_or(each),
                each,
            },
            (None, None) => {
                return Err(Failure::usage("--size", "a size or a count is required"));
            }
        };
        write(
            &self.image,
            &self.output,
            cut,
            &self.rewriting,
            self.decrypting,
            &self.opening,
            output,
        )
    }
}

/// Rewrites an image, in segments or as one file.
pub(crate) fn write(
    image: &OsString,
    target: &Path,
    cut: SplitMethod,
    rewriting: &RewriteArgs,
    decrypting: DecryptArgs,
    opening: &OpenArgs,
    output: &Output,
) -> Outcome {
    let path = source::image(image)?;
    let image = opening.read(&path, output).advise(Kind::NotFound, || {
        format!("all parts must be in the folder of {path}")
    })?;
    decrypting.check(&image)?;
    let bar = Bar::new(output);
    let RewriteArgs {
        overwrite,
        remove_signature,
    } = *rewriting;
    let options = SegmentOptions {
        cut,
        overwrite,
        remove_signature,
    };
    let files = segment(&image, target, &options, &bar).map_err(|error| rewriting.advise(error))?;
    drop(bar);
    let made = files.iter().map(|path| {
        let size = path
            .metadata()
            .map_err(|error| Error::io("image", "read metadata", error).in_file(path))?
            .len();
        Ok(SegmentFile {
            path: path.display().to_string(),
            size,
        })
    });
    let made = SegmentReport {
        path: path.to_string(),
        segments: made.collect::<Outcome<_>>()?,
    };
    output.done(&made, |out| {
        for file in &made.segments {
            writeln!(
                out,
                "{}  {:#}",
                output.name(&file.path),
                size::display(file.size)
            )?;
        }
        writeln!(
            out,
            "{}",
            counted(made.segments.len() as u64, "file", "files")
        )
    })
}
