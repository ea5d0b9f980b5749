//! Random operations on volumes compared with a model, with reopening and power failures, each
//! batch followed by a check.
//!
//! A seed determines everything, including the volume's size and kind, so that failures are
//! reproducible. If the volume and the model differ, a panic names the operation.

mod crash;
mod files;
mod life;
mod names;
mod nature;
mod world;

use crate::testing::Random;
use life::Life;

/// Statistics of test runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of operations, including those that were rightly refused.
    pub operations: u64,
    /// Number of operations refused because the volume was full.
    pub full: u64,
    /// Number of batches of operations, each followed by a comparison and a check.
    pub batches: u64,
    /// Number of power failures, at any write.
    pub cuts: u64,
}

impl Tally {
    /// Adds the statistics of another run.
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.full += other.full;
        self.batches += other.batches;
        self.cuts += other.cuts;
    }
}

/// Runs about so many operations on the HFS+ volume that `seed` determines; `each` is called after
/// every batch, and ends the run by returning `false`.
pub fn hfsplus(seed: u64, operations: u64, each: &mut dyn FnMut(&Tally) -> bool) -> Tally {
    let mut life = Life::begin(seed);
    while life.tally.operations < operations {
        life.batch();
        if !each(&life.tally) {
            break;
        }
    }
    life.end()
}

/// Describes the volume of a seed, for messages.
pub fn describe(seed: u64) -> String {
    format!("{:?}", nature::Nature::of(&mut Random::new(seed)))
}
