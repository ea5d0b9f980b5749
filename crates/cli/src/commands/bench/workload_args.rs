//! The options of every run with files, in a folder or in images.

use std::path::{Path, PathBuf};

use bandsaw::size;
use bandsaw_bench::place::Caches;
use bandsaw_bench::plan::{Plan, SIZES};
use bandsaw_bench::report::{Report, Settings};
use clap::{Args, ValueEnum, ValueHint};

use super::result_files::ResultFiles;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;

/// The options of `bench files` and `bench images`.
#[derive(Debug, Args)]
pub(super) struct WorkloadArgs {
    /// The folder to measure in
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    planning: FileSelectionArgs,
    #[command(flatten)]
    measuring: MeasurementArgs,
    /// Show the plan, and do nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    files: ResultFiles,
}

impl WorkloadArgs {
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the settings, with a default pause in seconds and a default number of sets. Refuses results that could not be
    /// saved, before anything is measured.
    pub(super) fn settings(&self, pause: f64, sets: u32) -> Outcome<Settings> {
        self.files.check()?;
        Ok(self.measuring.settings(&self.planning, pause, sets))
    }

    /// Returns true if other files were selected.
    pub(super) fn chooses_files(&self) -> bool {
        let FileSelectionArgs {
            sizes,
            random,
            single,
            ..
        } = &self.planning;
        !sizes.is_empty() || random.is_some() || single.is_some()
    }

    /// Prints the plan, runs it unless this is a dry run, and saves and prints the results.
    pub(super) fn run(
        &self,
        plan: &str,
        output: &Output,
        run: impl FnOnce(&Bar) -> bandsaw::Result<Report>,
    ) -> Outcome {
        output.print_plan(plan);
        if self.dry_run {
            return Ok(());
        }
        let bar = Bar::new(output);
        let report = run(&bar)?;
        drop(bar);
        self.files.write_and_print(&report, output)
    }
}

/// The selection of files.
#[derive(Debug, Args)]
struct FileSelectionArgs {
    /// Set the number of passes over the sizes (default: 10)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sets: Option<u32>,
    /// Multiply every file size by this factor
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Use these file sizes instead of the default sixteen
    ///
    /// 2MB is decimal, 2m is binary.
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse, conflicts_with_all = ["random", "single"])]
    sizes: Vec<u64>,
    /// Use this many files per pass, of random size
    ///
    /// The sizes are between 2 MB and 2 GB.
    #[arg(long, value_name = "NUMBER", conflicts_with = "single", value_parser = clap::value_parser!(u32).range(1..=10_000), hide_short_help = true)]
    random: Option<u32>,
    /// Use one file of this size
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "sets", hide_short_help = true)]
    single: Option<u64>,
    /// Set the seed of the order and of random sizes
    ///
    /// The same seed gives the same files.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 1,
        hide_short_help = true
    )]
    seed: u64,
}

/// The manner of writing and reading.
#[derive(Debug, Args)]
struct MeasurementArgs {
    /// Set the size of each request, a multiple of 4096
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1m", hide_short_help = true)]
    request: u64,
    /// Handle the page cache between writing and reading
    #[arg(long, value_enum, default_value_t)]
    caches: CachesArg,
    /// Write data that can be compressed to about half
    #[arg(long, hide_short_help = true)]
    compressible: bool,
    /// Compare the data read with the data written
    ///
    /// The comparison is not part of the measured time.
    #[arg(long)]
    verify: bool,
    /// Set the pause between phases, in seconds
    ///
    /// The phases are writing, reading, and attaching an image again. The default is 10 for the
    /// protocols `rewrite` and `steady`, and 0 for others.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pause: Option<f64>,
}

/// The values of `--caches`.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum CachesArg {
    /// Drop cached files before reading; as root, the whole page cache if some of them stay
    #[default]
    Drop,
    /// Bypass the page cache
    Direct,
    /// Keep cached files
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

impl MeasurementArgs {
    fn settings(&self, planning: &FileSelectionArgs, pause: f64, sets: u32) -> Settings {
        let sizes = match (planning.single, planning.sizes.is_empty()) {
            (Some(size), _) => vec![size],
            (None, true) => SIZES.to_vec(),
            (None, false) => planning.sizes.clone(),
        };
        let sets = if planning.single.is_some() {
            1
        } else {
            planning.sets.unwrap_or(sets)
        };
        let plan = Plan {
            sizes,
            sets,
            scale: planning.scale,
            seed: planning.seed,
            random: planning.random,
        };
        Settings {
            plan,
            request: self.request,
            caches: self.caches.into(),
            compressible: self.compressible,
            verify: self.verify,
            pause: self.pause.unwrap_or(pause),
        }
    }
}

/// Parses a pause, which must be finite.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    const MAX_SECONDS: f64 = 86_400.0;
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=MAX_SECONDS).contains(seconds));
    seconds.ok_or_else(|| "expected seconds, 0 to 86400".to_owned())
}

/// Formats a small share as a percentage.
pub(super) fn percent(share: f64) -> String {
    if share < 1e-5 {
        "less than 0.001 %".to_owned()
    } else {
        format!("{:.3} %", 100.0 * share)
    }
}
