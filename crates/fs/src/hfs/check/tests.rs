//! Every kind of damage is found and correctly described.

use std::collections::BTreeSet;
use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

use super::check;
use super::corruptions::{CATALOG, HfsCorruption, TREES, VOLUME};
use super::sample::Sample;
use super::tree::HfsTree;
use crate::hfs::fixture::{Fixture, NewFile, ROOT, sample};
use crate::hfs::layout::CatalogKey;
use bandsaw_core::device::Memory;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Silent;
use bandsaw_testing::{Random, mutate};

fn problems(bytes: &[u8]) -> Vec<Problem> {
    check(Arc::new(Memory::read_only(bytes.to_vec())), &Silent).unwrap()
}

fn has(found: &[Problem], severity: Severity, words: &str) -> bool {
    found
        .iter()
        .any(|problem| problem.severity == severity && problem.error.to_string().contains(words))
}

#[test]
fn sound_volumes_are_found_sound() {
    let mut one_extent = Sample::new();
    assert!(one_extent.tree(HfsTree::Catalog).tree_depth.get() > 2);
    assert_eq!(one_extent.tree(HfsTree::Extents).tree_depth.get(), 1);
    for bytes in [
        one_extent.bytes,
        sample(),
        Fixture::new("Empty", 4096).build(),
    ] {
        let found = problems(&bytes);
        assert!(found.is_empty(), "{found:#?}");
    }
}

fn expect_found(cases: &[HfsCorruption]) {
    let mut missed = Vec::new();
    for (damage, severity, words) in cases {
        let mut sample = Sample::new();
        damage(&mut sample);
        let found = problems(&sample.bytes);
        if !has(&found, *severity, words) {
            missed.push(format!("{severity:?} {words:?} expected, {found:#?}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn damage_to_the_volume_is_found() {
    expect_found(VOLUME);
}

#[test]
fn damage_to_trees_is_found() {
    expect_found(TREES);
}

#[test]
fn damage_to_the_catalog_is_found() {
    expect_found(CATALOG);
}

/// Changes every byte of a structure. Those in `unjudged` are found sound: dates, Finder information,
/// reserved fields, and numbers that the change leaves possible. All others are found.
fn expect_judged(
    what: &str,
    len: usize,
    unjudged: &[Range<usize>],
    change: impl Fn(&mut Sample, usize),
) {
    let wrong = (0..len).filter(|&at| {
        let mut sample = Sample::new();
        change(&mut sample, at);
        let is_unjudged = unjudged.iter().any(|range| range.contains(&at));
        problems(&sample.bytes).is_empty() != is_unjudged
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
}

#[test]
fn every_byte_of_the_master_directory_block_is_judged_or_listed() {
    let unjudged = [
        6..12,   // date of modification, other attributes
        24..27,  // multiples of the block size
        30..34,  // numbers above the highest in use
        43..74,  // bytes after the name; backup, writes
        74..77,  // as 24..27
        78..81,  // as 24..27
        92..130, // Finder information, caches
    ];
    expect_judged("header", 162, &unjudged, |sample, at| {
        sample.bytes[1024 + at] ^= 0x80;
    });
}

#[test]
fn every_byte_of_a_node_is_judged_or_listed() {
    for tree in [HfsTree::Catalog, HfsTree::Extents] {
        expect_judged("tree header", 106, from_ref(&(30..106)), |sample, at| {
            sample.node(tree, 0)[14 + at] ^= 0x80;
        });
        expect_judged("first leaf", 14, from_ref(&(12..14)), |sample, at| {
            sample.node(tree, 1)[at] ^= 0x80;
        });
    }
    expect_judged("root", 14, from_ref(&(12..14)), |sample, at| {
        let root = sample.tree(HfsTree::Catalog).root_node.get();
        sample.node(HfsTree::Catalog, root)[at] ^= 0x80;
    });
}

#[test]
fn every_byte_of_a_record_is_judged_or_listed() {
    let flip = |record: &mut [u8], at: usize| {
        let start = record.len() - CatalogKey::split(record).unwrap().1.len();
        record[start + at] ^= 0x80;
    };
    expect_judged("folder", 70, &[1..4, 10..70], |sample, at| {
        sample.named("docs", |record| flip(record, at));
    });
    let unjudged = [
        1..20,  // reserved, flags but that of the thread, Finder information
        24..26, // unused
        29..30, // a length within the last block
        34..36,
        39..40,
        44..74,  // dates, Finder information, clump size
        98..102, // reserved
    ];
    expect_judged("file", 102, &unjudged, |sample, at| {
        sample.named("scattered", |record| flip(record, at));
    });
    expect_judged("thread", 46, &[1..10, 19..46], |sample, at| {
        sample.thread_of("deep", |data| data[at] ^= 0x80);
    });
}

#[test]
fn names_in_the_order_of_bytes_are_a_warning() {
    let mut fixture = Fixture::new("Order", 512).sort_bytes();
    for name in ["B", "a"] {
        fixture.file(ROOT, name, &NewFile::new(b""));
    }
    let found = problems(&fixture.build());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(has(&found, Severity::Warning, "out of order"), "{found:#?}");
}

#[test]
fn findings_name_objects_by_path() {
    let mut sample = Sample::new();
    sample.folder("deep", |raw| raw.valence = 77.into());
    sample.file("entry number 007", |raw| raw.file_type = 0);
    sample.file("entry number 008", |raw| raw.record_type = 9);
    let mut extents = None;
    sample.file("scattered", |raw| extents = Some(raw.data_extents[0]));
    sample.file("Read Me", |raw| raw.data_extents[0] = extents.unwrap());
    let found = problems(&sample.bytes);
    let paths: BTreeSet<_> = found
        .iter()
        .flat_map(|problem| problem.error.paths())
        .collect();
    for path in [
        "/docs/deep",
        "/docs/deep/Read Me",
        "/scattered",
        "/many/entry number 008",
    ] {
        assert!(paths.contains(path), "{path}: {found:#?}");
    }
}

#[test]
fn a_folder_in_itself_is_found() {
    let mut sample = Sample::new();
    let mut deep = 0;
    sample.folder("deep", |raw| deep = raw.folder_id.get());
    let wanted = |record: &[u8]| CatalogKey::split(record).unwrap().0.name == b"docs";
    sample.record(HfsTree::Catalog, wanted, |record| {
        record[2..6].copy_from_slice(&deep.to_be_bytes())
    });
    let found = problems(&sample.bytes);
    assert!(
        has(&found, Severity::Damage, "contains itself"),
        "{found:#?}"
    );
}

#[test]
fn a_volume_full_of_damage_is_reported_within_bounds() {
    let mut fixture = Fixture::new("Full", 512);
    for number in 0..600 {
        let folder = fixture.folder(ROOT, format!("folder {number:03}"));
        fixture.file(folder, "file", &NewFile::new(&[1; 100]));
        fixture.file(folder, "other", &NewFile::new(&[1; 100]));
    }
    let mut sample = Sample {
        bytes: fixture.build(),
    };
    assert!(problems(&sample.bytes).is_empty());
    let start = usize::from(sample.header().bitmap_start.get()) * 512;
    sample.bytes[start..start + 100].fill(0x55);
    for number in 0..600 {
        let name = format!("folder {number:03}");
        sample.folder(&name, |raw| raw.valence = 9.into());
        sample.thread_of(&name, |data| data[15] ^= 1);
    }
    let found = problems(&sample.bytes);
    assert!((2..=1001).contains(&found.len()), "{}", found.len());
    assert!(found.iter().any(|one| one.severity == Severity::Damage));
}

#[test]
fn damaged_copies_are_checked_without_a_panic() {
    let sound = sample();
    let (mut clean, mut damaged) = (0, 0);
    for copy in 0..1000 {
        let bytes = mutate::mutated(&sound, &mut Random::new(copy));
        match problems(&bytes).is_empty() {
            true => clean += 1,
            false => damaged += 1,
        }
    }
    // Otherwise the test would be void.
    assert!(clean > 20 && damaged > 500, "{clean} and {damaged}");
}
