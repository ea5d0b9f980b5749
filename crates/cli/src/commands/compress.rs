//! `bandsaw compress` and `bandsaw decompress`: compression of files in a volume.

use std::ffi::OsString;
use std::path::PathBuf;

#[cfg(target_os = "macos")]
use bandsaw::ops::compress as host;
use bandsaw::ops::compress::{CompressOptions, compress, decompress, estimate};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::change::{self, ChangeArgs};
use crate::compression_args::{CompressionType, DEFAULT_LEVEL, FileChoiceArgs, Totals};
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::ImageLocation;

/// Compress files in place, as afsctool and ditto do
///
/// Compressed files read the same, here and on a Mac, and keep their dates and attributes; they
/// take less space. A file is replaced in one step after it has been compressed completely, so that
/// a crash or Ctrl-C leaves either the old or the new one. Skipped are files that would not shrink,
/// that have a resource fork, or that are empty, locked or larger than 4 GiB. Drivers of other
/// systems, such as that of Linux, show compressed files as empty.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw compress disk.img:/Applications                      compress a folder with zlib
  bandsaw compress --type lzfse --compare disk.img:/big.bin    check each file before replacing it
  bandsaw compress --estimate -v disk.img:/                    show the savings of each file
  bandsaw compress --skip-types jpg,mp4 --min-saving 10 disk.img:/
  bandsaw compress --type-filter txt --backup before disk.img:/Docs")]
pub(crate) struct Compress {
    /// Files and folders of a volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Set the type of compression: zlib, lzvn or lzfse
    ///
    /// zlib files are the smallest, and readable since macOS 10.6; lzvn since 10.10; lzfse since
    /// 10.11.
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "zlib",
        ignore_case = true,
        hide_possible_values = true
    )]
    method: CompressionType,
    /// Set the level of zlib: 1 (fastest) to 9 (smallest)
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LEVEL, value_parser = clap::value_parser!(u8).range(1..=9))]
    level: u8,
    /// Copy each file to this host folder before replacing it
    ///
    /// The copy gets the path that the file has in the volume.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with = "estimate")]
    backup: Option<PathBuf>,
    #[command(flatten)]
    choice: FileChoiceArgs,
    /// Show the result without changing anything
    #[arg(long, conflicts_with = "compare")]
    estimate: bool,
    /// List every file
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    opening: ChangeArgs,
}

/// Decompress files in place
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw decompress disk.img:/Applications
  bandsaw decompress -v Docs.sparsebundle:Data:/notes.txt")]
pub(crate) struct Decompress {
    /// Files and folders of a volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// List every file
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    opening: ChangeArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct CompressReport {
    path: String,
    estimate: bool,
    #[serde(flatten)]
    totals: Totals,
}

impl CompressReport {
    fn print(path: &str, totals: Totals, estimate: bool, done: &str, output: &Output) -> Outcome {
        let facts = Self {
            path: path.to_owned(),
            estimate,
            totals,
        };
        output.result(&facts, |out| facts.totals.write(done, output, out))
    }
}

/// Returns the host files that are named, if no image is: macOS compresses these too.
#[cfg(target_os = "macos")]
fn on_host(addresses: &[OsString]) -> Outcome<Option<Vec<PathBuf>>> {
    for text in addresses {
        if !crate::source::address(text)?.is_bare() {
            return Ok(None);
        }
    }
    Ok(Some(addresses.iter().map(PathBuf::from).collect()))
}

/// Returns the first of the host files, which names the report.
#[cfg(target_os = "macos")]
fn first(paths: &[PathBuf]) -> String {
    paths
        .first()
        .map_or_else(String::new, |path| path.display().to_string())
}

impl Compress {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        #[cfg(target_os = "macos")]
        if let Some(paths) = on_host(&self.addresses)? {
            return self.run_on_host(&paths, output);
        }
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let options = CompressOptions {
            backup: self.backup.clone(),
            ..self.choice.options(self.method, self.level)?
        };
        let (mut totals, bar) = (Totals::default(), Bar::new(output));
        let mut each = |report| {
            totals.add(report, self.verbose);
            Ok(())
        };
        if self.estimate {
            let place = ImageLocation::open(&address, &self.opening, output)?;
            estimate(&*place.fs, &paths, &options, &bar, &mut each)?;
            drop(bar);
            return CompressReport::print(
                &address.image.to_string(),
                totals,
                true,
                "would be compressed",
                output,
            );
        }
        change::rewrite(&address, &self.opening, output, |volume| {
            Ok(compress(volume, &paths, &options, &bar, &mut each)?)
        })?;
        drop(bar);
        CompressReport::print(
            &address.image.to_string(),
            totals,
            false,
            "compressed",
            output,
        )
    }
}

#[cfg(target_os = "macos")]
impl Compress {
    fn run_on_host(&self, paths: &[PathBuf], output: &Output) -> Outcome {
        let options = CompressOptions {
            backup: self.backup.clone(),
            ..self.choice.options(self.method, self.level)?
        };
        let (mut totals, bar) = (Totals::default(), Bar::new(output));
        let mut each = |report| {
            totals.add(report, self.verbose);
            Ok(())
        };
        if self.estimate {
            host::estimate_host(paths, &options, &bar, &mut each)?;
        } else {
            host::compress_host(paths, &options, &bar, &mut each)?;
        }
        drop(bar);
        CompressReport::print(
            &first(paths),
            totals,
            self.estimate,
            if self.estimate {
                "would be compressed"
            } else {
                "compressed"
            },
            output,
        )
    }
}

impl Decompress {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        #[cfg(target_os = "macos")]
        if let Some(paths) = on_host(&self.addresses)? {
            let (mut totals, bar) = (Totals::default(), Bar::new(output));
            host::decompress_host(&paths, &bar, &mut |report| {
                totals.add(report, self.verbose);
                Ok(())
            })?;
            drop(bar);
            return CompressReport::print(&first(&paths), totals, false, "decompressed", output);
        }
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let (mut totals, bar) = (Totals::default(), Bar::new(output));
        change::rewrite(&address, &self.opening, output, |volume| {
            let mut each = |report| {
                totals.add(report, self.verbose);
                Ok(())
            };
            Ok(decompress(volume, &paths, &bar, &mut each)?)
        })?;
        drop(bar);
        CompressReport::print(
            &address.image.to_string(),
            totals,
            false,
            "decompressed",
            output,
        )
    }
}
