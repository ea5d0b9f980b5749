//! Tests of a change of the band size: all combinations of sizes, crashes and cancellations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{Bundle, BundleOptions, TOKEN, encryption};
use super::*;
use crate::crypt::{KeyMaterial, KeyWrap, LockedHeader, Protection, Secret};
use crate::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, is_zero};
use crate::problem::Problems;
use crate::progress::{Progress, Silent};
use crate::store::{MemoryStore, Open};
use crate::testing::model::{self, Model};
use crate::testing::power_cut::{Keep, Survival};
use crate::testing::{PowerCut, conformance};

const MIB: u64 = 1 << 20;
const DISK: u64 = 6 * MIB + 1024;
/// Band sizes before and after: double, half, and neither a multiple of the other.
const CHANGES: [(u64, u64); 6] = [
    (MIB, 2 * MIB),
    (2 * MIB, MIB),
    (MIB, 3 * MIB / 2),
    (5 * MIB / 2, MIB),
    (MIB, 64 * MIB),
    (8 * MIB, MIB),
];
/// A file that the change must not touch.
const IDENTITY: &str = "com.apple.TimeMachine.MachineID.plist";

/// A bundle in some store, plain or encrypted, which can be opened again.
struct StoreCase {
    store: Arc<dyn Store>,
    keys: Option<(LockedHeader, KeyMaterial)>,
}

impl StoreCase {
    fn new(store: Arc<dyn Store>, band_size: u64, encrypted: bool) -> Self {
        let options = BundleOptions {
            len: DISK,
            band_size: Some(band_size),
        };
        if !encrypted {
            Bundle::create(store.clone(), &options).unwrap();
            return Self { store, keys: None };
        }
        let passphrase = Some(Secret::new(b"open".to_vec()));
        let protection = Protection {
            key_bits: 128,
            block: 4096,
            iterations: 1,
            key_wrap: KeyWrap::TripleDes,
            passphrase,
            certificates: Vec::new(),
        };
        Bundle::create_encrypted(store.clone(), &options, &protection).unwrap();
        let locked = encryption(&*store).unwrap().unwrap();
        let keys = locked.unlock(b"open").unwrap();
        Self {
            store,
            keys: Some((locked, keys)),
        }
    }

    fn open(&self, access: Access) -> Result<Bundle> {
        self.open_in(self.store.clone(), access)
    }

    fn open_in(&self, store: Arc<dyn Store>, access: Access) -> Result<Bundle> {
        match &self.keys {
            None => Bundle::open(store, access),
            Some((locked, keys)) => Bundle::open_encrypted(store, access, locked, keys),
        }
    }

    /// Writes at several offsets, across band boundaries and at the end; returns the whole disk.
    fn fill(&self) -> Vec<u8> {
        self.store.put(IDENTITY, b"identity", Put::Replace).unwrap();
        let bundle = self.open(Access::ReadWrite).unwrap();
        for (n, at) in [
            0,
            MIB - 700,
            2 * MIB + 5000,
            4 * MIB - 512,
            4 * MIB + MIB / 2,
            DISK - 900,
        ]
        .into_iter()
        .enumerate()
        {
            bundle.write_at(at, &[n as u8 + 1; 900]).unwrap();
        }
        bundle
            .discard(2 * MIB + 5120..2 * MIB + 5632, AfterDiscard::Zeros)
            .unwrap();
        bundle.flush().unwrap();
        drop(bundle);
        self.disk(Access::ReadOnly)
    }

    fn disk(&self, access: Access) -> Vec<u8> {
        self.open(access)
            .unwrap()
            .read_vec(0, DISK as usize)
            .unwrap()
    }

    fn reband(&self, to: Option<u64>) -> Result<Rebanded> {
        self.open(Access::ReadWrite)?.reband_by(to, MIB, &Silent)
    }
}

fn names(store: &dyn Store) -> Vec<String> {
    let mut names = Vec::new();
    let mut keep = |entry: crate::store::Entry<'_>| {
        names.push(entry.name.to_owned());
        Ok(())
    };
    store.list("", &mut keep).unwrap();
    names.sort();
    names
}

fn bytes(store: &dyn Store, name: &str) -> Vec<u8> {
    let file = store.open(name, Open::Read).unwrap().unwrap();
    file.read_vec(0, file.info().len as usize).unwrap()
}

/// Asserts that the bundle is an ordinary one, with bands only where data is stored.
fn assert_finished(store: &dyn Store, disk: &[u8], to: u64, place: &str) {
    let version = Version::One;
    let list = plist::Info {
        size: DISK,
        band_size: to,
        version,
    }
    .to_xml()
    .into_bytes();
    assert!(
        bytes(store, plist::INFO) == list && bytes(store, plist::BACKUP) == list,
        "{place}"
    );
    assert_eq!(bytes(store, IDENTITY), b"identity", "{place}");
    let with_data = disk
        .chunks(to as usize)
        .enumerate()
        .filter(|(_, band)| !is_zero(band));
    let mut expected: Vec<_> = with_data
        .map(|(index, _)| format!("bands/{index:x}"))
        .collect();
    expected.extend([plist::INFO, plist::BACKUP, IDENTITY, TOKEN, "lock"].map(str::to_owned));
    expected.sort();
    assert_eq!(names(store), expected, "{place}");
    let mut problems = Problems::default();
    super::super::check(store, &mut problems, &Silent).unwrap();
    assert_eq!(problems.into_iter().count(), 0, "{place}");
}

#[test]
fn bands_become_longer_and_shorter() {
    for (from, to) in CHANGES {
        for encrypted in [false, true] {
            let case = StoreCase::new(Arc::new(MemoryStore::default()), from, encrypted);
            let disk = case.fill();
            let done = case.reband(Some(to)).unwrap();
            assert_eq!((done.from, done.to, done.resumed), (from, to, false));
            let place = format!("{from} to {to}, encrypted {encrypted}");
            assert!(case.disk(Access::ReadWrite) == disk, "{place}");
            assert_finished(&*case.store, &disk, to, &place);
            let again = case.reband(Some(to)).unwrap();
            assert_eq!((again.from, again.to, again.copied), (to, to, 0), "{place}");
        }
    }
}

/// Asserts that the bundle opens in any state, is writable, can be finished, and keeps its
/// contents.
fn assert_survives(case: &StoreCase, store: &PowerCut, disk: &[u8], to: u64, place: &str) {
    let found = StoreCase {
        store: Arc::new(store.clone()),
        keys: None,
    };
    let open = |access| {
        let opened = case.open_in(found.store.clone(), access);
        opened.unwrap_or_else(|error| panic!("{place}: does not open: {error}"))
    };
    let read = |bundle: &Bundle| {
        bundle
            .read_vec(0, DISK as usize)
            .unwrap_or_else(|error| panic!("{place}: {error}"))
    };
    assert!(read(&open(Access::ReadOnly)) == disk, "{place}: read-only");
    let bundle = open(Access::ReadWrite);
    assert!(read(&bundle) == disk, "{place}: read-write");
    let mut disk = disk.to_vec();
    for at in [300, 3 * MIB - 200, DISK - 512] {
        bundle.write_at(at, &[0x77; 400]).unwrap();
        disk[at as usize..at as usize + 400].fill(0x77);
    }
    bundle.flush().unwrap();
    drop(bundle);
    assert!(read(&open(Access::ReadOnly)) == disk, "{place}: written to");
    open(Access::ReadWrite)
        .reband_by(Some(to), MIB, &Silent)
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(read(&open(Access::ReadOnly)) == disk, "{place}: finished");
    assert_finished(store, &disk, to, place);
}

#[test]
fn no_power_cut_loses_anything() {
    let changes = [
        (MIB, 2 * MIB, false),
        (5 * MIB / 2, MIB, true),
        (MIB, 3 * MIB / 2, false),
    ];
    for (seed, (from, to, encrypted)) in (0..).zip(changes) {
        let cut = PowerCut::default();
        let case = StoreCase::new(Arc::new(cut.clone()), from, encrypted);
        let disk = case.fill();
        let begin = cut.position();
        case.reband(Some(to)).unwrap();
        for crash in cut.crashes_from(begin, seed, 1) {
            // Every crash of the first case; of the others, which include the encrypted ones, a
            // sample that takes a few seconds.
            if seed > 0 && crash.position % 15 != 0 {
                continue;
            }
            let place = format!(
                "{from} to {to}, crash after event {} of {} ({:?})",
                crash.position,
                cut.position(),
                crash.keep
            );
            // Also a crash while resuming.
            if matches!(crash.keep, Keep::Some(_)) && crash.position % 5 == 0 {
                let first = crash.store.position();
                case.open_in(Arc::new(crash.store.clone()), Access::ReadWrite)
                    .unwrap()
                    .reband_by(Some(to), MIB, &Silent)
                    .unwrap();
                let middle = first + (crash.store.position() - first) / 2;
                for keep in [Keep::Nothing, Keep::Everything, Keep::Some(seed)] {
                    let second = crash.store.crash_at(middle, keep);
                    assert_survives(
                        &case,
                        &second,
                        &disk,
                        to,
                        &format!("{place}, then after {middle} ({keep:?})"),
                    );
                }
            }
            let again = cut.crash_at(crash.position, crash.keep);
            assert_survives(&case, &again, &disk, to, &place);
        }
    }
}

/// Cancels after the given number of progress checks.
struct StopAfter(AtomicU64);

impl Progress for StopAfter {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        self.0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_err()
    }
}

#[test]
fn a_change_can_be_stopped_and_resumed() {
    let (mut between, mut untouched) = (0, 0);
    for patience in 0..40 {
        let case = StoreCase::new(Arc::new(MemoryStore::default()), MIB, patience % 2 == 1);
        let disk = case.fill();
        let before = names(&*case.store);
        let stopped = case.open(Access::ReadWrite).unwrap().reband_by(
            Some(2 * MIB),
            MIB,
            &StopAfter(patience.into()),
        );
        let Err(error) = stopped else { continue };
        assert_eq!(error.kind(), Kind::Cancelled);
        let bundle = case.open(Access::ReadOnly).unwrap();
        assert!(bundle.read_vec(0, DISK as usize).unwrap() == disk);
        if !bundle.is_between() {
            assert_eq!(names(&*case.store), before, "taken back");
            untouched += 1;
            continue;
        }
        between += 1;
        assert!(
            bundle
                .warnings()
                .iter()
                .any(|warning| { warning.contains("was interrupted") })
        );
        assert_eq!(bundle.stored(&Silent).unwrap_err().kind(), Kind::Conflict);
        drop(bundle);
        assert_eq!(
            case.open(Access::ReadWrite)
                .unwrap()
                .set_len(DISK + 512, AfterDiscard::Zeros)
                .unwrap_err()
                .kind(),
            Kind::Unsupported
        );
        // Other software does not recognize a bundle here.
        for name in [plist::INFO, plist::BACKUP] {
            let list = String::from_utf8(bytes(&*case.store, name)).unwrap();
            assert!(
                !list.contains("band-size")
                    && !list.contains("size</key>")
                    && !list.contains("com.apple"),
                "{list}"
            );
        }
        let mut problems = Problems::default();
        super::super::check(&*case.store, &mut problems, &Silent).unwrap();
        assert_eq!(
            problems.into_iter().count(),
            1,
            "that it was interrupted, and nothing else"
        );
        assert_eq!(
            case.reband(Some(4 * MIB)).unwrap_err().kind(),
            Kind::Conflict,
            "it was begun with another size"
        );
        let done = case.reband(None).unwrap();
        assert_eq!((done.from, done.to, done.resumed), (MIB, 2 * MIB, true));
        assert!(case.disk(Access::ReadWrite) == disk);
        assert_finished(
            &*case.store,
            &disk,
            2 * MIB,
            &format!("stopped after {patience}"),
        );
    }
    assert!(
        between > 3 && untouched > 1,
        "{between} in the middle, {untouched} before anything was moved"
    );
}

/// Creates a bundle of small bands, some of them new.
fn describe(store: &dyn Store, from: u64, to: u64, moved: u64) {
    let state = Rebanding {
        size: 100 * 1024,
        version: Version::One,
        from,
        to,
        moved,
        naming: false,
    };
    write_lists(store, &plist::rebanding_xml()).unwrap();
    state.write(store).unwrap();
    // With its lock files, which are created only once.
    for name in ["lock", TOKEN] {
        store.open(name, Open::Create).unwrap();
    }
    store.sync().unwrap();
}

#[test]
fn the_disk_in_between_is_a_disk() {
    for (from, to, moved) in [
        (4096, 12 * 1024, 36 * 1024),
        (20_480, 8192, 57_344),
        (8192, 16_384, 0),
        (8192, 4096, 100 * 1024),
    ] {
        let fresh = || {
            let store = MemoryStore::default();
            describe(&store, from, to, moved);
            store
        };
        let open = |store: &MemoryStore| -> Arc<dyn BlockDevice> {
            Arc::new(Bundle::open(Arc::new(store.clone()), Access::ReadWrite).unwrap())
        };
        conformance::device(|| open(&fresh()));
        for seed in 0..8 {
            let store = fresh();
            Model::new(open(&store))
                .reopen(|| open(&store))
                .run(&model::operations(seed, 80, 20_000));
        }
    }
}

#[test]
fn writes_in_between_survive_power_cuts() {
    let open = |store: &PowerCut| -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(Bundle::open(
            Arc::new(store.clone()),
            Access::ReadWrite,
        )?))
    };
    let make = |store: &PowerCut| {
        describe(store, 8192, 12 * 1024, 48 * 1024);
        open(store)
    };
    let survival = Survival::new(make, open).steps(30).crashes(2);
    let crashes: usize = (0..3).map(|seed| survival.check(seed)).sum();
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn impossible_changes_change_nothing() {
    let cases: [(Option<u64>, &str, &str); 5] = [
        (None, "", "a band size is required"),
        (Some(MIB - 512), "", "the nearest is 1048576"),
        (Some(MIB + 100), "", "the nearest are 1048576 and 1049088"),
        (Some(2 * MIB), "bands/0A", "its name must be a,"),
        (Some(2 * MIB), "bands/2", "bands/2 has 1 byte past the end"),
    ];
    for (to, name, why) in cases {
        let case = StoreCase::new(Arc::new(MemoryStore::default()), MIB, false);
        case.fill();
        if !name.is_empty() {
            case.store
                .put(name, &vec![1; MIB as usize + 1], Put::Replace)
                .unwrap();
        }
        let before: Vec<_> = names(&*case.store)
            .into_iter()
            .map(|name| (bytes(&*case.store, &name), name))
            .collect();
        let error = case.reband(to).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        let after: Vec<_> = names(&*case.store)
            .into_iter()
            .map(|name| (bytes(&*case.store, &name), name))
            .collect();
        assert!(before == after, "{why}");
    }
}

#[test]
fn maps_of_blocks_go_with_their_bands() {
    let case = StoreCase::new(Arc::new(MemoryStore::default()), MIB, false);
    case.fill();
    let list = plist::Info {
        size: DISK,
        band_size: MIB,
        version: Version::Two,
    }
    .to_xml();
    for name in [plist::INFO, plist::BACKUP] {
        case.store.put(name, list.as_bytes(), Put::Replace).unwrap();
    }
    // The map hides eight blocks of band 0; band 5 has a map and no file.
    let mut map = [0xff; 32];
    map[0] = 0;
    case.store.put("mapped/0", &map, Put::Replace).unwrap();
    case.store.put("mapped/5", &[0; 32], Put::Replace).unwrap();
    let disk = case.disk(Access::ReadOnly);
    assert!(is_zero(&disk[..900]) && !is_zero(&disk));
    case.reband(Some(2 * MIB)).unwrap();
    assert!(case.disk(Access::ReadOnly) == disk);
    assert!(
        !names(&*case.store)
            .iter()
            .any(|name| name.starts_with("mapped/"))
    );
    assert_eq!(case.open(Access::ReadOnly).unwrap().version(), Version::Two);
}

#[test]
fn a_malformed_list_is_refused() {
    let state = Rebanding {
        size: DISK,
        version: Version::One,
        from: MIB,
        to: 2 * MIB,
        moved: 4 * MIB,
        naming: false,
    };
    assert_eq!(Rebanding::parse(state.to_xml().as_bytes()).unwrap(), state);
    let end = Rebanding {
        moved: DISK,
        naming: true,
        ..state
    };
    assert_eq!(Rebanding::parse(end.to_xml().as_bytes()).unwrap(), end);
    for wrong in [
        Rebanding {
            size: DISK + 1,
            ..state
        },
        Rebanding { from: 0, ..state },
        Rebanding { to: 700, ..state },
        Rebanding {
            moved: 3 * MIB,
            ..state
        },
        Rebanding {
            moved: 8 * MIB,
            ..state
        },
    ] {
        assert_eq!(
            Rebanding::parse(wrong.to_xml().as_bytes())
                .unwrap_err()
                .kind(),
            Kind::Corrupt,
            "{wrong:?}"
        );
    }
    let missing = state.to_xml().replace("moved", "other");
    assert_eq!(
        Rebanding::parse(missing.as_bytes()).unwrap_err().kind(),
        Kind::Corrupt
    );
    let case = StoreCase::new(Arc::new(MemoryStore::default()), MIB, false);
    write_lists(&*case.store, &plist::rebanding_xml()).unwrap();
    let error = case.open(Access::ReadOnly).unwrap_err();
    assert!(
        error.kind() == Kind::Corrupt && error.to_string().contains("rebanding.plist"),
        "{error}"
    );
}
