//! Images made by other software: the disk in each has the known checksum, and unreadable ones are
//! refused with a specific error.

use std::collections::BTreeMap;
use std::fs;

use crate::common::corpus::{self, sha256};
use crate::common::opened::{self, KINDS};
use bandsaw::Kind;
use bandsaw::address::VolumeSelector;
use bandsaw::crypt::{KeySlot, KeyWrap, Secret};
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::fs::{FileKind, FileSystemExt, Fork, fat};
use bandsaw::open::{self, Image, Layer, OpenOptions, VolumeFormat};
use bandsaw::ops::repair::{Mode, Options, repair};
use bandsaw::ops::verify::verify;
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;

fn disk_sum(image: &Image) -> String {
    let disk = image.disk();
    sha256(&disk.read_vec(0, disk.info().len as usize).unwrap())
}

/// Maximum length of a disk that is checksummed; larger ones would add no coverage.
const MAX_LEN: u64 = 1 << 30;

#[test]
fn images_open_and_hold_what_is_known() {
    let Some(images) = corpus::images("images_open_and_hold_what_is_known") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut kinds = BTreeMap::<_, u32>::new();
    for known in images
        .iter()
        .filter(|image| KINDS.contains(&image.format()) && image.number("media_size").is_some())
    {
        let image = opened::open(known, scratch.path())
            .unwrap()
            .unwrap_or_else(|error| panic!("{}: {error}", known.path()));
        let udif = known.entry()["udif"]["format"].as_str();
        let code = |code: &&&str| known.format().contains(**code);
        let expected = udif.unwrap_or_else(|| {
            ["UDSB", "UDSP", "ASIF", "UDRW"]
                .iter()
                .find(code)
                .expect("a code")
        });
        assert_eq!(image.format().code(), expected, "{}", known.path());
        assert_eq!(
            image.encryption().is_some(),
            known.format().starts_with("encrypted"),
            "{}",
            known.path()
        );
        assert_eq!(
            Some(image.disk().info().len),
            known.number("media_size"),
            "{}",
            known.path()
        );
        assert!(
            !image
                .warnings()
                .iter()
                .any(|warning| warning.contains("its name")),
            "{:?}",
            image.warnings()
        );
        if image.disk().info().len < MAX_LEN {
            assert_eq!(
                Some(disk_sum(&image).as_str()),
                known.text("media_sha256"),
                "{}",
                known.path()
            );
        }
        check_volumes(&image, known);
        *kinds.entry(known.format()).or_default() += 1;
    }
    assert_eq!(kinds.len(), KINDS.len(), "{kinds:?}");
    assert!(kinds.values().sum::<u32>() >= 65, "{kinds:?}");
}

#[test]
fn stored_sums_are_verified_where_there_are_any() {
    let Some(images) = corpus::images("stored_sums_are_verified_where_there_are_any") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for known in images
        .iter()
        .filter(|image| KINDS.contains(&image.format()) && image.number("media_size").is_some())
    {
        let image = opened::open(known, scratch.path()).unwrap().unwrap();
        match verify(&image, &Silent) {
            Ok(verdicts) => assert!(
                verdicts
                    .iter()
                    .all(|verdict| verdict.agrees() != Some(false)),
                "{}",
                known.path()
            ),
            Err(error) => {
                assert!(
                    error.kind() == Kind::Unsupported && !image.format().is_udif(),
                    "{error}"
                );
                assert!(error.message().contains("no checksums"), "{error}");
            }
        }
    }
}

#[test]
fn the_encryption_is_described_without_the_passphrase() {
    let name = "the_encryption_is_described_without_the_passphrase";
    let scratch = tempfile::tempdir().unwrap();
    for (path, version) in [
        ("encrypted/john-RO-openwall.dmg", 2),
        ("encrypted/john-v1-aes128.dmg", 1),
    ] {
        let Some(known) = corpus::image(name, path) else {
            return;
        };
        let path = opened::place(&known, scratch.path()).unwrap();
        let (layers, error) = open::trace(&path, &OpenOptions::default());
        let error = error.unwrap();
        assert_eq!(error.kind(), Kind::WrongKey);
        assert!(
            error.to_string().contains("a passphrase is required"),
            "{error}"
        );
        let [Layer::File(_), Layer::Crypt(description)] = &layers[..] else {
            panic!("{layers:?}")
        };
        assert_eq!(
            (description.version, &description.key_slots[..]),
            (
                version,
                &[KeySlot::Passphrase {
                    iterations: 1000,
                    wrap: KeyWrap::TripleDes
                }][..]
            )
        );
        let wrong = Secret::new(b"not it".to_vec());
        let error = open::open(
            &path,
            &OpenOptions {
                keys: Some(&wrong),
                ..OpenOptions::default()
            },
        )
        .unwrap_err();
        assert_eq!(error.kind(), Kind::WrongKey);
        assert!(
            error.to_string().contains("wrong") && error.file().is_some(),
            "{error}"
        );
    }
}

#[test]
fn encrypted_images_are_changed_in_place() {
    let name = "encrypted_images_are_changed_in_place";
    let Some(known) = corpus::image(name, "encrypted/john-v2-aes256.dmg") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("copy.dmg");
    fs::write(&path, known.bytes().unwrap()).unwrap();
    let secret = Secret::new(b"vilefault".to_vec());
    let options = OpenOptions {
        access: Access::ReadWrite,
        keys: Some(&secret),
        ..OpenOptions::default()
    };
    let image = open::open(&path, &options).unwrap();
    image.disk().write_at(50_001, b"written here").unwrap();
    image.disk().flush().unwrap();
    drop(image);
    let image = open::open(&path, &options).unwrap();
    assert_eq!(image.disk().read_vec(50_001, 12).unwrap(), b"written here");
    let cipher = fs::read(&path).unwrap();
    assert!(
        !cipher.windows(12).any(|bytes| bytes == b"written here"),
        "nothing is stored in plain"
    );
}

/// Made by macOS in 2018: its cipher blocks are numbered from 0 in every band.
#[test]
fn an_encrypted_bundle_of_several_bands_is_in_order() {
    let name = "an_encrypted_bundle_of_several_bands_is_in_order";
    let Some(known) = corpus::image(name, "encrypted/jief-Test1Enc.sparsebundle") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let path = opened::place(&known, scratch.path()).unwrap();
    let secret = Secret::new(
        known.entry()["encrypted"]["password"]
            .as_str()
            .unwrap()
            .into(),
    );
    let options = OpenOptions {
        keys: Some(&secret),
        ..OpenOptions::default()
    };
    let found = open::examine(&path, &options, &Silent).unwrap();
    assert_eq!(
        found.problems.count(Severity::Damage) + found.problems.count(Severity::Warning),
        0,
        "{:?}",
        found.problems
    );
    let writing = OpenOptions {
        access: Access::ReadWrite,
        ..options
    };
    for mode in [Mode::DryRun, Mode::Apply] {
        let repaired = repair(
            &path,
            &writing,
            &Options {
                mode,
                ..Options::default()
            },
            &Silent,
        )
        .unwrap();
        assert!(
            repaired.steps.is_empty() && repaired.refused.is_empty(),
            "{repaired:?}"
        );
    }
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let image = open::open(&path, &OpenOptions { access, ..options }).unwrap();
        assert_eq!(image.bundle().unwrap().band_count(), 5);
        assert_eq!(Some(disk_sum(&image).as_str()), known.text("media_sha256"));
        assert!(image.warnings().is_empty(), "{:?}", image.warnings());
    }
}

/// Written by a current macOS: the keys are wrapped with AES-192.
#[test]
fn keys_that_aes_wraps_are_unwrapped() {
    let Some(known) = corpus::image(
        "keys_that_aes_wraps_are_unwrapped",
        "encrypted/fstool-encrcdsa-aes128-fat12.dmg",
    ) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let path = opened::place(&known, scratch.path()).unwrap();
    let secret = Secret::new(
        known.entry()["encrypted"]["password"]
            .as_str()
            .unwrap()
            .into(),
    );
    let image = open::open(
        &path,
        &OpenOptions {
            keys: Some(&secret),
            ..OpenOptions::default()
        },
    )
    .unwrap();
    assert_eq!(
        image.encryption().unwrap().key_slots,
        [KeySlot::Passphrase {
            iterations: 625_000,
            wrap: KeyWrap::Aes192
        }]
    );
    assert_eq!(Some(disk_sum(&image).as_str()), known.text("media_sha256"));
}

#[test]
fn readers_do_not_open_for_writing() {
    let name = "readers_do_not_open_for_writing";
    let scratch = tempfile::tempdir().unwrap();
    for (path, word) in [
        ("udif/keramics-hfsplus-zlib.dmg", "UDZO"),
        ("encrypted/john-v1-aes128.dmg", "version 1"),
    ] {
        let Some(known) = corpus::image(name, path) else {
            return;
        };
        let path = scratch.path().join("copy.dmg");
        fs::write(&path, known.bytes().unwrap()).unwrap();
        let secret = Secret::new(b"vilefault".to_vec());
        let options = OpenOptions {
            access: Access::ReadWrite,
            keys: Some(&secret),
            ..OpenOptions::default()
        };
        let error = open::open(&path, &options).unwrap_err();
        assert_eq!(error.kind(), Kind::ReadOnly, "{error}");
        assert!(error.message().contains(word), "{error}");
        assert!(fs::read(&path).unwrap() == known.bytes().unwrap());
    }
}

/// Compares the partitions and volumes with the manifest.
fn check_volumes(image: &Image, known: &corpus::Image) {
    let scheme = image
        .partitions()
        .map_or("none".to_owned(), |map| map.scheme.to_string());
    assert_eq!(
        scheme,
        known.text("partition_scheme").unwrap_or("none"),
        "{}",
        known.path()
    );
    // The manifest omits NTFS.
    let listed = image
        .volumes()
        .iter()
        .filter(|volume| volume.format != VolumeFormat::Ntfs);
    let report: Vec<_> = listed
        .map(|volume| (volume.range.start, volume.format.name()))
        .collect();
    let expected: Vec<_> = known
        .file_systems()
        .into_iter()
        .map(|found| (found.offset, found.kind))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(at, kind)| (*at, as_told(kind)))
        .collect();
    assert_eq!(report, expected, "{}", known.path());
    for volume in image.volumes() {
        match volume.open() {
            Ok(fs) => assert_eq!(
                as_told(fs.volume().format),
                volume.format.name(),
                "{}",
                known.path()
            ),
            // Keys of encrypted volumes are not requested here.
            Err(error) if error.kind() == Kind::WrongKey => {
                assert_eq!(volume.format, VolumeFormat::Apfs, "{error}")
            }
            Err(error) => assert!(
                error.kind() == Kind::Unsupported && !volume.format.is_supported(),
                "{error}"
            ),
        }
    }
}

/// Returns the library's name of a file system in the manifest.
fn as_told(kind: &str) -> &str {
    match kind {
        "HFS-standard" => "HFS",
        "FAT12" | "FAT16" | "FAT32" => "FAT",
        other => other,
    }
}

#[test]
fn volumes_are_found_by_name_and_number() {
    let Some(known) = corpus::image(
        "volumes_are_found_by_name_and_number",
        "raw/dfvfs-apm.dmg.gz",
    ) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let image = opened::open(&known, scratch.path()).unwrap().unwrap();
    let name = image.file_system(None).unwrap().volume().name;
    assert!(!name.is_empty());
    let number = |partition| VolumeSelector::Number {
        partition,
        volume: None,
    };
    for selector in [VolumeSelector::Name(name.clone()), number(2)] {
        assert_eq!(
            image.file_system(Some(&selector)).unwrap().volume().name,
            name
        );
    }
    for selector in [VolumeSelector::Name(name + "?"), number(1), number(3)] {
        let error = image.file_system(Some(&selector)).unwrap_err();
        assert!(
            error.kind() == Kind::NotFound && error.message().contains("HFS+ on partition 2"),
            "{error}"
        );
    }
}

#[test]
fn damaged_images_give_one_clear_error_or_what_is_there() {
    let Some(images) = corpus::images("damaged_images_give_one_clear_error_or_what_is_there")
    else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for known in images
        .iter()
        .filter(|image| image.path().starts_with("corrupt/"))
    {
        let outcome = opened::open(known, scratch.path()).unwrap();
        match known.path() {
            "corrupt/threez-empty.sparsebundle" => {
                let disk = outcome.unwrap().disk().clone();
                assert_eq!(
                    disk.read_vec(0, 12).unwrap(),
                    [1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0, 0]
                );
                assert_eq!(disk.info().len, 134_217_728);
            }
            // Only its first band exists; the rest of the disk reads as zeros.
            "corrupt/threez-test-incomplete.sparsebundle" => {
                let image = outcome.unwrap();
                assert_eq!(image.disk().info().len, 100_020_736);
                assert_eq!(image.partitions().unwrap().scheme.to_string(), "GPT");
                assert_eq!(image.disk().read_vec(50_000_000, 100).unwrap(), [0; 100]);
            }
            "corrupt/dissect-apfs-corrupt.bin.gz" => {
                assert_eq!(outcome.unwrap().volumes()[0].format.name(), "APFS")
            }
            path => {
                let error = outcome.err().unwrap_or_else(|| panic!("{path} opened"));
                assert!(
                    matches!(error.kind(), Kind::Unsupported | Kind::Corrupt),
                    "{error}"
                );
                assert!(error.file().is_some(), "{error}");
            }
        }
    }
}

/// Those of macOS, Windows and other programs.
#[test]
fn fat_volumes_are_read_and_sound() {
    let Some(images) = corpus::images("fat_volumes_are_read_and_sound") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let is_fat = |image: &&corpus::Image| {
        let systems = image.file_systems();
        systems.iter().any(|found| found.kind.starts_with("FAT"))
    };
    let mut count = 0;
    for known in images.iter().filter(is_fat) {
        let Some(Ok(image)) = opened::open(known, scratch.path()) else {
            continue;
        };
        let volumes = image.volumes().iter();
        for volume in volumes.filter(|volume| volume.format == VolumeFormat::Fat) {
            let problems = fat::check(volume.device().clone(), &Silent).unwrap();
            let worst = problems.iter().map(|problem| problem.severity).max();
            assert!(
                worst < Some(Severity::Damage),
                "{}: {problems:?}",
                known.path()
            );
            let volume = volume.open().unwrap();
            let mut folders = vec![volume.root()];
            while let Some(folder) = folders.pop() {
                for entry in volume.entries(folder).unwrap() {
                    let attributes = entry.attributes;
                    if attributes.kind == FileKind::Folder {
                        folders.push(attributes.id);
                    } else {
                        let file = volume.open(attributes.id, Fork::Data).unwrap();
                        assert_eq!(file.info().len, attributes.size, "{}", entry.name);
                        file.read_vec(0, attributes.size as usize).unwrap();
                    }
                }
            }
            count += 1;
        }
    }
    assert!(count > 3, "{count}");
}
