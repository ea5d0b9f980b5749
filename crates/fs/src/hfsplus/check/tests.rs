//! Every kind of damage is found and correctly described.

use std::sync::Arc;

use super::check;
use super::corruptions::{ATTRIBUTES, CATALOG, Corruption, TREES, VOLUME};
use super::sample::Sample;
use crate::hfsplus::layout::{CatalogKey, Cnid};
use crate::hfsplus::unicode::decode_name;
use bandsaw_core::device::Memory;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Silent;

impl Sample {
    pub(in crate::hfsplus) fn check(&self) -> Vec<Problem> {
        check(Arc::new(Memory::read_only(self.bytes.clone())), &Silent).unwrap()
    }
}

#[test]
fn sound_volumes_are_found_sound() {
    for case_sensitive in [false, true] {
        let mut sample = Sample::new(case_sensitive);
        assert!(
            sample.tree(Cnid::CATALOG).tree_depth.get() > 1,
            "more than a root"
        );
        let found = sample.check();
        assert!(found.is_empty(), "{found:?}");
    }
}

fn expect_found(cases: &[Corruption], case_sensitive: bool) {
    for (damage, severity, words) in cases {
        let mut sample = Sample::new(case_sensitive);
        damage(&mut sample);
        let found = sample.check();
        let report = found.iter().any(|problem| {
            problem.severity == *severity && problem.error.to_string().contains(words)
        });
        assert!(report, "{severity:?} {words:?} expected, {found:#?}");
    }
}

#[test]
fn damage_to_the_volume_is_found() {
    expect_found(VOLUME, false);
}

#[test]
fn damage_to_trees_is_found() {
    expect_found(TREES, false);
}

#[test]
fn damage_to_the_catalog_is_found() {
    expect_found(CATALOG, false);
}

#[test]
fn damage_to_attributes_is_found() {
    expect_found(ATTRIBUTES, false);
}

#[test]
fn folders_that_count_folders_wrongly_are_found_where_they_must() {
    let wrong: Corruption = (
        |v| v.folder("folder", |raw| raw.folder_count = 9.into()),
        Severity::Warning,
        "records 9 folders",
    );
    let missing: Corruption = (
        |v| v.folder("folder", |raw| raw.flags = 0.into()),
        Severity::Warning,
        "does not record the number of folders",
    );
    expect_found(&[wrong, missing], true);
}

#[test]
fn a_folder_in_itself_is_found() {
    // The children and the thread of "inner" remain; only its parent becomes one of its
    // descendants.
    let mut sample = Sample::new(false);
    let mut inner = 0;
    sample.folder("inner", |raw| inner = raw.folder_id.get());
    let wanted = |record: &[u8]| decode_name(CatalogKey::split(record).unwrap().0.name) == "inner";
    sample.record(Cnid::CATALOG, wanted, |record| {
        record[2..6].copy_from_slice(&inner.to_be_bytes())
    });
    let found = sample.check();
    let report = |words: &str| {
        found
            .iter()
            .any(|problem| problem.error.to_string().contains(words))
    };
    assert!(
        report("contains itself") && report("does not sort after"),
        "{found:#?}"
    );
}

#[test]
fn a_volume_full_of_damage_is_told_within_bounds() {
    let mut sample = Sample::new(false);
    let start = sample.start(Cnid::ALLOCATION);
    sample.bytes[start..start + 250]
        .iter_mut()
        .enumerate()
        .for_each(|(at, byte)| *byte = if at % 2 == 0 { 0x55 } else { 0xAA });
    let found = sample.check();
    assert!(found.len() <= 1001, "{}", found.len());
    assert!(
        found
            .iter()
            .any(|problem| problem.severity == Severity::Damage)
    );
}
