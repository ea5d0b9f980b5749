//! A short run of the torture test; `cargo xtask torture` runs many long ones.

use bandsaw::testing::torture::{Tally, hfsplus};

/// Operations of each life.
const OPERATIONS: u64 = 600;

fn lives(seeds: std::ops::Range<u64>) {
    let mut all = Tally::default();
    for seed in seeds {
        all.add(hfsplus(seed, OPERATIONS, &mut |_| true));
    }
    assert!(
        all.cuts > 0 && all.full > 0 && all.full < all.operations / 4,
        "{all:?}"
    );
}

#[test]
fn volumes_are_what_they_should_be() {
    lives(0..12);
}

#[test]
fn other_volumes_are_what_they_should_be() {
    lives(12..24);
}
