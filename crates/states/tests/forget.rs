//! Removing old states.

use std::fs;

use bandsaw::Kind;
use bandsaw::progress::Silent;
use bandsaw_states::{Forgotten, Policy, Soundness, forget};

use crate::common::Fixture;

const LAST: Policy = Policy {
    last: 1,
    daily: 0,
    weekly: 0,
};

fn run(fixture: &Fixture, policy: Policy, dry_run: bool) -> bandsaw::Result<Forgotten> {
    forget(&fixture.open().1, policy, dry_run, &Silent)
}

fn names(fixture: &Fixture) -> Vec<String> {
    let states = fixture.open().1.list().unwrap();
    states.into_iter().map(|state| state.id).collect()
}

#[test]
fn the_newest_sound_state_always_stays() {
    let mut fixture = Fixture::new(20);
    let mut ids = Vec::new();
    for soundness in [
        Soundness::Sound,
        Soundness::Sound,
        Soundness::Damaged,
        Soundness::Locked,
    ] {
        fixture.write_band(1);
        ids.push(fixture.keep_as(soundness).unwrap().id);
    }
    let planned = run(&fixture, LAST, true).unwrap();
    assert_eq!(names(&fixture), ids);
    let done = run(&fixture, LAST, false).unwrap();
    assert_eq!(done, planned);
    assert_eq!(done.kept, [ids[1].clone(), ids[3].clone()]);
    assert_eq!(names(&fixture), done.kept);
    assert_eq!(
        run(&fixture, Policy::default(), false).unwrap_err().kind(),
        Kind::Invalid
    );
}

#[test]
fn nothing_is_removed_without_a_whole_sound_state() {
    let mut fixture = Fixture::new(21);
    fixture.keep_as(Soundness::Damaged).unwrap();
    fixture.write_band(1);
    fixture.keep_as(Soundness::Unchecked).unwrap();
    assert_eq!(
        run(&fixture, LAST, false).unwrap_err().kind(),
        Kind::Conflict
    );
    fixture.write_band(1);
    let sound = fixture.keep();
    // Rot that leaves time and size as they were.
    let band = fixture.state(&sound.id).join("bands/1");
    let modified = fs::metadata(&band).unwrap().modified().unwrap();
    let mut bytes = fs::read(&band).unwrap();
    bytes[100] ^= 1;
    fs::write(&band, &bytes).unwrap();
    let file = fs::File::options().write(true).open(&band).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(
        run(&fixture, LAST, false).unwrap_err().kind(),
        Kind::Corrupt
    );
    assert_eq!(names(&fixture).len(), 3);
}

#[test]
fn states_that_are_not_whole_are_neither_counted_nor_removed() {
    let mut fixture = Fixture::new(22);
    let first = fixture.keep();
    fixture.write_band(1);
    let second = fixture.keep();
    fixture.write_band(1);
    let third = fixture.keep();
    fs::remove_file(fixture.state(&third.id).join("bands/1")).unwrap();
    let done = run(&fixture, LAST, false).unwrap();
    assert_eq!(done.kept, [second.id]);
    assert_eq!(done.removed, [first.id]);
    assert_eq!(done.ignored, [third.id]);
}

#[test]
fn days_and_weeks_keep_their_newest_state() {
    let fixture = Fixture::new(23);
    let ids: Vec<String> = (0..3).map(|_| fixture.keep().id).collect();
    let policy = Policy {
        last: 0,
        daily: 7,
        weekly: 2,
    };
    // All are of one day, unless the test runs at midnight.
    let done = run(&fixture, policy, false).unwrap();
    assert!(
        done.kept.contains(&ids[2]) && done.kept.len() <= 2,
        "{done:?}"
    );
}
