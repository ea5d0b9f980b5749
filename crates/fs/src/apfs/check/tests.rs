//! Tests that every kind of corruption is found and reported.

use std::sync::Arc;

use super::corruptions::{CONTAINER, Corruption, FILES, SPACE, TREES, VOLUME};
use super::sample::Sample;
use crate::apfs::Container;
use bandsaw_core::problem::Problems;
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
