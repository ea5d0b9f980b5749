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

pub(crate) fn in_memory(len: u64, band_size: u64) -> (Arc<Memory>, SparseImage) {
    let file = Arc::new(Memory::zeros(0));
    let image = create(file.clone(), len, band_size);
    (file, image)
}

pub(crate) fn open(bytes: impl Into<Vec<u8>>) -> bandsaw::Result<SparseImage> {
    SparseImage::open(Arc::new(Memory::read_only(bytes)))
}

/// Returns the slots of an image in its file, without trailing zeros.
pub(crate) fn slots(file: &Memory) -> Vec<u32> {
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
pub(crate) fn problems(file: &dyn BlockDevice) -> Vec<(Severity, String)> {
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
