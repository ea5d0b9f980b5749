//! The seeds of the fuzz target, and corrupted copies of them.

use bandsaw::testing::{Random, mutate};
use bandsaw_nbd::testing::{seeds, session};

#[test]
fn seeds_and_broken_copies() {
    for (number, seed) in (0..).zip(seeds()) {
        session(&seed);
        for copy in 0..300 {
            session(&mutate::mutated(
                &seed,
                &mut Random::new(number << 32 | copy),
            ));
        }
    }
}
