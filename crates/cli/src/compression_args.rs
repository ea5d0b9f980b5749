//! Compression of files in a volume: shared options and the summary.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZeroUsize;

use bandsaw::codec::Level;
use bandsaw::decmpfs::{Compression, MAX_LEN, Method, PackOptions};
use bandsaw::ops::compress::{CompressOptions, FileReport, FileTypes, SkipReason};
use bandsaw::size;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::headings::COMPRESSION;
use crate::output::Output;
use crate::text::{Table, counted, grouped};

/// The default compression level for files.
pub(crate) const DEFAULT_LEVEL: u8 = 5;

/// A compression type for files.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum CompressionType {
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

/// The selection of files to compress, and the care taken.
#[derive(Debug, Args)]
#[command(next_help_heading = COMPRESSION)]
pub(crate) struct FileChoiceArgs {
    /// Skip files that would shrink by less than this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    min_saving: u8,
    /// Skip files larger than this
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value_t = MAX_LEN)]
    max_size: u64,
    /// Compress only files with these extensions, as txt,html
    #[arg(long, value_name = "EXTENSIONS", value_delimiter = ',')]
    type_filter: Vec<String>,
    /// Skip files with these extensions
    #[arg(
        long,
        value_name = "EXTENSIONS",
        value_delimiter = ',',
        conflicts_with = "type_filter"
    )]
    skip_types: Vec<String>,
    /// Use this many threads (default: all cores)
    #[arg(long, short, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Decode and compare every file before replacing it
    #[arg(long)]
    compare: bool,
}

impl Default for FileChoiceArgs {
    fn default() -> Self {
        Self {
            min_saving: 0,
            max_size: MAX_LEN,
            type_filter: Vec::new(),
            skip_types: Vec::new(),
            jobs: None,
            compare: false,
        }
    }
}

impl FileChoiceArgs {
    /// Returns the options for the library. Fails if the level is not one of the library's.
    pub(crate) fn options(&self, method: CompressionType, level: u8) -> Outcome<CompressOptions> {
        let types = if self.skip_types.is_empty() {
            FileTypes::only(&self.type_filter)
        } else {
            FileTypes::but(&self.skip_types)
        };
        Ok(CompressOptions {
            min_saving: self.min_saving,
            max_size: self.max_size,
            types,
            verify: self.compare,
            jobs: self.jobs,
            ..CompressOptions::new(PackOptions::new(method.into(), Level::new(level)?)?)
        })
    }

    /// Returns one of the options that was given, or `None`.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--min-saving", self.min_saving > 0),
            ("--max-size", self.max_size != MAX_LEN),
            ("--type-filter", !self.type_filter.is_empty()),
            ("--skip-types", !self.skip_types.is_empty()),
            ("--jobs", self.jobs.is_some()),
            ("--compare", self.compare),
        ];
        given
            .into_iter()
            .find_map(|(option, given)| given.then_some(option))
    }
}

/// The options for compressing files while they are copied into a volume.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = COMPRESSION)]
pub(crate) struct CompressionArgs {
    /// Compress files as macOS does: zlib, lzvn or lzfse
    ///
    /// --level sets the level of zlib; its default is 5. See `bandsaw compress`.
    #[arg(
        long,
        value_name = "TYPE",
        ignore_case = true,
        hide_possible_values = true
    )]
    compress: Option<CompressionType>,
    #[command(flatten)]
    choice: FileChoiceArgs,
}

impl CompressionArgs {
    pub(crate) fn is_wanted(&self) -> bool {
        self.compress.is_some()
    }

    /// Returns the options for the library; `None` if nothing is compressed.
    pub(crate) fn options(&self, level: Option<u8>) -> Outcome<Option<CompressOptions>> {
        match (self.compress, self.choice.given()) {
            (Some(method), _) => self
                .choice
                .options(method, level.unwrap_or(DEFAULT_LEVEL))
                .map(Some),
            (None, Some(option)) => Err(Failure::usage(option, "requires --compress")),
            (None, None) => Ok(None),
        }
    }
}

/// The same options, and the level.
#[derive(Debug, Default, Args)]
pub(crate) struct LevelCompressionArgs {
    /// Set the level of zlib for --compress: 1 to 9 (default: 5)
    #[arg(
        long,
        value_name = "N",
        help_heading = COMPRESSION,
        requires = "compress",
        value_parser = clap::value_parser!(u8).range(1..=9)
    )]
    level: Option<u8>,
    #[command(flatten)]
    compressing: CompressionArgs,
}

impl LevelCompressionArgs {
    pub(crate) fn is_wanted(&self) -> bool {
        self.compressing.is_wanted()
    }

    /// Returns the options for the library; `None` if nothing is compressed.
    pub(crate) fn options(&self) -> Outcome<Option<CompressOptions>> {
        self.compressing.options(self.level)
    }
}

/// The totals of all files, as `--json` prints them.
#[derive(Debug, Serialize, Default)]
pub(crate) struct Totals {
    /// Files looked at.
    files: u64,
    /// Files that were changed, or will be.
    changed_files: u64,
    /// Bytes of their contents.
    changed_size: u64,
    /// Bytes they took on the volume.
    changed_allocated_before: u64,
    /// Bytes they take.
    changed_allocated: u64,
    /// Bytes of the contents of all files.
    size: u64,
    /// Bytes that all took on the volume.
    allocated_before: u64,
    /// Bytes that all take.
    allocated: u64,
    /// The number of skipped files, by the code of the reason.
    skipped: BTreeMap<&'static str, u64>,
    /// The same, by its text.
    #[serde(skip)]
    reasons: BTreeMap<&'static str, u64>,
    /// Every file, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    list: Vec<FileResult>,
}

#[derive(Debug, Serialize)]
struct FileResult {
    volume_path: String,
    /// The number of the compression type in the attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    compression_type: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    size: u64,
    allocated_before: u64,
    allocated: u64,
    /// The reason why the file was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<&'static str>,
    #[serde(skip)]
    reason: Option<&'static str>,
}

impl Totals {
    /// Adds a file to the totals; it is listed, too, only if `verbose` is true.
    pub(crate) fn add(&mut self, report: FileReport, verbose: bool) {
        let FileReport {
            path,
            number,
            size,
            before,
            after,
            left,
        } = report;
        self.files += 1;
        self.size += size;
        self.allocated_before += before;
        self.allocated += after;
        match left {
            Some(left) => self.skip(left),
            None => {
                self.changed_files += 1;
                self.changed_size += size;
                self.changed_allocated_before += before;
                self.changed_allocated += after;
            }
        }
        if verbose {
            let method = number
                .and_then(|number| Compression { number, size }.method())
                .map(|(method, _)| method.to_string());
            self.list.push(FileResult {
                volume_path: path,
                compression_type: number,
                method,
                size,
                allocated_before: before,
                allocated: after,
                skipped: left.map(SkipReason::code),
                reason: left.map(SkipReason::reason),
            });
        }
    }

    fn skip(&mut self, left: SkipReason) {
        *self.skipped.entry(left.code()).or_default() += 1;
        *self.reasons.entry(left.reason()).or_default() += 1;
    }

    /// Prints the summary; `done` is the verb for the files that changed.
    pub(crate) fn write(&self, done: &str, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new([false, true, true, true, false]);
        if !self.list.is_empty() {
            table.row(["how", "bytes", "on the volume", "saved", "file"].map(str::to_owned));
        }
        for one in &self.list {
            let name = match one.reason {
                Some(reason) => format!("{}  (skipped: {reason})", output.name(&one.volume_path)),
                None => output.name(&one.volume_path),
            };
            let method = match (&one.method, one.compression_type) {
                (Some(method), Some(number)) => format!("{method} ({number})"),
                (None, Some(number)) => format!("type {number}"),
                _ => "plain".to_owned(),
            };
            // The space that a compressed file took before it was compressed is not recorded.
            let plain = if one.skipped.is_some() && one.compression_type.is_some() {
                one.size
            } else {
                one.allocated_before
            };
            table.row([
                method,
                grouped(one.size),
                grouped(one.allocated),
                saved(plain, one.allocated),
                name,
            ]);
        }
        write!(out, "{}", table.lines(""))?;
        let change = |before, after| {
            format!(
                "{} bytes on the volume, now {} ({})",
                grouped(before),
                grouped(after),
                saved(before, after)
            )
        };
        let files = format!(
            "{} of {}",
            grouped(self.changed_files),
            counted(self.files, "file", "files")
        );
        writeln!(
            out,
            "{files} {done}: {} of contents, {}",
            grouped(self.changed_size),
            change(self.changed_allocated_before, self.changed_allocated)
        )?;
        if !self.skipped.is_empty() {
            let left: Vec<String> = self
                .reasons
                .iter()
                .map(|(reason, count)| format!("{} {reason}", grouped(*count)))
                .collect();
            writeln!(out, "skipped: {}", left.join("; "))?;
            writeln!(
                out,
                "all files: {} of contents, {}",
                grouped(self.size),
                change(self.allocated_before, self.allocated)
            )?;
        }
        Ok(())
    }
}

/// Returns how much less, in percent.
fn saved(before: u64, after: u64) -> String {
    match before {
        _ if after == before => "0.0 %".to_owned(),
        _ if after > before => "more".to_owned(),
        _ => format!(
            "{:.1} %",
            100.0 * (before as f64 - after as f64) / before as f64
        ),
    }
}
