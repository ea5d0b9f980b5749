//! ASIF: the conformance suites for devices, power failures, real images, and corrupt images.

mod damage;

use std::ops::Range;
use std::sync::Arc;

use crate::common::corpus;
use crate::common::small_asif::{SMALL, small_image, with_small_chunks};
use bandsaw::container::asif::{self, Asif, AsifOptions, LayerKind};
use bandsaw::device::{
    AfterDiscard, BlockDevice, BlockDeviceExt, Extent, ExtentKind, FileRange, Info, Memory,
};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::{LocalFile, MemoryStore, Open, Store};
use bandsaw::testing::PowerCut;
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::power_cut::Survival;
use bandsaw::testing::{Random, conformance};
use bandsaw::{Kind, Result};
use proptest::prelude::*;
use uuid::Uuid;

const MIB: u64 = 1 << 20;

fn create(file: Arc<dyn BlockDevice>, len: u64, block: u32) -> Asif {
    Asif::create(
        file,
        &AsifOptions {
            len,
            block,
            kind: LayerKind::Disk,
        },
    )
    .unwrap()
}

fn in_memory(len: u64) -> (Arc<Memory>, Asif) {
    let file = Arc::new(Memory::zeros(0));
    (file.clone(), create(file, len, 512))
}

fn open(bytes: impl Into<Vec<u8>>) -> Result<Asif> {
    Asif::open(Arc::new(Memory::read_only(bytes)))
}

/// Returns the problems found by `check`, most severe first.
fn problems(file: &Arc<dyn BlockDevice>) -> Vec<(Severity, String)> {
    let mut problems = Problems::default();
    let ended = asif::check(file, &mut problems, &Silent)
        .err()
        .map(|error| (Severity::Damage, error.to_string()));
    let mut found: Vec<_> = problems
        .into_iter()
        .map(|problem| (problem.severity, problem.error.to_string()))
        .chain(ended)
        .collect();
    found.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    found
}

fn problems_in(bytes: impl Into<Vec<u8>>) -> Vec<(Severity, String)> {
    problems(&(Arc::new(Memory::read_only(bytes)) as Arc<dyn BlockDevice>))
}

fn reopened(store: &dyn Store) -> Result<Asif> {
    let file = store.open("disk.asif", Open::Write)?.expect("the file");
    let damage = problems(&file)
        .into_iter()
        .find(|(severity, _)| *severity == Severity::Damage);
    assert_eq!(damage, None, "check");
    Asif::open(file)
}

fn boxed(device: impl BlockDevice + 'static) -> Arc<dyn BlockDevice> {
    Arc::new(device)
}

#[test]
fn an_asif_image_is_a_device() {
    for (len, block) in [(300 << 10, 512), (5 * MIB + 4096, 4096)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.asif");
        let make = || {
            let _none = std::fs::remove_file(&path);
            let file = LocalFile::open(&path, Open::CreateNew).unwrap().unwrap();
            Arc::new(create(Arc::new(file), len, block)) as Arc<dyn BlockDevice>
        };
        let reopen = || {
            let file = Arc::new(LocalFile::open(&path, Open::Write).unwrap().unwrap())
                as Arc<dyn BlockDevice>;
            assert_eq!(problems(&file), [], "the file that was left");
            Arc::new(Asif::open(file).unwrap()) as Arc<dyn BlockDevice>
        };
        conformance::Devices::new(make)
            .unit(MIB)
            .reopen(reopen)
            .check();
    }
}

#[test]
fn an_image_with_small_chunks_is_a_device() {
    let store = std::cell::RefCell::new(MemoryStore::default());
    let make = || {
        let new = MemoryStore::default();
        let image = small_image(&new, 20 * SMALL + 512).unwrap();
        *store.borrow_mut() = new;
        boxed(image)
    };
    conformance::Devices::new(make)
        .unit(SMALL)
        .reopen(|| boxed(reopened(&*store.borrow()).unwrap()))
        .check();
}

#[test]
fn a_layer_is_a_device() {
    let make = || {
        let options = AsifOptions {
            len: 3 * MIB,
            block: 512,
            kind: LayerKind::Overlay(Uuid::from_u128(5)),
        };
        Arc::new(Asif::create(Arc::new(Memory::zeros(0)), &options).unwrap())
            as Arc<dyn BlockDevice>
    };
    conformance::Devices::new(make).unit(MIB).check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_work_beside_a_vector(seed: u64, count in 1..200_usize) {
        let store = MemoryStore::default();
        let device = boxed(small_image(&store, 150 << 10).unwrap());
        let reopen = || {
            assert_eq!(problems(&store.open("disk.asif", Open::Read).unwrap().unwrap()), []);
            boxed(reopened(&store).unwrap())
        };
        Model::new(device).reopen(reopen).run(&operations(seed, count, 20_000));
    }
}

#[test]
fn power_cuts_are_survived() {
    for seed in 1..6 {
        let survival = Survival::new(
            |store| small_image(store, 60 << 10).map(boxed),
            |store| reopened(store).map(boxed),
        );
        let crashes = survival.steps(60).resize_by(40 << 10).check(seed);
        assert!(crashes > 300, "only {crashes} crashes");
    }
}

/// An image that every flush compacts.
#[derive(Debug)]
struct Compacting(Asif);

impl BlockDevice for Compacting {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.0.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.0.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.0.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.0.compact(&Silent)
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.0.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.0.file_range(range)
    }
}

#[test]
fn power_cuts_beside_moving_chunks_are_survived() {
    let compacting = |image: Asif| boxed(Compacting(image));
    for seed in 1..4 {
        let survival = Survival::new(
            |store| small_image(store, 200 << 10).map(compacting),
            |store| reopened(store).map(compacting),
        );
        let crashes = survival.steps(60).resize_by(100 << 10).check(seed);
        assert!(crashes > 300, "only {crashes} crashes");
    }
}

#[test]
fn real_images_hold_what_is_known() {
    let Some(images) = corpus::images("real_images_hold_what_is_known") else {
        return;
    };
    let mut seen = 0;
    for image in images.iter().filter(|image| image.format() == "ASIF") {
        let file = boxed(Memory::read_only(image.bytes().expect("a file")));
        assert_eq!(problems(&file), [], "{}", image.path());
        let disk = Asif::open(file).unwrap();
        let facts = &image.entry()["asif"];
        assert_eq!(
            facts["uuid"].as_str().unwrap(),
            disk.uuid().simple().to_string(),
            "{}",
            image.path()
        );
        assert_eq!(Some(disk.info().len), image.number("media_size"));
        let list = facts["metadata_plist"].as_str().unwrap();
        assert!(
            list.contains(&disk.metadata().stable_uuid.unwrap().to_string()),
            "{}",
            image.path()
        );
        match image.text("media_sha256") {
            Some(expected) => {
                let len = disk.info().len;
                let pieces = (0..len)
                    .step_by(MIB as usize)
                    .map(|at| disk.read_vec(at, MIB.min(len - at) as usize).unwrap());
                assert_eq!(
                    corpus::sha256_of_pieces(pieces),
                    expected,
                    "{}",
                    image.path()
                );
            }
            None => assert_eq!(
                disk.extent_at(0..disk.info().len).unwrap().kind,
                ExtentKind::Hole
            ),
        }
        seen += 1;
    }
    assert!(
        seen >= 14,
        "the corpus has fourteen ASIF images, not {seen}"
    );
}

/// A blank image differs from that of macOS in its two UUIDs only.
#[test]
fn blank_images_are_those_of_macos() {
    let Some(images) = corpus::images("blank_images_are_those_of_macos") else {
        return;
    };
    let mut seen = 0;
    for image in images
        .iter()
        .filter(|image| image.path().starts_with("asif/kernova-blank"))
    {
        let by_macos = image.bytes().expect("a file");
        let (file, disk) = in_memory(image.number("media_size").unwrap());
        let mut ours = file.to_vec();
        let uuids = [0x20, 0x200200 + list_offset(&by_macos)];
        assert_ne!(ours[uuids[0]..][..16], by_macos[uuids[0]..][..16]);
        assert_eq!(ours[uuids[0]..][..16], *disk.uuid().as_bytes());
        let stable = disk.metadata().stable_uuid.unwrap().to_string();
        assert_eq!(ours[uuids[1]..][..36], *stable.as_bytes());
        for (at, len) in [(uuids[0], 16), (uuids[1], 36)] {
            ours[at..at + len].copy_from_slice(&by_macos[at..at + len]);
        }
        assert!(ours == by_macos, "{} differs", image.path());
        seen += 1;
    }
    assert!(
        seen >= 13,
        "the corpus has thirteen blank images, not {seen}"
    );
}

/// Returns the offset of the stable UUID in the property list.
fn list_offset(image: &[u8]) -> usize {
    let list = &image[0x200200..0x200400];
    let tag = b"<string>";
    list.windows(tag.len())
        .position(|window| window == tag)
        .expect("a string")
        + tag.len()
}

#[test]
fn writes_take_chunks_in_order() {
    let (file, disk) = in_memory(100 * MIB);
    let uuid = disk.uuid();
    disk.write_at(3 * MIB, &Random::new(1).bytes(MIB as usize))
        .unwrap();
    disk.write_at(MIB + 1000, b"a few bytes").unwrap();
    disk.write_at(9 * MIB, &vec![0; MIB as usize]).unwrap();
    disk.flush().unwrap();
    assert_eq!(
        disk.uuid(),
        uuid,
        "nobody can have built on an image that was never closed"
    );
    let bytes = file.to_vec();
    let entry = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    // Chunk 1 is the table of the metadata, 2 its data and 3 its bitmap. New chunks: data 4, its
    // table, data, its bitmap.
    assert_eq!(
        (entry(0x208), entry(0x200)),
        (5, 2),
        "the first directory, with the next version"
    );
    assert_eq!(
        (entry(0x41408), entry(0x41400)),
        (0, 1),
        "the second as it was"
    );
    let table = 5 << 20;
    assert_eq!(
        [1, 3, 9].map(|chunk| entry(table + 8 * chunk)),
        [3 << 62 | 6, 1 << 62 | 4, 0]
    );
    assert_eq!(entry(table + 8 * 2048), 7, "the bitmap");
    assert_eq!(
        bytes[(7 << 20) + 512..][..2],
        [0b0000_0100, 0],
        "the second block of the second chunk"
    );
    assert_eq!(bytes.len(), 8 << 20);
    let again = open(bytes).unwrap();
    assert_eq!(
        again.read_vec(MIB + 990, 30).unwrap()[10..21],
        *b"a few bytes"
    );
    assert_eq!(
        again.read_vec(3 * MIB, MIB as usize).unwrap(),
        Random::new(1).bytes(MIB as usize)
    );
    assert_eq!(problems(&(file as Arc<dyn BlockDevice>)), []);
}

#[test]
fn a_chunk_that_is_written_bit_by_bit_needs_no_bitmap() {
    let (file, disk) = in_memory(100 * MIB);
    for at in (0..4 * MIB).step_by(64 << 10) {
        disk.write_at(at, &vec![1; 64 << 10]).unwrap();
    }
    disk.flush().unwrap();
    let usage = disk.usage();
    assert_eq!((usage.data, usage.tables, usage.bitmaps), (5, 2, 1));
    assert_eq!(usage.file_len, file.info().len);
}

#[test]
fn discarded_chunks_are_used_again_and_the_file_is_cut() {
    let (file, disk) = in_memory(1000 * MIB);
    for number in 0..40_u8 {
        disk.write_at(u64::from(number) * MIB, &vec![number + 1; MIB as usize])
            .unwrap();
    }
    disk.flush().unwrap();
    let full = file.info().len;
    disk.discard(0..10 * MIB, AfterDiscard::Zeros).unwrap();
    assert_eq!(disk.extent_at(0..20 * MIB).unwrap().len, 10 * MIB);
    assert_eq!(disk.extent_at(0..20 * MIB).unwrap().kind, ExtentKind::Zero);
    disk.flush().unwrap();
    for number in 100..110 {
        disk.write_at(number * MIB, &vec![1; MIB as usize]).unwrap();
    }
    disk.flush().unwrap();
    assert_eq!(file.info().len, full, "freed chunks are used first");
    disk.discard(0..200 * MIB, AfterDiscard::Any).unwrap();
    disk.write_at(7 * MIB, &vec![9; MIB as usize]).unwrap();
    disk.flush().unwrap();
    disk.compact(&Silent).unwrap();
    assert_eq!(disk.usage().data, 2);
    assert_eq!(
        file.info().len,
        6 * MIB,
        "header, two tables, metadata and its bitmap, one chunk"
    );
    assert_eq!(
        disk.read_vec(7 * MIB, MIB as usize).unwrap(),
        vec![9; MIB as usize]
    );
    let again = open(file.to_vec()).unwrap();
    assert_eq!(
        again.read_vec(6 * MIB, 2 * MIB as usize).unwrap()[MIB as usize..],
        vec![9; MIB as usize]
    );
    assert_eq!(problems(&(file as Arc<dyn BlockDevice>)), []);
}

#[test]
fn the_uuid_changes_with_the_first_change_of_a_session() {
    let (file, disk) = in_memory(10 * MIB);
    let (uuid, stable) = (disk.uuid(), disk.metadata().stable_uuid);
    drop(disk);
    let disk = Asif::open(file.clone()).unwrap();
    let mut buf = [0; 512];
    disk.read_at(0, &mut buf).unwrap();
    disk.flush().unwrap();
    assert_eq!(
        (disk.uuid(), open(file.to_vec()).unwrap().uuid()),
        (uuid, uuid),
        "reading changes nothing"
    );
    disk.write_at(0, &[1]).unwrap();
    let new = disk.uuid();
    assert_ne!(new, uuid);
    disk.write_at(0, &[2]).unwrap();
    disk.flush().unwrap();
    let again = open(file.to_vec()).unwrap();
    assert_eq!((again.uuid(), again.metadata().stable_uuid), (new, stable));
}

#[test]
fn a_cache_keeps_the_uuid_of_what_is_below() {
    let file = Arc::new(Memory::zeros(0));
    let below = Uuid::from_u128(77);
    drop(
        Asif::create(
            file.clone(),
            &AsifOptions {
                len: MIB,
                block: 512,
                kind: LayerKind::Cache(below),
            },
        )
        .unwrap(),
    );
    let disk = Asif::open(file.clone()).unwrap();
    disk.write_at(0, &[1]).unwrap();
    disk.flush().unwrap();
    let again = open(file.to_vec()).unwrap();
    assert_eq!(
        (again.uuid(), again.layer().parent, again.layer().is_cache),
        (below, below, true)
    );
}

/// Unallocated ranges are distinguished from explicit zeros, as a stack of layers requires.
#[test]
fn a_layer_distinguishes_holes_from_zeros() {
    let file = Arc::new(Memory::zeros(0));
    let parent = Uuid::from_u128(5);
    let options = AsifOptions {
        len: 10 * MIB,
        block: 512,
        kind: LayerKind::Overlay(parent),
    };
    let layer = Asif::create(file.clone(), &options).unwrap();
    layer.write_at(MIB + 512, &[1; 512]).unwrap();
    layer.write_at(2 * MIB, &[0; 512]).unwrap();
    layer
        .discard(3 * MIB..4 * MIB, AfterDiscard::Zeros)
        .unwrap();
    layer
        .discard(4 * MIB + 1024..4 * MIB + 2048, AfterDiscard::Zeros)
        .unwrap();
    layer.discard(6 * MIB..7 * MIB, AfterDiscard::Any).unwrap();
    layer
        .discard(MIB + 512..MIB + 1536, AfterDiscard::Zeros)
        .unwrap();
    layer.flush().unwrap();
    let layer = open(file.to_vec()).unwrap();
    assert_eq!(
        (layer.layer().parent, layer.layer().is_overlaid),
        (parent, true)
    );
    let found: Vec<_> = layer
        .extents(0..10 * MIB)
        .map(|extent| {
            extent
                .map(|(at, kind)| (at.start - at.start / MIB * MIB, at.start / MIB, kind))
                .unwrap()
        })
        .collect();
    use ExtentKind::{Data, Hole, Zero};
    let expected = [
        (0, 0, Hole),
        (0, 1, Hole),
        (512, 1, Data), // in memory a punched block is data
        (1024, 1, Zero),
        (1536, 1, Hole),
        (0, 2, Data),
        (512, 2, Hole),
        (0, 3, Zero),
        (0, 4, Hole),
        (1024, 4, Zero),
        (2048, 4, Hole),
        (0, 5, Hole),
    ];
    assert_eq!(found, expected);
}

#[test]
fn resizing_keeps_the_metadata() {
    let (file, disk) = in_memory(10 * MIB);
    disk.write_at(9 * MIB, &vec![1; MIB as usize]).unwrap();
    let room = (1 << 52) - MIB;
    assert_eq!(
        disk.set_len(room + 512, AfterDiscard::Zeros)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
    disk.set_len(room, AfterDiscard::Zeros).unwrap();
    disk.write_at(room - 100, &[2; 100]).unwrap();
    disk.set_len(9 * MIB + 512, AfterDiscard::Zeros).unwrap();
    disk.set_len(20 * MIB, AfterDiscard::Zeros).unwrap();
    let mut expected = vec![0; 11 * MIB as usize];
    expected[..512].fill(1);
    assert_eq!(disk.read_vec(9 * MIB, expected.len()).unwrap(), expected);
    let again = open(file.to_vec()).unwrap();
    assert_eq!(
        (again.info().len, again.metadata()),
        (20 * MIB, disk.metadata())
    );
    assert_eq!(problems(&(file as Arc<dyn BlockDevice>)), []);
}

#[test]
fn the_largest_disk() {
    let file = Arc::new(Memory::zeros(0));
    let disk = create(file.clone(), 1 << 52, 4096);
    disk.write_at((1 << 52) - 1, &[7]).unwrap();
    disk.flush().unwrap();
    let again = open(file.to_vec()).unwrap();
    assert_eq!(again.read_vec((1 << 52) - 4096, 4096).unwrap()[4095], 7);
    assert_eq!(again.extent_at(0..1 << 52).unwrap().kind, ExtentKind::Hole);
    let options = AsifOptions {
        len: (1 << 52) + 512,
        block: 512,
        kind: LayerKind::Disk,
    };
    assert_eq!(
        Asif::create(Arc::new(Memory::zeros(0)), &options)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
}

#[test]
fn user_metadata_lasts() {
    let (file, disk) = in_memory(10 * MIB);
    let mut user = plist::Dictionary::new();
    user.insert("owner".to_owned(), "nobody <in> particular".into());
    user.insert("long".to_owned(), "x".repeat(10_000).into());
    disk.set_user_metadata(user.clone()).unwrap();
    let again = open(file.to_vec()).unwrap();
    assert_eq!(
        (&again.metadata().user, again.metadata().stable_uuid),
        (&user, disk.metadata().stable_uuid)
    );
    user.insert("huge".to_owned(), "x".repeat(MIB as usize).into());
    assert_eq!(
        disk.set_user_metadata(user).unwrap_err().kind(),
        Kind::Limit
    );
    assert_eq!(disk.usage().data, 1, "the old place is free");
    assert_eq!(problems(&(file as Arc<dyn BlockDevice>)), []);
}

/// The directory is larger than an atomic write of a disk: a torn directory must be ignored.
#[test]
fn a_torn_directory_does_not_count() {
    let far = 90 * 2048 * SMALL;
    let cut = PowerCut::default();
    let file = cut.open("disk.asif", Open::CreateNew).unwrap().unwrap();
    let mut bytes = with_small_chunks(far + SMALL);
    bytes[0x38..0x40].copy_from_slice(&(100 * 2048 * 36_u64).to_be_bytes());
    bytes[0x18..0x20].copy_from_slice(&2048_u64.to_be_bytes());
    file.set_len(SMALL, AfterDiscard::Zeros).unwrap();
    file.write_at(0, &bytes).unwrap();
    file.flush().unwrap();
    cut.sync().unwrap();
    let disk = Asif::open(file).unwrap();
    let near = 2048 * SMALL;
    disk.write_at(0, b"first").unwrap();
    disk.write_at(far, b"far").unwrap();
    disk.flush().unwrap();
    let begin = cut.position();
    disk.write_at(near, b"near").unwrap();
    disk.flush().unwrap();
    let mut seen = 0;
    for crash in cut.crashes_from(begin, 1, 100) {
        let disk = reopened(&crash.store)
            .unwrap_or_else(|error| panic!("after event {}: {error}", crash.position));
        assert_eq!(&disk.read_array::<5>(0).unwrap(), b"first");
        assert_eq!(
            &disk.read_array::<3>(far).unwrap(),
            b"far",
            "after event {} ({:?})",
            crash.position,
            crash.keep
        );
        assert!([b"near", &[0; 4]].contains(&&disk.read_array::<4>(near).unwrap()));
        seen += 1;
    }
    assert!(seen > 100, "only {seen} crashes");
}
