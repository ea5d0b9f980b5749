//! `bandsaw reband`: bands of another size, in place.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::container::sparsebundle::Rebanded;
use bandsaw::device::Access;
use bandsaw::ops::reband;
use bandsaw::progress::Limited;
use bandsaw::{Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::sheet::exact;
use crate::source::{self, Opening};

/// Give a sparse bundle bands of another size, in place
///
/// No second copy of the disk is made: at most 256 MiB, or two bands if that is more, are stored
/// twice at a time. Everything else in the bundle stays as it is, the files of Time Machine among
/// it. It can be stopped, killed or lose its power at any moment: running it again goes on, and
/// until then the bundle opens here with all that is in it, while macOS and others refuse it.
/// `bandsaw advise` tells which size suits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw reband Backup.sparsebundle --band-size 64m          fewer, larger files
  bandsaw reband Backup.sparsebundle                          go on with what was interrupted
  bandsaw reband Docs.sparsebundle --band-size 8m --limit-rate 50m   leave the disk to others")]
pub(crate) struct Reband {
    /// The sparse bundle
    #[arg(value_name = "IMAGE", value_hint = ValueHint::DirPath)]
    image: OsString,
    /// Bytes of a band, from 1m to 8g; not needed to go on with what was interrupted
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    band_size: Option<u64>,
    /// Take the nearest size that is possible, where --band-size is not
    #[arg(long, requires = "band_size")]
    round: bool,
    /// Bytes to copy in a second, at most
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    limit_rate: Option<u64>,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    image: String,
    band_size_before: u64,
    band_size: u64,
    /// Bytes that were copied, this time.
    copied: u64,
    /// True if it went on with what had been interrupted.
    resumed: bool,
}

impl Reband {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let bar = Bar::new(output);
        let progress = Limited::new(&bar, self.limit_rate);
        let options = self.opening.options(Access::ReadWrite);
        let done = reband::reband_to(
            Path::new(&path),
            self.band_size,
            self.round,
            &options,
            &progress,
        )
        .map_err(|error| source::advise(error, &path))
        .advise(Kind::Cancelled, || {
            format!("`bandsaw reband {path}` goes on with it")
        })
        .advise(Kind::Invalid, || {
            "--band-size takes sizes like 8m and 64m; add --round to take the nearest possible size"
                .to_owned()
        })?;
        drop(bar);
        done.warnings
            .iter()
            .for_each(|warning| output.warn(warning));
        let Rebanded {
            from,
            to,
            copied,
            resumed,
            ..
        } = done;
        let facts = Facts {
            schema: 1,
            image: path,
            band_size_before: from,
            band_size: to,
            copied,
            resumed,
        };
        output.done(&facts, |out| {
            let name = output.name(&facts.image);
            match (from == to, resumed) {
                (true, _) => writeln!(out, "{name}: has bands of {} already", exact(to)),
                (_, true) => writeln!(
                    out,
                    "{name}: bands of {} finished, {} before",
                    exact(to),
                    exact(from)
                ),
                (_, false) => writeln!(
                    out,
                    "{name}: bands of {}, {} before",
                    exact(to),
                    exact(from)
                ),
            }
        })
    }
}
