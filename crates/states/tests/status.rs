//! The next step.

use std::fs;

use bandsaw_states::{Change, Soundness, Status, commit, status};

use crate::common::{Fixture, MACHINE, machine};

#[test]
fn the_most_urgent_step_comes_first() {
    let mut fixture = Fixture::new(50);
    let next = |fixture: &Fixture| {
        let (bundle, shelf) = fixture.open();
        status(&bundle, &shelf).unwrap()
    };
    assert_eq!(next(&fixture), Status::NoState(None));
    fixture.keep_as(Soundness::Damaged).unwrap();
    let unsound = Status::NoState(Some(Soundness::Damaged));
    assert_eq!(next(&fixture), unsound);
    let id = fixture.keep().id;
    assert_eq!(next(&fixture), Status::Kept(id.clone()));
    fixture.write_band(3);
    assert_eq!(next(&fixture), Status::Changed(id.clone()));
    fixture.write(MACHINE, machine(2).as_bytes());
    assert_eq!(next(&fixture), Status::Refused(Some(id.clone())));
    fixture.write(MACHINE, b"damaged");
    assert_eq!(next(&fixture), Status::Refused(Some(id.clone())));
    fixture.roll_back(None).unwrap();
    assert_eq!(next(&fixture), Status::Uncommitted(Change::RollBack));
    commit(&fixture.open().0, Change::RollBack).unwrap();
    assert_eq!(next(&fixture), Status::Changed(id.clone()));
    fs::remove_file(fixture.path().join("Info.plist")).unwrap();
    assert_eq!(next(&fixture), Status::Refused(Some(id)));
}

#[test]
fn an_interrupted_change_is_reported() {
    let mut seen = false;
    for at in 1.. {
        let mut fixture = Fixture::new(51);
        fixture.keep();
        fixture.write_band(3);
        if !fixture.killed("roll-back", at) {
            break;
        }
        let (bundle, shelf) = fixture.open();
        let next = status(&bundle, &shelf).unwrap();
        let is_interrupted = next == Status::Interrupted(Change::RollBack);
        assert!(is_interrupted || fixture.path().join("Info.plist").exists());
        seen |= is_interrupted && next.needs_attention();
    }
    assert!(seen);
}
