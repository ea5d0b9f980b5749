//! `cargo xtask torture`: random operations on volumes compared with a model, for any duration.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bandsaw::testing::torture::{self, Tally};

/// Lives of HFS+ volumes: random operations, power cuts and checks. What fails is told with the
/// seed that does it again.
#[derive(Debug, clap::Args)]
pub(crate) struct TortureArgs {
    /// Operations in all.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// The first life's seed; those after it have the numbers that follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Operations of one life.
    #[arg(long, default_value_t = 5000)]
    life: u64,
    /// Lives that may fail before this gives up.
    #[arg(long, default_value_t = 1)]
    failures: usize,
}

pub(crate) fn run(args: &TortureArgs) -> Result<()> {
    let (start, mut reported) = (Instant::now(), Instant::now());
    let mut all = Tally::default();
    let mut failed = Vec::new();
    let mut seed = args.seed;
    let over = |all: &Tally| {
        all.operations >= args.ops || start.elapsed() >= Duration::from_secs(60 * args.minutes)
    };
    while !over(&all) && failed.len() < args.failures.max(1) {
        match catch_unwind(|| torture::hfsplus(seed, args.life, &mut |_| true)) {
            Ok(tally) => all.add(tally),
            Err(_) => {
                println!(
                    "life {seed} failed: {}; again: cargo xtask torture --seed {seed} --life {}",
                    torture::describe(seed),
                    args.life
                );
                failed.push(seed);
            }
        }
        seed += 1;
        if reported.elapsed() >= Duration::from_secs(60) {
            print(&all, args.seed..seed, start);
            reported = Instant::now();
        }
    }
    print(&all, args.seed..seed, start);
    if !failed.is_empty() {
        bail!(
            "{} of {} lives failed: seeds {failed:?}",
            failed.len(),
            seed - args.seed
        );
    }
    Ok(())
}

fn print(all: &Tally, seeds: std::ops::Range<u64>, start: Instant) {
    let Tally {
        operations,
        full,
        batches,
        cuts,
    } = all;
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!(
        "lives {} to {}: {operations} operations ({full} found the volume full), {batches} checks, {cuts} power cuts, {minutes:.1} minutes",
        seeds.start,
        seeds.end - 1
    );
}
