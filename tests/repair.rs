//! `ops::repair` and what it stands on: at whatever step the power goes, the image opens and holds what it held, and a second
//! repair ends what the first began.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::container::asif::{self, Asif};
use bandsaw::container::sparsebundle::{self, Bundle};
use bandsaw::container::sparseimage::{self, SparseImage};
use bandsaw::crypt::{Device, KeyWrap, LEAST_ITERATIONS, Protection, Secret};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt, Leave, Memory};
use bandsaw::open::{self, OpenOptions, Verdict};
use bandsaw::ops::repair::{How, Repaired, repair};
use bandsaw::partition::gpt::{self, Guids, NewPartition};
use bandsaw::partition::{self, APPLE_HFS, Partition};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::{Progress, Silent};
use bandsaw::store::{Open, Put, Store};
use bandsaw::testing::power_cut::Keep;
use bandsaw::testing::{PowerCut, Random, fuzz, mutate};
use bandsaw::{Kind, Result};

fn file(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("image", Open::Create).unwrap().unwrap()
}

/// A durable store with a file of these bytes.
fn store_of(bytes: &[u8]) -> PowerCut {
    let store = PowerCut::default();
    let device = file(&store);
    device.set_len(bytes.len() as u64, Leave::Zeros).unwrap();
    device.write_at(0, bytes).unwrap();
    device.flush().unwrap();
    store.sync().unwrap();
    store
}

/// Every state that a power cut could have left since `first`, and that after all was done.
fn crashes(store: &PowerCut, first: usize) -> Vec<PowerCut> {
    let mut stores: Vec<_> = store.crashes_from(first, 11, 6).map(|crash| crash.store).collect();
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
    let partition =
        NewPartition { range: 40 * 512..200 * 512, type_guid: APPLE_HFS, guid: Guids::derived("x").partition, name: "x".into() };
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
    assert!(disk.read_vec(299 * 512, 512).unwrap().iter().all(|byte| *byte == 0), "the old backup is gone");
    // What stands at the end is not written over.
    bytes[990 * 512] = 7;
    let disk = Memory::from(bytes.clone());
    let plan = gpt::plan(&disk).unwrap();
    assert!(plan.refused[0].message().contains("not blank") && !plan.parts().backup, "{plan:?}");
    plan.apply(&disk).unwrap();
    assert_eq!(disk.to_vec()[512..], bytes[512..], "but for block 0 it is as it was");
}

const BAND: u64 = 1 << 20;

#[test]
fn a_bundle_with_leftovers() {
    let store = PowerCut::default();
    let options = sparsebundle::CreateOptions { len: 20 * BAND + 512, band_size: Some(BAND) };
    let bundle = Bundle::create(Arc::new(store.clone()), &options).unwrap();
    for band in [0, 10, 11, 20] {
        bundle.write_at(band * BAND, &[band as u8 + 1; 512]).unwrap();
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
    let steps = mend(&store).unwrap();
    assert_eq!(steps.len(), 6, "{steps:?}");
    for crash in crashes(&store, begun) {
        let crash: Arc<dyn Store> = Arc::new(crash);
        let held = Bundle::open(crash.clone(), Access::ReadOnly).unwrap();
        assert_eq!(held.info().len, 20 * BAND + 512);
        assert_eq!(held.read_vec(20 * BAND, 512).unwrap(), [21; 512]);
        drop(held);
        mend(&*crash).unwrap();
        let mut problems = Problems::default();
        sparsebundle::check(&*crash, &mut problems, &Silent).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
        let bundle = Bundle::open(crash, Access::ReadOnly).unwrap();
        assert_eq!([0, 10, 11, 20].map(|band| bundle.read_array::<1>(band * BAND).unwrap()), [[1], [11], [12], [21]]);
    }
}

fn mend(store: &dyn Store) -> Result<Vec<String>> {
    let _held = sparsebundle::locks(store)?;
    let plan = sparsebundle::plan(store, true, &Silent)?;
    assert!(plan.refused.is_empty() && !plan.is_full());
    plan.apply(store, &Silent)?;
    Ok(plan.steps())
}

#[test]
fn ends_of_sparse_images() {
    let made = Arc::new(Memory::zeros(0));
    let options = sparseimage::CreateOptions { len: 64 << 10, band_size: Some(4096) };
    let image = SparseImage::create(made.clone(), &options).unwrap();
    for band in 0..5 {
        image.write_at(band * 8192, &[band as u8 + 1; 4096]).unwrap();
    }
    image.flush().unwrap();
    let mut bytes = made.to_vec();
    // A band past the end of the disk in the second slot, and a tail.
    bytes[0x44..0x48].copy_from_slice(&99_u32.to_be_bytes());
    bytes.resize(bytes.len() + 5000, 9);
    let store = store_of(&bytes);
    let expected = SparseImage::open(file(&store)).unwrap().read_vec(0, 64 << 10).unwrap();
    let store = store_of(&bytes); // opening for writing has tidied the first up
    let begun = store.position();
    assert!(!sparseimage::repair(&file(&store)).unwrap().is_empty());
    for crash in crashes(&store, begun) {
        sparseimage::repair(&file(&crash)).unwrap();
        let mut problems = Problems::default();
        let image = sparseimage::check(&file(&crash), &mut problems, &Silent).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
        assert!(image.read_vec(0, 64 << 10).unwrap() == expected);
    }
}

#[test]
fn ends_of_asif() {
    let made = Arc::new(Memory::zeros(0));
    let options = asif::CreateOptions { len: 8 << 20, block: 512, kind: asif::LayerKind::Disk };
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
    assert_eq!(asif::repair(&file(&store), &Silent).unwrap().len(), 2);
    for crash in crashes(&store, begun) {
        asif::repair(&file(&crash), &Silent).unwrap();
        let mut problems = Problems::default();
        let image = asif::check(&file(&crash), &mut problems, &Silent).unwrap();
        assert!(problems.worst().is_none(), "{problems:?}");
        assert_eq!((image.info().len, image.read_array::<4>(100).unwrap()), (4 << 20, *b"kept"));
    }
}

/// A map is mended through the encryption around it, and without the passphrase nothing is touched.
#[test]
fn encrypted_images() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.dmg");
    let passphrase = Secret::new(b"key".to_vec());
    let protection = Protection {
        key_bits: 128,
        block: 512,
        iterations: LEAST_ITERATIONS,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(passphrase.clone()),
        certificates: Vec::new(),
    };
    let made = Arc::new(Memory::zeros(0));
    let device = Device::create(made.clone(), &protection).unwrap();
    device.set_len(1000 * 512, Leave::Zeros).unwrap();
    gpt::create_single(&device, 512, APPLE_HFS, Guids::derived("x")).unwrap();
    device.flush().unwrap();
    let whole = made.to_vec();
    device.write_at(512, &[9; 512]).unwrap();
    device.flush().unwrap();
    fs::write(&path, made.to_vec()).unwrap();
    assert_eq!(run(&path, How::Apply).unwrap_err().kind(), Kind::WrongKey);
    assert!(fs::read(&path).unwrap() == made.to_vec());
    let options = OpenOptions { keys: Some(&passphrase), ..OpenOptions::default() };
    let done = repair(&path, &options, How::Apply, &Silent).unwrap();
    assert_eq!(done.steps, [("GPT", "copy at the beginning".to_owned())]);
    assert!(fs::read(&path).unwrap() == whole);
}

/// What lies below a shadow is never written: the map is mended above it.
#[test]
fn an_image_below_a_shadow_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (path, shadow) = (folder.path().join("x.img"), [folder.path().join("x.shadow")]);
    let disk = Memory::zeros(1000 * 512);
    gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("x")).unwrap();
    disk.write_at(512, &[9; 512]).unwrap();
    fs::write(&path, disk.to_vec()).unwrap();
    let options = OpenOptions { shadows: &shadow, ..OpenOptions::default() };
    let done = repair(&path, &options, How::Apply, &Silent).unwrap();
    assert_eq!(done.steps, [("GPT", "copy at the beginning".to_owned())]);
    assert!(fs::read(&path).unwrap() == disk.to_vec() && shadow[0].exists());
    assert!(repair(&path, &options, How::DryRun, &Silent).unwrap().steps.is_empty());
}

fn run(path: &Path, how: How) -> Result<Repaired> {
    repair(path, &OpenOptions::default(), how, &Silent)
}

fn damage(path: &Path) -> (u64, bool, bool) {
    let found = open::examine(path, &OpenOptions::default(), &Silent).unwrap();
    let unknown = found.layers.iter().any(|judged| matches!(judged.verdict, Verdict::Unknown(_)));
    (found.problems.count(Severity::Damage), found.problems.count(Severity::Warning) > 0, unknown)
}

/// Broken copies of every kind of file: nothing panics, what does not open is told of by a check, and a repair leaves nothing
/// worse than it was.
#[test]
fn broken_copies_are_told_of_and_not_made_worse() {
    let folder = tempfile::tempdir().unwrap();
    let udif = fuzz::TARGETS.iter().find(|target| target.name == "udif").unwrap();
    let sample = {
        let volume = fuzz::sample(false, 4096);
        let disk = Memory::zeros(gpt::Geometry::holding(volume.len() as u64, 512).unwrap().disk_len() as usize);
        let range = gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("x")).unwrap();
        disk.write_at(range.start, &volume).unwrap();
        disk.to_vec()
    };
    let mut mended = 0;
    for (number, format) in (0..).zip([Format::Udrw, Format::Udsp, Format::Asif, Format::Udzo]) {
        let path = folder.path().join("good");
        if format == Format::Udzo {
            fs::write(&path, (udif.seeds)().swap_remove(1)).unwrap();
        } else {
            let options =
                open::CreateOptions { format, len: sample.len() as u64, overwrite: true, ..open::CreateOptions::default() };
            let image = open::create(&path, &options).unwrap();
            image.disk().write_at(0, &sample).unwrap();
            image.disk().flush().unwrap();
        }
        let good = fs::read(&path).unwrap();
        let path = folder.path().join("copy");
        for copy in 0..60 {
            fs::write(&path, mutate::mutated(&good, &mut Random::new(number << 32 | copy))).unwrap();
            let opens = open::trace(&path, &OpenOptions::default()).1.is_none();
            let (before, _, unknown) = damage(&path);
            assert!(opens || before > 0 || unknown, "{format} {copy}: does not open, and nothing is wrong");
            let bytes = fs::read(&path).unwrap();
            let planned = run(&path, How::DryRun).map(|plan| plan.steps.len());
            assert!(fs::read(&path).unwrap() == bytes, "{format} {copy}: a dry run changed the image");
            let done = run(&path, How::Apply).map(|done| done.steps.len());
            assert_eq!(planned.as_ref().ok(), done.as_ref().ok(), "{format} {copy}");
            let (after, _, _) = damage(&path);
            assert!(after <= before, "{format} {copy}: {before} became {after}");
            assert!(!opens || open::trace(&path, &OpenOptions::default()).1.is_none(), "{format} {copy}");
            if done.is_ok_and(|steps| steps > 0) {
                mended += 1;
                assert_eq!(run(&path, How::Apply).unwrap().steps.len(), 0, "{format} {copy}: a second repair has nothing to do");
            }
        }
    }
    assert!(mended > 5, "{mended} copies were mended");
}

/// Nobody waits for a check that is told to stop.
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
    let options =
        open::CreateOptions { format: Format::Udsb, len: 64 * BAND, band_size: Some(BAND), ..open::CreateOptions::default() };
    drop(open::create(&path, &options).unwrap());
    fs::write(path.join("bands/0"), "x").unwrap();
    fs::write(path.join("bands/fff"), "x").unwrap();
    let stopped = open::examine(&path, &OpenOptions::default(), &Stop).unwrap_err();
    assert_eq!(stopped.kind(), Kind::Cancelled);
    let stopped = repair(&path, &OpenOptions::default(), How::Apply, &Stop).unwrap_err();
    assert_eq!(stopped.kind(), Kind::Cancelled);
    assert!(path.join("bands/fff").exists());
}
