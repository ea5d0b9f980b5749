//! Space freed in an APFS container is reclaimed on the host, with the keys of its volumes: `du` and
//! `compact --dry-run` predict it, including blocks retained for older checkpoints. A container with
//! a locked volume is left as it is, except for what a guest discards.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::changing::{World, read_into};
use bandsaw::container::Format;
use bandsaw::crypt::Secret;
use bandsaw::device::{Access, AfterDiscard};
use bandsaw::fs::{FileSystemMutExt, NewKind, NewNode, VolumeEncryption};
use bandsaw::open::{self, Image, Keys, OpenOptions, VolumeQuery};
use bandsaw::ops::compact::{self, compact};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::trim::{before_use, check_fully, trim};
use bandsaw::ops::usage::{HostUsage, ImageUsage};
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind, Reason};

const MIB: u64 = 1 << 20;

fn passphrase() -> Secret {
    Secret::new(b"volume".to_vec())
}

fn make(path: &Path, format: Format, encrypted: bool) {
    let volume = NewVolume {
        layout: Layout::Gptspud,
        name: "Docs".into(),
        format: NewFormat::Apfs,
        block_size: None,
        source: Source::Empty,
    };
    let encryption = VolumeEncryption {
        passphrase: passphrase(),
        recovery_key: None,
        hint: None,
        iterations: 1,
    };
    let options = CreateOptions {
        format,
        len: Some(64 * MIB),
        volume: Some(volume),
        volume_encryption: encrypted.then_some(encryption),
        band_size: format.has_bands().then_some(MIB),
        ..CreateOptions::default()
    };
    create(path, options, &Silent).unwrap();
}

fn open(path: &Path, access: Access, keys: Option<&dyn Keys>) -> Image {
    open::open(
        path,
        &OpenOptions {
            access,
            keys,
            ..OpenOptions::default()
        },
    )
    .unwrap()
}

fn contents(path: &Path) -> World {
    let secret = passphrase();
    let fs = {
        let wanted = VolumeQuery {
            keys: Some(&secret),
            ..VolumeQuery::default()
        };
        open(path, Access::ReadOnly, None)
            .file_system_as(None, wanted)
            .unwrap()
    };
    let mut world = World::new();
    read_into(&*fs, fs.root(), "", &mut world);
    world
}

/// Creates files, and removes most of them.
fn use_up(path: &Path) {
    let secret = passphrase();
    let image = open(path, Access::ReadWrite, None);
    let fs = image.file_system_mut_as(None, Some(&secret)).unwrap();
    for number in 0..20_u8 {
        let id = fs
            .create(
                fs.root(),
                &format!("file {number}"),
                &NewNode::new(NewKind::File),
            )
            .unwrap();
        fs.write_all(id, &vec![number + 1; 500_000]).unwrap();
    }
    fs.sync().unwrap();
    (0..20)
        .filter(|number| number % 5 > 0)
        .for_each(|number| fs.remove(fs.root(), &format!("file {number}")).unwrap());
    fs.unmount().unwrap();
}

#[test]
fn space_of_older_checkpoints_is_predicted_and_returns() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = compact::Options {
        battery_allowed: true,
        ..compact::Options::default()
    };
    for (format, name) in [
        (Format::Udrw, "a.dmg"),
        (Format::Udsb, "a.sparsebundle"),
        (Format::Asif, "a.asif"),
    ] {
        for (encrypted, whole) in [(false, true), (true, true), (true, false)] {
            let path = folder.path().join(format!("{encrypted} {whole} {name}"));
            make(&path, format, encrypted);
            use_up(&path);
            let before = contents(&path);
            assert_eq!(before.len(), 4);
            let secret = passphrase();
            let keys = encrypted.then_some(&secret as &dyn Keys);
            let image = open(&path, Access::ReadOnly, None);
            let report = compact::plan(&image, &options, keys, &Silent)
                .unwrap()
                .returns();
            let usage = ImageUsage::of(&image, keys, &Silent).unwrap();
            drop(image);
            assert_eq!(usage.returns(), report);
            assert!(report > 7 * MIB, "{}: {report}", path.display());
            let image = open(&path, Access::ReadWrite, None);
            let returned = if whole {
                let done = compact(&image, &options, keys, &Silent).unwrap();
                assert!(done.refused.is_empty(), "{done:?}");
                done.before - done.after
            } else {
                let done = trim(&image, keys, &Silent).unwrap();
                assert!(done.volumes[0].refused.is_none(), "{done:?}");
                done.before - done.after
            };
            drop(image);
            // The checkpoints that free the space take some blocks.
            assert!(
                report.abs_diff(returned) < 512 << 10,
                "{}: {report} report, {returned} returned",
                path.display()
            );
            assert!(contents(&path) == before);
            check_fully(
                &path,
                &OpenOptions {
                    keys: Some(&secret),
                    ..OpenOptions::default()
                },
                &Silent,
            )
            .unwrap();
        }
    }
}

/// As on macOS: space that was freed before the image was last used is reclaimed automatically.
#[test]
fn space_of_removed_files_returns_at_the_next_use() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (format, name) in [
        (Format::Udrw, "b.dmg"),
        (Format::Udsb, "b.sparsebundle"),
        (Format::Asif, "b.asif"),
    ] {
        for encrypted in [false, true] {
            let path = folder.path().join(format!("{encrypted} {name}"));
            make(&path, format, encrypted);
            use_up(&path);
            let (before, world) = (
                HostUsage::of(&path, &Silent).unwrap().allocated,
                contents(&path),
            );
            let image = open(&path, Access::ReadWrite, None);
            let secret = passphrase();
            before_use(&image, encrypted.then_some(&secret as &dyn Keys), &Silent).unwrap();
            // The same image is used after that.
            let fs = image.file_system_mut_as(None, Some(&secret)).unwrap();
            fs.create(fs.root(), "more", &NewNode::new(NewKind::File))
                .unwrap();
            fs.unmount().unwrap();
            drop((fs, image));
            let after = HostUsage::of(&path, &Silent).unwrap().allocated;
            assert!(
                after + 6 * MIB < before,
                "{format}, {encrypted}: {before}, then {after}"
            );
            assert_eq!(contents(&path).len(), world.len() + 1);
            let options = OpenOptions {
                keys: Some(&secret),
                ..OpenOptions::default()
            };
            check_fully(&path, &options, &Silent).unwrap();
        }
    }
}

/// Returns the files of an image with their contents and the bytes that they take.
fn stored(path: &Path) -> (Vec<(PathBuf, Vec<u8>)>, u64) {
    fn read(path: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
        if path.is_dir() {
            let mut entries: Vec<_> = fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            entries.sort();
            entries.iter().for_each(|entry| read(entry, files));
        } else {
            files.push((path.to_owned(), fs::read(path).unwrap()));
        }
    }
    let mut files = Vec::new();
    read(path, &mut files);
    (files, HostUsage::of(path, &Silent).unwrap().allocated)
}

/// Nothing confirms the free map of a container with a volume that is not unlocked.
#[test]
fn a_container_with_a_locked_volume_is_not_trimmed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = compact::Options {
        battery_allowed: true,
        ..compact::Options::default()
    };
    let is_locked = |error: &Error| error.reason() == Some(Reason::VolumeLocked);
    for (format, name) in [
        (Format::Udrw, "c.dmg"),
        (Format::Udsb, "c.sparsebundle"),
        (Format::Asif, "c.asif"),
    ] {
        let path = folder.path().join(name);
        make(&path, format, true);
        use_up(&path);
        let wrong = Secret::new(b"another".to_vec());
        let before = stored(&path);
        for keys in [None, Some(&wrong as &dyn Keys)] {
            let image = open(&path, Access::ReadWrite, None);
            let used = before_use(&image, keys, &Silent).unwrap();
            let trimmed = trim(&image, keys, &Silent).unwrap();
            for volume in used.iter().chain(&trimmed.volumes) {
                let refused = volume.refused.as_ref().unwrap();
                assert_eq!((refused.kind(), volume.free), (Kind::WrongKey, 0));
                assert_eq!(
                    (is_locked(refused), volume.warning().is_none()),
                    (keys.is_none(), keys.is_none())
                );
            }
            assert_eq!((used.len(), trimmed.volumes.len()), (1, 1));
            let plan = compact::plan(&image, &options, keys, &Silent).unwrap();
            assert_eq!((plan.returns(), plan.refused.len()), (0, 1));
            let usage = ImageUsage::of(&image, keys, &Silent).unwrap();
            assert_eq!(usage.returns(), 0);
            let done = compact(&image, &options, keys, &Silent).unwrap();
            assert_eq!((done.before, done.refused.len()), (done.after, 1));
            drop(image);
            assert!(stored(&path) == before, "{format}");
        }
        // Discards by a guest are freed, whatever they cover.
        let image = open(&path, Access::ReadWrite, None);
        let all = 0..image.disk().info().len;
        image.disk().discard(all, AfterDiscard::Any).unwrap();
        image.disk().flush().unwrap();
        drop(image);
        assert!(stored(&path).1 + MIB < before.1, "{format}");
    }
}
