//! `bandsaw convert`: the same disk in another container, or with other bands.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::ops::convert::{ConvertOptions, Copied, convert};
use bandsaw::size;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::facts::Facts;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;
use crate::sheet;
use crate::source::{self, Opening};
use crate::target::{self, Container};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw convert disk.img Disk.sparsebundle                   a raw image becomes a bundle
  bandsaw convert Disk.sparsebundle disk.dmg                   and back
  bandsaw convert vm.asif vm.img                               an Apple sparse image for other systems
  bandsaw convert App.dmg App.sparsebundle                     a compressed image becomes one that can be changed
  bandsaw convert --band-size 64m Old.sparsebundle New.sparsebundle
  bandsaw convert --format udsb disk.img backup --overwrite    the format by name")]
pub(crate) struct Convert {
    /// The image to read
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    source: OsString,
    /// The image to make
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    #[command(flatten)]
    container: Container,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Converted {
    #[serde(flatten)]
    image: Facts,
    bytes_read: u64,
    bytes_written: u64,
}

impl Convert {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let source = self.opening.read(&source::image(&self.source)?, output)?;
        let Container { band_size, overwrite, .. } = self.container;
        let sector_size = self.container.sector_size();
        let options = ConvertOptions { format: self.container.format(&self.target)?, band_size, sector_size, overwrite };
        if source.encryption().is_some() {
            output.warn("the new image is not encrypted, as the old one is");
        }
        let bar = Bar::new(output);
        let made = convert(&source, &self.target, &options, &bar).map_err(|error| target::advise(error, &self.container))?;
        let facts = Facts::of(&made.image, &bar)?;
        drop(bar);
        facts.warn(output);
        let Copied { read: bytes_read, written: bytes_written } = made.copied;
        let converted = Converted { image: facts, bytes_read, bytes_written };
        output.done(&converted, |out| {
            sheet::write(&converted.image, output, out)?;
            writeln!(out, "\nread {:#}, wrote {:#}", size::display(bytes_read), size::display(bytes_written))
        })
    }
}
