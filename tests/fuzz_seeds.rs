//! What fuzzing begins with, and broken copies of it, through the functions that are fuzzed.

use std::collections::BTreeSet;
use std::path::Path;

use bandsaw::testing::fuzz::{TARGETS, Target};
use bandsaw::testing::{Random, mutate};

/// Broken copies of each seed.
const COPIES: u64 = 100;

fn replay(target: &Target) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{}", target.name);
    for (number, seed) in (0..).zip(&seeds) {
        (target.run)(seed);
        for copy in 0..COPIES {
            let mut random = Random::new(number << 32 | copy);
            (target.run)(&mutate::mutated(seed, &mut random));
        }
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(TARGETS.iter().find(|target| target.name == stringify!($name)).expect("a target of this name"));
        })*

        #[test]
        fn all_targets_are_here() {
            let here = BTreeSet::from([$(stringify!($name)),*]);
            assert_eq!(here, TARGETS.iter().map(|target| target.name).collect());
        }
    };
}

replays! { address size partition_map hfsplus_volume btree_node info_plist bundle_model }

/// `fuzz/` is a workspace of its own, which `cargo test` does not build.
#[test]
fn all_targets_are_fuzzed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for Target { name, .. } in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
        let source = std::fs::read_to_string(folder.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("fuzz::{name}(")), "{name}");
    }
}
