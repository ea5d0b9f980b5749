//! Return to a state, and undo.

use std::collections::BTreeMap;
use std::fs::{self, File};

use bandsaw::Kind;
use bandsaw::progress::Silent;
use bandsaw_states::{Change, RolledBack, Soundness, commit, roll_back, roll_back_plan};

use crate::common::{BANDS, Files, Fixture, MACHINE, contents, files, machine};
use crate::keep::ChangesOnce;

type Contents = BTreeMap<String, Vec<u8>>;

fn owned(files: &Files) -> Contents {
    files
        .iter()
        .map(|(name, file)| (name.clone(), file.0.clone()))
        .collect()
}

/// A bundle with states, with what each of them holds.
fn with_states(seed: u64, count: u64) -> (Fixture, Vec<(String, Contents)>) {
    let mut fixture = Fixture::new(seed);
    let mut states = Vec::new();
    for _ in 0..count {
        for _ in 0..2 {
            let band = fixture.random.below(BANDS);
            fixture.write_band(band);
        }
        let kept = fixture.keep();
        states.push((kept.id, owned(&fixture.files())));
    }
    (fixture, states)
}

/// Changes bytes of a file and leaves its time and length: rot.
fn rot(path: &std::path::Path, at: u64) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    let at = at as usize % bytes.len();
    bytes[at] ^= 0x40;
    let file = File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    file.set_modified(modified).unwrap();
}

/// Damages the bundle in one of several ways.
fn damage(fixture: &mut Fixture) {
    let path = fixture.path();
    let bytes = fixture.random.bytes(3000);
    let band = path.join(format!("bands/{:x}", fixture.random.below(BANDS)));
    match fixture.random.below(9) {
        0 => rot(&band, fixture.random.next()),
        1 => fs::write(&band, &bytes).unwrap(),
        2 => fs::remove_file(&band).unwrap(),
        3 => fs::write(path.join("bands/1f"), &bytes).unwrap(),
        4 => fs::write(path.join("Info.plist"), &bytes).unwrap(),
        5 => {
            fs::remove_file(path.join("Info.plist")).unwrap();
            fs::remove_file(path.join("Info.bckup")).unwrap();
        }
        6 => fs::write(path.join(MACHINE), &bytes).unwrap(),
        7 => fs::write(path.join("token"), &bytes).unwrap(),
        _ => (0..BANDS).step_by(2).for_each(|_| {
            let band = fixture.random.below(BANDS);
            fixture.write_band(band);
        }),
    }
}

#[test]
fn the_last_sound_state_comes_back_after_any_damage_and_the_undo_is_exact() {
    comes_back(30, 60);
}

#[test]
#[ignore = "full: a thousand damages"]
fn the_last_sound_state_comes_back_after_a_thousand_damages() {
    comes_back(31, 1000);
}

/// Damages a bundle with ten states `count` times, and returns to the last sound state each time.
fn comes_back(seed: u64, count: u64) {
    let (mut fixture, states) = with_states(seed, 10);
    for n in 0..count {
        let times = 1 + fixture.random.below(3);
        (0..times).for_each(|_| damage_if_possible(&mut fixture));
        // Now and then the newest states rot as well.
        let newest = fixture.state(&states[9].0);
        let rotten = n.is_multiple_of(3).then(|| {
            let band = newest.join(format!("bands/{:x}", fixture.random.below(BANDS)));
            let at = fixture.random.next();
            rot(&band, at);
            (band, at)
        });
        let is_intact =
            |(id, truth): &&(String, Contents)| owned(&files(&fixture.state(id))) == *truth;
        let expected = states.iter().rev().find(is_intact);
        let before = fixture.files();
        match (fixture.roll_back(None), expected) {
            (Ok(RolledBack::Done(plan)), Some((id, truth))) => {
                assert_eq!(plan.id, *id, "damage {n}");
                assert!(owned(&fixture.files()) == *truth, "damage {n}");
                if !plan.is_empty() {
                    fixture.undo().unwrap();
                    assert!(fixture.files() == before, "damage {n}");
                    fixture.roll_back(None).unwrap();
                    commit(&fixture.open().0, Change::RollBack).unwrap();
                    assert!(owned(&fixture.files()) == *truth, "damage {n}");
                }
            }
            (Err(error), None) => assert_eq!(error.kind(), Kind::NotFound),
            (done, expected) => panic!(
                "damage {n}: {done:?}, expected {:?}",
                expected.map(|state| &state.0)
            ),
        }
        if let Some((band, at)) = rotten {
            rot(&band, at);
        }
        for (id, truth) in &states {
            assert!(owned(&files(&fixture.state(id))) == *truth, "damage {n}");
        }
    }
}

/// Damages the bundle unless an earlier damage has taken what this one needs.
fn damage_if_possible(fixture: &mut Fixture) {
    let is_whole = (0..BANDS).all(|band| {
        fs::metadata(fixture.path().join(format!("bands/{band:x}")))
            .is_ok_and(|meta| meta.len() > 0)
    });
    let has_lists = ["Info.plist", "Info.bckup"]
        .iter()
        .all(|name| fixture.path().join(name).exists());
    if is_whole && has_lists {
        damage(fixture);
    }
}

#[test]
fn a_kill_at_any_moment_can_be_resumed_and_undone() {
    let mut resumed = 0;
    for at in 1.. {
        let (mut fixture, states) = with_states(31, 2);
        fixture.write_band(2);
        fixture.write_band(6);
        fs::remove_file(fixture.path().join("bands/4")).unwrap();
        fixture.write("bands/2a", b"stray");
        let before = fixture.files();
        if !fixture.killed("roll-back", at) {
            break;
        }
        // While files are moved nobody can open the bundle.
        let done = fixture.roll_back(None).unwrap();
        resumed += u64::from(matches!(done, RolledBack::Resumed(_)));
        assert!(owned(&fixture.files()) == states[1].1, "killed at {at}");
        fixture.undo().unwrap();
        assert!(fixture.files() == before, "killed at {at}");
        assert!(!fixture.path().join(".bandsaw/roll-back").exists());
    }
    assert!(resumed > 8, "{resumed}");
}

#[test]
fn a_killed_undo_is_completed() {
    let mut kills = 0;
    for at in 1.. {
        let (mut fixture, _) = with_states(32, 2);
        fixture.write_band(2);
        fs::remove_file(fixture.path().join("bands/4")).unwrap();
        let before = fixture.files();
        fixture.roll_back(None).unwrap();
        if !fixture.killed("undo", at) {
            break;
        }
        kills += 1;
        match fixture.roll_back(None).unwrap() {
            RolledBack::Undone => {}
            // Killed before the undo began, or after its end.
            other => {
                let done = fixture.undo();
                assert!(done.is_ok(), "{other:?}: {done:?}");
            }
        }
        assert!(fixture.files() == before, "killed at {at}");
    }
    assert!(kills > 5, "{kills}");
}

/// A resumed run must not move a backup away that was made after a kill near the end.
#[test]
fn a_backup_after_a_kill_is_never_moved() {
    for deed in ["roll-back", "undo"] {
        let (mut kept, mut refused) = (0, 0);
        for at in 1.. {
            let (mut fixture, _) = with_states(33, 2);
            fixture.write_band(2);
            if deed == "undo" {
                fixture.roll_back(None).unwrap();
            }
            if !fixture.killed(deed, at) {
                break;
            }
            if !fixture.path().join("Info.plist").exists() {
                continue; // no Mac opens it
            }
            for band in [2, 5] {
                fixture.write_band(band);
            }
            let newer = fixture.random.bytes(777);
            fixture.write("bands/7f", &newer);
            fixture.write(MACHINE, machine(1).as_bytes());
            let backup = fixture.files();
            let done = match deed {
                "undo" => fixture.undo(),
                // As of the state of before the roll-back, unless that had begun.
                _ if !fixture.path().join(".bandsaw/roll-back/plan.json").exists() => continue,
                _ => fixture.roll_back(None).map(drop),
            };
            match done {
                Ok(()) => kept += 1,
                Err(error) => {
                    assert!(
                        matches!(error.kind(), Kind::Conflict | Kind::NotFound),
                        "{error}"
                    );
                    refused += 1;
                }
            }
            assert!(fixture.files() == backup, "{deed} killed at {at}");
        }
        assert!(kept + refused > 1, "{deed}: {kept} {refused}");
    }
}

#[test]
fn a_bundle_that_changes_after_planning_is_not_rolled_back() {
    let (mut fixture, _) = with_states(34, 2);
    fixture.write_band(1);
    let (bundle, shelf) = fixture.open();
    let band = fixture.path().join("bands/3");
    let changing = ChangesOnce(&|| fs::write(&band, b"newer").unwrap(), Default::default());
    let done = roll_back(&bundle, &shelf, None, &changing);
    assert_eq!(done.unwrap_err().kind(), Kind::Conflict);
    assert_eq!(fs::read(&band).unwrap(), b"newer");
    assert!(!fixture.path().join(".bandsaw/roll-back").exists());
}

#[test]
fn a_second_roll_back_does_not_remove_what_the_first_keeps() {
    let (mut fixture, states) = with_states(35, 3);
    fixture.write_band(1);
    let before = fixture.files();
    fixture.roll_back(None).unwrap();
    for id in [None, Some(states[0].0.as_str())] {
        assert_eq!(fixture.roll_back(id).unwrap_err().kind(), Kind::Conflict);
    }
    fixture.undo().unwrap();
    assert!(fixture.files() == before);
    assert_eq!(fixture.undo().unwrap_err().kind(), Kind::NotFound);
    fixture.roll_back(Some(&states[0].0)).unwrap();
    assert!(owned(&fixture.files()) == states[0].1);
    commit(&fixture.open().0, Change::RollBack).unwrap();
    fixture.roll_back(None).unwrap();
    assert!(owned(&fixture.files()) == states[2].1);
}

#[test]
fn an_undo_after_a_new_backup_is_refused() {
    let (mut fixture, _) = with_states(36, 2);
    fixture.write_band(1);
    fixture.roll_back(None).unwrap();
    fixture.write_band(6);
    let backup = fixture.files();
    assert_eq!(fixture.undo().unwrap_err().kind(), Kind::Conflict);
    assert!(fixture.files() == backup);
    commit(&fixture.open().0, Change::RollBack).unwrap();
    assert!(fixture.files() == backup);
}

#[test]
fn a_roll_back_needs_the_locks_and_says_what_it_would_do() {
    use bandsaw::store::{Local, Lock, Store};
    let (mut fixture, states) = with_states(37, 2);
    fixture.write_band(1);
    fixture.write("bands/44", b"new");
    fs::remove_file(fixture.path().join("bands/2")).unwrap();
    let before = fixture.files();
    let (bundle, shelf) = fixture.open();
    let plan = roll_back_plan(&bundle, &shelf, None, &Silent).unwrap();
    assert_eq!(plan.id, states[1].0);
    assert_eq!(plan.replaced, ["bands/1"]);
    assert_eq!(plan.removed, ["bands/44"]);
    assert_eq!(plan.restored, ["bands/2"]);
    assert!(fixture.files() == before);
    let store = Local::new(fixture.path());
    let used = store.lock("lock", Lock::Exclusive).unwrap();
    assert_eq!(fixture.roll_back(None).unwrap_err().kind(), Kind::Conflict);
    drop(used);
    fixture.roll_back(None).unwrap();
    let used = store.lock("lock", Lock::Shared).unwrap();
    assert_eq!(fixture.undo().unwrap_err().kind(), Kind::Conflict);
    assert_eq!(
        commit(&bundle, Change::RollBack).unwrap_err().kind(),
        Kind::Conflict
    );
    drop(used);
}

#[test]
fn the_verification_state_is_reset_and_unsound_states_are_passed_over() {
    let mut fixture = Fixture::new(38);
    fixture.write(MACHINE, machine(2).as_bytes());
    let sound = fixture.keep();
    fixture.write_band(1);
    let unsound = fixture.keep_as(Soundness::Damaged).unwrap();
    let RolledBack::Done(plan) = fixture.roll_back(None).unwrap() else {
        panic!("not resumed");
    };
    assert_eq!((plan.id, plan.skipped), (sound.id, vec![unsound.id]));
    let list = fs::read_to_string(fixture.path().join(MACHINE)).unwrap();
    assert!(
        list.contains("<integer>0</integer>") && !list.contains("Declined"),
        "{list}"
    );
    assert!(list.contains("HostUUID"));
}

#[test]
fn hashes_of_bands_are_forgotten() {
    let (mut fixture, _) = with_states(39, 1);
    fixture.write_band(1);
    let hashes = fixture.path().join(".bandsaw/hashes.json");
    fs::write(&hashes, "of other contents").unwrap();
    fixture.roll_back(None).unwrap();
    assert!(!hashes.exists());
    fs::write(&hashes, "of other contents").unwrap();
    fixture.undo().unwrap();
    assert!(!hashes.exists());
    assert_eq!(contents(&fixture.files()).len(), fixture.files().len());
}
