//! Lives of volumes: random operations beside a model, with reopenings and power cuts, each batch
//! followed by a check.
//!
//! A seed decides everything of a life, the volume's size and kind included, so what fails once
//! fails again. Where the volume and the model part, a panic says at which operation.

mod crash;
mod files;
mod life;
mod names;
mod nature;
mod world;

use crate::testing::Random;
use life::Life;

/// What lives have been through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations, those included that were rightly refused.
    pub operations: u64,
    /// Operations refused because the volume was full.
    pub full: u64,
    /// Batches of operations, each followed by a comparison and a check.
    pub batches: u64,
    /// Power cuts, at any write.
    pub cuts: u64,
}

impl Tally {
    /// Adds what another life has been through.
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.full += other.full;
        self.batches += other.batches;
        self.cuts += other.cuts;
    }
}

/// The life of an HFS+ volume that `seed` decides, of about so many operations; `each` hears of
/// every batch, and ends the life by `false`.
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

/// What the volume of a life is like, in words.
pub fn describe(seed: u64) -> String {
    format!("{:?}", nature::Nature::of(&mut Random::new(seed)))
}
