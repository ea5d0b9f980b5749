//! Power cuts at every write, sync and rename of what changes bundles and their states.
//!
//! The code is the one that ships, over a simulated host: after a cut the bundle is as before or as
//! after, or the verb resumes or undoes to one of these, and every state keeps its contents.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::BlockDeviceExt;
use bandsaw::progress::Silent;
use bandsaw::store::{HostStore, Open, Put, Store, names_in};
use bandsaw_states::{
    BundleFolder, Change, Condition, Have, KeepOptions, KeepReport, Policy, RolledBack, Shelf,
    Soundness, commit, forget, have_in, keep, receive_in, reset_verification, roll_back, send,
    undo, verification_state,
};
use bandsaw_testing::PowerCut;

use crate::common::{MACHINE, Random, machine};

const BUNDLE: &str = "b.sparsebundle";
const TARGET: &str = "target";
/// Random cuts at each point, in addition to the two extremes.
const EACH: u64 = 12;

type Contents = BTreeMap<String, Vec<u8>>;
/// Contents, modification time and number of each file.
type Files = BTreeMap<String, (Vec<u8>, i64, u64)>;

fn new_bundle(seed: u64) -> PowerCut {
    let cut = PowerCut::default();
    let options = BundleOptions {
        len: 6 << 20,
        band_size: Some(1 << 20),
    };
    drop(Bundle::create(Arc::new(cut.folder(BUNDLE)), &options).unwrap());
    let mut random = Random::new(seed);
    for band in 0..5 {
        write(&cut, &format!("bands/{band}"), &random.bytes(700));
    }
    write(&cut, MACHINE, machine(0).as_bytes());
    cut
}

/// Writes a file of the bundle, durably.
fn write(cut: &PowerCut, name: &str, bytes: &[u8]) {
    cut.put(&format!("{BUNDLE}/{name}"), bytes, Put::Replace)
        .unwrap();
    cut.sync().unwrap();
}

fn open(cut: &PowerCut) -> (BundleFolder, Shelf) {
    let bundle = BundleFolder::in_store(Arc::new(cut.folder(BUNDLE))).unwrap();
    let shelf = Shelf::of(&bundle, None).unwrap();
    (bundle, shelf)
}

fn try_keep(cut: &PowerCut) -> KeepReport {
    let (bundle, shelf) = open(cut);
    let options = KeepOptions {
        whole_copy: true,
        check: Some(&|_| Ok(Soundness::Sound)),
    };
    keep(&bundle, &shelf, &options, &Silent).unwrap()
}

fn try_roll_back(cut: &PowerCut) -> bandsaw::Result<RolledBack> {
    let (bundle, shelf) = open(cut);
    roll_back(&bundle, &shelf, None, &Silent)
}

fn try_undo(cut: &PowerCut) -> bandsaw::Result<()> {
    undo(&open(cut).0, Change::RollBack, &Silent)
}

/// Returns the files in a folder but those that only Bandsaw uses.
fn files(cut: &PowerCut, folder: &str) -> Files {
    let store = cut.folder(folder);
    let mut names = Vec::new();
    let listed = store.list("", &mut |entry| {
        names.push(entry.name.to_owned());
        Ok(())
    });
    listed.unwrap();
    names.retain(|name| !name.starts_with(".bandsaw/") && name != "lock");
    let read = |name: String| {
        let file = store.open(&name, Open::Read).unwrap().unwrap();
        let found = store.attributes(&name).unwrap().unwrap();
        let bytes = file.read_vec(0, found.len as usize).unwrap();
        (name, (bytes, found.modified, found.inode))
    };
    names.into_iter().map(read).collect()
}

fn contents(cut: &PowerCut, folder: &str) -> Contents {
    let files = files(cut, folder).into_iter();
    files.map(|(name, file)| (name, file.0)).collect()
}

fn state(id: &str) -> String {
    format!("{BUNDLE}/.bandsaw/states/{id}")
}

/// Checks that all visible states of a shelf are whole, and returns their names.
fn whole_states(shelf: &Shelf, place: &str) -> Vec<String> {
    let whole = |state: bandsaw_states::State| match &state.condition {
        Condition::Whole(manifest) => {
            let damaged = shelf.verify(&state.id, manifest, &Silent).unwrap();
            assert!(damaged.is_empty(), "{place}: {damaged:?} of {}", state.id);
            state.id
        }
        other => panic!("{place}: {} is {other:?}", state.id),
    };
    shelf.list().unwrap().into_iter().map(whole).collect()
}

/// A bundle with states, whose contents were changed in several ways since; what each state holds.
fn changed_bundle(seed: u64, count: usize) -> (PowerCut, Vec<(String, Contents)>) {
    change(new_bundle(seed), seed, count)
}

fn change(cut: PowerCut, seed: u64, count: usize) -> (PowerCut, Vec<(String, Contents)>) {
    let mut random = Random::new(seed);
    let mut states = Vec::new();
    for n in 0..count {
        write(&cut, &format!("bands/{}", n % 5), &random.bytes(800));
        let kept = try_keep(&cut);
        states.push((kept.id, contents(&cut, BUNDLE)));
    }
    write(&cut, "bands/2", &random.bytes(900));
    write(&cut, "bands/2a", b"stray");
    if cut.stat(&format!("{BUNDLE}/{MACHINE}")).unwrap().is_some() {
        write(&cut, MACHINE, machine(2).as_bytes());
    }
    cut.remove(&format!("{BUNDLE}/bands/4")).unwrap();
    cut.sync().unwrap();
    (cut, states)
}

fn check_states(cut: &PowerCut, states: &[(String, Contents)], place: &str) {
    let found = whole_states(&open(cut).1, place);
    let ids: Vec<&String> = states.iter().map(|(id, _)| id).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), ids, "{place}");
    for (id, truth) in states {
        assert!(contents(cut, &state(id)) == *truth, "{place}: {id}");
    }
}

/// Runs `check` with every cut since `begun`; with the message and true if the work had ended.
fn each_cut(cut: &PowerCut, begun: usize, check: &mut dyn FnMut(&PowerCut, &str, bool)) -> u64 {
    let mut count = 0;
    for crash in cut.crashes_from(begun, begun as u64, EACH) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        check(&crash.store, &place, crash.position == cut.position());
        count += 1;
    }
    count
}

/// Returns the same store, independent of it.
fn copy(cut: &PowerCut) -> PowerCut {
    cut.crash(bandsaw_testing::power_cut::Keep::Everything)
}

#[test]
fn a_state_is_whole_or_absent() {
    for earlier in 0..3 {
        let (cut, mut states) = changed_bundle(80 + earlier, earlier as usize);
        let live = files(&cut, BUNDLE);
        let truth = contents(&cut, BUNDLE);
        let begun = cut.position();
        let new = try_keep(&cut);
        states.push((new.id, truth.clone()));
        let (mut present, mut absent) = (0, 0);
        each_cut(&cut, begun, &mut |cut, place, is_end| {
            let place = format!("{earlier} states, {place}");
            let found = whole_states(&open(cut).1, &place).len();
            check_states(cut, &states[..found], &place);
            assert!(found >= earlier as usize, "{place}");
            assert!(!is_end || found == states.len(), "{place}: not durable");
            present += u64::from(found == states.len());
            absent += u64::from(found < states.len());
            assert!(files(cut, BUNDLE) == live, "{place}");
            let again = try_keep(cut);
            assert!(contents(cut, &state(&again.id)) == truth, "{place}");
            let left = names_in(&cut.folder(&state("")), "").unwrap().unwrap();
            let hidden = |name: &std::ffi::OsString| name.to_string_lossy().starts_with('.');
            assert!(!left.iter().any(hidden), "{place}: {left:?}");
        });
        assert!(present > 4 && absent > 50, "{present} {absent}");
    }
}

#[test]
fn a_roll_back_is_resumed_and_undone_from_wherever_the_power_went() {
    let (cut, states) = changed_bundle(83, 2);
    roll_back_with_cuts(&cut, &states);
    // With one list alone nothing but the sync before it makes the bands durable.
    let cut = new_bundle(89);
    cut.remove(&format!("{BUNDLE}/{MACHINE}")).unwrap();
    cut.sync().unwrap();
    let (cut, states) = change(cut, 89, 2);
    roll_back_with_cuts(&cut, &states);
}

fn roll_back_with_cuts(cut: &PowerCut, states: &[(String, Contents)]) {
    let (before, after) = (files(cut, BUNDLE), states[1].1.clone());
    let old = contents(cut, BUNDLE);
    let begun = cut.position();
    assert!(matches!(try_roll_back(cut), Ok(RolledBack::Done(_))));
    assert!(contents(cut, BUNDLE) == after);
    let (mut resumed, mut undone, mut untouched) = (0, 0, 0);
    each_cut(cut, begun, &mut |cut, place, is_end| {
        check_states(cut, states, place);
        let found = contents(cut, BUNDLE);
        assert!(!is_end || found == after, "{place}: not durable");
        // With the list that every bundle has, one of the two bundles is whole.
        let bands = |files: &Contents| -> Contents {
            let bands = files.iter().filter(|(name, _)| name.starts_with("bands/"));
            bands
                .map(|(name, bytes)| (name.clone(), bytes.clone()))
                .collect()
        };
        if found.contains_key("Info.plist") {
            let bands_found = bands(&found);
            assert!(
                bands_found == bands(&old) || bands_found == bands(&after),
                "{place}: {:?}",
                found.keys()
            );
        }
        let other = copy(cut);
        match try_undo(&other) {
            Ok(()) => undone += 1,
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::NotFound | Kind::Conflict),
                    "{place}: {error}"
                );
                untouched += 1;
            }
        }
        assert!(files(&other, BUNDLE) == before, "{place}");
        match try_roll_back(cut) {
            Ok(RolledBack::Resumed(_)) => resumed += 1,
            Ok(RolledBack::Done(_)) => {}
            // Complete, or others seem to have used the bundle before a file was moved.
            Err(error) => {
                assert_eq!(error.kind(), Kind::Conflict, "{place}: {error}");
                if contents(cut, BUNDLE) != after {
                    assert!(files(cut, BUNDLE) == before, "{place}");
                    assert!(try_roll_back(cut).is_ok(), "{place}");
                }
            }
            Ok(other) => panic!("{place}: {other:?}"),
        }
        assert!(contents(cut, BUNDLE) == after, "{place}");
        check_states(cut, states, place);
        try_undo(cut).unwrap();
        assert!(files(cut, BUNDLE) == before, "{place}");
        assert!(
            cut.folder(BUNDLE)
                .attributes(".bandsaw/roll-back")
                .unwrap()
                .is_none()
        );
    });
    assert!(
        resumed > 30 && undone > 30 && untouched > 30,
        "{resumed} {undone} {untouched}"
    );
}

#[test]
fn an_undo_is_completed_from_wherever_the_power_went() {
    let (cut, states) = changed_bundle(84, 2);
    let before = files(&cut, BUNDLE);
    try_roll_back(&cut).unwrap();
    let begun = cut.position();
    try_undo(&cut).unwrap();
    let (mut completed, mut ended) = (0, 0);
    each_cut(&cut, begun, &mut |cut, place, is_end| {
        check_states(cut, &states, place);
        assert!(
            !is_end || files(cut, BUNDLE) == before,
            "{place}: not durable"
        );
        match try_undo(cut) {
            Ok(()) => completed += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{place}: {error}");
                ended += 1;
            }
        }
        assert!(files(cut, BUNDLE) == before, "{place}");
        check_states(cut, &states, place);
    });
    assert!(completed > 30 && ended > 2, "{completed} {ended}");
}

#[test]
fn a_commit_leaves_the_bundle_as_it_is() {
    let (cut, states) = changed_bundle(85, 2);
    let before = files(&cut, BUNDLE);
    try_roll_back(&cut).unwrap();
    let after = files(&cut, BUNDLE);
    let begun = cut.position();
    commit(&open(&cut).0, Change::RollBack).unwrap();
    let (mut undone, mut committed) = (0, 0);
    each_cut(&cut, begun, &mut |cut, place, is_end| {
        assert!(files(cut, BUNDLE) == after, "{place}");
        check_states(cut, &states, place);
        match try_undo(cut) {
            Ok(()) => {
                undone += 1;
                assert!(!is_end, "{place}: not durable");
                assert!(files(cut, BUNDLE) == before, "{place}");
            }
            Err(error) => {
                committed += 1;
                assert_eq!(error.kind(), Kind::NotFound, "{place}: {error}");
                assert!(files(cut, BUNDLE) == after, "{place}");
                assert!(
                    matches!(try_roll_back(cut), Ok(RolledBack::Done(_))),
                    "{place}"
                );
            }
        }
    });
    assert!(undone > 2 && committed > 10, "{undone} {committed}");
}

#[test]
fn states_are_forgotten_one_by_one() {
    let (cut, states) = changed_bundle(86, 3);
    let live = files(&cut, BUNDLE);
    let begun = cut.position();
    let policy = Policy {
        last: 1,
        ..Policy::default()
    };
    let forgotten = |cut: &PowerCut| forget(&open(cut).1, policy, false, &Silent).unwrap();
    assert_eq!(forgotten(&cut).removed.len(), 2);
    let mut counts = [0; 4];
    each_cut(&cut, begun, &mut |cut, place, is_end| {
        let found = whole_states(&open(cut).1, place).len();
        counts[found] += 1;
        // The oldest first.
        check_states(cut, &states[states.len() - found..], place);
        assert!(!is_end || found == 1, "{place}: not durable");
        assert!(files(cut, BUNDLE) == live, "{place}");
        forgotten(cut);
        check_states(cut, &states[2..], place);
    });
    assert!(
        counts[0] == 0 && counts[1..].iter().all(|n| *n > 2),
        "{counts:?}"
    );
}

#[test]
fn a_state_that_is_received_is_whole_or_resumed() {
    let (cut, states) = changed_bundle(87, 2);
    let arrived = |id: &str| format!("{TARGET}/{BUNDLE}/{id}");
    let whole = |cut: &PowerCut| -> Vec<String> {
        let store = cut.folder(&format!("{TARGET}/{BUNDLE}"));
        let names = names_in(&store, "").unwrap().into_iter().flatten();
        let names = names.map(|name| name.into_string().unwrap());
        names
            .filter(|name| !name.starts_with('.') && name != "lock")
            .collect()
    };
    let send_to = |cut: &PowerCut, id: &str, have: &Have| {
        let mut stream = Vec::new();
        send(&open(cut).1, Some(id), have, &mut stream, &Silent).unwrap();
        receive_in(&cut.folder(TARGET), &mut &stream[..], &Silent)
    };
    let missing = |cut: &PowerCut| have_in(&cut.folder(TARGET), BUNDLE, &Silent).unwrap();
    for earlier in 0..2 {
        let (id, truth) = &states[earlier];
        let known = missing(&cut);
        let begun = cut.position();
        send_to(&cut, id, &known).unwrap();
        let (mut present, mut resumed) = (0, 0);
        each_cut(&cut, begun, &mut |cut, place, is_end| {
            let place = format!("{earlier} states, {place}");
            let found = whole(cut);
            assert!(
                (earlier..=earlier + 1).contains(&found.len()),
                "{place}: {found:?}"
            );
            for (id, truth) in &states[..found.len()] {
                assert!(contents(cut, &arrived(id)) == *truth, "{place}");
            }
            assert!(
                !is_end || found.len() == earlier + 1,
                "{place}: not durable"
            );
            present += u64::from(found.len() > earlier);
            let known = missing(cut);
            resumed += u64::from(!known.have.is_empty());
            let received = send_to(cut, id, &known);
            assert!(received.is_ok(), "{place}: {received:?}");
            assert_eq!(whole(cut).len(), earlier + 1, "{place}");
            assert!(contents(cut, &arrived(id)) == *truth, "{place}");
        });
        assert!(present > 2 && resumed > 20, "{present} {resumed}");
    }
}

#[test]
fn a_reset_of_the_verification_is_resumed_and_undone() {
    let (cut, _) = changed_bundle(88, 0);
    let before = files(&cut, BUNDLE);
    let begun = cut.position();
    let reset = |cut: &PowerCut| reset_verification(&open(cut).0, false, &Silent);
    reset(&cut).unwrap();
    let mut resumed = 0;
    each_cut(&cut, begun, &mut |cut, place, is_end| {
        let state = |cut: &PowerCut| verification_state(&open(cut).0).unwrap();
        assert!(!is_end || state(cut) == Some(0), "{place}: not durable");
        match reset(cut) {
            Ok(done) => resumed += u64::from(done.resumed),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Conflict, "{place}: {error}");
                assert!(files(cut, BUNDLE) == before, "{place}");
                reset(cut).unwrap();
            }
        }
        assert_eq!(state(cut), Some(0), "{place}");
        undo(&open(cut).0, Change::Verification, &Silent).unwrap();
        assert!(files(cut, BUNDLE) == before, "{place}");
    });
    assert!(resumed > 5, "{resumed}");
}
