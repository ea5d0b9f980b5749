//! Reading of APFS containers made by other software: every known volume, name, size, checksum,
//! link and attribute.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::corpus::{self, Image, KnownFile, sha256};
use crate::common::opened;
use bandsaw::Kind;
use bandsaw::crypt::Secret;
use bandsaw::device::{BlockDevice, BlockDeviceExt, Slice};
use bandsaw::fs::apfs::{Apfs, Container, Locking};
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, LockedVolume, VolumeKey};

/// Returns a device for the container at `offset` of an image.
fn window(image: &Image, offset: u64, scratch: &Path) -> Arc<dyn BlockDevice> {
    let opened = opened::open(image, scratch)
        .unwrap()
        .unwrap_or_else(|error| panic!("{}: {error}", image.path()));
    let found = opened
        .volumes()
        .iter()
        .find(|volume| volume.range.start == offset);
    let range = found
        .unwrap_or_else(|| panic!("{}: nothing at byte {offset}", image.path()))
        .range
        .clone();
    Arc::new(Slice::new(opened.disk().clone(), range).unwrap())
}

/// Returns all objects of a volume by path.
fn walk(volume: &Apfs) -> BTreeMap<String, Attributes> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![(volume.root(), String::new())];
    while let Some((dir, path)) = waiting.pop() {
        for entry in volume.entries(dir).unwrap() {
            let path = format!("{path}/{}", entry.name);
            if entry.attributes.kind == FileKind::Folder {
                waiting.push((entry.attributes.id, path.clone()));
            }
            assert!(
                all.insert(path.clone(), entry.attributes).is_none(),
                "{path} twice"
            );
        }
    }
    all
}

fn contents(device: &dyn BlockDevice) -> Vec<u8> {
    device
        .read_vec(0, device.info().len.try_into().unwrap())
        .unwrap()
}

fn check_file(volume: &Apfs, seen: &BTreeMap<String, Attributes>, file: &KnownFile, image: &str) {
    let name = format!("{image}: {}", file.path);
    let attributes = seen
        .get(&file.path)
        .unwrap_or_else(|| panic!("{name} is missing"));
    assert_eq!(attributes.kind, FileKind::File, "{name}");
    assert_eq!(attributes.size, file.size, "{name}");
    assert_eq!(
        &volume.attributes(attributes.id).unwrap(),
        attributes,
        "{name}: by number"
    );
    assert_eq!(
        &volume.resolve(&file.path).unwrap(),
        attributes,
        "{name}: by path"
    );
    let device = volume
        .open(attributes.id, Fork::Data)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(sha256(&contents(&*device)), file.sha256, "{name}");
    let packed = file.decmpfs_type.is_some();
    if let Some(size) = file.resource_fork_size.filter(|_| !packed) {
        assert_eq!(attributes.resource_size, size, "{name}");
    }
    let resource = contents(&*volume.open(attributes.id, Fork::Resource).unwrap());
    assert_eq!(resource.len() as u64, attributes.resource_size, "{name}");
    for (xattr, (size, sum)) in &file.xattrs {
        let value = volume
            .xattr(attributes.id, xattr)
            .unwrap()
            .unwrap_or_else(|| panic!("{name}: no {xattr}"));
        let value = contents(&*value);
        assert_eq!(
            (value.len() as u64, sha256(&value)),
            (*size, sum.clone()),
            "{name}: {xattr}"
        );
        let hidden = packed && matches!(&**xattr, "com.apple.decmpfs" | "com.apple.ResourceFork");
        assert_eq!(
            volume.xattrs(attributes.id).unwrap().contains(xattr),
            !hidden,
            "{name}: {xattr}"
        );
    }
    assert!(volume.xattr(attributes.id, "no such").unwrap().is_none());
}

fn check_volume(image: &Image, volume: &Apfs, facts: &serde_json::Value, newest: bool) {
    let info = volume.volume();
    let name = image.path();
    assert_eq!(
        (info.format, &*info.name),
        ("APFS", facts["name"].as_str().unwrap()),
        "{name}"
    );
    assert_eq!(
        info.case_sensitive,
        facts["case_sensitive"].as_bool().unwrap(),
        "{name}"
    );
    // The manifest's counts are those of the newest volume superblock, referenced by a checkpoint
    // or not.
    if newest {
        assert_eq!(
            (Some(info.files), Some(info.folders)),
            (facts["files"].as_u64(), facts["directories"].as_u64()),
            "{name}"
        );
    }

    let seen = walk(volume);
    for file in image.files() {
        check_file(volume, &seen, &file, name);
    }
    let links: BTreeMap<String, String> = seen
        .iter()
        .filter(|(_, attributes)| attributes.kind == FileKind::Symlink)
        .map(|(path, attributes)| (path.clone(), volume.read_link(attributes.id).unwrap()))
        .collect();
    assert_eq!(links, image.symlinks(), "{name}");
    let files = seen
        .values()
        .filter(|attributes| attributes.kind == FileKind::File)
        .count();
    assert_eq!(files as u64, image.number("file_count").unwrap(), "{name}");
}

#[test]
fn every_volume_of_the_corpus_reads_as_the_manifest_says() {
    let test = "every_volume_of_the_corpus_reads_as_the_manifest_says";
    let Some(images) = corpus::images(test) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let mut read = 0;
    for image in images {
        for file_system in image
            .file_systems()
            .iter()
            .filter(|found| found.kind == "APFS")
        {
            if !opened::KINDS.contains(&image.format()) {
                crate::common::skip::skip(
                    test,
                    &format!("{}: {} is not read yet", image.path(), image.format()),
                );
                continue;
            }
            eprintln!("{}", image.path());
            let container = Arc::new(
                Container::open(window(&image, file_system.offset, scratch.path()), None).unwrap(),
            );
            assert_eq!(
                Some(u64::from(container.block_size())),
                file_system.facts["block_size"].as_u64()
            );
            assert_eq!(
                Some(container.block_count()),
                file_system.facts["container_blocks"].as_u64()
            );
            let known = file_system.facts["volumes"].as_array().unwrap();
            let volumes = container.volumes();
            assert_eq!(volumes.len(), known.len(), "{}", image.path());
            for (volume, facts) in volumes.into_iter().zip(known) {
                let volume = volume.unwrap();
                assert_eq!(volume.label.name, facts["name"].as_str().unwrap());
                assert_eq!(
                    volume.snapshots.len() as u64,
                    facts["snapshots"].as_u64().unwrap()
                );
                let password = image.text("volume_password").unwrap_or_default();
                let key = |locked: &LockedVolume| {
                    assert_eq!(locked.name, volume.label.name);
                    Ok(VolumeKey::Passphrase(Secret::new(
                        password.as_bytes().to_vec(),
                    )))
                };
                assert_eq!(
                    volume.locking != Locking::Plain,
                    facts["encrypted"] == true,
                    "{}",
                    image.path()
                );
                let opened = container
                    .open_volume(volume.label.number, None, &key)
                    .unwrap();
                let newest = facts["xid"].as_u64().unwrap() <= container.checkpoint();
                check_volume(&image, &opened, facts, newest);
                read += 1;
            }
        }
    }
    assert!(read >= 14, "only {read} volumes were read");
}

/// A volume of macOS with 512 snapshots, each taken after a change.
#[test]
fn every_snapshot_of_a_real_volume_reads() {
    let test = "every_snapshot_of_a_real_volume_reads";
    let Some(image) = corpus::image(test, "raw/dissect-apfs-snapshot.bin.gz") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let container = Arc::new(Container::open(window(&image, 0, scratch.path()), None).unwrap());
    let volume = container.volumes().remove(0).unwrap();
    let plain =
        |_: &LockedVolume| -> bandsaw::Result<VolumeKey> { panic!("the volume is not encrypted") };
    let mut before = 0;
    for (at, snapshot) in volume.snapshots.iter().enumerate().step_by(37) {
        let opened = container
            .open_volume(1, Some(&snapshot.name), &plain)
            .unwrap();
        let seen = walk(&opened);
        let files = seen
            .values()
            .filter(|attributes| attributes.kind == FileKind::File);
        for attributes in files.clone() {
            assert_eq!(
                contents(&*opened.open(attributes.id, Fork::Data).unwrap()).len() as u64,
                attributes.size
            );
        }
        let files = files.count();
        assert_eq!(opened.volume().files, files as u64, "snapshot {at}");
        assert!(
            files > before,
            "each snapshot of this volume has more files than those before"
        );
        before = files;
    }
    let error = container
        .open_volume(1, Some("no such"), &plain)
        .unwrap_err();
    assert!(
        error.kind() == Kind::NotFound && error.to_string().contains("Snapshots@no such"),
        "{error}"
    );
}

/// Older states of a container stay readable until they are overwritten.
#[test]
fn older_checkpoints_of_a_real_container_read() {
    let Some(image) = corpus::image(
        "older_checkpoints_of_a_real_container_read",
        "raw/dfvfs-apfs.raw.gz",
    ) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let device = window(&image, 0, scratch.path());
    let newest = Container::open(device.clone(), None).unwrap();
    assert_eq!(
        (newest.checkpoint(), newest.checkpoints()),
        (4, &[4, 3, 2, 1][..])
    );
    let files = |checkpoint| {
        let container = Arc::new(Container::open(device.clone(), Some(checkpoint)).unwrap());
        container
            .volumes()
            .into_iter()
            .map(|volume| volume.unwrap().files)
            .collect::<Vec<_>>()
    };
    assert_eq!((files(1), files(2), files(4)), (vec![], vec![0], vec![7]));
    let error = Container::open(device, Some(9)).unwrap_err();
    assert!(
        error.kind() == Kind::NotFound && error.to_string().contains("from 1 to 4"),
        "{error}"
    );
}

/// Both corrupt checkpoints are reported, and the previous one is read.
#[test]
fn damaged_checkpoints_are_passed_over() {
    let Some(image) = corpus::image(
        "damaged_checkpoints_are_passed_over",
        "corrupt/dissect-apfs-corrupt.bin.gz",
    ) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let container = Container::open(window(&image, 0, scratch.path()), None).unwrap();
    assert_eq!(container.checkpoint(), 302);
    assert!(
        container
            .problems()
            .iter()
            .any(|error| error.to_string().contains("checkpoint 304")),
        "{:?}",
        container.problems()
    );
}

#[test]
fn a_wrong_passphrase_is_reported_with_the_volumes_name() {
    let test = "a_wrong_passphrase_is_reported_with_the_volumes_name";
    let Some(image) = corpus::image(test, "raw/dissect-apfs-encrypted.bin.gz") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let container = Arc::new(Container::open(window(&image, 0, scratch.path()), None).unwrap());
    let wrong = |_: &LockedVolume| Ok(VolumeKey::Passphrase(Secret::new(b"wrong".to_vec())));
    let error = container.open_volume(1, None, &wrong).unwrap_err();
    assert!(
        error.kind() == Kind::WrongKey && error.to_string().contains("Encrypted"),
        "{error}"
    );
    let recovery = |_: &LockedVolume| Ok(VolumeKey::Recovery(Secret::new(b"AAAA-BBBB".to_vec())));
    assert_eq!(
        container
            .open_volume(1, None, &recovery)
            .unwrap_err()
            .kind(),
        Kind::WrongKey
    );
}
