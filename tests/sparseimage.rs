//! Sparse images (UDSP): conformance, power failures, real images, and corrupt images.

use std::sync::Arc;

use crate::common::corpus;
use bandsaw::container::sparseimage::{self, SparseImage, SparseImageOptions, default_band_size};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind, Memory};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::{LocalFile, MemoryStore, Open, Store};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::power_cut::Survival;
use bandsaw::testing::{Random, conformance};
use proptest::prelude::*;

fn create(file: Arc<dyn BlockDevice>, len: u64, band_size: u64) -> SparseImage {
    SparseImage::create(
        file,
        &SparseImageOptions {
            len,
            band_size: Some(band_size),
        },
    )
    .unwrap()
}

fn in_memory(len: u64, band_size: u64) -> (Arc<Memory>, SparseImage) {
    let file = Arc::new(Memory::zeros(0));
    let image = create(file.clone(), len, band_size);
    (file, image)
}

fn open(bytes: impl Into<Vec<u8>>) -> bandsaw::Result<SparseImage> {
    SparseImage::open(Arc::new(Memory::read_only(bytes)))
}

/// Returns the slots of an image in its file, without trailing zeros.
fn slots(file: &Memory) -> Vec<u32> {
    let bytes = file.to_vec();
    let words = bytes[0x40..4096]
        .chunks(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    let mut slots: Vec<u32> = words.collect();
    slots.truncate(
        slots
            .iter()
            .rposition(|slot| *slot != 0)
            .map_or(0, |last| last + 1),
    );
    slots
}

/// Returns the problems found by `check`, most severe first.
fn problems(file: &dyn BlockDevice) -> Vec<(Severity, String)> {
    let bytes = file.read_vec(0, file.info().len as usize).unwrap();
    problems_of(&(Arc::new(Memory::read_only(bytes)) as Arc<dyn BlockDevice>))
}

/// Like [`problems`], without a copy of the file.
fn problems_of(file: &Arc<dyn BlockDevice>) -> Vec<(Severity, String)> {
    let mut problems = Problems::default();
    let ended = sparseimage::check(file, &mut problems, &Silent);
    let ended = ended
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

#[test]
fn a_sparse_image_is_a_device() {
    for (len, band_size) in [
        (300 << 10, 1 << 20),
        (1 << 20, 64 << 10),
        (5 * 70_144 + 512, 70_144),
        (80 << 10, 512),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.sparseimage");
        let make = || {
            let _none = std::fs::remove_file(&path);
            let file = LocalFile::open(&path, Open::CreateNew).unwrap().unwrap();
            Arc::new(create(Arc::new(file), len, band_size)) as Arc<dyn BlockDevice>
        };
        let reopen = || {
            let file = Arc::new(LocalFile::open(&path, Open::Write).unwrap().unwrap());
            assert_eq!(problems(&*file), [], "the file that was left");
            Arc::new(SparseImage::open(file).unwrap()) as Arc<dyn BlockDevice>
        };
        conformance::Devices::new(make)
            .unit(band_size)
            .reopen(reopen)
            .check();
    }
}

#[test]
fn a_read_only_image_stays_as_it_is() {
    let (file, image) = in_memory(200 << 10, 64 << 10);
    image.write_at(0, &Random::new(1).bytes(100 << 10)).unwrap();
    image.flush().unwrap();
    conformance::read_only(Arc::new(open(file.to_vec()).unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_work_beside_a_vector(seed: u64, count in 1..200_usize, band in prop::sample::select(vec![512_u64, 4096, 12_800, 1 << 17])) {
        let store = MemoryStore::default();
        let file = store.open("x", Open::CreateNew).unwrap().unwrap();
        let device = Arc::new(create(file, 150 << 10, band));
        let reopen = || {
            let file = store.open("x", Open::Write).unwrap().unwrap();
            assert_eq!(problems(&*file), []);
            Arc::new(SparseImage::open(file).unwrap()) as Arc<dyn BlockDevice>
        };
        Model::new(device).reopen(reopen).run(&operations(seed, count, 20_000));
    }
}

/// Returns a power failure test of an image with `filled` bytes written.
fn survival(len: u64, band_size: u64, filled: usize) -> Survival<'static> {
    Survival::new(
        move |store| {
            let file = store
                .open("disk.sparseimage", Open::CreateNew)?
                .expect("a new file");
            let image = create(file, len, band_size);
            image.write_at(0, &Random::new(9).bytes(filled))?;
            image.flush()?;
            store.sync()?;
            Ok(Arc::new(image))
        },
        |store| {
            let file = store
                .open("disk.sparseimage", Open::Write)?
                .expect("the file");
            let damage = problems_of(&file)
                .into_iter()
                .find(|(severity, _)| *severity == Severity::Damage);
            assert_eq!(damage, None, "check");
            Ok(Arc::new(SparseImage::open(file)?))
        },
    )
}

#[test]
fn power_cuts_are_survived() {
    for (seed, band_size) in [
        (1, 4096),
        (2, 4096),
        (3, 2048),
        (4, 512),
        (5, 16 << 10),
        (102, 4096),
    ] {
        let crashes = survival(40 << 10, band_size, 0)
            .steps(60)
            .resize_by(20 << 10)
            .check(seed);
        assert!(crashes > 300, "only {crashes} crashes");
    }
}

/// Operations around slot 1008, at the start of the second node.
#[test]
fn power_cuts_at_the_seam_of_nodes_are_survived() {
    for seed in 1..2 {
        let crashes = survival(550 << 10, 512, 1000 * 512)
            .steps(20)
            .crashes(1)
            .resize_by(90 << 10)
            .check(seed);
        assert!(crashes > 50, "only {crashes} crashes");
    }
}

#[test]
fn real_images_hold_what_is_known() {
    let Some(images) = corpus::images("real_images_hold_what_is_known") else {
        return;
    };
    let mut seen = 0;
    for image in images
        .iter()
        .filter(|image| image.format() == "sparseimage (UDSP)")
    {
        let bytes = image.bytes().expect("a file");
        assert_eq!(
            problems(&Memory::from(bytes.clone()))
                .iter()
                .filter(|(severity, _)| *severity > Severity::Note)
                .count(),
            0
        );
        let disk = open(bytes).unwrap();
        assert_eq!(disk.band_size(), image.number("chunk_size").unwrap());
        assert_eq!(Some(disk.info().len), image.number("media_size"));
        let medium = disk.read_vec(0, disk.info().len as usize).unwrap();
        assert_eq!(
            Some(corpus::sha256(&medium).as_str()),
            image.text("media_sha256"),
            "{}",
            image.path()
        );
        conformance::read_only(Arc::new(disk));
        seen += 1;
    }
    assert!(seen >= 2, "the corpus has two sparse images");
}

/// Rewriting a real image band by band results in the same file: same header, same slots, same
/// offsets.
#[test]
fn a_real_image_written_anew_is_the_same_file() {
    let test = "a_real_image_written_anew_is_the_same_file";
    let Some(image) = corpus::image(test, "sparseimage/john-aj.sparseimage.gz") else {
        return;
    };
    let bytes = image.bytes().expect("a file");
    let real = open(bytes.clone()).unwrap();
    let (file, copy) = in_memory(real.info().len, real.band_size());
    for slot in slots(&Memory::from(bytes.clone())) {
        let start = u64::from(slot - 1) * real.band_size();
        let len = real.band_size().min(real.info().len - start);
        copy.write_at(start, &[1]).unwrap(); // macOS gave a place to bands of zeros too
        copy.write_at(start, &real.read_vec(start, len as usize).unwrap())
            .unwrap();
    }
    copy.flush().unwrap();
    assert!(
        file.to_vec() == bytes,
        "differs from the file that macOS wrote"
    );
}

#[test]
fn the_last_band_moves_into_the_gap() {
    let band = 4096;
    let (file, image) = in_memory(64 << 10, band);
    for number in 0..6_u8 {
        image
            .write_at(u64::from(number) * band, &[number + 1; 4096])
            .unwrap();
    }
    image.flush().unwrap();
    assert_eq!(slots(&file), [1, 2, 3, 4, 5, 6]);
    image.discard(band..2 * band, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        image.extent_at(band..2 * band).unwrap().kind,
        ExtentKind::Hole
    );
    assert_eq!(
        slots(&file),
        [1, 2, 3, 4, 5, 6],
        "nothing changes before the flush"
    );
    image.flush().unwrap();
    assert_eq!(slots(&file), [1, 6, 3, 4, 5]);
    assert_eq!(file.info().len, 4096 + 5 * band);
    image.discard(0..4 * band, AfterDiscard::Any).unwrap();
    image.flush().unwrap();
    assert_eq!(
        (slots(&file), file.info().len),
        (vec![5, 6], 4096 + 2 * band)
    );
    for (number, expected) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 5), (5, 6)] {
        assert_eq!(
            image.read_vec(number * band, 4096).unwrap(),
            [expected; 4096],
            "band {number}"
        );
    }
    image.discard(0..64 << 10, AfterDiscard::Zeros).unwrap();
    image.flush().unwrap();
    assert_eq!((slots(&file), file.info().len), (vec![], 4096));
    assert_eq!(problems(&*file), []);
}

#[test]
fn bands_written_again_after_a_discard_keep_their_place() {
    let (file, image) = in_memory(64 << 10, 4096);
    image.write_at(0, &[1; 12 << 10]).unwrap();
    image.flush().unwrap();
    image.discard(4096..8192, AfterDiscard::Zeros).unwrap();
    image.write_at(5000, &[2; 100]).unwrap();
    image.flush().unwrap();
    assert_eq!(slots(&file), [1, 2, 3]);
    let mut expected = vec![0; 4096];
    expected[5000 - 4096..][..100].fill(2);
    assert_eq!(image.read_vec(4096, 4096).unwrap(), expected);
}

#[test]
fn zeros_take_no_place() {
    let (file, image) = in_memory(64 << 10, 4096);
    image.write_at(100, &[0; 20_000]).unwrap();
    image.flush().unwrap();
    assert_eq!((slots(&file), file.info().len), (vec![], 4096));
}

#[test]
fn a_lent_band_stays_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = Arc::new(
        LocalFile::open(folder.path().join("x"), Open::CreateNew)
            .unwrap()
            .unwrap(),
    );
    let image = create(file.clone(), 64 << 10, 4096);
    image.write_at(0, &[7; 8192]).unwrap();
    image.flush().unwrap();
    let lent = image.file_range(4096..8192).unwrap().expect("data");
    image.discard(0..4096, AfterDiscard::Zeros).unwrap();
    image.flush().unwrap();
    let mut bytes = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&*lent.file, &mut bytes, lent.offset).unwrap();
    assert_eq!(bytes, [7; 4096]);
    drop(lent);
    assert_eq!(image.read_vec(0, 4096).unwrap(), [0; 4096]);
    assert_eq!(problems(&*file), [], "the band before is zeros, stored");
}

/// Bands after the first 1008, and after the 1010 of the next node.
#[test]
fn further_nodes_hold_further_bands() {
    let band = 512_u64;
    let (file, image) = in_memory(3000 * band, band);
    let content = |number: u64| [(number % 251) as u8 + 1; 512];
    for number in (0..3000).rev() {
        image.write_at(number * band, &content(number)).unwrap();
        if number % 700 == 0 {
            image.flush().unwrap();
        }
    }
    image.flush().unwrap();
    let bytes = file.to_vec();
    let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    let (second, third) = (4096 + 1008 * 512, 4096 + 1008 * 512 + 4096 + 1010 * 512);
    assert_eq!(
        (word(0x14), word(second + 0xC), word(third + 0xC)),
        (second as u64, third as u64, 0)
    );
    assert_eq!(
        (&bytes[second..second + 12], &bytes[third..third + 8]),
        (&b"sprs\0\0\0\0\0\0\0\x01"[..], &b"sprs\0\0\0\x01"[..])
    );
    assert_eq!(bytes.len(), 3 * 4096 + 3000 * 512);
    let again = open(bytes).unwrap();
    for number in 0..3000 {
        assert_eq!(
            again.read_vec(number * band, 512).unwrap(),
            content(number),
            "band {number}"
        );
    }
    // Reduced to one node.
    image.discard(0..2500 * band, AfterDiscard::Any).unwrap();
    image.flush().unwrap();
    assert_eq!(
        (file.info().len, image.usage().nodes, image.usage().bands),
        (4096 + 500 * 512, 1, 500)
    );
    assert_eq!(problems(&*file), []);
    let again = open(file.to_vec()).unwrap();
    assert_eq!(again.read_vec(2700 * band, 512).unwrap(), content(2700));
}

#[test]
fn huge_disks_cost_nothing() {
    let file = Arc::new(Memory::zeros(0));
    let len = 128 << 50;
    let image = SparseImage::create(
        file.clone(),
        &SparseImageOptions {
            len,
            band_size: None,
        },
    )
    .unwrap();
    assert_eq!(image.band_size(), default_band_size(len));
    assert_eq!(image.extent_at(0..len).unwrap().len, len);
    drop(image);
    let image = SparseImage::open(file.clone()).unwrap();
    assert_eq!(image.info().len, len);
    assert_eq!(file.to_vec()[0x1C..0x24], (len / 512).to_be_bytes());
}

/// Returns the file of an image of four bands, each with data.
fn four_bands() -> Vec<u8> {
    let (file, image) = in_memory(64 << 10, 4096);
    image.write_at(0, &Random::new(3).bytes(16 << 10)).unwrap();
    image.flush().unwrap();
    file.to_vec()
}

#[test]
fn damage_is_reported() {
    let slot = |number: usize| 0x40 + 4 * number;
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, &str); 8] = [
        (
            "a short file",
            |file| file.truncate(4000),
            "it has 4000 bytes",
        ),
        ("another magic", |file| file[0] = b'x', "invalid signature"),
        ("another version", |file| file[7] = 9, "version 9"),
        (
            "no sectors in a band",
            |file| file[8..12].fill(0),
            "band size of 0 sectors",
        ),
        (
            "a band past the end of the file",
            |file| file.truncate(4096 + 2 * 4096),
            "past the end of the file",
        ),
        (
            "a link into the bands",
            |file| file[0x1B] = 64,
            "within the bands of this node",
        ),
        (
            "a link past the end",
            |file| file[0x14] = 0x40,
            "within the file of",
        ),
        (
            "two slots with one band",
            |file| file[0x43] = 4,
            "also in slot 0, with other contents",
        ),
    ];
    for (name, change, expected) in cases {
        let mut file = four_bands();
        change(&mut file);
        let error = open(file.clone()).expect_err(name);
        assert!(error.to_string().contains(expected), "{name}: {error}");
        let found = problems(&Memory::from(file));
        assert!(
            found[0].0 == Severity::Damage && found[0].1.contains(expected),
            "{name}: {found:?}"
        );
    }
    let mut file = four_bands();
    file[slot(3) + 3] = 200; // a band past the end of the disk counts for nothing
    let disk = open(file.clone()).unwrap();
    assert_eq!(disk.read_vec(12 << 10, 4096).unwrap(), [0; 4096]);
    assert!(
        problems(&Memory::from(file))
            .iter()
            .all(|(severity, _)| *severity == Severity::Warning)
    );
}

#[test]
fn a_truncated_file_is_never_read_as_zeros() {
    let mut file = four_bands();
    file.truncate(4096 + 3 * 4096 + 1000);
    let disk = open(file.clone()).unwrap();
    assert_eq!(
        disk.read_vec(12 << 10, 1000).unwrap(),
        Random::new(3).bytes(16 << 10)[12 << 10..][..1000]
    );
    assert!(
        disk.read_vec(12 << 10, 1001)
            .unwrap_err()
            .to_string()
            .contains("the file is truncated: it ends at byte")
    );
    assert_eq!(
        disk.extent_at(12 << 10..16 << 10).unwrap().kind,
        ExtentKind::Data
    );
    assert_eq!(problems(&Memory::from(file.clone()))[0].0, Severity::Damage);
    assert!(
        SparseImage::open(Arc::new(Memory::from(file))).is_err(),
        "opened for writing"
    );
}

#[test]
fn equal_twins_are_tolerated_and_parted() {
    let mut bytes = four_bands();
    bytes.copy_within(4096..8192, 4096 + 2 * 4096);
    bytes[0x40 + 2 * 4 + 3] = 1; // slot 2 holds band 0, as slot 0 does
    let disk = open(bytes.clone()).unwrap();
    let expected = Random::new(3).bytes(16 << 10);
    assert_eq!(disk.read_vec(0, 4096).unwrap(), expected[..4096]);
    assert_eq!(problems(&Memory::from(bytes.clone())).len(), 1);
    let file = Arc::new(Memory::from(bytes.clone()));
    let disk = SparseImage::open(file.clone()).unwrap();
    assert_eq!(file.to_vec(), bytes, "opening changes nothing");
    disk.flush().unwrap();
    assert_eq!((slots(&file), problems(&*file)), (vec![1, 2, 4], vec![]));
    assert_eq!(disk.read_vec(12 << 10, 4096).unwrap(), expected[12 << 10..]);
}

/// No interrupted change leaves more than two copies, but an index may list more.
#[test]
fn a_band_in_three_places_is_left_in_one() {
    let expected = Random::new(3).bytes(16 << 10);
    for (zeros, left) in [(0, vec![1, 4]), (1, vec![0, 0, 1, 4]), (2, vec![0, 4, 1])] {
        let mut bytes = four_bands();
        // Slots 1 and 2 contain band 0, too; the last copy is zeros.
        for slot in 1..3 {
            let place = 4096 + slot * 4096;
            bytes.copy_within(4096..8192, place);
            if slot + zeros >= 3 {
                bytes[place..place + 4096].fill(0);
            }
            bytes[0x40 + 4 * slot + 3] = 1;
        }
        let first = if zeros == 0 {
            expected[..4096].to_vec()
        } else {
            vec![0; 4096]
        };
        assert_eq!(
            open(bytes.clone()).unwrap().read_vec(0, 4096).unwrap(),
            first,
            "{zeros}"
        );
        let file = Arc::new(Memory::from(bytes.clone()));
        let disk = SparseImage::open(file.clone()).unwrap();
        assert_eq!(disk.read_vec(0, 4096).unwrap(), first, "{zeros}");
        assert_eq!(file.to_vec(), bytes, "opening changes nothing");
        disk.write_at(100, b"new").unwrap();
        disk.flush().unwrap();
        assert_eq!(slots(&file), left, "{zeros}");
        // The contents of another copy stay: one of the labels may be wrong.
        let copies = [0, 2, 1][zeros];
        assert_eq!(disk.orphans().unwrap().len(), copies, "{zeros}");
        let now = file.to_vec();
        for at in (1..=copies).map(|slot| 4096 * slot) {
            assert_eq!(now[at..at + 4096], expected[..4096], "{zeros}");
        }
        for disk in [&disk, &open(now).unwrap()] {
            let read = disk.read_vec(0, 4096).unwrap();
            assert_eq!(
                (&read[..100], &read[100..103], &read[103..]),
                (&first[..100], &b"new"[..], &first[103..]),
                "{zeros}"
            );
            assert_eq!(
                disk.read_vec(12 << 10, 4096).unwrap(),
                expected[12 << 10..],
                "{zeros}"
            );
        }
        disk.remove_orphans().unwrap();
        disk.flush().unwrap();
        assert_eq!(problems(&*file), vec![], "{zeros}");
    }
}

/// One wrong label makes the band that it belongs to, of zeros, the newest of another one.
#[test]
fn a_wrong_label_costs_no_data() {
    let original = four_bands();
    let mut bytes = original.clone();
    bytes[4096 + 3 * 4096..4096 + 4 * 4096].fill(0);
    let whole = bytes.clone();
    bytes[0x40 + 3 * 4 + 3] = 1; // band 3, of zeros
    let file = Arc::new(Memory::from(bytes));
    let disk = SparseImage::open(file.clone()).unwrap();
    disk.write_at(4096, &original[8192..12288]).unwrap();
    disk.flush().unwrap();
    let mut found = file.to_vec();
    found[0x40..0x50].copy_from_slice(&whole[0x40..0x50]);
    assert_eq!(
        open(found).unwrap().read_vec(0, 16 << 10).unwrap(),
        open(whole).unwrap().read_vec(0, 16 << 10).unwrap()
    );
}

#[test]
fn gaps_are_read_and_filled() {
    let mut bytes = four_bands();
    bytes[0x40 + 4 + 3] = 0;
    let file = Arc::new(Memory::from(bytes.clone()));
    assert_eq!(problems(&*file).len(), 1);
    assert_eq!(
        open(bytes.clone())
            .unwrap()
            .read_vec(12 << 10, 4096)
            .unwrap(),
        Random::new(3).bytes(16 << 10)[12 << 10..]
    );
    let disk = SparseImage::open(file.clone()).unwrap();
    disk.write_at(12 << 10, &[0; 512]).unwrap();
    disk.flush().unwrap();
    // Its data may be that of a band with a damaged label, and stays.
    assert_eq!(
        file.to_vec()[4096 + 4096..][..4096],
        bytes[4096 + 4096..][..4096]
    );
    let orphans = disk.orphans().unwrap();
    assert_eq!((orphans.len(), orphans[0].len), (1, 4096));
    disk.write_at(12 << 10, &Random::new(3).bytes(16 << 10)[12 << 10..][..512])
        .unwrap();
    disk.remove_orphans().unwrap();
    disk.flush().unwrap();
    assert_eq!((slots(&file), problems(&*file)), (vec![1, 4, 3], vec![]));
    assert_eq!(
        disk.read_vec(12 << 10, 4096).unwrap(),
        Random::new(3).bytes(16 << 10)[12 << 10..]
    );
}

/// A tail may be a band with a corrupt label: opening and writing to other bands preserves it, new
/// bands overwrite it.
#[test]
fn a_tail_is_kept_until_a_band_needs_its_place() {
    let mut bytes = four_bands();
    let len = bytes.len();
    bytes.extend([7; 5000]);
    let file = Arc::new(Memory::from(bytes.clone()));
    assert_eq!(
        problems(&*file)
            .into_iter()
            .map(|problem| problem.0)
            .collect::<Vec<_>>(),
        [Severity::Note]
    );

    let image = SparseImage::open(file.clone()).unwrap();
    image.write_at(0, &[1; 512]).unwrap();
    image.flush().unwrap();
    assert_eq!(file.to_vec()[len..], [7; 5000]);

    image.write_at(16 << 10, &[2; 512]).unwrap();
    image.flush().unwrap();
    assert_eq!(file.info().len, len as u64 + 5000);
    let mut band = vec![9; 4096];
    image.read_at(16 << 10, &mut band).unwrap();
    assert_eq!(
        (&band[..512], &band[512..]),
        (&[2; 512][..], &[0; 4096 - 512][..])
    );
}

/// Arbitrary index contents cause no panic and no endless loop; images that open can be read,
/// written and flushed, or return an error.
#[test]
fn damaged_images_do_no_harm() {
    let (file, image) = in_memory(1500 * 512, 512);
    image
        .write_at(0, &Random::new(4).bytes(1200 * 512))
        .unwrap();
    image.flush().unwrap();
    let whole = file.to_vec();
    let node = 4096 + 1008 * 512;
    let mut random = Random::new(5);
    let mut opened = 0;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..random.within(1..6) {
            let start = [0, 0, 0x40, node, node + 0x38][random.within(0..5) as usize];
            let reach = if random.one_in(2) { 0x48 } else { 4000 };
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
        let found = problems(&Memory::from(bytes.clone()));
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
        let _wrong = disk.read_vec(0, len.min(1 << 20) as usize);
        let _wrong = disk.read_vec(len.saturating_sub(5000), 4000.min(len as usize));
        assert!(disk.extents(0..len).take(5000).all(|extent| extent.is_ok()));
        let Ok(disk) = SparseImage::open(Arc::new(Memory::from(bytes))) else {
            continue;
        };
        let at = random.within(0..len.min(1 << 20));
        disk.write_at(at, &vec![1; 9000.min(len - at) as usize])
            .unwrap();
        disk.discard(0..len.min(50_000), AfterDiscard::Zeros)
            .unwrap();
        disk.flush().unwrap();
    }
    assert!(
        opened > 20,
        "only {opened} of 200 opened: the damage is too heavy to tell anything"
    );
}
