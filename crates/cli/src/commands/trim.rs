//! `bandsaw trim`: what volumes do not use is given back to the host.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bandsaw::device::Access;
use bandsaw::open::Image;
use bandsaw::ops::trim::{self, Trimmed, TrimmedVolume};
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::sheet::exact;
use crate::source::{self, Opening};

const LAYER: &str = "trim";

/// Give the space back that the volumes in an image do not use
///
/// The map of every volume is read, and what it says is free is given back to the host: whole bands
/// are removed, parts of bands and of raw images become holes, chunks of ASIF images and bands of
/// sparse images are returned. Nothing else is read or changed. A volume is left as it is if it was
/// not cleanly unmounted, if changes wait in its journal, or if a quick check finds its map wrong;
/// --full-check looks at all of it first. Free space of an encrypted image goes by whole cipher
/// blocks. Known is what is free in HFS+, APFS, ext2/3/4, FAT, exFAT and NTFS, of which the table
/// of all files is compared with the map first; in a volume of another kind `fstrim` on the device
/// that `serve` offers gives it back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw trim Docs.sparsebundle                    what rm has freed inside returns outside
  bandsaw trim --full-check Backup.sparsebundle     only after everything was found in order
  bandsaw du Docs.sparsebundle                      what it would return")]
pub(crate) struct Trim {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Do all of `check` first, and nothing if something is damaged
    #[arg(long)]
    full_check: bool,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    image: String,
    size_on_disk_before: u64,
    size_on_disk: u64,
    returned: u64,
    /// True if the host frees parts of files; where it does not, only whole bands and chunks were
    /// given back.
    holes: bool,
    volumes: Vec<VolumeFacts>,
}

#[derive(Serialize)]
struct VolumeFacts {
    place: String,
    format: &'static str,
    free: u64,
    runs: u64,
    refused: Option<String>,
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
        let image = self.opening.open(&path, Access::ReadWrite)?;
        let trimmed = trim::trim(&image, &bar)
            .map_err(|error| source::advise(error.in_file(&path), &path))?;
        drop(bar);
        let facts = Facts::new(&path, &trimmed);
        output.done(&facts, |out| facts.write(output, out))?;
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

/// Gives back what no volume of `image` uses, for verbs that are about to hand it to others;
/// volumes that are not trusted are told and left.
pub(crate) fn before_use(image: &Image, output: &Output) -> bandsaw::Result<()> {
    let trimmed = trim::before_use(image, &Bar::new(output))?;
    trimmed
        .iter()
        .filter_map(TrimmedVolume::warning)
        .for_each(|warning| output.warn(&warning));
    Ok(())
}

/// That volumes were left as they are, unless it is only that nothing is known of their kind.
pub(super) fn refusal(path: &str, refused: impl Iterator<Item = Error>) -> Option<Failure> {
    let mut refused = refused.filter(|error| error.kind() != Kind::Unsupported);
    refused.next().map(|error| {
        Error::new(error.kind(), LAYER, "what is free was not given back")
            .caused_by(error)
            .in_file(path)
            .into()
    })
}

impl Facts {
    fn new(path: &str, trimmed: &Trimmed) -> Self {
        let volumes = trimmed.volumes.iter().map(|volume| VolumeFacts {
            place: volume.place.clone(),
            format: volume.format.name(),
            free: volume.free,
            runs: volume.runs,
            refused: volume
                .refused
                .as_ref()
                .map(|error| error.message().to_owned()),
        });
        Self {
            schema: 1,
            image: path.to_owned(),
            size_on_disk_before: trimmed.before,
            size_on_disk: trimmed.after,
            returned: trimmed.before.saturating_sub(trimmed.after),
            holes: trimmed.parts,
            volumes: volumes.collect(),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        for volume in &self.volumes {
            match &volume.refused {
                None => writeln!(
                    out,
                    "{} on {}: {} free",
                    volume.format,
                    volume.place,
                    exact(volume.free)
                )?,
                Some(why) => writeln!(
                    out,
                    "{} on {}: left alone, {}",
                    volume.format,
                    volume.place,
                    output.text(why)
                )?,
            }
        }
        if !self.holes {
            writeln!(
                out,
                "this host frees whole files only, so parts of bands were left; `bandsaw du` shows how much that is"
            )?;
        }
        let before = exact(self.size_on_disk_before);
        writeln!(
            out,
            "{}: {before} before, {} returned",
            output.name(&self.image),
            exact(self.returned)
        )
    }
}
