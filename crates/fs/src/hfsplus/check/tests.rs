//! Every kind of damage is found and correctly described.

use std::sync::Arc;

use super::check;
use super::corruptions::{ATTRIBUTES, CATALOG, Corruption, TREES, VOLUME};
use super::sample::Sample;
use crate::testing::corruption::warning;
use zerocopy::FromBytes;

use crate::hfsplus::layout::{CatalogKey, Cnid, FileRaw};
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
    let cases: [Corruption; 2] = [
        warning("records 9 folders", |v| {
            v.folder("folder", |raw| raw.folder_count = 9.into())
        }),
        warning("does not record the number of folders", |v| {
            v.folder("folder", |raw| raw.flags = 0.into())
        }),
    ];
    expect_found(&cases, true);
}

/// Returns the paths in the only finding with these words.
fn paths_of(sample: &Sample, words: &str) -> Vec<String> {
    let found = sample.check();
    let mut with = found
        .iter()
        .filter(|problem| problem.error.to_string().contains(words));
    let (Some(problem), None) = (with.next(), with.next()) else {
        panic!("{words:?} expected once, {found:#?}");
    };
    problem.error.paths().map(str::to_owned).collect()
}

#[test]
fn findings_name_objects_by_path() {
    let mut sample = Sample::new(false);
    sample.folder("inner", |raw| raw.valence = 77.into());
    sample.thread("file 3", |data| data[7] ^= 1);
    let mut extents = None;
    sample.file("file 5", |raw| {
        extents = Some(raw.data_fork.extents);
        raw.resource_fork.logical_size = 1.into();
    });
    let inner = ["/folder/inner".to_owned()];
    assert_eq!(paths_of(&sample, "records 77 entries"), inner);
    assert_eq!(
        paths_of(&sample, "but the object is in folder"),
        ["/folder/inner/file 3"]
    );
    assert_eq!(
        paths_of(&sample, "exceeds its 0 blocks"),
        ["/folder/inner/file 5"]
    );
    // Both users of blocks; the target of hard links by one of its names.
    let is_target = |record: &[u8]| {
        let name = decode_name(CatalogKey::split(record).unwrap().0.name);
        name.starts_with("iNode")
    };
    sample.record(Cnid::CATALOG, is_target, |record| {
        let at = record.len() - CatalogKey::split(record).unwrap().1.len();
        let (raw, _) = FileRaw::mut_from_prefix(&mut record[at..]).unwrap();
        raw.data_fork.extents = extents.unwrap();
    });
    let shared = paths_of(&sample, "are used by the data fork");
    let names = [
        "/first name",
        "/folder/second name",
        "/folder/inner/third name",
    ];
    assert_eq!(shared.len(), 2, "{shared:?}");
    assert!(shared.iter().any(|path| names.contains(&&**path)));
    assert!(shared.iter().any(|path| path == "/folder/inner/file 5"));
}

#[test]
fn a_path_that_cannot_be_read_is_left_out() {
    let mut sample = Sample::new(false);
    sample.folder("folder", |raw| raw.folder_id = 9000.into());
    sample.file("file 3", |raw| raw.resource_fork.logical_size = 1.into());
    assert!(paths_of(&sample, "exceeds its 0 blocks").is_empty());
    assert_eq!(paths_of(&sample, "object 9000 in folder 2"), ["/folder"]);
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
fn a_volume_full_of_damage_is_reported_within_bounds() {
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
