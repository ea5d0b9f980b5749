//! `ops::diagnose`: causes that cannot be seen in the files alone: encryption, segments, layers,
//! volumes, locks.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::container::asif::{Asif, AsifOptions, LayerKind};
use bandsaw::crypt::{Device, KeyWrap, MIN_ITERATIONS, Protection, Secret};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, Memory};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::diagnose::{Cause, Diagnosis, diagnose};
use bandsaw::partition::gpt::{self, Guids, MapGeometry};
use bandsaw::partition::{APPLE_HFS, BASIC_DATA};
use bandsaw::testing::fuzz;
use uuid::{Uuid, uuid};

const CORE_STORAGE: Uuid = uuid!("53746f72-6167-11aa-aa11-00306543ecac");

/// Returns a disk with a GPT and `volume` in its only partition, at byte 20480.
fn disk(type_guid: Uuid, volume: &[u8]) -> Vec<u8> {
    let disk = Memory::zeros(
        MapGeometry::holding(volume.len() as u64, 512)
            .unwrap()
            .disk_len() as usize,
    );
    let range = gpt::create_single(&disk, 512, type_guid, Guids::derived("diagnose")).unwrap();
    disk.write_at(range.start, volume).unwrap();
    disk.to_vec()
}

fn with_volume() -> Vec<u8> {
    disk(APPLE_HFS, &fuzz::sample(false, 4096))
}

fn seen(path: &Path, key: Option<&str>) -> Diagnosis {
    let secret = key.map(|key| Secret::new(key.into()));
    diagnose(
        path,
        &OpenOptions {
            keys: secret.as_ref().map(|secret| secret as _),
            ..OpenOptions::default()
        },
        &bandsaw::progress::Silent,
    )
    .unwrap()
}

/// Diagnoses a file with these bytes, which must not change.
fn cause_of(bytes: &[u8], key: Option<&str>) -> Cause {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.dmg");
    fs::write(&path, bytes).unwrap();
    let found = seen(&path, key);
    assert!(fs::read(&path).unwrap() == bytes);
    let cause = found
        .cause
        .unwrap_or_else(|| panic!("nothing is wrong: {:?}", found.layers));
    assert!(
        !cause.advice.is_empty() && !cause.what.is_empty(),
        "{cause:?}"
    );
    cause
}

fn encrypted() -> Vec<u8> {
    let file = Arc::new(Memory::zeros(0));
    let passphrase = Secret::new(b"key".to_vec());
    let device = Device::create(
        file.clone(),
        &Protection {
            key_bits: 256,
            block: 512,
            iterations: MIN_ITERATIONS,
            key_wrap: KeyWrap::TripleDes,
            passphrase: Some(passphrase),
            certificates: Vec::new(),
        },
    );
    let device = device.unwrap();
    let disk = with_volume();
    device
        .set_len(disk.len() as u64, AfterDiscard::Zeros)
        .unwrap();
    device.write_at(0, &disk).unwrap();
    device.flush().unwrap();
    file.to_vec()
}

#[test]
fn encrypted_images() {
    let good = encrypted();
    assert_eq!(cause_of(&good, None).code, "passphrase-missing");
    assert_eq!(cause_of(&good, Some("yek")).code, "passphrase-wrong");
    assert_eq!(
        cause_of(&good[..good.len() / 2], Some("key")).code,
        "encryption-damaged"
    );
    let mut broken = good.clone();
    broken[0x42] = 9;
    assert_eq!(cause_of(&broken, Some("key")).code, "encryption-damaged");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.dmg");
    fs::write(&path, &good).unwrap();
    let found = seen(&path, Some("key"));
    assert!(found.cause.is_none(), "{:?}", found.cause);
    let layers: Vec<_> = found
        .layers
        .iter()
        .map(|(layer, _)| layer.as_str())
        .collect();
    assert_eq!(layers, ["file", "encryption", "raw image", "GPT", "HFS+"]);
}

fn udif() -> Vec<u8> {
    let target = fuzz::TARGETS
        .iter()
        .find(|target| target.name == "udif")
        .unwrap();
    (target.seeds)().swap_remove(1)
}

#[test]
fn compressed_images() {
    let good = udif();
    let trailer = good.len() - 512;
    let more = cause_of(&[&good[..], &[0x81; 77]].concat(), None);
    assert!(
        more.code == "bytes-after-trailer" && more.advice[0].contains("truncate -s -77"),
        "{more:?}"
    );
    let mut part = good.clone();
    (part[trailer + 0x3b], part[trailer + 0x3f]) = (2, 3);
    assert_eq!(cause_of(&part, None).code, "one-part");
    let mut broken = good.clone();
    broken[trailer + 0xdc] = 1;
    let broken = cause_of(&broken, None);
    assert!(
        broken.code == "container-damaged" && broken.error.is_some(),
        "{broken:?}"
    );
    let mut version = good;
    version[trailer + 7] = 9;
    assert_eq!(cause_of(&version, None).code, "not-supported");
}

#[test]
fn volumes() {
    let mut broken = with_volume();
    for header in [20480 + 1024, 20480 + fuzz::sample(false, 4096).len() - 1024] {
        broken[header + 40..header + 44].fill(0xa5);
    }
    let cause = cause_of(&broken, None);
    assert_eq!((cause.code, cause.layer), ("volume-damaged", "volume"));
    let nothing = cause_of(&disk(APPLE_HFS, &[0x11; 70_000]), None);
    assert_eq!(
        (nothing.code, nothing.layer),
        ("no-file-system", "partition map")
    );
    let storage = cause_of(&disk(CORE_STORAGE, &[0x11; 70_000]), None);
    assert!(
        storage.code == "no-file-system" && storage.what.contains("CoreStorage"),
        "{storage:?}"
    );
    let mut cut = with_volume();
    cut.truncate(30_000);
    assert_eq!(cause_of(&cut, None).code, "cut-short");
}

/// Each file system that is recognized but not supported has advice.
#[test]
fn file_systems_that_are_not_read() {
    let at = |at: usize, magic: &[u8]| [&vec![0; at][..], magic, &vec![0; 80_000 - at]].concat();
    let cases: [(&str, Vec<u8>, &str); 3] = [
        ("NTFS", at(3, b"NTFS    "), "-t ntfs3"),
        ("XFS", at(0, b"XFSB"), "-t xfs"),
        ("Btrfs", at(0x1_0040, b"_BHRfS_M"), "offset=20480 -t btrfs"),
    ];
    for (name, volume, advice) in cases {
        let cause = cause_of(&disk(BASIC_DATA, &volume), None);
        assert_eq!(cause.code, "file-system-not-read", "{name}: {cause:?}");
        assert!(
            cause.what.contains(name) && cause.advice.concat().contains(advice),
            "{name}: {cause:?}"
        );
    }
}

#[test]
fn layers_of_stacks() {
    let file = Arc::new(Memory::zeros(0));
    let kind = LayerKind::Overlay(Uuid::from_u128(7));
    drop(
        Asif::create(
            file.clone(),
            &AsifOptions {
                len: 1 << 20,
                block: 512,
                kind,
            },
        )
        .unwrap(),
    );
    let cause = cause_of(&file.to_vec(), None);
    assert_eq!((cause.code, cause.layer), ("layer-missing", "stack"));
}

#[test]
fn disk_copy() {
    let mut image = vec![0x11; 84 + 819_200];
    image[..84].fill(0);
    image[0] = 4;
    image[64..68].copy_from_slice(&819_200_u32.to_be_bytes());
    image[82] = 1;
    let cause = cause_of(&image, None);
    assert_eq!(cause.code, "container-damaged");
    assert!(
        cause.what.contains("checksum mismatch of the data"),
        "{cause:?}"
    );
}

#[test]
fn extended_attributes_and_neighbors_are_examined() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let code = |name: &str| seen(&path(name), None).cause.map(|cause| cause.code);
    assert_eq!(code("nothing.dmg"), Some("missing"));
    std::os::unix::fs::symlink("nowhere", path("link.dmg")).unwrap();
    assert!(
        seen(&path("link.dmg"), None)
            .cause
            .unwrap()
            .what
            .contains("link")
    );
    fs::write(path(".cloud.dmg.icloud"), "x").unwrap();
    assert!(
        seen(&path("cloud.dmg"), None)
            .cause
            .unwrap()
            .what
            .contains("iCloud")
    );
    fs::write(path("x.dmg"), with_volume()).unwrap();
    assert_eq!(code("x.dmg"), None);
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let held = open::open(&path("x.dmg"), &options).unwrap();
    assert_eq!(code("x.dmg"), Some("in-use"));
    drop(held);
    let options = open::CreateOptions {
        format: Format::Udsb,
        len: 1 << 20,
        ..open::CreateOptions::default()
    };
    drop(open::create(&path("x.sparsebundle"), &options).unwrap());
    assert_eq!(code("x.sparsebundle"), Some("blank"));
    fs::write(path("x.sparsebundle/Info.plist"), "x").unwrap();
    assert_eq!(code("x.sparsebundle"), Some("list-damaged"));
    fs::write(path("x.sparsebundle/Info.bckup"), "x").unwrap();
    assert_eq!(code("x.sparsebundle"), Some("bundle-damaged"));
}
