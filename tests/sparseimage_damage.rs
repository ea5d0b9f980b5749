//! Damaged sparse images (UDSP).

use std::sync::Arc;

use bandsaw::container::sparseimage::SparseImage;
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind, Memory};
use bandsaw::problem::Severity;
use bandsaw::testing::Random;

use crate::sparseimage::{in_memory, open, problems, slots};

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
