//! Every kind of damage is found, and told as what it is.

use std::sync::Arc;

use super::damage::{CONTAINER, Case, FILES, SPACE, TREES, VOLUME};
use super::patient::Patient;
use crate::fs::apfs::Container;
use crate::problem::Problems;
use crate::progress::Silent;

const LEN: usize = 4 << 20;

fn check(patient: &Patient) -> Problems {
    let container = Arc::new(Container::open(patient.device(), None).unwrap());
    let mut problems = Problems::default();
    container
        .check("here", &|_| unreachable!(), &mut problems, &Silent)
        .unwrap();
    problems
}

#[test]
fn a_sound_container_is_found_sound() {
    let problems = check(&Patient::new(LEN));
    assert_eq!(problems.worst(), None, "{problems:#?}");
    let patient = Patient::new(LEN);
    assert_ne!(
        patient.files_root(),
        patient.first_leaf(),
        "more than a root"
    );
}

fn expect_found(cases: &[Case]) {
    let mut missed = Vec::new();
    for (damage, severity, words) in cases {
        let mut patient = Patient::new(LEN);
        damage(&mut patient);
        let problems = check(&patient);
        let told = problems.told().iter();
        if !told.clone().any(|problem| {
            problem.severity == *severity && problem.error.to_string().contains(words)
        }) {
            missed.push(format!(
                "{severity:?} {words:?} expected, {:#?}",
                problems.told()
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
