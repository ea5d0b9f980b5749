//! `bandsaw resize`: volume, partition and disk, resized together.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::address::{Address, ImagePath};
use bandsaw::device::Access;
use bandsaw::open::Image;
use bandsaw::ops::describe::ResizeStepInfo;
use bandsaw::ops::resize::{Parts, ResizeOptions, Resized, Size, limits, resize};
use bandsaw::{Error, Kind, Reason, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

/// Grow or shrink an image with its volume
///
/// The disk, the partition, and the HFS+ volume or APFS container are resized together. To shrink
/// an HFS+ volume, data beyond its new end is moved. Data of an APFS container is not moved: the
/// last block in use determines its smallest size. The image is consistent after every step; an
/// interrupted resize is completed by running the command again. Without a size the limits are
/// shown.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Examples:
  bandsaw resize Docs.sparsebundle                  show the limits
  bandsaw resize Docs.sparsebundle --size 200g
  bandsaw resize --dry-run disk.img --min           show how to shrink it
  bandsaw resize disk.img --size 1g --grow-only     unless it is already larger
  bandsaw resize disk.img:#1 --size 500m --partition-only
  bandsaw resize blank.img --size 2g --image-only")]
pub(crate) struct Resize {
    /// The image or a volume: IMAGE[:NAME] or IMAGE[:#NUMBER]
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    pub(crate) volume: OsString,
    /// Set the size of the disk, as 200g or 200GB
    ///
    /// With --partition-only it is the size of the partition.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with_all = ["min", "limits"])]
    pub(crate) size: Option<u64>,
    /// Shrink to the smallest possible size
    #[arg(long, conflicts_with = "limits")]
    pub(crate) min: bool,
    /// Show the smallest and largest size, and change nothing
    #[arg(long)]
    pub(crate) limits: bool,
    /// Resize only the disk
    ///
    /// Structures of the partition map at the end of the disk are moved.
    #[arg(long, visible_alias = "imageonly", conflicts_with = "partition_only")]
    pub(crate) image_only: bool,
    /// Resize only partition and volume, not the disk
    #[arg(long, visible_alias = "partitiononly")]
    pub(crate) partition_only: bool,
    /// Do nothing if the new size is smaller
    #[arg(long, visible_alias = "growonly", conflicts_with = "shrink_only")]
    pub(crate) grow_only: bool,
    /// Do nothing if the new size is larger
    #[arg(long, visible_alias = "shrinkonly")]
    pub(crate) shrink_only: bool,
    /// Show the steps, and change nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) opening: OpenArgs,
}

/// The output of `--json` for limits.
#[derive(Serialize)]
struct LimitsReport {
    path: String,
    min_size: u64,
    size: u64,
    max_size: u64,
}

/// The output of `--json` for a resize.
#[derive(Serialize)]
struct ResizeReport {
    path: String,
    dry_run: bool,
    size_before: u64,
    size: u64,
    steps: Vec<ResizeStepInfo>,
}

impl Resize {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.resize(&source::image_or_volume(&self.volume)?, output)
    }

    /// Resizes the image or volume at `address`, which is not a path in a volume or a snapshot.
    pub(crate) fn resize(&self, address: &Address, output: &Output) -> Outcome {
        let size = match (self.size, self.min) {
            (Some(size), _) => Some(Size::Bytes(size)),
            (None, true) => Some(Size::Min),
            (None, false) => None,
        };
        let access = if size.is_none() || self.dry_run {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let image = self.opening.open(&address.image, access)?;
        output.warn_of(&image);
        let Some(size) = size else {
            let found = limits(&image, address.volume.as_ref())?;
            let limits = LimitsReport {
                path: address.image.to_string(),
                min_size: found.min,
                size: found.current,
                max_size: found.max,
            };
            return output.result(&limits, |out| limits.write(out));
        };
        let parts = match (self.image_only, self.partition_only) {
            (true, _) => Parts::Image,
            (_, true) => Parts::Partition,
            _ => Parts::All,
        };
        let mut options = ResizeOptions {
            size,
            parts,
            volume: address.volume.as_ref(),
            dry_run: true,
        };
        let bar = Bar::new(output);
        let planned =
            resize(&image, &options, &bar).map_err(|error| advise(error, &address.image))?;
        let unwanted = self.grow_only && planned.to < planned.from
            || self.shrink_only && planned.to > planned.from;
        let done = if unwanted {
            Resized {
                to: planned.from,
                steps: Vec::new(),
                ..planned
            }
        } else if self.dry_run {
            planned
        } else {
            options.dry_run = false;
            resize(&image, &options, &bar).map_err(|error| advise(error, &address.image))?
        };
        drop(bar);
        let Resized { from, to, steps } = done;
        let report = ResizeReport {
            path: address.image.to_string(),
            dry_run: self.dry_run,
            size_before: from,
            size: to,
            steps: steps.into_iter().map(ResizeStepInfo::new).collect(),
        };
        output.done(&report, |out| report.write(&image, output, out))
    }
}

/// Adds a hint to an error about an impossible size.
fn advise(error: Error, image: &ImagePath) -> Failure {
    match error.kind() {
        Kind::Limit => {
            Failure::from(error).hint(format!("run `bandsaw resize {image}` to see the limits"))
        }
        Kind::Corrupt => Failure::from(error).hint(format!(
            "run `bandsaw check {image}` to list the damage, and `bandsaw repair` to repair it"
        )),
        Kind::NotFound if error.reason() == Some(Reason::NoVolumes) => {
            Failure::from(error).hint("use --image-only to resize the disk only")
        }
        _ => source::advise(error, image),
    }
}

impl LimitsReport {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (what, bytes) in [
            ("min", self.min_size),
            ("current", self.size),
            ("max", self.max_size),
        ] {
            writeln!(out, "{what:<8} {:#}", size::display(bytes))?;
        }
        Ok(())
    }
}

impl ResizeReport {
    fn write(&self, image: &Image, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        for step in &self.steps {
            let would = if self.dry_run { "would: " } else { "" };
            writeln!(out, "{would}{}", step.message)?;
        }
        if self.steps.is_empty() {
            let name = image.path().display().to_string();
            writeln!(
                out,
                "{}: nothing to do, its size is {:#}",
                output.name(&name),
                size::display(self.size_before)
            )?;
        }
        Ok(())
    }
}
