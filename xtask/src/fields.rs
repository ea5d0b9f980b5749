//! `cargo xtask fields`: `repair` after a change of each field of each structure of small images.

use std::time::Instant;

use anyhow::{Result, bail};
use bandsaw::testing::fields;

/// Change a field of an image, repair, compare every file and undo, for each field in turn.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of cases.
    #[arg(long, default_value_t = 20_000)]
    cases: usize,
    /// Seed of the values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only cases whose names contain this text.
    #[arg(long, default_value = "")]
    only: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let scratch = std::env::temp_dir().join(format!("bandsaw-fields-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let report = fields::run(&scratch, args.cases, args.seed, &args.only);
    std::fs::remove_dir_all(&scratch)?;
    for ((image, outcome), count) in &report.counts {
        println!("{image:20} {outcome:14} {count}");
    }
    println!(
        "{} cases in {:.0} s",
        args.cases,
        start.elapsed().as_secs_f64()
    );
    if !report.failures.is_empty() {
        bail!(
            "{} cases cost a file or could not be undone:\n{}",
            report.failures.len(),
            report.failures.join("\n")
        );
    }
    Ok(())
}
