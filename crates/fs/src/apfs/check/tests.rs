//! Tests that every kind of corruption is found and reported.

use std::sync::Arc;

use super::corruptions::{CONTAINER, Corruption, FILES, SPACE, TREES, VOLUME};
use super::sample::Sample;
use crate::apfs::Container;
use bandsaw_core::problem::{Problem, Problems};
use bandsaw_core::progress::Silent;

const LEN: usize = 4 << 20;

fn check(sample: &Sample) -> Problems {
    let container = Arc::new(Container::open(sample.device(), None).unwrap());
    let mut problems = Problems::default();
    container
        .check("here", &|_| unreachable!(), &mut problems, &Silent)
        .unwrap();
    problems
}

#[test]
fn a_sound_container_is_found_sound() {
    let problems = check(&Sample::new(LEN));
    assert_eq!(problems.worst(), None, "{problems:#?}");
    let sample = Sample::new(LEN);
    assert_ne!(sample.files_root(), sample.first_leaf(), "more than a root");
}

fn expect_found(cases: &[Corruption]) {
    let mut missed = Vec::new();
    for (damage, severity, words) in cases {
        let mut sample = Sample::new(LEN);
        damage(&mut sample);
        let problems = check(&sample);
        let report = problems.listed().iter();
        if !report.clone().any(|problem| {
            problem.severity == *severity && problem.error.to_string().contains(words)
        }) {
            missed.push(format!(
                "{severity:?} {words:?} expected, {:#?}",
                problems.listed()
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// A modification of a container, words of the finding, and the paths in it.
type NamedFinding = (fn(&mut Sample), &'static str, &'static [&'static str]);

#[test]
fn findings_name_objects_by_path() {
    let cases: [NamedFinding; 5] = [
        (
            |p| p.inode("folder", |raw| raw.children_or_links = 3.into()),
            "records 3 entries",
            &["/folder"],
        ),
        (
            |p| p.inode("folder/inner", |raw| raw.children_or_links = 3.into()),
            "records 3 entries",
            &["/folder/inner"],
        ),
        (
            |p| p.stream("with attributes", |raw| raw.size = 99_999.into()),
            "but its extents have only 4096",
            &["/with attributes"],
        ),
        (
            |p| p.extent("with attributes", |raw| raw.len_and_flags = 100.into()),
            "both must be multiples of the block size",
            &["/with attributes"],
        ),
        // The folder has no such entry.
        (
            |p| p.inode("with attributes", |raw| raw.parent_id = 3.into()),
            "records another name or folder",
            &[],
        ),
    ];
    for (damage, words, paths) in cases {
        let mut sample = Sample::new(LEN);
        damage(&mut sample);
        let problems = check(&sample);
        let is_meant = |problem: &&Problem| problem.error.to_string().contains(words);
        let found: Vec<_> = problems.listed().iter().filter(is_meant).collect();
        let [problem] = found[..] else {
            panic!("{words:?} expected once, {problems:#?}");
        };
        assert!(
            problem.error.paths().eq(paths.iter().copied()),
            "{problem:?}"
        );
    }
}

#[test]
fn damage_to_the_container_is_found() {
    expect_found(CONTAINER);
}

#[test]
fn damage_to_the_space_manager_is_found() {
    expect_found(SPACE);
}

#[test]
fn damage_to_trees_is_found() {
    expect_found(TREES);
}

#[test]
fn damage_to_files_is_found() {
    expect_found(FILES);
}

#[test]
fn damage_to_a_volume_is_found() {
    expect_found(VOLUME);
}
