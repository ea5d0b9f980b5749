//! `bandsaw convert`: the same disk in another container, or with other bands.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use bandsaw::container::Format;
use bandsaw::open::Image;
use bandsaw::ops::convert::{ConvertOptions, Copied, convert, resume, stream};
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::facts::Facts;
use crate::failure::{Failure, Outcome};
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
  bandsaw convert Backup.sparsebundle - | zstd > backup.zst     the disk as it is to standard output; also: -o -
  bandsaw convert --resume /dev/sdb Old.sparsebundle           can be stopped, and called again to go on
  bandsaw convert --format udsb disk.img backup --overwrite    the format by name")]
pub(crate) struct Convert {
    /// The image to read
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    source: OsString,
    /// The image to make; - writes a raw image to standard output
    #[arg(value_name = "TARGET", required_unless_present = "output")]
    target: Option<PathBuf>,
    /// The same as TARGET
    #[arg(long, short, value_name = "TARGET", conflicts_with = "target")]
    output: Option<PathBuf>,
    /// Keep what is done when stopped or killed, in a hidden file beside TARGET, and go on from there if it is there
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    container: Container,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints; on standard error where the image goes to standard output.
#[derive(Serialize)]
struct Streamed {
    schema: u32,
    format: &'static str,
    size: u64,
    bytes_read: u64,
    bytes_written: u64,
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
    /// The verb for this image.
    pub(super) fn of(source: OsString, target: PathBuf, container: Container, opening: Opening) -> Self {
        Self { source, target: Some(target), output: None, resume: false, container, opening }
    }

    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let Some(target) = self.target.as_deref().or(self.output.as_deref()) else {
            return Err(Failure::usage("TARGET", "the image to make is not named"));
        };
        if target.as_os_str() == "-" {
            if self.resume {
                return Err(Failure::usage("--resume", "what went to standard output cannot be gone on with"));
            }
            return self.to_standard_output(&output.aside());
        }
        let format = self.container.format(target)?;
        let source = self.source(output)?;
        self.to_file(&source, target, format, output)
    }

    fn source(&self, output: &Output) -> Outcome<Image> {
        let source = self.opening.read(&source::image(&self.source)?, output)?;
        if source.encryption().is_some() {
            output.warn("the new image is not encrypted, as the old one is");
        }
        Ok(source)
    }

    fn to_file(&self, source: &Image, target: &Path, format: Format, output: &Output) -> Outcome {
        let Container { band_size, overwrite, .. } = self.container;
        let sector_size = self.container.sector_size();
        let options = ConvertOptions { format, band_size, sector_size, overwrite };
        let bar = Bar::new(output);
        let work = if self.resume { resume } else { convert };
        let made = work(source, target, &options, &bar).map_err(|error| self.advise(error))?;
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

    fn advise(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Cancelled if self.resume => {
                Failure::from(error).hint("what is done is kept; the same command goes on from there")
            }
            Kind::Conflict if error.message().contains(".partial") => error.into(),
            _ => target::advise(error, &self.container),
        }
    }

    fn to_standard_output(&self, output: &Output) -> Outcome {
        if io::stdout().is_terminal() {
            return Err(Failure::usage("TARGET", "standard output is a terminal").hint("send it to a file or a pipe"));
        }
        let format = self.container.asked_format().unwrap_or_default();
        let source = self.source(output)?;
        let bar = Bar::new(output);
        let out = io::stdout().as_fd().try_clone_to_owned();
        let out = out.map_err(|error| Error::io("standard output", "cannot be used", error))?;
        let copied = stream(&**source.disk(), format, File::from(out), &bar)?;
        drop(bar);
        let Copied { read: bytes_read, written: bytes_written } = copied;
        let size = source.disk().info().len;
        let streamed = Streamed { schema: 1, format: format.code(), size, bytes_read, bytes_written };
        output.done(&streamed, |out| {
            writeln!(
                out,
                "{:#}, read {:#}, wrote {:#}",
                size::display(size),
                size::display(bytes_read),
                size::display(bytes_written)
            )
        })
    }
}
