//! `cargo xtask fields`: a change of each field of each structure of small images, and then
//! `repair`, or with `--verbs` a verb that changes the image.

use std::time::Instant;

use anyhow::{Result, bail};
use bandsaw::testing::fields;

/// Change a field of an image, repair, compare every file and undo, for each field in turn.
#[derive(Debug, clap::Args)]
pub(crate) struct FieldsArgs {
    /// Number of cases.
    #[arg(long, default_value_t = 20_000)]
    cases: usize,
    /// Seed of the values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run only cases whose names contain this text.
    #[arg(long, default_value = "")]
    only: String,
    /// Run a verb that changes the image instead of the repair, put the field back and compare
    /// every file.
    #[arg(long)]
    verbs: bool,
}

pub(crate) fn run(args: &FieldsArgs) -> Result<()> {
    let start = Instant::now();
    let scratch = std::env::temp_dir().join(format!("bandsaw-fields-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let failures = if args.verbs {
        let report = fields::run_verbs(&scratch, args.cases, args.seed, &args.only);
        println!(
            "{:20} {:>8} {:>8} {:>8}",
            "verb", "refused", "harmless", "lost"
        );
        for (verb, counts) in &report.counts {
            let fields::VerbCounts {
                refused,
                harmless,
                lost,
            } = counts;
            println!("{verb:20} {refused:8} {harmless:8} {lost:8}");
        }
        println!("{} false refusals", report.false_refusals.len());
        [report.false_refusals, report.lost].concat()
    } else {
        let report = fields::run(&scratch, args.cases, args.seed, &args.only);
        for ((image, outcome), count) in &report.counts {
            println!("{image:20} {outcome:14} {count}");
        }
        report.failures
    };
    std::fs::remove_dir_all(&scratch)?;
    println!(
        "{} cases in {:.0} s",
        args.cases,
        start.elapsed().as_secs_f64()
    );
    if !failures.is_empty() {
        bail!(
            "{} cases cost a file, could not be undone or were refused without reason:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
    Ok(())
}
