//! Images that are created, replaced and reopened.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::converting::names;
use bandsaw::container::Format;
use bandsaw::container::asif::{self, Asif};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::open::{self, CreateOptions, Draft, FileDraft, Image, Layer, NewMode, OpenOptions};
use bandsaw::store::{LocalFile, Open};
use bandsaw::{Kind, Result};

const MIB: u64 = 1 << 20;

fn options(format: Format) -> CreateOptions {
    CreateOptions {
        format,
        len: 8 * MIB,
        ..CreateOptions::default()
    }
}

fn open(path: &Path) -> Result<Image> {
    open::open(path, &OpenOptions::default())
}

/// Returns one path for each format that can be created.
fn places(folder: &Path) -> [(Format, PathBuf); 5] {
    [
        (Format::Udrw, folder.join("a.dmg")),
        (Format::Udsb, folder.join("b.sparsebundle")),
        (Format::Udto, folder.join("c.cdr")),
        (Format::Udsp, folder.join("d.sparseimage")),
        (Format::Asif, folder.join("e.asif")),
    ]
}

#[test]
fn new_images_open_and_are_blank() {
    let folder = tempfile::tempdir().unwrap();
    for (format, path) in places(folder.path()) {
        let image = open::create(&path, &options(format)).unwrap();
        assert_eq!((image.format(), image.disk().info().len), (format, 8 * MIB));
        assert_eq!(image.disk().info().access, Access::ReadWrite);
        image.disk().write_at(5 * MIB, b"here").unwrap();
        image.disk().flush().unwrap();
        drop(image);
        let writing = OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(format),
            ..OpenOptions::default()
        };
        let image = open::open(&path, &writing).unwrap();
        assert_eq!(image.disk().read_vec(5 * MIB - 1, 6).unwrap(), b"\0here\0");
        image
            .disk()
            .discard(0..8 * MIB, AfterDiscard::Zeros)
            .unwrap();
        drop(image);
        let image = open(&path).unwrap();
        assert!(
            image.volumes().is_empty() && image.warnings().is_empty(),
            "{:?}",
            image.warnings()
        );
    }
    assert_eq!(
        names(folder.path()),
        [
            "a.dmg",
            "b.sparsebundle",
            "c.cdr",
            "d.sparseimage",
            "e.asif"
        ]
    );
}

#[test]
fn nothing_is_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    for (format, path) in places(folder.path()) {
        fs::write(&path, b"precious").unwrap();
        let error = open::create(&path, &options(format)).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(
            error.to_string().starts_with(path.to_str().unwrap()),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
    assert_eq!(names(folder.path()).len(), 5);
}

#[test]
fn each_format_replaces_each() {
    for (old_format, _) in places(Path::new("")) {
        for (new_format, _) in places(Path::new("")) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("image");
            let old = open::create(&path, &options(old_format)).unwrap();
            old.disk().write_at(0, &[1; 4096]).unwrap();
            old.disk().flush().unwrap();
            let overwrite = CreateOptions {
                overwrite: true,
                ..options(new_format)
            };
            assert_eq!(
                open::create(&path, &overwrite).unwrap_err().kind(),
                Kind::Conflict,
                "in use"
            );
            drop(old);
            let new = open::create(&path, &overwrite).unwrap();
            assert_eq!(new.format(), new_format);
            assert_eq!(new.disk().read_vec(0, 4096).unwrap(), [0; 4096]);
            assert_eq!(names(folder.path()), ["image"]);
        }
    }
}

#[test]
fn only_images_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link, documents) = (
        folder.path().join("t"),
        folder.path().join("l"),
        folder.path().join("d"),
    );
    fs::write(&target, b"x").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    fs::create_dir(&documents).unwrap();
    fs::write(documents.join("thesis.txt"), b"years of work").unwrap();
    for path in [&link, &documents] {
        let error = open::create(
            path,
            &CreateOptions {
                overwrite: true,
                ..options(Format::Udrw)
            },
        )
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{error}");
    }
    assert_eq!(
        fs::read(documents.join("thesis.txt")).unwrap(),
        b"years of work"
    );
    assert_eq!(names(folder.path()), ["d", "l", "t"]);
}

#[test]
fn a_draft_that_is_dropped_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (format, path) in places(folder.path()) {
        let old = open::create(&path, &options(format)).unwrap();
        old.disk().write_at(0, b"old").unwrap();
        old.disk().flush().unwrap();
        drop(old);
        let draft = Draft::new(
            &path,
            &CreateOptions {
                overwrite: true,
                ..options(format)
            },
        )
        .unwrap();
        draft.image().disk().write_at(0, b"new").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(draft);
        assert_eq!(names(folder.path()).len(), 1);
        let as_told = OpenOptions {
            image_format: Some(format),
            ..OpenOptions::default()
        };
        assert_eq!(
            open::open(&path, &as_told)
                .unwrap()
                .disk()
                .read_vec(0, 3)
                .unwrap(),
            b"old"
        );
        fs::remove_dir_all(&path)
            .or_else(|_| fs::remove_file(&path))
            .unwrap();
    }
}

#[test]
fn a_place_taken_meanwhile_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    for (format, path) in places(folder.path()) {
        let draft = Draft::new(&path, &options(format)).unwrap();
        fs::write(&path, b"faster").unwrap();
        assert!(draft.finish().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"faster");
    }
    assert_eq!(names(folder.path()).len(), 5);
}

#[test]
fn refused_options_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for (options, kind) in [
        (options(Format::Udzo), Kind::Invalid),
        (
            CreateOptions {
                band_size: Some(MIB),
                ..options(Format::Udrw)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                band_size: Some(3),
                ..options(Format::Udsb)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                band_size: Some(3),
                ..options(Format::Udsp)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                band_size: Some(MIB),
                ..options(Format::Asif)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                sector_size: Some(4096),
                ..options(Format::Udsp)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                sector_size: Some(1024),
                ..options(Format::Asif)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                sector_size: Some(4096),
                len: 512,
                ..options(Format::Asif)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                len: 1 << 53,
                ..options(Format::Asif)
            },
            Kind::Limit,
        ),
        (
            CreateOptions {
                len: 0,
                ..options(Format::Udsb)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                len: 513,
                ..options(Format::Udrw)
            },
            Kind::Invalid,
        ),
        (
            CreateOptions {
                len: 1 << 63,
                ..options(Format::Udrw)
            },
            Kind::Limit,
        ),
    ] {
        let error = open::create(&path, &options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.file().is_some(), "{error}");
    }
    assert!(names(folder.path()).is_empty());
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        assert_eq!(
            open::create(&folder.path().join("none/x"), &options(format))
                .unwrap_err()
                .kind(),
            Kind::NotFound
        );
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn requested_options_are_used_and_odd_ones_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = CreateOptions {
        len: 200_000 * MIB,
        band_size: Some(MIB),
        ..options(Format::Udsb)
    };
    let image = open::create(&folder.path().join("many.sparsebundle"), &wanted).unwrap();
    let bundle = image.bundle().unwrap();
    assert_eq!((bundle.band_size(), bundle.band_count()), (MIB, 200_000));
    assert!(
        image
            .warnings()
            .iter()
            .any(|warning| warning.contains("200000 bands")),
        "{:?}",
        image.warnings()
    );
}

#[test]
fn contents_determine_the_format_and_odd_names_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (format, _) in places(Path::new(""))
        .into_iter()
        .filter(|(format, _)| *format != Format::Udto)
    {
        for name in ["x", "x.dmg", "x.sparseimage", "x.asif", "x.iso"] {
            let path = folder.path().join(name);
            drop(open::create(&path, &options(format)).unwrap());
            let image = open(&path).unwrap();
            assert_eq!(image.format(), format);
            assert_eq!(
                image.warnings().is_empty(),
                format.fits_name(&path),
                "{format} {name}: {:?}",
                image.warnings()
            );
            if let [warning] = image.warnings() {
                assert!(
                    warning.contains(format.code())
                        && warning.contains(name.trim_start_matches('x')),
                    "{warning}"
                );
            }
            drop(image);
            fs::remove_file(&path)
                .or_else(|_| fs::remove_dir_all(&path))
                .unwrap();
        }
    }
}

#[test]
fn a_layer_alone_is_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer.asif");
    let file = LocalFile::open(&path, Open::CreateNew).unwrap().unwrap();
    let kind = asif::LayerKind::Overlay(uuid::Uuid::from_u128(7));
    drop(
        Asif::create(
            Arc::new(file),
            &asif::AsifOptions {
                len: MIB,
                block: 512,
                kind,
            },
        )
        .unwrap(),
    );
    let (layers, error) = open::trace(&path, &OpenOptions::default());
    assert!(
        matches!(&layers[..], [Layer::File(_), Layer::Asif(_)]),
        "{layers:?}"
    );
    let error = error.unwrap();
    assert!(
        error.kind() == Kind::NotFound
            && error
                .message()
                .contains("00000000-0000-0000-0000-000000000007"),
        "{error}"
    );
}

#[test]
fn flags_that_forbid_changes_are_heeded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.asif");
    drop(open::create(&path, &options(Format::Asif)).unwrap());
    let mut bytes = fs::read(&path).unwrap();
    bytes[0x63] = 4;
    fs::write(&path, bytes).unwrap();
    let error = open::open(
        &path,
        &OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        },
    )
    .unwrap_err();
    assert!(
        error.kind() == Kind::ReadOnly && error.message().contains("flags 0x4"),
        "{error}"
    );
    assert_eq!(open(&path).unwrap().disk().info().access, Access::ReadOnly);
}

#[test]
fn a_file_draft_is_there_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.img");
    for finished in [false, true] {
        let draft = FileDraft::new(&path, false, NewMode::default()).unwrap();
        draft.file().set_len(MIB, AfterDiscard::Zeros).unwrap();
        draft.file().write_at(7, b"here").unwrap();
        assert!(!path.exists());
        if finished {
            let image = draft
                .finish(&OpenOptions {
                    image_format: Some(Format::Udrw),
                    ..OpenOptions::default()
                })
                .unwrap();
            assert_eq!(image.disk().read_vec(7, 4).unwrap(), b"here");
        } else {
            drop(draft);
        }
        assert_eq!(names(folder.path()).len(), usize::from(finished));
    }
    assert_eq!(
        FileDraft::new(&path, false, NewMode::default())
            .unwrap_err()
            .kind(),
        Kind::Conflict
    );
}

#[test]
fn a_bundle_opens_under_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("a.sparsebundle");
    drop(open::create(&made, &options(Format::Udsb)).unwrap());
    for name in ["b.backupbundle", "c", "d.dmg"] {
        let path = folder.path().join(name);
        fs::rename(&made, &path).unwrap();
        fs::write(
            path.join("com.apple.TimeMachine.MachineID.plist"),
            b"opaque",
        )
        .unwrap();
        let image = open::open(
            &path,
            &OpenOptions {
                access: Access::ReadWrite,
                ..OpenOptions::default()
            },
        )
        .unwrap();
        assert_eq!(image.format(), Format::Udsb);
        image.disk().set_len(9 * MIB, AfterDiscard::Zeros).unwrap();
        image.disk().set_len(8 * MIB, AfterDiscard::Zeros).unwrap();
        assert_eq!(
            fs::read(path.join("com.apple.TimeMachine.MachineID.plist")).unwrap(),
            b"opaque"
        );
        drop(image);
        fs::rename(&path, &made).unwrap();
    }
}

#[test]
fn a_million_bands_open_like_none() {
    // Only the structure: files are created on demand.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.sparsebundle");
    let wanted = CreateOptions {
        len: 1_000_000 * MIB,
        band_size: Some(MIB),
        ..options(Format::Udsb)
    };
    let image = open::create(&path, &wanted).unwrap();
    let disk: &Arc<dyn BlockDevice> = image.disk();
    for band in [0, 1, 499_999, 999_999] {
        disk.write_at(band * MIB + 7, b"band").unwrap();
    }
    disk.flush().unwrap();
    assert_eq!(names(&path.join("bands")), ["0", "1", "7a11f", "f423f"]);
    assert_eq!(disk.read_vec(499_999 * MIB + 6, 6).unwrap(), b"\0band\0");
}
