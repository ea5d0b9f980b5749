//! `ops::repair` and its building blocks: after a power failure at any step the image opens with
//! its contents, and a second repair completes the first.

mod maps;
mod undo;

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
use bandsaw::open::{self, LayerVerdict, OpenOptions};
use bandsaw::ops::repair::{
    self, Mode, Options, Outcome, Repaired, Target, commit_target, repair, repair_target,
    undo_target,
};
use bandsaw::partition::gpt::{self, Guids, NewPartition, Search};
use bandsaw::partition::{self, APPLE_HFS, Partition};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::{Progress, Silent};
use bandsaw::store::{Local, MemoryStore, Open, PrefixStore, Put, Store};
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
fn an_image_below_a_shadow_is_unchanged() {
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
        .any(|judged| matches!(judged.verdict, LayerVerdict::Unknown(_)));
    (
        found.problems.count(Severity::Damage),
        found.problems.count(Severity::Warning) > 0,
        unknown,
    )
}

/// Corrupted copies of every kind of file: nothing panics, a check reports those that do not open,
/// and a repair makes nothing worse.
#[test]
fn damaged_copies_are_reported_and_not_made_worse() {
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
fn work_stops_on_request() {
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
