//! `bandsaw compress` and `bandsaw decompress`: how files of a volume are stored.

use std::ffi::OsString;

use bandsaw::codec::Level;
use bandsaw::decmpfs::{MAX_LEN, Method, Packing};
use bandsaw::ops::compress::{CompressOptions, FileReport, compress, decompress};
use bandsaw::size;
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use crate::change;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::Opening;
use crate::text::{Table, grouped};

/// Compress files within their volume, as `ditto --hfsCompression` and afsctool do
///
/// The files read the same afterwards, here and on a Mac, and keep their dates and attributes; they take less room. A file is
/// switched over in one step once all of it is compressed, so a crash or Ctrl-C leaves it one way or the other. Left as they are:
/// files that would not take less room, that have a resource fork, are empty, locked or longer than 4 GiB. Other systems' drivers,
/// Linux's among them, show compressed files as empty.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw compress disk.img:/Applications                      all files below a folder, by zlib
  bandsaw compress --type lzfse --verify disk.img:/big.bin     each is decoded and compared before the switch
  bandsaw compress --estimate -v disk.img:/                    what it would bring, file by file; nothing is changed")]
pub(crate) struct Compress {
    /// Files, and folders with all below them, all in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// How: zlib (read by every Mac since 10.6, and smallest), lzvn (10.10), lzfse (10.11)
    #[arg(long = "type", value_name = "TYPE", default_value = "zlib", ignore_case = true)]
    method: CompressionType,
    /// How hard zlib tries, 1 (fast) to 9 (small)
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=9))]
    level: u8,
    /// Leave files that would not become shorter by this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    min_saving: u8,
    /// Leave longer files
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value_t = MAX_LEN)]
    max_size: u64,
    /// Decode what was compressed and compare it before a file is switched over
    #[arg(long)]
    verify: bool,
    /// Change nothing, and say what it would bring
    #[arg(long, conflicts_with = "verify")]
    estimate: bool,
    /// Tell of every file
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    opening: Opening,
}

/// Store compressed files of a volume as they are
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw decompress disk.img:/Applications
  bandsaw decompress -v Docs.sparsebundle:Data:/notes.txt")]
pub(crate) struct Decompress {
    /// Files, and folders with all below them, all in one volume: IMAGE[:VOLUME]:/PATH
    #[arg(value_name = "ADDRESS", value_hint = ValueHint::AnyPath, required = true)]
    addresses: Vec<OsString>,
    /// Tell of every file
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    opening: Opening,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CompressionType {
    Zlib,
    Lzvn,
    Lzfse,
}

impl From<CompressionType> for Method {
    fn from(of: CompressionType) -> Self {
        match of {
            CompressionType::Zlib => Self::Zlib,
            CompressionType::Lzvn => Self::Lzvn,
            CompressionType::Lzfse => Self::Lzfse,
        }
    }
}

/// What `--json` prints.
#[derive(Serialize, Default)]
struct Facts {
    schema: u32,
    estimate: bool,
    /// Files looked at.
    files: u64,
    /// Files stored another way now, or to be.
    changed: u64,
    /// Bytes of their contents.
    size: u64,
    /// Bytes they took on the volume.
    before: u64,
    /// Bytes they take.
    after: u64,
    /// Every file, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    each: Vec<One>,
}

#[derive(Serialize)]
struct One {
    path: String,
    size: u64,
    before: u64,
    after: u64,
    left: Option<&'static str>,
}

impl Facts {
    fn new(estimate: bool) -> Self {
        Self { schema: 1, estimate, ..Self::default() }
    }

    fn add(&mut self, report: FileReport, verbose: bool) {
        self.files += 1;
        if report.left.is_none() {
            self.changed += 1;
            self.size += report.size;
            self.before += report.before;
            self.after += report.after;
        }
        if verbose {
            let FileReport { path, size, before, after, left } = report;
            self.each.push(One { path, size, before, after, left: left.map(|left| left.reason()) });
        }
    }

    fn print(&self, done: &str, output: &Output) -> Outcome {
        output.facts(self, |out| {
            let mut table = Table::new([true, true, true, false]);
            for one in &self.each {
                let name = match one.left {
                    Some(reason) => format!("{}  (left: {reason})", output.name(&one.path)),
                    None => output.name(&one.path),
                };
                table.row([grouped(one.size), grouped(one.after), saved(one.before, one.after), name]);
            }
            write!(out, "{}", table.lines(""))?;
            let files = format!("{} of {} files", grouped(self.changed), grouped(self.files));
            let (before, after) = (grouped(self.before), grouped(self.after));
            writeln!(out, "{files} {done}: {before} bytes on the volume, now {after} ({})", saved(self.before, self.after))
        })
    }
}

/// How much less, in percent.
fn saved(before: u64, after: u64) -> String {
    match before {
        0 => "0.0 %".to_owned(),
        _ if after > before => "more".to_owned(),
        _ => format!("{:.1} %", 100.0 * (before as f64 - after as f64) / before as f64),
    }
}

impl Compress {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let options = CompressOptions {
            min_saving: self.min_saving,
            max_size: self.max_size,
            verify: self.verify,
            estimate: self.estimate,
            ..CompressOptions::new(Packing::new(self.method.into(), Level::new(self.level)?)?)
        };
        let (mut facts, bar) = (Facts::new(self.estimate), Bar::new(output));
        change::change(&address, &self.opening, output, |fs| {
            let mut each = |report| {
                facts.add(report, self.verbose);
                Ok(())
            };
            Ok(compress(&**fs, &paths, &options, &bar, &mut each)?)
        })?;
        facts.print(if self.estimate { "would be compressed" } else { "compressed" }, output)
    }
}

impl Decompress {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (address, paths) = change::addresses(self.addresses.iter().map(OsString::as_os_str))?;
        let (mut facts, bar) = (Facts::new(false), Bar::new(output));
        change::change(&address, &self.opening, output, |fs| {
            let mut each = |report| {
                facts.add(report, self.verbose);
                Ok(())
            };
            Ok(decompress(&**fs, &paths, &bar, &mut each)?)
        })?;
        facts.print("decompressed", output)
    }
}
