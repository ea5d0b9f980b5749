//! `bandsaw bench files`: how fast files are written and read in a folder.

use std::path::PathBuf;

use bandsaw::{Kind, size};
use bandsaw_bench::folder::{self, Announced};
use bandsaw_bench::place::Caches;
use bandsaw_bench::plan::{Plan, SETS, SIZES};
use bandsaw_bench::report::Settings;
use bandsaw_bench::units::bytes;
use clap::{Args, ValueEnum, ValueHint};

use super::kept::Keeping;
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::text::counted;

/// Measure how fast files are written and read in a folder
///
/// By default this is the gold standard: 16 sizes from 2 MB to 2 GB in random order, ten times, written and then read in the same
/// order, 160 files and 53.3 GB in all. They lie in a new folder of their own in DIR, which is removed at the end, also by Ctrl-C.
///
/// Times are from opening a file to its last byte; for writing, those with the final flush are told too. Speeds are bytes a second,
/// and MB is a million bytes. The system's memory is kept out as well as it goes: what became of that is in the results.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench files /mnt/disk --dry-run               what it would write
  bandsaw bench files /mnt/disk                         the gold standard
  bandsaw bench files . --scale 0.01 --sets 3           160 MB in 48 files
  bandsaw bench files . --single 1GB --caches direct    one file, around the cache
  bandsaw bench files . --random 20 -o run.json -o run.html")]
pub(crate) struct Files {
    /// The folder
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    planning: Planning,
    #[command(flatten)]
    measuring: Measuring,
    /// Say what would be written, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    keeping: Keeping,
}

/// Which files.
#[derive(Debug, Args)]
pub(super) struct Planning {
    /// How often the sizes are gone through
    #[arg(long, value_name = "NUMBER", default_value_t = SETS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sets: u32,
    /// What every size is multiplied by; the number of files stays
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// The sizes of a set, in the place of the sixteen; 2MB is a million bytes times two, 2m is binary
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse, conflicts_with_all = ["random", "single"])]
    sizes: Vec<u64>,
    /// So many files a set, of sizes drawn between 2 MB and 2 GB
    #[arg(long, value_name = "NUMBER", conflicts_with = "single", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    random: Option<u32>,
    /// One file of this size
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "sets")]
    single: Option<u64>,
    /// Of the order, and of what is drawn: the same number gives the same files
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// How they are written and read.
#[derive(Debug, Args)]
pub(super) struct Measuring {
    /// Bytes of each request, a multiple of 4096
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1m")]
    request: u64,
    /// What is done about the system's memory between writing and reading
    #[arg(long, value_enum, default_value_t)]
    caches: CachesArg,
    /// Write files that can be compressed to about a half
    #[arg(long)]
    compressible: bool,
    /// Compare what is read with what was written; it takes no time of the measurement
    #[arg(long)]
    verify: bool,
    /// Rest between writing and reading
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pause: f64,
}

/// `--caches`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum CachesArg {
    /// Drop files from memory before they are read
    #[default]
    Drop,
    /// Read and write around it
    Direct,
    /// Leave it alone
    Keep,
}

impl From<CachesArg> for Caches {
    fn from(arg: CachesArg) -> Self {
        match arg {
            CachesArg::Drop => Self::Drop,
            CachesArg::Direct => Self::Direct,
            CachesArg::Keep => Self::Keep,
        }
    }
}

impl Measuring {
    pub(super) fn settings(&self, planning: &Planning) -> Settings {
        let sizes = match (planning.single, planning.sizes.is_empty()) {
            (Some(size), _) => vec![size],
            (None, true) => SIZES.to_vec(),
            (None, false) => planning.sizes.clone(),
        };
        let sets = if planning.single.is_some() { 1 } else { planning.sets };
        let plan = Plan { sizes, sets, scale: planning.scale, seed: planning.seed, random: planning.random };
        Settings {
            plan,
            request: self.request,
            caches: self.caches.into(),
            compressible: self.compressible,
            verify: self.verify,
            pause: self.pause,
        }
    }
}

impl Files {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        self.keeping.check()?;
        let settings = self.measuring.settings(&self.planning);
        let announced = Announced::new(&self.folder, &settings);
        let announced = announced.advise(Kind::Limit, || "`--scale 0.1` writes a tenth, `--sets` fewer files".to_owned())?;
        let wear = percent(announced.room.wear(announced.bytes));
        output.tell_plan(&format!(
            "{} of {} will be written to {} and read back; {} are free. A solid-state disk of this size is commonly rated for \
             being written 600 times: this is {wear} of that.",
            counted(announced.files.len() as u64, "file", "files"),
            bytes(announced.bytes),
            self.folder.display(),
            bytes(announced.room.free)
        ));
        if self.dry_run {
            return Ok(());
        }
        let bar = Bar::new(output);
        let report = folder::run(&self.folder, &settings, &announced, &bar)?;
        drop(bar);
        self.keeping.keep(&report, output)
    }
}

/// A small share.
pub(super) fn percent(share: f64) -> String {
    if share < 1e-5 { "less than 0.001 %".to_owned() } else { format!("{:.3} %", 100.0 * share) }
}
