//! ASIF: the conformance suites for devices, power failures, real images, and corrupt images.

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
fn a_layer_tells_holes_from_zeros() {
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

/// Returns the file of an image with a full chunk, a partly written one and an unmapped one.
fn some_chunks() -> Vec<u8> {
    let (file, disk) = in_memory(10 * MIB);
    disk.write_at(0, &Random::new(3).bytes(MIB as usize))
        .unwrap();
    disk.write_at(MIB, &Random::new(4).bytes(5000)).unwrap();
    disk.write_at(2 * MIB, &[1]).unwrap();
    disk.flush().unwrap();
    disk.discard(2 * MIB..3 * MIB, AfterDiscard::Zeros).unwrap();
    disk.flush().unwrap();
    file.to_vec()
}

/// Offsets in `some_chunks`: the table of the disk, its first bitmap entry, the metadata.
const TABLE: usize = 5 << 20;
const BITMAP_ENTRY: usize = TABLE + 8 * 2048;
const SEGMENT: usize = 2 << 20;

#[test]
fn what_is_wrong_is_told() {
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 17] = [
        (
            "a short file",
            |file| file.truncate(500),
            "it has 500 bytes",
        ),
        ("another magic", |file| file[0] = b'x', "invalid signature"),
        (
            "an old shadow file",
            |file| file[7] = 2,
            "an old shadow file",
        ),
        (
            "unknown flags",
            |file| file[0xF] = 8,
            "unknown header flags 0x8",
        ),
        (
            "a file that ends in a directory",
            |file| file.truncate(0x50000),
            "directory 1 ends at byte",
        ),
        (
            "a file that ends before its chunks",
            |file| file.truncate(3 << 20),
            "past the last of the 3",
        ),
        (
            "a table in the header",
            |file| file[0x208..0x210].fill(0xFF),
            "is past the last of",
        ),
        (
            "a reserved bit",
            |file| file[TABLE] |= 0x20,
            "reserved bits",
        ),
        (
            "data without a chunk",
            |file| file[TABLE + 1..TABLE + 8].fill(0),
            "invalid entry: it has data but no chunk number",
        ),
        (
            "zeros with a chunk",
            |file| file[TABLE + 23] = 9,
            "invalid entry: it has no data but a chunk number",
        ),
        (
            "one chunk twice",
            |file| file.copy_within(TABLE..TABLE + 8, TABLE + 24),
            "is referenced twice",
        ),
        (
            "a table as data",
            |file| file[TABLE + 7] = 5,
            "is referenced twice",
        ),
        (
            "no bitmap",
            |file| file[BITMAP_ENTRY..BITMAP_ENTRY + 8].fill(0),
            "a partly written chunk has no bitmap",
        ),
        (
            "a bitmap with a status",
            |file| file[BITMAP_ENTRY] = 0x40,
            "status or reserved bits",
        ),
        (
            "metadata without a magic",
            |file| file[SEGMENT] = 0,
            "invalid segment signature: expected \"meta\"",
        ),
        (
            "metadata that go round",
            |file| file[SEGMENT + 0x18..SEGMENT + 0x1C].fill(0xFF),
            "its segments form a cycle",
        ),
        (
            "metadata on the disk",
            |file| file[SEGMENT + 0x1B] = 1,
            "is not between the disk",
        ),
    ];
    for (name, change, expected) in cases {
        let mut file = some_chunks();
        change(&mut file);
        let error = open(file.clone()).expect_err(name);
        assert!(error.to_string().contains(expected), "{name}: {error}");
        let found = problems_in(file);
        assert!(
            found
                .iter()
                .any(|(severity, text)| *severity == Severity::Damage && text.contains(expected)),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn a_state_that_is_none_is_told_when_it_is_read() {
    let mut file = some_chunks();
    let bitmap =
        u64::from_be_bytes(file[BITMAP_ENTRY..BITMAP_ENTRY + 8].try_into().unwrap()) as usize;
    file[(bitmap << 20) + 512 + 7] = 0b1100;
    let disk = open(file.clone()).unwrap();
    disk.read_vec(0, MIB as usize).unwrap();
    assert!(
        disk.read_vec(MIB, 1)
            .unwrap_err()
            .to_string()
            .contains("block 29 of a chunk has the invalid state 3")
    );
    assert_eq!(problems_in(file)[0].0, Severity::Damage);
}

/// One bit of an entry says that a full chunk is partly written. Its mask then hides nothing: it says that
/// all blocks are written, or that none ever was, which is damage.
#[test]
fn a_full_chunk_whose_entry_says_that_it_is_partly_written() {
    const LEN: usize = MIB as usize;
    let (file, image) = in_memory(4 * MIB);
    let bytes = Random::new(5).bytes(2 * LEN);
    image.write_at(0, &bytes[..LEN / 2]).unwrap();
    image.flush().unwrap();
    image.write_at(MIB / 2, &bytes[LEN / 2..LEN]).unwrap();
    image.write_at(MIB, &bytes[LEN..]).unwrap();
    image.flush().unwrap();
    drop(image);
    let mut damaged = file.to_vec();
    for at in [TABLE, TABLE + 8] {
        assert_eq!(damaged[at], 0x40, "a full chunk");
        damaged[at] = 0xC0;
    }
    let found = problems_in(damaged.clone());
    assert_eq!(found.len(), 1, "{found:?}");
    let (severity, message) = &found[0];
    assert_eq!(*severity, Severity::Damage);
    assert!(
        message.contains("no written block in its bitmap"),
        "{message}"
    );
    let file = Arc::new(Memory::zeros(damaged.len()));
    file.write_at(0, &damaged).unwrap();
    let image = Asif::open(file).unwrap();
    assert!(image.read_vec(0, LEN).unwrap() == bytes[..LEN]);
    let refused = |done: Result<()>| assert_eq!(done.unwrap_err().kind(), Kind::Corrupt);
    refused(image.read_vec(MIB, 512).map(drop));
    refused(image.write_at(MIB, &[0; 512]));
    refused(image.write_at(MIB + 4096, &[7; 4096]));
}

/// A use without a change keeps data after the last chunk: it may be a chunk whose entry is damaged.
#[test]
fn a_flush_without_a_change_changes_nothing() {
    let (file, image) = in_memory(4 * MIB);
    image.write_at(0, &[7; 4096]).unwrap();
    image.flush().unwrap();
    drop(image);
    file.write_at(TABLE as u64, &[0; 8]).unwrap();
    let damaged = file.to_vec();
    let image = Asif::open(file.clone()).unwrap();
    assert_eq!(image.orphans().unwrap().len(), 1);
    image.flush().unwrap();
    drop(image);
    assert!(file.to_vec() == damaged);
}

/// One bit of an entry says that a partly written chunk is full. What is written to it stays when the bit
/// is corrected.
#[test]
fn a_partly_written_chunk_whose_entry_says_that_it_is_full() {
    let (file, image) = in_memory(4 * MIB);
    let bytes = Random::new(6).bytes(64 << 10);
    for at in [0, MIB] {
        image.write_at(at, &bytes[..4096]).unwrap();
    }
    image.flush().unwrap();
    drop(image);
    let set_states = |state: u8| {
        for at in [TABLE, TABLE + 8] {
            file.write_at(at as u64, &[state]).unwrap();
        }
    };
    assert_eq!(file.to_vec()[TABLE], 0xC0, "a partly written chunk");
    set_states(0x40);
    let image = Asif::open(file.clone()).unwrap();
    image.write_at(8192, &bytes[8192..]).unwrap();
    image.flush().unwrap();
    image.write_at(12_288, &bytes[12_288..]).unwrap();
    image.flush().unwrap();
    drop(image);
    set_states(0xC0);
    assert_eq!(problems_in(file.to_vec()), []);
    let image = Asif::open(file.clone()).unwrap();
    let mut expected = bytes.clone();
    expected[4096..8192].fill(0);
    assert!(image.read_vec(0, bytes.len()).unwrap() == expected);
    // The other chunk was not written, and keeps its mask.
    assert!(image.read_vec(MIB, 4096).unwrap() == bytes[..4096]);
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);
}

/// Data in blocks that count as unwritten is found, becomes that of the disk or is removed.
#[test]
fn data_in_unwritten_blocks() {
    const LEN: usize = MIB as usize;
    let (file, image) = in_memory(4 * MIB);
    let bytes = Random::new(7).bytes(2 * LEN);
    for at in [0, MIB] {
        image
            .write_at(at, &bytes[at as usize..][..LEN / 2])
            .unwrap();
    }
    image.flush().unwrap();
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);
    drop(image);
    // The first mask: all but the first four blocks are unwritten. The second: one block is.
    let whole = file.to_vec();
    let number = |at: usize| u64::from_be_bytes(whole[at..at + 8].try_into().unwrap());
    let bitmap = (number(BITMAP_ENTRY) as usize) << 20;
    assert_eq!(whole[bitmap], 0x55);
    file.write_at(bitmap as u64 + 1, &[0; 511]).unwrap();
    file.write_at(bitmap as u64 + 512, &[0x54]).unwrap();
    let damaged = file.to_vec();
    let hidden = [2048..MIB / 2, MIB..MIB + 512];
    let image = Asif::open(file.clone()).unwrap();
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), hidden);
    assert_eq!(image.unwritten_data(0).unwrap(), []);
    assert_eq!(image.read_vec(MIB, 512).unwrap(), [0; 512]);
    image.restore_unwritten(&hidden).unwrap();
    drop(image);
    let image = open(file.to_vec()).unwrap();
    for at in [0, LEN] {
        assert!(image.read_vec(at as u64, LEN / 2).unwrap() == bytes[at..at + LEN / 2]);
    }
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);

    let file = Arc::new(Memory::from(damaged));
    let image = Asif::open(file.clone()).unwrap();
    image.clear_unwritten(&hidden).unwrap();
    drop(image);
    let image = open(file.to_vec()).unwrap();
    assert_eq!(image.unwritten_data(u64::MAX).unwrap(), []);
    assert!(image.read_vec(0, 2048).unwrap() == bytes[..2048]);
    assert!(image.read_vec(MIB + 512, 512).unwrap() == bytes[LEN + 512..][..512]);
    assert_eq!(problems_in(file.to_vec()), []);
}

/// A chunk that loses all its written blocks when the disk shrinks is not stored any more.
#[test]
fn a_partly_written_chunk_without_a_written_block_is_removed() {
    let (file, image) = in_memory(4 * MIB);
    image.write_at(MIB + MIB / 2, &[7; 4096]).unwrap();
    image.flush().unwrap();
    image.set_len(MIB + MIB / 4, AfterDiscard::Zeros).unwrap();
    image.set_len(4 * MIB, AfterDiscard::Zeros).unwrap();
    assert!(
        image
            .read_vec(MIB, MIB as usize)
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    drop(image);
    assert_eq!(problems_in(file.to_vec()), []);
}

/// The check continues after damage: it still finds the masks of the metadata, and the owner of the
/// last chunk.
#[test]
fn a_number_that_no_file_can_hold_is_told() {
    let file = some_chunks();
    let table = SEGMENT - MIB as usize;
    let number = |at: &usize| u64::from_be_bytes(file[*at..*at + 8].try_into().unwrap());
    let entries: Vec<_> = (table..SEGMENT)
        .step_by(8)
        .filter(|at| number(at) != 0)
        .collect();
    assert_eq!(entries.len(), 2, "of the metadata and of their bitmap");
    for at in entries.into_iter().chain([TABLE, TABLE + 8, BITMAP_ENTRY]) {
        for cut in [0, 1000] {
            let mut file = file.clone();
            file[at + 1] |= 0x40;
            file.truncate(file.len() - cut);
            assert!(
                open(file.clone())
                    .unwrap_err()
                    .to_string()
                    .contains("is past the last of")
            );
            assert_eq!(problems_in(file)[0].0, Severity::Damage);
        }
    }
}

/// An entry past the end of the disk is not read when the image is opened, but by the check.
#[test]
fn an_orphan_that_no_file_can_hold_is_told() {
    let mut file = some_chunks();
    let beyond = TABLE + 8 * 1500;
    file.copy_within(TABLE..TABLE + 8, beyond);
    file[beyond + 1] |= 0x40;
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(file));
    let mut problems = Problems::default();
    let image = asif::check(&file, &mut problems, &Silent).unwrap();
    assert!(problems.worst() >= Some(Severity::Warning), "{problems:?}");
    assert!(image.orphans().unwrap().is_empty());
}

#[test]
fn flags_that_forbid_changes_are_heeded() {
    let mut bytes = some_chunks();
    bytes[0x63] = 4;
    let disk = Asif::open(Arc::new(Memory::from(bytes.clone()))).unwrap();
    assert_eq!(disk.write_at(0, &[1]).unwrap_err().kind(), Kind::ReadOnly);
    conformance::read_only(Arc::new(open(some_chunks()).unwrap()));
    bytes[0x63] = 0;
    bytes[0x6B] = 1;
    let disk = Asif::open(Arc::new(Memory::from(bytes))).unwrap();
    disk.write_at(0, &[1]).unwrap();
    assert_eq!(
        disk.set_user_metadata(plist::Dictionary::new())
            .unwrap_err()
            .kind(),
        Kind::ReadOnly
    );
}

#[test]
fn a_file_cut_short_is_never_read_as_zeros() {
    let (file, disk) = in_memory(10 * MIB);
    disk.write_at(0, &Random::new(3).bytes(2 * MIB as usize))
        .unwrap();
    disk.flush().unwrap();
    let mut bytes = file.to_vec();
    bytes.truncate(bytes.len() - 1000);
    let disk = open(bytes.clone()).unwrap();
    disk.read_vec(0, 2 * MIB as usize - 1000).unwrap();
    assert!(
        disk.read_vec(2 * MIB - 1000, 1)
            .unwrap_err()
            .to_string()
            .contains("the file is truncated: it ends at byte")
    );
    assert_eq!(problems_in(bytes)[0].0, Severity::Damage);
}

/// Corrupt headers, directories, tables, bitmaps and metadata cause no panic and no endless loop;
/// images that open can be read, written and flushed, or return an error.
#[test]
fn damaged_images_do_no_harm() {
    let whole = some_chunks();
    let mut random = Random::new(5);
    let mut opened = 0;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..random.within(1..5) {
            let start = [
                0,
                0,
                0x200,
                0x41400,
                0x82448,
                TABLE,
                BITMAP_ENTRY,
                SEGMENT,
                SEGMENT + 0x200,
                7 << 20,
            ];
            let start = start[random.within(0..10) as usize];
            let reach = if random.one_in(2) { 0x20 } else { 0x200 };
            let at = start + random.within(0..reach) as usize;
            bytes[at] = if random.one_in(2) {
                random.number() as u8
            } else {
                bytes[at] ^ 1 << random.within(0..8)
            };
        }
        if random.one_in(8) {
            bytes.truncate(random.within(0..bytes.len() as u64) as usize);
        }
        let found = problems_in(bytes.clone());
        let disk = match open(bytes.clone()) {
            Ok(disk) => disk,
            Err(error) => {
                assert!(
                    found
                        .iter()
                        .any(|(severity, _)| *severity == Severity::Damage),
                    "{error}, but {found:?}"
                );
                continue;
            }
        };
        opened += 1;
        let len = disk.info().len;
        let _wrong = disk.read_vec(0, len.min(4 * MIB) as usize);
        let _wrong = disk.read_vec(len.saturating_sub(5000), 4000.min(len as usize));
        let _wrong = disk.extents(0..len).take(5000).count();
        let Ok(disk) = Asif::open(Arc::new(Memory::from(bytes))) else {
            continue;
        };
        let at = random.within(0..len.clamp(1, 4 * MIB));
        let _wrong = disk.write_at(at, &vec![1; 9000.min(len.saturating_sub(at)) as usize]);
        let _wrong = disk.discard(0..len.min(3 * MIB), AfterDiscard::Zeros);
        let _wrong = disk.flush();
    }
    assert!(
        opened > 20,
        "only {opened} of 200 opened: the damage is too heavy to tell anything"
    );
}

/// A tail may be a chunk with a damaged table entry: it stays in place until it is removed as an
/// orphan.
#[test]
fn a_tail_is_kept_until_it_is_removed() {
    let mut bytes = some_chunks();
    let len = bytes.len();
    bytes.resize(len + (1 << 20), 7);
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::from(bytes));
    let severities: Vec<_> = problems(&file).into_iter().map(|found| found.0).collect();
    assert_eq!(severities, [Severity::Note]);
    let tail = || file.read_vec(len as u64, 1 << 20).unwrap();

    let image = Asif::open(file.clone()).unwrap();
    let written = image.extent_at(0..image.info().len).unwrap();
    assert_eq!(written.kind, ExtentKind::Data);
    image.write_at(0, &[1; 512]).unwrap();
    image.flush().unwrap();
    assert!(tail() == [7; 1 << 20]);

    for at in 3..10 {
        image.write_at(at * MIB, &vec![2; MIB as usize]).unwrap();
    }
    image.flush().unwrap();
    image.compact(&Silent).unwrap();
    assert!(tail() == [7; 1 << 20]);
    let orphans = image.orphans().unwrap();
    assert_eq!((orphans.len(), orphans[0].len), (1, 1 << 20));
    image.remove_orphans().unwrap();
    image.compact(&Silent).unwrap();
    let severities: Vec<_> = problems(&file).into_iter().map(|found| found.0).collect();
    assert_eq!(severities, []);
}
