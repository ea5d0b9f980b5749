//! What is asked of every run of files, in a folder or in images: where, which files, how, and
//! where the results go.

use std::path::{Path, PathBuf};

use bandsaw::size;
use bandsaw_bench::place::Caches;
use bandsaw_bench::plan::{Plan, SETS, SIZES};
use bandsaw_bench::report::{Report, Settings};
use clap::{Args, ValueEnum, ValueHint};

use super::kept::Keeping;
use crate::failure::Outcome;
use crate::output::Output;
use crate::progress::Bar;

/// What `bench files` and `bench images` have in common.
#[derive(Debug, Args)]
pub(super) struct Asked {
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

impl Asked {
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is measured, with so many seconds of rest where none were asked for. Refuses results
    /// that could not be kept, before anything is measured.
    pub(super) fn settings(&self, pause: f64) -> Outcome<Settings> {
        self.keeping.check()?;
        Ok(self.measuring.settings(&self.planning, pause))
    }

    /// Returns whether files were asked for, but for how large they are.
    pub(super) fn chooses_files(&self) -> bool {
        let Planning {
            sets,
            sizes,
            random,
            single,
            ..
        } = &self.planning;
        sets.is_some() || !sizes.is_empty() || random.is_some() || single.is_some()
    }

    /// Says what will be done, does it unless only that was wanted, and keeps and tells the
    /// results.
    pub(super) fn run(
        &self,
        plan: &str,
        output: &Output,
        run: impl FnOnce(&Bar) -> bandsaw::Result<Report>,
    ) -> Outcome {
        output.tell_plan(plan);
        if self.dry_run {
            return Ok(());
        }
        let bar = Bar::new(output);
        let report = run(&bar)?;
        drop(bar);
        self.keeping.keep(&report, output)
    }
}

/// Which files.
#[derive(Debug, Args)]
struct Planning {
    /// How often the sizes are gone through [default: 10]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sets: Option<u32>,
    /// What every size is multiplied by; the number of files stays
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// The sizes of a set, in the place of the sixteen; 2MB is a million bytes times two, 2m is
    /// binary
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
struct Measuring {
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
    /// Rest so long between writing and reading, and around attaching an image anew [default: 10
    /// for the protocols `rewrite` and `steady`, otherwise none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pause: Option<f64>,
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
    fn settings(&self, planning: &Planning, pause: f64) -> Settings {
        let sizes = match (planning.single, planning.sizes.is_empty()) {
            (Some(size), _) => vec![size],
            (None, true) => SIZES.to_vec(),
            (None, false) => planning.sizes.clone(),
        };
        let sets = if planning.single.is_some() {
            1
        } else {
            planning.sets.unwrap_or(SETS)
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

/// A rest that ends.
fn seconds(text: &str) -> Result<f64, String> {
    const MOST: f64 = 86_400.0;
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| (0.0..=MOST).contains(seconds));
    seconds.ok_or_else(|| "seconds, from 0 to 86400".to_owned())
}

/// A small share.
pub(super) fn percent(share: f64) -> String {
    if share < 1e-5 {
        "less than 0.001 %".to_owned()
    } else {
        format!("{:.3} %", 100.0 * share)
    }
}
