//! `bandsaw trim`: unused space of volumes, given back to the host.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bandsaw::Error;
use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::open::{Image, Keys};
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::ops::trim::{self, Trimmed, TrimmedVolume};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::info_writer::exact;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

const LAYER: &str = "trim";

/// Give unused space of volumes back to the host
///
/// Reads the allocation map of every volume and frees the storage of unused blocks: whole bands are
/// removed, holes are punched into raw images and partly used bands, and chunks of ASIF and sparse
/// images are released. In encrypted images only whole cipher blocks can be freed. Nothing else is
/// read or changed.
///
/// A volume is skipped if it was not cleanly unmounted, if its journal has pending transactions, or
/// if its check finds damage; --full-check checks the whole image first. Supported are HFS+, APFS,
/// ext2/3/4, FAT, exFAT and NTFS; the file table of NTFS is compared with the map first. An APFS
/// container is skipped if one of its volumes is encrypted and its passphrase is not given. For
/// other file systems run `fstrim` on the device of `bandsaw serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw trim Docs.sparsebundle                    free the space of deleted files
  bandsaw trim --full-check Backup.sparsebundle     only if the image is not damaged
  bandsaw du Docs.sparsebundle                      show the space that would be freed")]
pub(crate) struct Trim {
    /// The image to trim
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Run a full check first, and stop if it finds damage
    #[arg(long)]
    full_check: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct TrimReport {
    path: String,
    allocated_before: u64,
    allocated: u64,
    reclaimed: u64,
    /// True if the host supports holes in files; otherwise only whole bands and chunks were freed.
    holes: bool,
    volumes: Vec<VolumeJson>,
}

#[derive(Serialize)]
struct VolumeJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    file_system: &'static str,
    free: u64,
    free_runs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<ErrorInfo>,
    #[serde(skip)]
    place: String,
}

impl Trim {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let bar = Bar::new(output);
        if self.full_check {
            trim::check_fully(
                Path::new(&path),
                &self.opening.options(Access::ReadOnly),
                &bar,
            )
            .map_err(|error| source::advise(error, &path))?;
        }
        let image = self.opening.change(&path, output)?;
        let trimmed = trim::trim(&image, Some(self.opening.keys()), &bar)
            .map_err(|error| source::advise(error.in_file(&path), &path))?;
        drop(bar);
        let report = TrimReport::new(&path, &trimmed);
        output.done(&report, |out| report.write(output, out))?;
        refusal(
            &path,
            trimmed
                .volumes
                .into_iter()
                .filter_map(|volume| volume.refused),
        )
        .map_or(Ok(()), Err)
    }
}

/// Frees unused space of `image` before it is attached or served; prints a warning for volumes that
/// are skipped.
pub(crate) fn before_use(
    image: &Image,
    keys: Option<&dyn Keys>,
    output: &Output,
) -> bandsaw::Result<()> {
    let trimmed = trim::before_use(image, keys, &Bar::new(output))?;
    trimmed
        .iter()
        .filter_map(TrimmedVolume::warning)
        .for_each(|warning| output.warn(&warning));
    Ok(())
}

/// Returns the failure for skipped volumes, unless they are merely locked or of an unknown format.
pub(super) fn refusal(path: &ImagePath, refused: impl Iterator<Item = Error>) -> Option<Failure> {
    let mut refused = refused.filter(|error| !trim::is_unresolved(error));
    refused.next().map(|error| {
        Error::new(error.kind(), LAYER, "free space was not released")
            .caused_by(error)
            .in_file(path)
            .into()
    })
}

impl TrimReport {
    fn new(path: &ImagePath, trimmed: &Trimmed) -> Self {
        let volumes = trimmed.volumes.iter().map(|volume| VolumeJson {
            partition: volume.partition,
            place: volume.place.clone(),
            file_system: volume.format.name(),
            free: volume.free,
            free_runs: volume.runs,
            refused: volume.refused.as_ref().map(ErrorInfo::brief),
        });
        Self {
            path: path.to_string(),
            allocated_before: trimmed.before,
            allocated: trimmed.after,
            reclaimed: trimmed.before.saturating_sub(trimmed.after),
            holes: trimmed.can_punch,
            volumes: volumes.collect(),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        for volume in &self.volumes {
            match &volume.refused {
                None => writeln!(
                    out,
                    "{} on {}: {} free",
                    volume.file_system,
                    volume.place,
                    exact(volume.free)
                )?,
                Some(why) => writeln!(
                    out,
                    "{} on {}: skipped, {}",
                    volume.file_system,
                    volume.place,
                    output.text(&why.message)
                )?,
            }
        }
        if !self.holes {
            writeln!(
                out,
                "the host does not support sparse files: parts of bands stay allocated; run \
                 `bandsaw du` to see how much"
            )?;
        }
        let before = exact(self.allocated_before);
        writeln!(
            out,
            "{}: {before} before, {} freed",
            output.name(&self.path),
            exact(self.reclaimed)
        )
    }
}
