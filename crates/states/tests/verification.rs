//! The state of verification.

use std::fs;

use bandsaw::Kind;
use bandsaw::progress::Silent;
use bandsaw::store::{Local, Lock, Store};
use bandsaw_states::{Change, commit, reset_verification, undo, verification_state};

use crate::common::{Fixture, MACHINE, machine};

#[test]
fn a_reset_can_be_undone_exactly() {
    let fixture = Fixture::new(40);
    fixture.write(MACHINE, machine(2).as_bytes());
    let (bundle, _) = fixture.open();
    let before = fixture.files();
    assert_eq!(verification_state(&bundle).unwrap(), Some(2));
    let planned = reset_verification(&bundle, true, &Silent).unwrap();
    assert_eq!(planned.changed, [MACHINE]);
    assert!(fixture.files() == before);
    let (bundle, _) = fixture.open();
    assert_eq!(
        reset_verification(&bundle, false, &Silent).unwrap(),
        planned
    );
    assert_eq!(verification_state(&bundle).unwrap(), Some(0));
    assert!(
        reset_verification(&bundle, false, &Silent)
            .unwrap()
            .changed
            .is_empty()
    );
    undo(&bundle, Change::Verification, &Silent).unwrap();
    assert!(fixture.files() == before);
}

#[test]
fn undo_data_of_other_changes_stays() {
    let mut fixture = Fixture::new(41);
    fixture.write(MACHINE, machine(2).as_bytes());
    fixture.keep();
    fixture.write_band(3);
    let before = fixture.files();
    fixture.roll_back(None).unwrap();
    fixture.write(MACHINE, machine(2).as_bytes());
    let (bundle, _) = fixture.open();
    reset_verification(&bundle, false, &Silent).unwrap();
    // Another refusal, and the first reset not committed.
    fixture.write(MACHINE, machine(2).as_bytes());
    let again = reset_verification(&bundle, false, &Silent);
    assert_eq!(again.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(
        undo(&bundle, Change::Verification, &Silent)
            .unwrap_err()
            .kind(),
        Kind::Conflict
    );
    commit(&bundle, Change::Verification).unwrap();
    let old = fixture.path().join(".bandsaw/roll-back/old/bands/3");
    assert_eq!(fs::read(old).unwrap(), before["bands/3"].0);
}

#[test]
fn a_reset_needs_the_locks_and_a_list_that_can_be_read() {
    let fixture = Fixture::new(42);
    fixture.write(MACHINE, machine(2).as_bytes());
    let (bundle, _) = fixture.open();
    let store = Local::new(fixture.path());
    let used = store.lock("lock", Lock::Shared).unwrap();
    let refused = reset_verification(&bundle, false, &Silent);
    assert_eq!(refused.unwrap_err().kind(), Kind::Conflict);
    drop(used);
    fixture.write(MACHINE, b"no list");
    let refused = reset_verification(&bundle, false, &Silent);
    assert_eq!(refused.unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(
        verification_state(&bundle).unwrap_err().kind(),
        Kind::Corrupt
    );
    fs::remove_file(fixture.path().join(MACHINE)).unwrap();
    assert_eq!(verification_state(&bundle).unwrap(), None);
}
