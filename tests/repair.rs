//! `ops::repair` and its building blocks: after a power failure at any step the image opens with
//! its contents, and a second repair completes the first.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::container::asif::{self, Asif};
use bandsaw::container::sparsebundle::{self, Bundle};
use bandsaw::container::sparseimage::{self, SparseImage};
use bandsaw::container::{Format, Orphans};
use bandsaw::crypt::{Device, Encryption, KeyWrap, MIN_ITERATIONS, Protection, Secret};
use bandsaw::decision::CopyChoice;
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::open::{self, OpenOptions, Verdict};
use bandsaw::ops::repair::{
    self, Mode, Options, Outcome, Repaired, Target, commit_target, repair, repair_target,
    undo_target,
};
use bandsaw::partition::gpt::{self, Guids, NewPartition, Search};
use bandsaw::partition::{self, APPLE_HFS, Partition};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::{Progress, Silent};
use bandsaw::store::{Local, MemoryStore, Open, Put, Store};
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyStore, at_every};
use bandsaw::testing::power_cut::Keep;
use bandsaw::testing::{PowerCut, Random, fuzz, mutate};
use bandsaw::{Kind, Result};

fn file(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("image", Open::Create).unwrap().unwrap()
}

/// Returns a durable store with a file of these bytes.
fn store_of(bytes: &[u8]) -> PowerCut {
    let store = PowerCut::default();
    let device = file(&store);
    device
        .set_len(bytes.len() as u64, AfterDiscard::Zeros)
        .unwrap();
    device.write_at(0, bytes).unwrap();
    device.flush().unwrap();
    store.sync().unwrap();
    store
}

/// Returns every state that a power failure could have left since `first`, and the final state.
fn crashes(store: &PowerCut, first: usize) -> Vec<PowerCut> {
    let mut stores: Vec<_> = store
        .crashes_from(first, 11, 6)
        .map(|crash| crash.store)
        .collect();
    assert!(stores.len() > 6, "{}", stores.len());
    stores.push(store.crash(Keep::Nothing));
    stores
}

fn partitions(disk: &dyn BlockDevice) -> Vec<Partition> {
    partition::probe(disk).unwrap().unwrap().partitions
}

#[test]
fn a_map_on_a_disk_that_has_grown() {
    let small = Memory::zeros(300 * 512);
    let partition = NewPartition {
        range: 40 * 512..200 * 512,
        type_guid: APPLE_HFS,
        guid: Guids::derived("x").partition,
        name: "x".into(),
    };
    gpt::create(&small, 512, Guids::derived("x").disk, &[partition]).unwrap();
    let mut bytes = small.to_vec();
    bytes.resize(1000 * 512, 0);
    let store = store_of(&bytes);
    let (disk, expected, begun) = (file(&store), partitions(&*file(&store)), store.position());
    let parts = gpt::repair(&*disk).unwrap();
    assert!(parts.primary && parts.backup && parts.protective_mbr);
    for crash in crashes(&store, begun) {
        let disk = file(&crash);
        assert_eq!(partitions(&*disk), expected);
        gpt::repair(&*disk).unwrap();
        let mut problems = Problems::default();
        partition::check(&*disk, &mut problems).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
    }
    assert!(
        disk.read_vec(299 * 512, 512)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0),
        "the old backup is gone"
    );
    // Data at the end is not overwritten.
    bytes[990 * 512] = 7;
    let disk = Memory::from(bytes.clone());
    let (parts, refused) = gpt::repair_with(&disk, Search::Announced, None).unwrap();
    assert!(
        refused[0].message().contains("not blank") && !parts.backup,
        "{parts:?} {refused:?}"
    );
    assert_eq!(
        disk.to_vec()[512..],
        bytes[512..],
        "but for block 0 it is as it was"
    );
}

const BAND: u64 = 1 << 20;

#[test]
fn a_bundle_with_leftovers() {
    let store = PowerCut::default();
    let options = sparsebundle::BundleOptions {
        len: 20 * BAND + 512,
        band_size: Some(BAND),
    };
    let bundle = Bundle::create(Arc::new(store.clone()), &options).unwrap();
    for band in [0, 10, 11, 20] {
        bundle
            .write_at(band * BAND, &[band as u8 + 1; 512])
            .unwrap();
    }
    bundle.flush().unwrap();
    drop(bundle);
    let put = |name: &str, bytes: &[u8]| assert!(store.put(name, bytes, Put::Replace).unwrap());
    store.rename("bands/a", "bands/A").unwrap();
    put("bands/14", &[21; 4096]);
    put("bands/15", &[1; 4096]);
    put("bands/ff", &[1; 4096]);
    put("mapped/3", &[1; 256]);
    put("Info.plist", b"garbage");
    store.sync().unwrap();
    let begun = store.position();
    let steps = repair_store(&store).unwrap();
    assert_eq!(steps.len(), 6, "{steps:?}");
    for crash in crashes(&store, begun) {
        let crash: Arc<dyn Store> = Arc::new(crash);
        let held = Bundle::open(crash.clone(), Access::ReadOnly).unwrap();
        assert_eq!(held.info().len, 20 * BAND + 512);
        assert_eq!(held.read_vec(20 * BAND, 512).unwrap(), [21; 512]);
        drop(held);
        repair_store(&*crash).unwrap();
        let mut problems = Problems::default();
        sparsebundle::check(&*crash, &mut problems, &Silent).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
        let bundle = Bundle::open(crash, Access::ReadOnly).unwrap();
        assert_eq!(
            [0, 10, 11, 20].map(|band| bundle.read_array::<1>(band * BAND).unwrap()),
            [[1], [11], [12], [21]]
        );
    }
}

fn repair_store(store: &dyn Store) -> Result<Vec<String>> {
    let _held = sparsebundle::locks(store)?;
    let facts = sparsebundle::listed(store, CopyChoice::Alternate)?
        .geometry()
        .unwrap();
    let mut steps = sparsebundle::put_lists(store, facts)?;
    let repaired = sparsebundle::repair(store, facts, true, &Silent)?;
    assert!(repaired.refused.is_empty());
    steps.extend(repaired.steps);
    Ok(steps)
}

#[test]
fn ends_of_sparse_images() {
    let made = Arc::new(Memory::zeros(0));
    let options = sparseimage::SparseImageOptions {
        len: 64 << 10,
        band_size: Some(4096),
    };
    let image = SparseImage::create(made.clone(), &options).unwrap();
    for band in 0..5 {
        image
            .write_at(band * 8192, &[band as u8 + 1; 4096])
            .unwrap();
    }
    image.flush().unwrap();
    let mut bytes = made.to_vec();
    // A band after the end of the disk in the second slot, and a tail.
    bytes[0x44..0x48].copy_from_slice(&99_u32.to_be_bytes());
    bytes.resize(bytes.len() + 5000, 9);
    let store = store_of(&bytes);
    let expected = SparseImage::open(file(&store))
        .unwrap()
        .read_vec(0, 64 << 10)
        .unwrap();
    let store = store_of(&bytes); // opening for writing has tidied the first up
    let begun = store.position();
    assert!(
        !sparseimage::repair(&file(&store), Orphans::Remove)
            .unwrap()
            .is_empty()
    );
    for crash in crashes(&store, begun) {
        sparseimage::repair(&file(&crash), Orphans::Remove).unwrap();
        let mut problems = Problems::default();
        let image = sparseimage::check(&file(&crash), &mut problems, &Silent).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
        assert!(image.read_vec(0, 64 << 10).unwrap() == expected);
    }
}

#[test]
fn ends_of_asif() {
    let made = Arc::new(Memory::zeros(0));
    let options = asif::AsifOptions {
        len: 8 << 20,
        block: 512,
        kind: asif::LayerKind::Disk,
    };
    let image = Asif::create(made.clone(), &options).unwrap();
    image.write_at(6 << 20, &vec![7; 1 << 20]).unwrap();
    image.write_at(100, b"kept").unwrap();
    image.flush().unwrap();
    drop(image);
    let mut bytes = made.to_vec();
    bytes[0x30..0x38].copy_from_slice(&(4_u64 << 11).to_be_bytes()); // the disk ends at 4 MiB
    bytes.resize(bytes.len() + (2 << 20), 9);
    let store = store_of(&bytes);
    let begun = store.position();
    assert_eq!(
        asif::repair(&file(&store), Orphans::Remove, &Silent)
            .unwrap()
            .len(),
        2
    );
    for crash in crashes(&store, begun) {
        asif::repair(&file(&crash), Orphans::Remove, &Silent).unwrap();
        let mut problems = Problems::default();
        let image = asif::check(&file(&crash), &mut problems, &Silent).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
        assert_eq!(
            (image.info().len, image.read_array::<4>(100).unwrap()),
            (4 << 20, *b"kept")
        );
    }
}

/// Offset of the table of a new ASIF image.
const TABLE: usize = 5 << 20;

/// A table entry that became zero: its chunk is now a tail, which `repair` does not remove.
#[test]
fn an_asif_chunk_without_an_entry_is_kept() {
    let made = Arc::new(Memory::zeros(0));
    let options = asif::AsifOptions {
        len: 8 << 20,
        block: 512,
        kind: asif::LayerKind::Disk,
    };
    let image = Asif::create(made.clone(), &options).unwrap();
    for at in 0..2_u64 {
        image.write_at(at << 20, &[at as u8 + 1; 1 << 20]).unwrap();
    }
    image.flush().unwrap();
    drop(image);
    let mut bytes = made.to_vec();
    let entry = TABLE + 8..TABLE + 16; // of the second chunk
    assert!(bytes[entry.clone()] != [0; 8]);
    bytes[entry].fill(0);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.asif");
    fs::write(&path, &bytes).unwrap();
    let done = run(&path, Mode::Apply).unwrap();
    assert!(done.steps.is_empty(), "{:?}", done.steps);
    assert!(fs::read(&path).unwrap() == bytes);
}

/// A map is repaired through the encryption, and without the passphrase nothing is changed.
#[test]
fn encrypted_images() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dmg");
    let passphrase = Secret::new(b"key".to_vec());
    let protection = Protection {
        key_bits: 128,
        block: 512,
        iterations: MIN_ITERATIONS,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(passphrase.clone()),
        certificates: Vec::new(),
    };
    let made = Arc::new(Memory::zeros(0));
    let device = Device::create(made.clone(), &protection).unwrap();
    device.set_len(1000 * 512, AfterDiscard::Zeros).unwrap();
    gpt::create_single(&device, 512, APPLE_HFS, Guids::derived("x")).unwrap();
    device.flush().unwrap();
    let whole = made.to_vec();
    device.write_at(512, &[9; 512]).unwrap();
    device.flush().unwrap();
    fs::write(&path, made.to_vec()).unwrap();
    assert_eq!(run(&path, Mode::Apply).unwrap_err().kind(), Kind::WrongKey);
    assert!(fs::read(&path).unwrap() == made.to_vec());
    let options = OpenOptions {
        keys: Some(&passphrase),
        ..OpenOptions::default()
    };
    let done = repair(&path, &options, &chosen(Mode::Apply), &Silent).unwrap();
    assert_eq!(done.steps, [("GPT", "copy at the beginning".into())]);
    assert!(fs::read(&path).unwrap() == whole);
}

/// The image below a shadow is never written: the map is repaired in the shadow.
#[test]
fn an_image_below_a_shadow_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, shadow) = (
        folder.path().join("x.img"),
        [folder.path().join("x.shadow")],
    );
    let disk = Memory::zeros(1000 * 512);
    gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("x")).unwrap();
    disk.write_at(512, &[9; 512]).unwrap();
    fs::write(&path, disk.to_vec()).unwrap();
    let options = OpenOptions {
        shadows: &shadow,
        ..OpenOptions::default()
    };
    let done = repair(&path, &options, &chosen(Mode::Apply), &Silent).unwrap();
    assert_eq!(done.steps, [("GPT", "copy at the beginning".into())]);
    assert!(fs::read(&path).unwrap() == disk.to_vec() && shadow[0].exists());
    assert!(
        repair(&path, &options, &chosen(Mode::DryRun), &Silent)
            .unwrap()
            .steps
            .is_empty()
    );
}

fn run(path: &Path, mode: Mode) -> Result<Repaired> {
    repair(path, &OpenOptions::default(), &chosen(mode), &Silent)
}

fn chosen(mode: Mode) -> Options<'static> {
    Options {
        mode,
        ..Options::default()
    }
}

fn damage(path: &Path) -> (u64, bool, bool) {
    let found = open::examine(path, &OpenOptions::default(), &Silent).unwrap();
    let unknown = found
        .layers
        .iter()
        .any(|judged| matches!(judged.verdict, Verdict::Unknown(_)));
    (
        found.problems.count(Severity::Damage),
        found.problems.count(Severity::Warning) > 0,
        unknown,
    )
}

/// Corrupted copies of every kind of file: nothing panics, a check reports those that do not open,
/// and a repair makes nothing worse.
#[test]
fn broken_copies_are_told_of_and_not_made_worse() {
    let folder = tempfile::tempdir().unwrap();
    let udif = fuzz::TARGETS
        .iter()
        .find(|target| target.name == "udif")
        .unwrap();
    let sample = {
        let volume = fuzz::sample(false, 4096);
        let disk = Memory::zeros(
            gpt::MapGeometry::holding(volume.len() as u64, 512)
                .unwrap()
                .disk_len() as usize,
        );
        let range = gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("x")).unwrap();
        disk.write_at(range.start, &volume).unwrap();
        disk.to_vec()
    };
    let mut repaired = 0;
    for (number, format) in (0..).zip([Format::Udrw, Format::Udsp, Format::Asif, Format::Udzo]) {
        let path = folder.path().join("good");
        if format == Format::Udzo {
            fs::write(&path, (udif.seeds)().swap_remove(1)).unwrap();
        } else {
            let options = open::CreateOptions {
                format,
                len: sample.len() as u64,
                overwrite: true,
                ..open::CreateOptions::default()
            };
            let image = open::create(&path, &options).unwrap();
            image.disk().write_at(0, &sample).unwrap();
            image.disk().flush().unwrap();
        }
        let good = fs::read(&path).unwrap();
        let path = folder.path().join("copy");
        for copy in 0..60 {
            fs::write(
                &path,
                mutate::mutated(&good, &mut Random::new(number << 32 | copy)),
            )
            .unwrap();
            let opens = open::trace(&path, &OpenOptions::default()).1.is_none();
            let (before, _, unknown) = damage(&path);
            assert!(
                opens || before > 0 || unknown,
                "{format} {copy}: does not open, and nothing is wrong"
            );
            let bytes = fs::read(&path).unwrap();
            let planned = run(&path, Mode::DryRun).map(|plan| plan.steps.len());
            assert!(
                fs::read(&path).unwrap() == bytes,
                "{format} {copy}: a dry run changed the image"
            );
            let done = run(&path, Mode::Apply);
            let is_done = done
                .as_ref()
                .is_ok_and(|done| done.outcome == Outcome::Repaired);
            let done = done.map(|done| done.steps.len());
            assert_eq!(planned.as_ref().ok(), done.as_ref().ok(), "{format} {copy}");
            let (after, _, _) = damage(&path);
            assert!(after <= before, "{format} {copy}: {before} became {after}");
            assert!(
                !opens || open::trace(&path, &OpenOptions::default()).1.is_none(),
                "{format} {copy}"
            );
            if is_done {
                repaired += 1;
                assert_eq!(
                    run(&path, Mode::Apply).unwrap().steps.len(),
                    0,
                    "{format} {copy}: a second repair has nothing to do"
                );
                repair::undo(&path, &OpenOptions::default(), &chosen(Mode::Apply)).unwrap();
                assert!(fs::read(&path).unwrap() == bytes, "{format} {copy}: undone");
            }
        }
    }
    assert!(repaired > 5, "{repaired} copies were repaired");
}

/// A check can be cancelled.
#[test]
fn work_stops_when_told_to() {
    #[derive(Debug)]
    struct Stop;
    impl Progress for Stop {
        fn stage(&self, _name: &str, _total: u64) {}
        fn advance(&self, _n: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sparsebundle");
    let options = open::CreateOptions {
        format: Format::Udsb,
        len: 64 * BAND,
        band_size: Some(BAND),
        ..open::CreateOptions::default()
    };
    drop(open::create(&path, &options).unwrap());
    fs::write(path.join("bands/0"), "x").unwrap();
    fs::write(path.join("bands/fff"), "x").unwrap();
    let stopped = open::examine(&path, &OpenOptions::default(), &Stop).unwrap_err();
    assert_eq!(stopped.kind(), Kind::Cancelled);
    let stopped = repair(&path, &OpenOptions::default(), &chosen(Mode::Apply), &Stop).unwrap_err();
    assert_eq!(stopped.kind(), Kind::Cancelled);
    assert!(path.join("bands/fff").exists());
}

/// Returns everything in a store, by name.
fn contents(store: &dyn Store, prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    let listed = store.list(prefix, &mut |entry| {
        names.push(entry.name.to_owned());
        Ok(())
    });
    listed.unwrap();
    let read = |name: &String| {
        let file = store.open(name, Open::Read).unwrap().unwrap();
        file.read_vec(0, file.info().len as usize).unwrap()
    };
    names
        .iter()
        .map(|name| (name.clone(), read(name)))
        .collect()
}

fn copy_into(store: &dyn Store, files: &BTreeMap<String, Vec<u8>>) {
    files
        .iter()
        .for_each(|(name, bytes)| assert!(store.put(name, bytes, Put::Replace).unwrap()));
    store.sync().unwrap();
}

/// Returns a bundle with an HFS+ volume in a GPT, in a folder of a store: consistent, or with
/// damage in every layer that can be repaired.
fn bundle(is_damaged: bool) -> BTreeMap<String, Vec<u8>> {
    let volume = fuzz::sample(false, 4096);
    let len = gpt::MapGeometry::holding(volume.len() as u64, 512)
        .unwrap()
        .disk_len();
    let store = Arc::new(MemoryStore::default());
    let options = sparsebundle::BundleOptions {
        len,
        band_size: Some(BAND),
    };
    let disk = Bundle::create(store.clone(), &options).unwrap();
    // As long as the volume, so that its alternate header is at its proper offset.
    let range = 40 * 512..40 * 512 + volume.len() as u64;
    let partition = NewPartition {
        range: range.clone(),
        type_guid: APPLE_HFS,
        guid: Guids::derived("x").partition,
        name: "x".into(),
    };
    gpt::create(&disk, 512, Guids::derived("x").disk, &[partition]).unwrap();
    disk.write_at(range.start, &volume).unwrap();
    disk.flush().unwrap();
    let mut problems = Problems::default();
    let found = bandsaw::fs::hfsplus::check(Arc::new(Memory::from(volume)), &Silent).unwrap();
    found
        .into_iter()
        .for_each(|problem| problems.add(problem.severity, problem.error));
    assert!(problems.worst() <= Some(Severity::Note), "{problems:?}");
    if is_damaged {
        disk.write_at(512, &[9; 512]).unwrap();
        disk.flush().unwrap();
    }
    drop(disk);
    if is_damaged {
        store.put("Info.bckup", b"garbage", Put::Replace).unwrap();
        store.put("bands/ff", &[1; 5000], Put::Replace).unwrap();
        store.put("bands/fe", &[0; 700], Put::Replace).unwrap();
    }
    let named = |(name, bytes)| (format!("b/{name}"), bytes);
    contents(&*store, "")
        .into_iter()
        .filter(|(name, _)| name != "lock")
        .map(named)
        .collect()
}

/// After a power failure at any point of a repair, the image is unchanged, or undoing the repair
/// restores it.
#[test]
fn a_repair_is_undone_from_wherever_the_power_went() {
    let damaged = bundle(true);
    let store = PowerCut::default();
    copy_into(&store, &damaged);
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    let begun = store.position();
    let done = repair_target(
        &target,
        &OpenOptions::default(),
        &chosen(Mode::Apply),
        &Silent,
    )
    .unwrap();
    assert_eq!(done.outcome, Outcome::Repaired, "{done:?}");
    assert!(
        done.steps.len() >= 4 && done.undecided.is_none(),
        "{:?}",
        done.steps
    );
    let kept = contents(&store, "b.undo/");
    assert_eq!(
        kept["b.undo/1/files/bands/ff"], [1; 5000],
        "nothing is removed"
    );
    let whole = contents(&store, "b/");
    assert!(!whole.contains_key("b/bands/ff") && whole["b/Info.bckup"] == whole["b/Info.plist"]);
    let (mut untouched, mut undone, mut rolled_back) = (0, 0, 0);
    for crash in store.crashes_from(begun, 5, 3) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        let store: Arc<dyn Store> = Arc::new(crash.store);
        let target = Target::in_store(store.clone(), "b").unwrap();
        let left = contents(&*store, "");
        let try_again =
            |mode| repair_target(&target, &OpenOptions::default(), &chosen(mode), &Silent).unwrap();
        // A dry run takes the same steps, on a view, and a repair that was not interrupted has none.
        let tried = try_again(Mode::DryRun);
        assert!(contents(&*store, "") == left, "{place}: a dry run writes");
        if left.contains_key("b.undo/1/state") && tried.rolled_back.is_none() {
            assert!(contents(&*store, "b/") == whole, "{place}");
            assert_eq!(tried.outcome, Outcome::NothingToDo, "{place}: {tried:?}");
        } else {
            assert_eq!(tried.steps, done.steps, "{place}");
        }
        let is_tried_as_is = tried.rolled_back.is_none();
        if crash.position % 3 == 0 {
            // The next repair rolls the first one back, and is undone itself.
            let again = try_again(Mode::Apply);
            assert_eq!(again.steps, tried.steps, "{place}");
            assert_eq!(again.rolled_back, tried.rolled_back, "{place}");
            assert!(contents(&*store, "b/") == whole, "{place}");
            rolled_back += usize::from(!is_tried_as_is);
        }
        match undo_target(&target) {
            Ok(_) => undone += 1,
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{place}: {error}");
                untouched += 1;
            }
        }
        assert!(contents(&*store, "b/") == damaged, "{place}");
        assert!(contents(&*store, "b.undo/").is_empty(), "{place}");
        assert_eq!(try_again(Mode::DryRun).steps, done.steps);
    }
    assert!(
        untouched > 5 && undone > 20 && rolled_back > 5,
        "{untouched}, {undone}, {rolled_back}"
    );
    // An interrupted undo is completed by the next.
    let begun = store.position();
    undo_target(&target).unwrap();
    for crash in store.crashes_from(begun, 7, 3) {
        let store: Arc<dyn Store> = Arc::new(crash.store);
        let undone = undo_target(&Target::in_store(store.clone(), "b").unwrap());
        assert!(undone.is_ok() || undone.is_err_and(|error| error.kind() == Kind::NotFound));
        assert!(
            contents(&*store, "b/") == damaged,
            "after event {}, {:?}",
            crash.position,
            crash.keep
        );
    }
}

/// An image that was replaced, or changed by something else, after a power failure during a repair
/// or its undo keeps every byte; what the repair did not write and nothing needs to open the image
/// can differ.
#[test]
fn an_image_that_changed_after_a_power_failure_is_not_rolled_back() {
    let (damaged, healthy) = (bundle(true), bundle(false));
    let store = PowerCut::default();
    copy_into(&store, &damaged);
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    let begun = store.position();
    let options = OpenOptions::default();
    let repair = |target: &Target| repair_target(target, &options, &chosen(Mode::Apply), &Silent);
    repair(&target).unwrap();
    undo_target(&target).unwrap();
    let (mut replaced, mut refused, mut kept, mut written) = (0, 0, 0, 0);
    for crash in store.crashes_from(begun, 7, 2) {
        let place = format!("after event {}, {:?}", crash.position, crash.keep);
        let left = contents(&crash.store, "");
        let fresh = || {
            let store = MemoryStore::default();
            copy_into(&store, &left);
            let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
            (store, target)
        };
        let (store, target) = fresh();
        contents(&store, "b/")
            .keys()
            .for_each(|name| drop(store.remove(name)));
        copy_into(&store, &healthy);
        let before = contents(&store, "");
        match repair(&target) {
            Ok(done) => assert_eq!(done.outcome, Outcome::NothingToDo, "{place}"),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Conflict, "{place}: {error}");
                assert!(error.message().contains("--commit"), "{place}: {error}");
                assert!(contents(&store, "") == before, "{place}");
                assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Conflict);
                assert!(contents(&store, "") == before, "{place}");
                commit_target(&target).unwrap();
                refused += 1;
            }
        }
        assert!(contents(&store, "b/") == healthy, "{place}");
        replaced += 1;
        // Bytes of the disk that nothing needs to open it, and those of a volume header.
        let band = |store: &MemoryStore| store.open("b/bands/0", Open::Write).unwrap().unwrap();
        let (store, target) = fresh();
        let bytes = band(&store)
            .read_vec(0, band(&store).info().len as usize)
            .unwrap();
        let header = (0..bytes.len())
            .step_by(512)
            .find(|at| bytes[*at..].starts_with(b"H+"))
            .unwrap() as u64;
        let write = |at: u64, store: &MemoryStore| {
            let now: [u8; 1] = band(store).read_array(at).unwrap();
            band(store).write_at(at, &[now[0] ^ 1]).unwrap();
        };
        write(header + 68, &store);
        let before = contents(&store, "");
        match undo_target(&target) {
            Ok(_) => panic!("{place}: undone in spite of a change"),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{place}: {error}"),
        }
        let mut after = contents(&store, "");
        after.retain(|name, _| before.contains_key(name));
        assert!(
            contents(&store, "b/")
                .iter()
                .all(|(name, now)| before[name] == *now),
            "{place}"
        );
        let (store, target) = fresh();
        // In the bitmap.
        let number = |at: u64| {
            let at = at as usize;
            u64::from(u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()))
        };
        let far =
            header - 1024 + number(header + 128) * number(header + 40) + number(header + 44) / 16;
        write(far, &store);
        let before = contents(&store, "b/");
        let mut expected = damaged.clone();
        expected.get_mut("b/bands/0").unwrap()[far as usize] ^= 1;
        match undo_target(&target) {
            Ok(_) => {
                assert!(contents(&store, "b/") == expected, "{place}");
                written += 1;
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), Kind::NotFound | Kind::Conflict),
                    "{place}: {error}"
                );
                assert!(contents(&store, "b/") == before, "{place}");
                kept += 1;
            }
        }
    }
    let counts = format!("{replaced} {refused} {written} {kept}");
    assert!(
        replaced > 20 && refused > 5 && written > 5 && kept > 0,
        "{counts}"
    );
}

/// If an image changed between two repairs, only the later one is undone.
#[test]
fn what_was_written_between_two_repairs_is_kept() {
    let store = MemoryStore::default();
    copy_into(&store, &bundle(true));
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    let options = OpenOptions::default();
    let repair = || repair_target(&target, &options, &chosen(Mode::Apply), &Silent).unwrap();
    assert_eq!(repair().outcome, Outcome::Repaired);
    // A write that counts in the volume header, and then new damage.
    let band = store.open("b/bands/0", Open::Write).unwrap().unwrap();
    let bytes = band.read_vec(0, band.info().len as usize).unwrap();
    let header = (0..bytes.len())
        .step_by(512)
        .find(|at| bytes[*at..].starts_with(b"H+"))
        .unwrap() as u64;
    band.write_at(header + 71, &[bytes[header as usize + 71] ^ 1])
        .unwrap();
    let written = contents(&store, "b/");
    for n in 0..2 {
        store.put("b/bands/fd", b"leftover", Put::Replace).unwrap();
        let damaged = contents(&store, "b/");
        assert_eq!(repair().outcome, Outcome::Repaired);
        assert!(contents(&store, "b/") == written, "{n}");
        let done = undo_target(&target).unwrap();
        assert_eq!((done.repairs, done.kept), (1, 1), "{done:?}");
        assert!(done.kept_because.unwrap().contains("changed since"));
        assert!(contents(&store, "b/") == damaged, "{n}");
        assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Conflict);
        assert!(contents(&store, "b/") == damaged, "{n}");
        store.remove("b/bands/fd").unwrap();
    }
    assert_eq!(commit_target(&target).unwrap().repairs, 1);
    assert!(contents(&store, "b/") == written);
}

/// A call that fails while a repair is written leaves the image unchanged; so does a full disk.
#[test]
fn a_repair_that_fails_has_changed_nothing() {
    let damaged = bundle(true);
    let mut failed = 0;
    for call in [
        Call::Write,
        Call::Flush,
        Call::SetLen,
        Call::Put,
        Call::Rename,
        Call::Sync,
    ] {
        for n in 1.. {
            let below = MemoryStore::default();
            copy_into(&below, &damaged);
            let faults = Faults::new();
            let store = Arc::new(FaultyStore::new(Arc::new(below.clone()), &faults));
            let target = Target::in_store(store, "b").unwrap();
            faults.fail(call, n, Fault::NoSpace);
            let done = repair_target(
                &target,
                &OpenOptions::default(),
                &chosen(Mode::Apply),
                &Silent,
            );
            if faults.happened() == 0 {
                break;
            }
            failed += 1;
            assert!(done.is_err(), "{call:?} {n}");
            if contents(&below, "b/") != damaged {
                // If the image cannot be restored now, the error says so, and it is restored later.
                assert!(
                    done.unwrap_err().to_string().contains("--undo"),
                    "{call:?} {n}"
                );
                undo_target(&Target::in_store(Arc::new(below.clone()), "b").unwrap()).unwrap();
            }
            assert!(contents(&below, "b/") == damaged, "{call:?} {n}");
        }
    }
    assert!(failed > 15, "{failed}");
}

/// Changes after a repair are not mixed with the state before it; repairs are undone or committed
/// together.
#[test]
fn undo_is_refused_after_a_change() {
    let damaged = bundle(true);
    let repaired = || {
        let store = MemoryStore::default();
        copy_into(&store, &damaged);
        let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
        let done = repair_target(
            &target,
            &OpenOptions::default(),
            &chosen(Mode::Apply),
            &Silent,
        )
        .unwrap();
        assert_eq!(done.outcome, Outcome::Repaired);
        (store, target)
    };
    type Edit = fn(&MemoryStore);
    let edits: [Edit; 5] = [
        |store| drop(store.put("b/bands/12", b"new", Put::Replace)),
        |store| drop(store.remove("b/Info.bckup")),
        |store| {
            store
                .open("b/bands/0", Open::Write)
                .unwrap()
                .unwrap()
                .write_at(520, &[77])
                .unwrap()
        },
        // A driver that changes a volume counts its writes in the volume header.
        |store| {
            let band = store.open("b/bands/0", Open::Write).unwrap().unwrap();
            let bytes = band.read_vec(0, band.info().len as usize).unwrap();
            let header = (0..bytes.len())
                .step_by(512)
                .find(|at| bytes[*at..].starts_with(b"H+"))
                .unwrap() as u64;
            let count = u32::from_be_bytes(band.read_array(header + 68).unwrap());
            band.write_at(header + 68, &(count + 1).to_be_bytes())
                .unwrap();
        },
        |store| {
            store
                .open("b/bands/0", Open::Write)
                .unwrap()
                .unwrap()
                .set_len(4096, AfterDiscard::Zeros)
                .unwrap()
        },
    ];
    for edit in edits {
        let (store, target) = repaired();
        edit(&store);
        let changed = contents(&store, "");
        assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Conflict);
        assert!(contents(&store, "") == changed);
    }
    // A second repair keeps the undo data of the first.
    let (store, target) = repaired();
    store.put("b/bands/fd", b"leftover", Put::Replace).unwrap();
    repair_target(
        &target,
        &OpenOptions::default(),
        &chosen(Mode::Apply),
        &Silent,
    )
    .unwrap();
    // The leftover came between the two.
    let done = undo_target(&target).unwrap();
    assert_eq!((done.repairs, done.kept), (1, 1), "{done:?}");
    assert!(contents(&store, "b/")["b/bands/fd"] == b"leftover");
    store.remove("b/bands/fd").unwrap();
    assert_eq!(undo_target(&target).unwrap().repairs, 1);
    assert!(contents(&store, "b/") == damaged);
    let (store, target) = repaired();
    let now = contents(&store, "b/");
    assert_eq!(
        (
            commit_target(&target).unwrap().repairs,
            contents(&store, "b/") == now
        ),
        (1, true)
    );
    assert!(contents(&store, "b.undo/").is_empty());
    assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::NotFound);
}

/// Undo data of which any byte is wrong, or that another version wrote, is refused, and nothing is
/// changed.
#[test]
fn damaged_undo_data_is_refused() {
    let damaged = bundle(true);
    let store = MemoryStore::default();
    copy_into(&store, &damaged);
    let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
    repair_target(
        &target,
        &OpenOptions::default(),
        &chosen(Mode::Apply),
        &Silent,
    )
    .unwrap();
    let repaired = contents(&store, "");
    let mut files = 0;
    for (name, bytes) in contents(&store, "b.undo/") {
        if name == "b.undo/1/applied" {
            assert!(bytes.is_empty());
            continue;
        }
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x20;
            store.put(&name, &wrong, Put::Replace).unwrap();
            let before = contents(&store, "");
            let error = undo_target(&target).unwrap_err();
            assert!(
                matches!(error.kind(), Kind::Corrupt),
                "{name} {at}: {error}"
            );
            assert!(contents(&store, "") == before, "{name} {at}");
        }
        let newer = String::from_utf8_lossy(&bytes).replace("bandsaw undo 4", "bandsaw undo 5");
        if newer.as_bytes() != bytes {
            store.put(&name, newer.as_bytes(), Put::Replace).unwrap();
            let error = undo_target(&target).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{name}: {error}");
        }
        store.put(&name, &bytes, Put::Replace).unwrap();
        files += 1;
    }
    assert!(files >= 4 && contents(&store, "") == repaired, "{files}");
    // Undo data of an older version has a log, and no state.
    let state = contents(&store, "b.undo/1/state");
    store.remove("b.undo/1/state").unwrap();
    store
        .put("b.undo/1/log", b"bandsaw undo 1\nend 0\n", Put::Replace)
        .unwrap();
    assert_eq!(undo_target(&target).unwrap_err().kind(), Kind::Unsupported);
    store
        .put("b.undo/1/log", &repaired["b.undo/1/log"], Put::Replace)
        .unwrap();
    copy_into(&store, &state);
    undo_target(&target).unwrap();
    assert!(contents(&store, "b/") == damaged);
}

/// Property lists that disagree, with contents that match one of them or neither: no file is
/// removed, and no list is overwritten on the basis of the other.
#[test]
fn lists_that_disagree_are_resolved_by_the_disk_or_not_at_all() {
    let foreign = fuzz::TARGETS
        .iter()
        .find(|target| target.name == "foreign_free")
        .unwrap();
    let ext = fuzz::described((foreign.seeds)()[0].split_first().unwrap().1).unwrap();
    let volume = fuzz::sample(false, 4096);
    let noise: Vec<u8> = (0..3_000_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 | 1)
        .collect();
    for (what, bytes, is_decided) in [
        ("HFS+", &volume, true),
        ("ext", &ext, true),
        ("unknown contents", &noise, false),
    ] {
        let whole = {
            let store = Arc::new(MemoryStore::default());
            let len = (bytes.len() as u64).next_multiple_of(512);
            let options = sparsebundle::BundleOptions {
                len,
                band_size: Some(BAND),
            };
            let disk = Bundle::create(store.clone(), &options).unwrap();
            disk.write_at(0, bytes).unwrap();
            disk.flush().unwrap();
            drop(disk);
            let named = |(name, bytes)| (format!("b/{name}"), bytes);
            contents(&*store, "")
                .into_iter()
                .filter(|(name, _)| name != "lock")
                .map(named)
                .collect::<BTreeMap<_, _>>()
        };
        let text = String::from_utf8(whole["b/Info.plist"].clone()).unwrap();
        let size = whole
            .values()
            .map(Vec::len)
            .max()
            .map(|_| (bytes.len() as u64).next_multiple_of(512))
            .unwrap()
            .to_string();
        for (key, from, to) in [
            ("size", &size[..], "0"),
            ("size", &size[..], "1024"),
            ("band-size", "1048576", "2097152"),
            ("band-size", "1048576", "1048064"),
            ("band-size", "1048576", "1024"),
        ] {
            let line = |number: &str| format!("<key>{key}</key>\n\t<integer>{number}</integer>");
            let wrong = text.replace(&line(from), &line(to)).into_bytes();
            assert!(wrong != text.as_bytes());
            for both in [false, true] {
                let mut damaged = whole.clone();
                damaged.insert("b/Info.plist".to_owned(), wrong.clone());
                if both {
                    damaged.insert("b/Info.bckup".to_owned(), wrong.clone());
                }
                let store = MemoryStore::default();
                copy_into(&store, &damaged);
                let target = Target::in_store(Arc::new(store.clone()), "b").unwrap();
                let done = repair_target(
                    &target,
                    &OpenOptions::default(),
                    &chosen(Mode::Apply),
                    &Silent,
                )
                .unwrap();
                let now = contents(&store, "b/");
                if done.outcome == Outcome::Repaired {
                    assert!(is_decided && !both, "{what}, {to}: {done:?}");
                    assert!(now == whole, "{what}, {to}: the right list is taken");
                } else {
                    assert!(
                        now == damaged && contents(&store, "b.undo/").is_empty(),
                        "{what}, {to}: {done:?}"
                    );
                    // A small disk is in one band, of any size.
                    let is_reported =
                        done.outcome == Outcome::Undecided && !done.alternatives().is_empty();
                    assert!(
                        is_reported || (both && done.outcome == Outcome::NothingToDo),
                        "{what}, {to}, {both}: {done:?}"
                    );
                }
            }
        }
    }
}

/// Every kind of file, plain and encrypted: an undo restores every bit, and the undo data is as
/// protected as the image.
#[test]
fn every_container_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let passphrase = Secret::new(b"key".to_vec());
    let volume = fuzz::sample(false, 4096);
    let len = gpt::MapGeometry::holding(volume.len() as u64, 512)
        .unwrap()
        .disk_len();
    for format in [Format::Udrw, Format::Udsp, Format::Asif, Format::Udsb] {
        // Key derivation is slow without optimization.
        let ways = if matches!(format, Format::Udrw | Format::Udsb) {
            &[false, true][..]
        } else {
            &[false]
        };
        for &is_encrypted in ways {
            let path = folder.path().join("image");
            let encryption = Encryption {
                iterations: Some(MIN_ITERATIONS),
                ..Encryption::new(passphrase.clone())
            };
            let encryption = is_encrypted.then_some(encryption);
            let options = open::CreateOptions {
                format,
                len,
                encryption,
                ..open::CreateOptions::default()
            };
            let image = open::create(&path, &options).unwrap();
            let range =
                gpt::create_single(&**image.disk(), 512, APPLE_HFS, Guids::derived("x")).unwrap();
            image.disk().write_at(range.start, &volume).unwrap();
            image.disk().write_at(512, &[9; 512]).unwrap();
            image.disk().flush().unwrap();
            drop(image);
            if format == Format::Udsp || format == Format::Asif {
                let mut file = fs::read(&path).unwrap();
                if !is_encrypted {
                    // Data after the last band or chunk would require a decision; zeros do not.
                    file.resize(file.len() + (2 << 20), 0);
                    fs::write(&path, file).unwrap();
                }
            }
            let files: Vec<PathBuf> = match format {
                Format::Udsb => ["Info.plist", "Info.bckup", "token", "bands/0"]
                    .map(|name| path.join(name))
                    .into(),
                _ => vec![path.clone()],
            };
            for file in files.iter().filter(|file| file.exists()) {
                fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
            }
            let read = || {
                files
                    .iter()
                    .map(|file| fs::read(file).ok())
                    .collect::<Vec<_>>()
            };
            let before = read();
            let options = OpenOptions {
                keys: Some(&passphrase),
                ..OpenOptions::default()
            };
            let done = repair(&path, &options, &chosen(Mode::Apply), &Silent).unwrap();
            assert_eq!(
                done.outcome,
                Outcome::Repaired,
                "{format} {is_encrypted}: {done:?}"
            );
            assert!(read() != before);
            let undo = done.undo.unwrap();
            assert_eq!(undo, repair::undo_folder(&path, None));
            for name in ["1/log", "1/data", "1/state", "1/applied"] {
                assert_eq!(
                    fs::metadata(undo.join(name)).unwrap().permissions().mode() & 0o777,
                    0o600,
                    "{format}: {name}"
                );
            }
            assert_eq!(
                fs::metadata(&undo).unwrap().permissions().mode() & 0o777,
                0o700
            );
            let undone = repair::undo(&path, &options, &chosen(Mode::Apply)).unwrap();
            assert_eq!(undone.repairs, 1);
            assert!(
                read() == before && !undo.exists(),
                "{format} {is_encrypted}"
            );
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap()
            } else {
                fs::remove_file(&path).unwrap()
            }
        }
    }
}

/// Names that are not text have undo data of their own, to which files are copied.
#[test]
fn names_that_are_not_text_do_not_collide() {
    let folder = tempfile::tempdir().unwrap();
    let damaged = bundle(true);
    let paths: Vec<PathBuf> = [0xf1, 0xf2]
        .map(|byte| folder.path().join(OsStr::from_bytes(&[b'b', byte])))
        .into();
    let store = |path: &Path| Local::new(path);
    let strip = |(name, bytes): (&String, &Vec<u8>)| (name[2..].to_owned(), bytes.clone());
    let expected: BTreeMap<_, _> = damaged.iter().map(strip).collect();
    let options = OpenOptions::default();
    for path in &paths {
        copy_into(&store(path), &expected);
        let done = repair(path, &options, &chosen(Mode::Apply), &Silent).unwrap();
        assert_eq!(done.outcome, Outcome::Repaired);
        assert!(done.undo.unwrap().join("1/files/bands/ff").exists());
    }
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    for path in &paths {
        repair::undo(path, &options, &chosen(Mode::Apply)).unwrap();
        let mut now = contents(&store(path), "");
        now.remove("lock");
        assert!(now == expected, "{}", path.display());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// A copy to the quarantine that was interrupted does not replace the file of which it is a part.
#[test]
fn an_interrupted_copy_to_the_quarantine_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (path, undo_dir) = (folder.path().join("b"), folder.path().join("kept"));
    fs::create_dir(&undo_dir).unwrap();
    let damaged = bundle(true);
    let strip = |(name, bytes): (&String, &Vec<u8>)| (name[2..].to_owned(), bytes.clone());
    let expected: BTreeMap<_, _> = damaged.iter().map(strip).collect();
    copy_into(&Local::new(&path), &expected);
    let options = OpenOptions::default();
    let chosen = Options {
        undo_dir: Some(&undo_dir),
        ..chosen(Mode::Apply)
    };
    repair(&path, &options, &chosen, &Silent).unwrap();
    // As if the band were still being copied.
    fs::remove_file(undo_dir.join("b.undo/1/applied")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    copy_into(&Local::new(&path), &expected);
    fs::write(undo_dir.join("b.undo/1/files/bands/ff"), [1; 300]).unwrap();
    repair::undo(&path, &options, &chosen).unwrap();
    let mut now = contents(&Local::new(&path), "");
    now.remove("lock");
    assert!(now == expected);
    assert_eq!(fs::read_dir(&undo_dir).unwrap().count(), 0);
}

/// Two valid maps that differ: the one that matches the volume is used, or none.
#[test]
fn two_whole_maps_that_differ() {
    let volume = fuzz::sample(false, 4096);
    let disk = Memory::zeros(
        gpt::MapGeometry::holding(volume.len() as u64, 512)
            .unwrap()
            .disk_len() as usize,
    );
    let range = gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("x")).unwrap();
    disk.write_at(range.start, &volume).unwrap();
    let whole = disk.to_vec();
    let half = range.start + (range.end - range.start) / 2 / 4096 * 4096;
    let other = Memory::zeros(whole.len());
    let new = |end, name: &str| NewPartition {
        range: range.start..end,
        type_guid: APPLE_HFS,
        guid: Guids::derived("x").partition,
        name: name.into(),
    };
    for (end, name, expected) in [
        (half, "disk image", Outcome::Repaired),
        (range.end, "renamed", Outcome::Undecided),
    ] {
        gpt::create(&other, 512, Guids::derived("x").disk, &[new(end, name)]).unwrap();
        let mut bytes = whole.clone();
        bytes[512..34 * 512].copy_from_slice(&other.to_vec()[512..34 * 512]);
        let store = MemoryStore::default();
        store.put("x", &bytes, Put::Replace).unwrap();
        let target = Target::in_store(Arc::new(store.clone()), "x").unwrap();
        let done = repair_target(
            &target,
            &OpenOptions::default(),
            &chosen(Mode::Apply),
            &Silent,
        )
        .unwrap();
        assert_eq!(done.outcome, expected, "{name}: {done:?}");
        let now = contents(&store, "x")["x"].clone();
        if expected == Outcome::Repaired {
            assert!(now == whole);
        } else {
            assert!(now == bytes && done.alternatives().len() == 2);
            let mut options = chosen(Mode::Apply);
            options.assume.add("map=alternate").unwrap();
            repair_target(&target, &OpenOptions::default(), &options, &Silent).unwrap();
            assert!(contents(&store, "x")["x"] == whole);
        }
    }
}

/// The start of a disk is lost and the backup GPT is whole: every container is repaired.
#[test]
fn the_start_of_a_disk_is_restored_from_the_backup_map() {
    let volume = fuzz::sample(false, 4096);
    let len = gpt::MapGeometry::holding(volume.len() as u64, 512)
        .unwrap()
        .disk_len();
    for format in [Format::Udrw, Format::Udsp, Format::Asif, Format::Udsb] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let options = open::CreateOptions {
            format,
            len,
            ..open::CreateOptions::default()
        };
        let image = open::create(&path, &options).unwrap();
        let range =
            gpt::create_single(&**image.disk(), 512, APPLE_HFS, Guids::derived("x")).unwrap();
        image.disk().write_at(range.start, &volume).unwrap();
        let whole = image.disk().read_vec(0, len as usize).unwrap();
        image.disk().write_at(0, &[0; 34 * 512]).unwrap();
        image.disk().flush().unwrap();
        drop(image);
        let done = run(&path, Mode::Apply).unwrap();
        assert_eq!(done.outcome, Outcome::Repaired, "{format}: {done:?}");
        assert!(done.remaining.is_empty(), "{format}: {done:?}");
        let image = open::open(&path, &OpenOptions::default()).unwrap();
        assert!(
            image.disk().read_vec(0, len as usize).unwrap() == whole,
            "{format}"
        );
        drop(image);
        assert_eq!(damage(&path), (0, false, false), "{format}");
    }
}

/// A read error at any call is an error of reading, not damage, and nothing is written; calls whose
/// failure does not matter change nothing in the result.
#[test]
fn read_errors_are_not_damage() {
    for is_damaged in [false, true] {
        let image = bundle(is_damaged);
        let mut failed = 0;
        let result = |store: Arc<dyn Store>| {
            let target = Target::in_store(store, "b")?;
            let options = OpenOptions::default();
            let done = repair_target(&target, &options, &chosen(Mode::DryRun), &Silent);
            done.map(|done| {
                let found = done.found.into_iter().map(|one| one.error.to_string());
                (done.outcome, done.steps, found.collect::<Vec<_>>())
            })
        };
        let expected = result(Arc::new(memory(&image))).unwrap();
        for call in [Call::Read, Call::Open, Call::Stat] {
            let made = at_every(call, Fault::Io, |faults, n| {
                let store = FaultyStore::new(Arc::new(memory(&image)), faults);
                match result(Arc::new(store)) {
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Io, "{call:?} {n}: {error}");
                        failed += 1;
                    }
                    Ok(done) => assert_eq!(done, expected, "{call:?} {n}"),
                }
            });
            assert!(made > 0, "{call:?}");
        }
        assert!(failed > 10, "{failed}");
    }
}

fn memory(files: &BTreeMap<String, Vec<u8>>) -> MemoryStore {
    let store = MemoryStore::default();
    copy_into(&store, files);
    store
}

/// A repair without a step is not a sound image: the verdict is that of a check.
#[test]
fn nothing_to_repair_is_not_soundness() {
    let noise: Vec<u8> = (0..1_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for format in [Format::Udrw, Format::Udsp, Format::Asif, Format::Udsb] {
        for (bytes, expected) in [(&noise[..], "unknown"), (&[0; 4096], "sound")] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image");
            let options = open::CreateOptions {
                format,
                len: 1 << 20,
                ..open::CreateOptions::default()
            };
            let image = open::create(&path, &options).unwrap();
            image.disk().write_at(0, bytes).unwrap();
            image.disk().flush().unwrap();
            drop(image);
            let checked = open::examine(&path, &OpenOptions::default(), &Silent).unwrap();
            assert_eq!(checked.conclusion().name(), expected, "{format}");
            match run(&path, Mode::DryRun) {
                Ok(done) => {
                    assert_eq!(done.outcome, Outcome::NothingToDo, "{format}: {done:?}");
                    let conclusion = done.conclusion.unwrap();
                    assert_eq!(conclusion.name(), expected, "{format}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Unsupported, "{format}: {error}");
                    assert_eq!((format, expected), (Format::Udrw, "unknown"));
                }
            }
        }
    }
}
