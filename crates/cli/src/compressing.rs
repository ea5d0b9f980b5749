//! Files stored compressed: the options of every verb that does that, and what it says afterwards.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZeroUsize;

use bandsaw::codec::Level;
use bandsaw::decmpfs::{Compression, MAX_LEN, Method, Packing};
use bandsaw::ops::compress::{CompressOptions, FileReport, Types};
use bandsaw::size;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text::{Table, counted, grouped};

/// How files are compressed unless somebody says otherwise.
pub(crate) const DEFAULT_LEVEL: u8 = 5;

/// Ways of compressing files.
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

/// Which files are compressed, and how carefully.
#[derive(Debug, Args)]
#[command(next_help_heading = "Compression of files")]
pub(crate) struct Choice {
    /// Leave files that would not become shorter by this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    min_saving: u8,
    /// Leave longer files
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value_t = MAX_LEN)]
    max_size: u64,
    /// Leave files whose names do not end with one of these extensions, as txt,html
    #[arg(long, value_name = "EXTENSIONS", value_delimiter = ',')]
    type_filter: Vec<String>,
    /// Leave files whose names do
    #[arg(
        long,
        value_name = "EXTENSIONS",
        value_delimiter = ',',
        conflicts_with = "type_filter"
    )]
    skip_types: Vec<String>,
    /// Use so many cores; without it all
    #[arg(long, short, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Decode what was compressed and compare it before it takes the place of a file
    #[arg(long)]
    verify: bool,
}

impl Choice {
    pub(crate) fn options(&self, method: CompressionType, level: u8) -> Outcome<CompressOptions> {
        let types = if self.skip_types.is_empty() {
            Types::only(&self.type_filter)
        } else {
            Types::but(&self.skip_types)
        };
        Ok(CompressOptions {
            min_saving: self.min_saving,
            max_size: self.max_size,
            types,
            verify: self.verify,
            jobs: self.jobs,
            ..CompressOptions::new(Packing::new(method.into(), Level::new(level)?)?)
        })
    }

    /// One of the options that was given, if one was.
    fn given(&self) -> Option<&'static str> {
        let given = [
            ("--min-saving", self.min_saving > 0),
            ("--max-size", self.max_size != MAX_LEN),
            ("--type-filter", !self.type_filter.is_empty()),
            ("--skip-types", !self.skip_types.is_empty()),
            ("--jobs", self.jobs.is_some()),
            ("--verify", self.verify),
        ];
        given
            .into_iter()
            .find_map(|(option, given)| given.then_some(option))
    }
}

/// Whether files are compressed on their way into a volume, for verbs that put them there.
#[derive(Debug, Args)]
#[command(next_help_heading = "Compression of files")]
pub(crate) struct Compressing {
    /// Store files compressed, as `bandsaw compress` does: zlib (how hard it tries, --level says; 5
    /// without it), lzvn or lzfse
    #[arg(long, value_name = "TYPE", ignore_case = true)]
    compress: Option<CompressionType>,
    #[command(flatten)]
    choice: Choice,
}

impl Compressing {
    pub(crate) fn is_wanted(&self) -> bool {
        self.compress.is_some()
    }

    /// What is compressed; `None`: nothing.
    pub(crate) fn options(&self, level: Option<u8>) -> Outcome<Option<CompressOptions>> {
        match (self.compress, self.choice.given()) {
            (Some(method), _) => self
                .choice
                .options(method, level.unwrap_or(DEFAULT_LEVEL))
                .map(Some),
            (None, Some(option)) => Err(Failure::usage(option, "means nothing without --compress")),
            (None, None) => Ok(None),
        }
    }
}

/// What came of all files, as `--json` prints it.
#[derive(Debug, Serialize, Default)]
pub(crate) struct Totals {
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
    /// Bytes of the contents of all files.
    all_size: u64,
    /// Bytes that all took on the volume.
    all_before: u64,
    /// Bytes that all take.
    all_after: u64,
    /// How many files stay as they are, by why.
    left: BTreeMap<&'static str, u64>,
    /// Every file, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    each: Vec<One>,
}

#[derive(Debug, Serialize)]
struct One {
    path: String,
    /// The number of the way it is compressed, and its name.
    #[serde(rename = "type")]
    number: Option<u32>,
    method: Option<String>,
    size: u64,
    before: u64,
    after: u64,
    left: Option<&'static str>,
}

impl Totals {
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
        self.all_size += size;
        self.all_before += before;
        self.all_after += after;
        match left {
            Some(left) => *self.left.entry(left.reason()).or_default() += 1,
            None => {
                self.changed += 1;
                self.size += size;
                self.before += before;
                self.after += after;
            }
        }
        if verbose {
            let method = number
                .and_then(|number| Compression { number, size }.method())
                .map(|(method, _)| method.to_string());
            self.each.push(One {
                path,
                number,
                method,
                size,
                before,
                after,
                left: left.map(|left| left.reason()),
            });
        }
    }

    /// All of it in words; `done` is what was done to those that changed.
    pub(crate) fn write(&self, done: &str, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new([false, true, true, true, false]);
        if !self.each.is_empty() {
            table.row(["how", "bytes", "on the volume", "saved", "file"].map(str::to_owned));
        }
        for one in &self.each {
            let name = match one.left {
                Some(reason) => format!("{}  (left: {reason})", output.name(&one.path)),
                None => output.name(&one.path),
            };
            let method = match (&one.method, one.number) {
                (Some(method), Some(number)) => format!("{method} ({number})"),
                (None, Some(number)) => format!("type {number}"),
                _ => "plain".to_owned(),
            };
            // Of a file that was compressed already nobody knows what it took before.
            let plain = if one.left.is_some() && one.number.is_some() {
                one.size
            } else {
                one.before
            };
            table.row([
                method,
                grouped(one.size),
                grouped(one.after),
                saved(plain, one.after),
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
            grouped(self.changed),
            counted(self.files, "file", "files")
        );
        writeln!(
            out,
            "{files} {done}: {} of contents, {}",
            grouped(self.size),
            change(self.before, self.after)
        )?;
        if !self.left.is_empty() {
            let left: Vec<String> = self
                .left
                .iter()
                .map(|(reason, count)| format!("{} {reason}", grouped(*count)))
                .collect();
            writeln!(out, "left as they are: {}", left.join("; "))?;
            writeln!(
                out,
                "all files: {} of contents, {}",
                grouped(self.all_size),
                change(self.all_before, self.all_after)
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
