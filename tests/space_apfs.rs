//! Space freed in an APFS container is reclaimed on the host, also without the keys of its volumes:
//! `du` and `compact --dry-run` predict it, including blocks retained for older checkpoints.

use std::path::Path;

use crate::common::changing::{World, read_into};
use bandsaw::container::Format;
use bandsaw::crypt::Secret;
use bandsaw::device::Access;
use bandsaw::fs::{FileSystemMutExt, NewKind, NewNode, VolumeEncryption};
use bandsaw::open::{self, Image, Keys, OpenOptions, VolumeQuery};
use bandsaw::ops::compact::{self, compact};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::trim::{before_use, check_fully, trim};
use bandsaw::ops::usage::{HostUsage, ImageUsage};
use bandsaw::progress::Silent;

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
fn what_waits_for_older_checkpoints_is_foretold_and_returns_without_keys() {
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
            let told = compact::plan(&open(&path, Access::ReadOnly, None), &options, &Silent)
                .unwrap()
                .returns();
            let usage = ImageUsage::of(&open(&path, Access::ReadOnly, None), &Silent).unwrap();
            assert_eq!(usage.returns(), told);
            assert!(told > 7 * MIB, "{}: {told}", path.display());
            let image = open(&path, Access::ReadWrite, None);
            let returned = if whole {
                let done = compact(&image, &options, &Silent).unwrap();
                assert!(done.refused.is_empty(), "{done:?}");
                done.before - done.after
            } else {
                let done = trim(&image, &Silent).unwrap();
                assert!(done.volumes[0].refused.is_none(), "{done:?}");
                done.before - done.after
            };
            drop(image);
            // The checkpoints that free the space take some blocks.
            assert!(
                told.abs_diff(returned) < 512 << 10,
                "{}: {told} told, {returned} returned",
                path.display()
            );
            assert!(contents(&path) == before);
            let secret = passphrase();
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
fn what_was_removed_returns_when_the_image_is_used_next() {
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
            before_use(&image, &Silent).unwrap();
            // The same image is used after that.
            let secret = passphrase();
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
