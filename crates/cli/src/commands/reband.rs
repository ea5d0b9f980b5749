//! `bandsaw reband`: another band size, in place.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::container::sparsebundle::Rebanded;
use bandsaw::device::Access;
use bandsaw::ops::reband;
use bandsaw::progress::RateLimited;
use bandsaw::{Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Outcome};
use crate::info_writer::exact;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

/// Change the band size of a sparse bundle in place
///
/// The disk is not copied as a whole: at most 256 MiB, or two bands if these are larger, are stored
/// twice at a time. Other files of the bundle, such as those of Time Machine, are not changed.
/// After an interruption, a kill or a power failure, run the command again to resume. Until then
/// bandsaw can open the bundle, but macOS and other programs refuse it. `bandsaw advise` recommends
/// a band size.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw reband Backup.sparsebundle --band-size 64m          use fewer, larger files
  bandsaw reband Backup.sparsebundle                          resume an interrupted run
  bandsaw reband Docs.sparsebundle --band-size 8m --limit-rate 50m   limit the load")]
pub(crate) struct Reband {
    /// The sparse bundle to change
    #[arg(value_name = "IMAGE", value_hint = ValueHint::DirPath)]
    image: OsString,
    /// Set the band size, from 1m to 8g
    ///
    /// macOS requires a multiple of 4096 bytes.
    /// Not needed to resume an interrupted run.
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    band_size: Option<u64>,
    /// Round --band-size to the nearest supported size
    #[arg(long, requires = "band_size")]
    round: bool,
    /// Limit throughput, in bytes per second
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    limit_rate: Option<u64>,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct RebandReport {
    path: String,
    band_size_before: u64,
    band_size: u64,
    /// Bytes copied by this run.
    copied_size: u64,
    /// True if an interrupted run was resumed.
    resumed: bool,
}

impl Reband {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let bar = Bar::new(output);
        let progress = RateLimited::new(&bar, self.limit_rate);
        let repaired = self.opening.prepare(&path)?;
        repaired.iter().for_each(|warning| output.warn(warning));
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
            format!("run `bandsaw reband {path}` to resume")
        })
        .advise(Kind::Invalid, || {
            "use --band-size with a size like 8m or 64m; --round takes the nearest possible size"
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
        let report = RebandReport {
            path: path.to_string(),
            band_size_before: from,
            band_size: to,
            copied_size: copied,
            resumed,
        };
        output.done(&report, |out| {
            let name = output.name(&report.path);
            match (from == to, resumed) {
                (true, _) => writeln!(out, "{name}: already has bands of {}", exact(to)),
                (_, true) => writeln!(
                    out,
                    "{name}: resumed, bands of {} instead of {}",
                    exact(to),
                    exact(from)
                ),
                (_, false) => writeln!(
                    out,
                    "{name}: bands of {} instead of {}",
                    exact(to),
                    exact(from)
                ),
            }
        })
    }
}
