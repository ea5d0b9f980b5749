//! Conversions that are interrupted and resumed.

use std::fs;
use std::path::Path;

use crate::common::converting::{StopAfter, names, open_as};
use bandsaw::Kind;
use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::open::{self, CreateOptions, Image, Keys, OpenOptions};
use bandsaw::ops::checksum::{Algorithm, checksum};
use bandsaw::ops::convert::{ConvertOptions, resume};
use bandsaw::progress::Silent;

const MIB: u64 = 1 << 20;
/// Length of the disk: four steps and a partial one, mostly holes.
const LEN: u64 = 1025 * MIB + 512;

fn source(path: &Path) -> Image {
    source_of(path, LEN)
}

fn source_of(path: &Path, len: u64) -> Image {
    let image = open::create(
        path,
        &CreateOptions {
            format: Format::Udsb,
            len,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    for at in [0, 100, 256, 300, 600, 800, 1024]
        .into_iter()
        .filter(|at| (at + 1) * MIB < len)
    {
        image
            .disk()
            .write_at(at * MIB + 77, &vec![at as u8 + 1; MIB as usize])
            .unwrap();
    }
    image.disk().flush().unwrap();
    drop(image);
    open_as(path, Format::Udsb)
}

fn sum(image: &Image) -> String {
    checksum(&**image.disk(), Algorithm::Crc32, &Silent).unwrap()
}

#[test]
fn interrupted_conversions_are_resumed() {
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let folder = tempfile::tempdir().unwrap();
        let from = source(&folder.path().join("from.sparsebundle"));
        let target = folder.path().join("to");
        let options = ConvertOptions {
            format,
            ..ConvertOptions::default()
        };
        for stop_after in [10, 400, 700] {
            let stop = StopAfter {
                left: (stop_after * MIB).into(),
            };
            assert_eq!(
                resume(&from, &target, &options, &stop).unwrap_err().kind(),
                Kind::Cancelled
            );
            assert_eq!(
                names(folder.path()),
                [".to.partial", ".to.partial-note", "from.sparsebundle"],
                "{format}"
            );
        }
        let done = resume(&from, &target, &options, &Silent).unwrap();
        assert!(
            done.copied.written < 4 * MIB,
            "{format}: two steps were done already: {:?}",
            done.copied
        );
        assert_eq!(sum(&done.image), sum(&from), "{format}");
        assert_eq!(names(folder.path()), ["from.sparsebundle", "to"]);
        drop(done);
        assert_eq!(sum(&open_as(&target, format)), sum(&from), "{format}");
        let again = resume(&from, &target, &options, &Silent).unwrap();
        assert!(
            again.was_complete && again.copied == Default::default(),
            "{format}: it is there"
        );
        again.image.disk().write_at(MIB, b"changed").unwrap();
        again.image.disk().flush().unwrap();
        drop(again);
        assert_eq!(
            resume(&from, &target, &options, &Silent)
                .unwrap_err()
                .kind(),
            Kind::Conflict,
            "something else is there"
        );
    }
}

#[test]
fn only_the_same_conversion_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("from.sparsebundle");
    let from = source(&path);
    let target = folder.path().join("to");
    let options = ConvertOptions {
        format: Format::Udsb,
        ..ConvertOptions::default()
    };
    let stop = || StopAfter {
        left: (600 * MIB).into(),
    };
    assert_eq!(
        resume(&from, &target, &options, &stop())
            .unwrap_err()
            .kind(),
        Kind::Cancelled
    );
    let other = ConvertOptions {
        band_size: Some(MIB),
        ..options.clone()
    };
    let error = resume(&from, &target, &other, &Silent).unwrap_err();
    assert!(
        error.kind() == Kind::Conflict && error.message().contains(".to.partial"),
        "{error}"
    );
    drop(from);
    // A changed band and time: the source is no longer the same.
    fs::write(path.join("bands/1"), b"changed").unwrap();
    let from = open_as(&path, Format::Udsb);
    assert_eq!(
        resume(&from, &target, &options, &Silent)
            .unwrap_err()
            .kind(),
        Kind::Conflict
    );
    fs::remove_dir_all(folder.path().join(".to.partial")).unwrap();
    assert_eq!(
        sum(&resume(&from, &target, &options, &Silent).unwrap().image),
        sum(&from)
    );
}

/// Each call provides the passphrase, which opens the partial image.
#[test]
fn encrypted_images_are_resumed() {
    let encryption = |passphrase: &str| Encryption {
        iterations: Some(MIN_ITERATIONS),
        // Large blocks are faster in debug builds.
        cipher_block: Some(4096),
        ..Encryption::new(Secret::new(passphrase.as_bytes().to_vec()))
    };
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let folder = tempfile::tempdir().unwrap();
        // One step and a partial one: in a raw image all of it is ciphertext.
        let from = source_of(&folder.path().join("from.sparsebundle"), 310 * MIB + 512);
        let target = folder.path().join("to");
        let options = ConvertOptions {
            format,
            encryption: Some(encryption("key")),
            ..ConvertOptions::default()
        };
        for stop_after in [10, 290] {
            let stop = StopAfter {
                left: (stop_after * MIB).into(),
            };
            assert_eq!(
                resume(&from, &target, &options, &stop).unwrap_err().kind(),
                Kind::Cancelled
            );
        }
        let kept = folder.path().join(".to.partial");
        let note = fs::read(folder.path().join(".to.partial-note")).unwrap();
        let other = |encryption| ConvertOptions {
            encryption,
            ..options.clone()
        };
        for (wrong, kind) in [
            (other(Some(encryption("Key"))), Kind::WrongKey),
            (
                other(Some(Encryption {
                    key_bits: 128,
                    ..encryption("key")
                })),
                Kind::Conflict,
            ),
            (other(None), Kind::Conflict),
        ] {
            let error = resume(&from, &target, &wrong, &Silent).unwrap_err();
            assert!(
                error.kind() == kind && error.to_string().contains("to"),
                "{format}: {error}"
            );
            assert!(
                kept.exists() && fs::read(folder.path().join(".to.partial-note")).unwrap() == note,
                "{format}"
            );
        }
        let done = resume(&from, &target, &options, &Silent).unwrap();
        assert_eq!(names(folder.path()), ["from.sparsebundle", "to"]);
        let report = done
            .image
            .warnings()
            .iter()
            .filter(|warning| warning.contains("is not confirmed by any image from macOS"))
            .count();
        assert_eq!(report, usize::from(format == Format::Asif), "{format}");
        drop(done);
        let key = Secret::new(b"key".to_vec());
        let opening = OpenOptions {
            image_format: Some(format),
            keys: Some(&key as &dyn Keys),
            ..OpenOptions::default()
        };
        let image = open::open(&target, &opening).unwrap();
        assert!(image.encryption().is_some());
        assert_eq!(sum(&image), sum(&from), "{format}");
    }
}

/// Data that a killed run left after the committed part is cleared, and an image that was not
/// started properly is created anew.
#[test]
fn bytes_past_the_progress_are_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let from = source(&folder.path().join("from.sparsebundle"));
    for (format, target) in [(Format::Udrw, "raw"), (Format::Udsb, "bundle")] {
        let [target, partial] =
            [target.to_owned(), format!(".{target}.partial")].map(|name| folder.path().join(name));
        let options = ConvertOptions {
            format,
            ..ConvertOptions::default()
        };
        let stop = StopAfter {
            left: (600 * MIB).into(),
        };
        resume(&from, &target, &options, &stop).unwrap_err();
        let as_told = OpenOptions {
            access: bandsaw::device::Access::ReadWrite,
            image_format: Some(format),
            ..OpenOptions::default()
        };
        let image = open::open(&partial, &as_told).unwrap();
        image.disk().write_at(900 * MIB, &[9; 100_000]).unwrap();
        image.disk().flush().unwrap();
        drop(image);
        assert_eq!(
            sum(&resume(&from, &target, &options, &Silent).unwrap().image),
            sum(&from),
            "{format}"
        );
    }
    let half = folder.path().join(".half.partial");
    fs::create_dir_all(half.join("bands")).unwrap();
    fs::write(half.join("bands/0"), b"rubbish").unwrap();
    let options = ConvertOptions {
        format: Format::Udsb,
        ..ConvertOptions::default()
    };
    assert_eq!(
        sum(
            &resume(&from, &folder.path().join("half"), &options, &Silent)
                .unwrap()
                .image
        ),
        sum(&from)
    );
}
