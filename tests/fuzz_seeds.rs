//! The seeds of the fuzz targets, and corrupted copies of them, run through the fuzzed functions.

use std::collections::BTreeSet;
use std::panic::{catch_unwind, resume_unwind};
use std::path::Path;

use bandsaw::testing::fuzz::{TARGETS, Target};
use bandsaw::testing::{Random, mutate};

/// Number of corrupted copies of each seed.
const COPIES: u64 = 100;

fn replay(target: &Target) {
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty(), "{}", target.name);
    for (number, seed) in (0..).zip(&seeds) {
        run(target, seed);
        for copy in 0..COPIES {
            let mut random = Random::new(number << 32 | copy);
            run(target, &mutate::mutated(seed, &mut random));
        }
    }
}

/// Runs an input; a failing one is saved, as libFuzzer does, because some seeds contain random keys
/// and are not reproducible.
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(|| (target.run)(input)) {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
        std::fs::write(&kept, input).unwrap();
        eprintln!("the input is in {}", kept.display());
        resume_unwind(panic);
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

replays! {
    address size partition_map hfs_volume hfsplus_volume apfs_container apfs_node apfs_record apfs_keybag apfs_spaceman journal btree_node tar_import object_log info_plist udif udif_resources
    rebanding_plist udif_set codec encode crypt_header encrypted_archive apple_archive decmpfs decmpfs_pack bundle_model sparse_image asif hfsplus_change apfs_change foreign_free fat_volume exfat_volume core_storage core_storage_list iso9660 udf recover lost_volumes classic_image virtual_disk
}

/// `fuzz/` is a workspace of its own, which `cargo test` does not build.
#[test]
fn all_targets_are_fuzzed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for Target { name, .. } in TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"")),
            "{name} is not in fuzz/Cargo.toml"
        );
        let source =
            std::fs::read_to_string(folder.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("fuzz::{name}(")), "{name}");
    }
}
