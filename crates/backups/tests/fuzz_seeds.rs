//! The seeds of the fuzz target, and corrupted copies of them.

use bandsaw::testing::{Random, mutate};
use bandsaw_backups::testing::{seeds, time_machine_lists};

#[test]
fn seeds_and_broken_copies() {
    for (number, seed) in (0..).zip(seeds()) {
        time_machine_lists(&seed);
        for copy in 0..1000 {
            time_machine_lists(&mutate::mutated(
                &seed,
                &mut Random::new(number << 32 | copy),
            ));
        }
    }
}
