//! Images split into segments, opened as a set, and joined again; and invalid sets.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::converting::names;
use bandsaw::codec::Codec;
use bandsaw::container::Format;
use bandsaw::container::udif::SplitMethod;
use bandsaw::device::BlockDeviceExt;
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw::ops::segment::{SegmentOptions, segment};
use bandsaw::ops::verify::verify;
use bandsaw::progress::{Progress, Silent};
use bandsaw::testing::{Random, udif};
use bandsaw::{Error, Kind, Result};
use tempfile::TempDir;

const LEN: usize = 2000 * 512;

/// Returns a disk with noise, zeros, and compressible data.
fn disk() -> Vec<u8> {
    let mut disk = Random::new(5).bytes(LEN);
    disk[600 * 512..900 * 512].fill(0);
    disk[1000 * 512..]
        .iter_mut()
        .for_each(|byte| *byte = (*byte > 200).into());
    disk
}

fn options(cut: SplitMethod) -> SegmentOptions {
    SegmentOptions {
        cut,
        overwrite: false,
        remove_signature: false,
    }
}

fn sized(size: u64) -> SplitMethod {
    SplitMethod::Size {
        first: size,
        each: size,
    }
}

/// Opens a disk whose format cannot be detected, so it is given.
fn open(path: &Path) -> Result<Image> {
    open::open(
        path,
        &OpenOptions {
            image_format: Some(Format::Udzo),
            ..OpenOptions::default()
        },
    )
}

fn contents(image: &Image) -> Vec<u8> {
    image.disk().read_vec(0, LEN).unwrap()
}

/// A folder with `whole.dmg` and its set `cut.dmg`, in five segments.
struct Set {
    scratch: TempDir,
    files: Vec<PathBuf>,
}

impl Set {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let whole = scratch.path().join("whole.dmg");
        fs::write(&whole, udif::image(&disk(), Some(Codec::Zlib))).unwrap();
        let cut = SplitMethod::Count {
            first: None,
            parts: 5,
        };
        let files = segment(
            &open(&whole).unwrap(),
            &scratch.path().join("cut.dmg"),
            &options(cut),
            &Silent,
        )
        .unwrap();
        Self { scratch, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Opens the set and returns the error, which must name a file of it.
    fn refused(&self, name: &str) -> Error {
        let error = open(&self.files[0]).unwrap_err();
        assert_eq!(error.file(), self.path(name).to_str(), "{error}");
        error
    }
}

/// Changes bytes of a file, at an offset from its end.
fn patch(path: &Path, from_end: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, file.metadata().unwrap().len() - from_end)
        .unwrap();
}

#[test]
fn an_image_is_cut_and_joined() {
    for codec in [None, Some(Codec::Zlib), Some(Codec::Lzma), Some(Codec::Adc)] {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("whole.dmg"), udif::image(&disk(), codec)).unwrap();
        let whole = open(&path("whole.dmg")).unwrap();
        let files = segment(&whole, &path("a b.dmg"), &options(sized(100_000)), &Silent).unwrap();
        assert!(
            files.len() > 3 && files[1].ends_with("a b.002.dmgpart"),
            "{files:?}"
        );
        assert!(
            files
                .iter()
                .all(|file| file.metadata().unwrap().len() <= 100_000)
        );

        let cut = open(&files[0]).unwrap();
        assert!(contents(&cut) == disk() && cut.warnings().is_empty());
        let unaligned = cut.disk().read_vec(77_777, 500_001).unwrap();
        assert!(unaligned == disk()[77_777..][..500_001]);
        let verdicts = verify(&cut, &Silent).unwrap();
        assert_eq!(verdicts.len(), 3 + files.len());
        assert!(
            verdicts
                .iter()
                .all(|verdict| verdict.agrees() == Some(true)),
            "{verdicts:?}"
        );

        let joined = segment(
            &cut,
            &path("joined.dmg"),
            &options(SplitMethod::Whole),
            &Silent,
        )
        .unwrap();
        assert_eq!(joined, [path("joined.dmg")]);
        let (old, new) = (
            fs::read(path("whole.dmg")).unwrap(),
            fs::read(&joined[0]).unwrap(),
        );
        assert!(
            old[..old.len() - 512] == new[..new.len() - 512],
            "chunks and tables stay as they were"
        );
        assert!(contents(&open(&joined[0]).unwrap()) == disk());
    }
}

#[test]
fn the_same_image_gives_the_same_files() {
    let (one, other) = (Set::new(), Set::new());
    for (one, other) in one.files.iter().zip(&other.files) {
        assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
    }
}

#[test]
fn a_set_is_cut_anew() {
    let set = Set::new();
    let cut = open(&set.files[0]).unwrap();
    let again = segment(
        &cut,
        &set.path("again.dmg"),
        &options(SplitMethod::Size {
            first: 30_000,
            each: 200_000,
        }),
        &Silent,
    )
    .unwrap();
    assert_ne!(again.len(), set.files.len());
    assert!(contents(&open(&again[0]).unwrap()) == disk());
}

#[test]
fn a_missing_part_is_named() {
    let set = Set::new();
    fs::remove_file(&set.files[2]).unwrap();
    let error = set.refused("cut.003.dmgpart");
    assert!(
        error.kind() == Kind::NotFound && error.message().contains("part 3 of 5"),
        "{error}"
    );
}

#[test]
fn a_part_of_another_set_is_named() {
    let (set, scratch) = (Set::new(), tempfile::tempdir().unwrap());
    let cut = open(&set.path("whole.dmg")).unwrap();
    let other = segment(
        &cut,
        &scratch.path().join("cut.dmg"),
        &options(SplitMethod::Count {
            first: Some(20_000),
            parts: 5,
        }),
        &Silent,
    )
    .unwrap();
    fs::copy(&other[1], &set.files[1]).unwrap();
    let error = set.refused("cut.002.dmgpart");
    assert!(
        error.kind() == Kind::Corrupt && error.message().contains("another set"),
        "{error}"
    );
}

#[test]
fn renamed_parts_are_named() {
    let set = Set::new();
    fs::rename(&set.files[1], set.path("x")).unwrap();
    fs::rename(&set.files[3], &set.files[1]).unwrap();
    fs::rename(set.path("x"), &set.files[3]).unwrap();
    let error = set.refused("cut.002.dmgpart");
    assert!(
        error
            .message()
            .contains("part 4 of the set, expected part 2"),
        "{error}"
    );
}

#[test]
fn truncated_parts_are_named() {
    for keep in [0, 100, 511, 512, 50_000] {
        let set = Set::new();
        File::options()
            .write(true)
            .open(&set.files[4])
            .unwrap()
            .set_len(keep)
            .unwrap();
        let error = set.refused("cut.005.dmgpart");
        assert!(
            error.kind() == Kind::Corrupt && error.message().contains("truncated"),
            "{error}"
        );
    }
}

#[test]
fn parts_with_false_trailers_are_named() {
    // Number of segments, offset and length of the data.
    for (field, value, text) in [
        (0x3c, 6u64 << 32, "6 parts"),
        (0x10, 1, "begins at byte 1"),
        (0x20, u64::MAX, "past the trailer"),
    ] {
        let set = Set::new();
        let value = value.to_be_bytes();
        patch(
            &set.files[1],
            512 - field,
            if field == 0x3c { &value[..4] } else { &value },
        );
        let error = set.refused("cut.002.dmgpart");
        assert!(
            error.kind() == Kind::Corrupt && error.message().contains(text),
            "{error}"
        );
    }
    // A count that no set can have, and one that does not match the files.
    for (count, kind) in [(u32::MAX, Kind::Limit), (6, Kind::NotFound)] {
        let set = Set::new();
        patch(&set.files[0], 512 - 0x3c, &count.to_be_bytes());
        assert_eq!(open(&set.files[0]).unwrap_err().kind(), kind);
    }
}

#[test]
fn another_part_names_the_first() {
    let set = Set::new();
    let error = open(&set.files[2]).unwrap_err();
    assert!(
        error.kind() == Kind::Invalid
            && error.message().contains("part 3")
            && error.message().contains("cut.dmg"),
        "{error}"
    );
}

#[test]
fn damage_to_stored_bytes_is_found() {
    let set = Set::new();
    File::options()
        .write(true)
        .open(&set.files[3])
        .unwrap()
        .write_all_at(&[0x55; 40], 1000)
        .unwrap();
    let image = open(&set.files[0]).unwrap();
    let sums = image.udif().unwrap().verify_stored(&Silent).unwrap();
    let wrong: Vec<_> = sums
        .iter()
        .filter(|sum| sum.agrees() == Some(false))
        .map(|sum| sum.of.as_str())
        .collect();
    assert_eq!(wrong, ["data fork of part 4"]);
    let error = segment(
        &image,
        &set.path("joined.dmg"),
        &options(SplitMethod::Whole),
        &Silent,
    )
    .unwrap_err();
    assert!(
        error.kind() == Kind::Corrupt && error.message().contains("part 4"),
        "{error}"
    );
    assert!(!set.path("joined.dmg").exists());
}

#[test]
fn nothing_is_overwritten_or_left_behind() {
    let set = Set::new();
    let before = names(set.scratch.path());
    let image = open(&set.path("whole.dmg")).unwrap();
    let error = segment(&image, &set.files[0], &options(sized(200_000)), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    // An existing file at the path of the last segment.
    fs::write(set.path("new.003.dmgpart"), "theirs").unwrap();
    assert_eq!(
        segment(
            &image,
            &set.path("new.dmg"),
            &options(sized(200_000)),
            &Silent
        )
        .unwrap_err()
        .kind(),
        Kind::Conflict
    );
    fs::remove_file(set.path("new.003.dmgpart")).unwrap();

    #[derive(Debug)]
    struct Stop;
    impl Progress for Stop {
        fn stage(&self, _name: &str, _total: u64) {}
        fn advance(&self, _n: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    assert_eq!(
        segment(
            &image,
            &set.path("new.dmg"),
            &options(sized(200_000)),
            &Stop
        )
        .unwrap_err()
        .kind(),
        Kind::Cancelled
    );
    for name in ["new.img", "new"] {
        assert_eq!(
            segment(&image, &set.path(name), &options(sized(200_000)), &Silent)
                .unwrap_err()
                .kind(),
            Kind::Invalid
        );
    }
    assert_eq!(names(set.scratch.path()), before);

    let longer = SegmentOptions {
        overwrite: true,
        ..options(SplitMethod::Count {
            first: None,
            parts: 3,
        })
    };
    let error = segment(&image, &set.files[0], &longer, &Silent).unwrap_err();
    assert!(
        error
            .file()
            .is_some_and(|file| file.ends_with("cut.004.dmgpart")),
        "a part of the old set would follow: {error}"
    );
    let same = SegmentOptions {
        overwrite: true,
        ..options(SplitMethod::Count {
            first: Some(20_000),
            parts: 5,
        })
    };
    segment(&image, &set.files[0], &same, &Silent).unwrap();
    assert!(contents(&open(&set.files[0]).unwrap()) == disk());
}

#[test]
fn a_signature_is_not_lost_unasked() {
    let scratch = tempfile::tempdir().unwrap();
    let (signed, whole) = (
        scratch.path().join("signed.dmg"),
        udif::image(&disk(), Some(Codec::Zlib)),
    );
    fs::write(&signed, udif::signed(&whole)).unwrap();
    let image = open(&signed).unwrap();
    assert!(contents(&image) == disk(), "reading is never refused");
    assert!(image.udif().unwrap().signature().is_some());
    let target = scratch.path().join("cut.dmg");
    let error = segment(&image, &target, &options(sized(200_000)), &Silent).unwrap_err();
    assert!(
        error.kind() == Kind::ReadOnly && error.message().contains("signature"),
        "{error}"
    );
    segment(
        &image,
        &target,
        &SegmentOptions {
            remove_signature: true,
            ..options(sized(200_000))
        },
        &Silent,
    )
    .unwrap();
    let cut = open(&target).unwrap();
    assert!(cut.udif().unwrap().signature().is_none() && contents(&cut) == disk());
}
