//! Encrypted images of every supporting format: created, filled, converted, and opened by their
//! passphrase only.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::device::{Access, AfterDiscard, BlockDeviceExt};
use bandsaw::fs::FileSystemExt;
use bandsaw::open::{self, CreateOptions, Image, Keys, OpenOptions};
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::create::{self, Layout, NewVolume, Source};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::{Progress, Silent};
use bandsaw::testing::Random;
use bandsaw::{Kind, Result};

const MIB: u64 = 1 << 20;

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes().to_vec())
}

fn encryption(passphrase: &str, key_bits: u32) -> Option<Encryption> {
    Some(Encryption {
        key_bits,
        iterations: Some(MIN_ITERATIONS),
        ..Encryption::new(secret(passphrase))
    })
}

fn open(path: &Path, passphrase: Option<&str>, access: Access) -> Result<Image> {
    let secret = passphrase.map(secret);
    let keys = secret.as_ref().map(|secret| secret as &dyn Keys);
    open::open(
        path,
        &OpenOptions {
            access,
            keys,
            ..OpenOptions::default()
        },
    )
}

/// Returns a path for each format that can be encrypted.
fn places(folder: &Path) -> [(Format, PathBuf); 4] {
    [
        (Format::Udrw, "a.dmg"),
        (Format::Udsb, "b.sparsebundle"),
        (Format::Udsp, "c.sparseimage"),
        (Format::Asif, "d.asif"),
    ]
    .map(|(format, name)| (format, folder.join(name)))
}

/// Returns true if a file at or below `path` contains these bytes.
fn stores(path: &Path, needle: &[u8]) -> bool {
    if path.is_dir() {
        return fs::read_dir(path)
            .unwrap()
            .any(|entry| stores(&entry.unwrap().path(), needle));
    }
    fs::read(path)
        .unwrap()
        .windows(needle.len())
        .any(|bytes| bytes == needle)
}

#[test]
fn new_images_open_by_their_passphrase_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (format, path)) in places(folder.path()).into_iter().enumerate() {
        let key_bits = if number % 2 == 0 { 256 } else { 128 };
        let options = CreateOptions {
            format,
            len: 9 * MIB,
            band_size: format.has_bands().then_some(MIB),
            encryption: encryption("key", key_bits),
            ..CreateOptions::default()
        };
        let image = open::create(&path, &options).unwrap();
        let unconfirmed = image
            .warnings()
            .iter()
            .any(|warning| warning.contains("is not confirmed by any image from macOS"));
        assert_eq!(
            unconfirmed,
            format == Format::Asif,
            "{:?}",
            image.warnings()
        );
        assert!(
            image
                .disk()
                .read_vec(0, 9 << 20)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0),
            "{format} is blank"
        );
        image
            .disk()
            .write_at(5 * MIB + 300, b"written in the clear")
            .unwrap();
        image.disk().flush().unwrap();
        drop(image);

        assert!(!stores(&path, b"written in the clear"), "{format}");
        for (passphrase, words) in [(None, "a passphrase is required"), (Some("Key"), "wrong")] {
            let error = open(&path, passphrase, Access::ReadOnly).unwrap_err();
            assert!(
                error.kind() == Kind::WrongKey && error.to_string().contains(words),
                "{format}: {error}"
            );
        }
        let image = open(&path, Some("key"), Access::ReadWrite).unwrap();
        let facts = image.encryption().unwrap();
        assert_eq!(
            (image.format(), facts.version, facts.key_bits, facts.block),
            (format, 2, key_bits, 512)
        );
        assert_eq!(
            image.disk().read_vec(5 * MIB + 299, 22).unwrap(),
            b"\0written in the clear\0"
        );
        image
            .disk()
            .discard(4 * MIB..7 * MIB, AfterDiscard::Zeros)
            .unwrap();
        image.disk().flush().unwrap();
        drop(image);
        let image = open(&path, Some("key"), Access::ReadOnly).unwrap();
        assert_eq!(
            image.disk().read_vec(5 * MIB, 600).unwrap(),
            [0; 600],
            "{format}"
        );
    }
}

/// A truncated bundle header, at any length, is never opened as plain data, nor reported as a wrong
/// passphrase.
#[test]
fn a_truncated_token_has_its_own_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.sparsebundle");
    let options = CreateOptions {
        format: Format::Udsb,
        len: MIB,
        encryption: encryption("key", 256),
        ..CreateOptions::default()
    };
    let image = open::create(&path, &options).unwrap();
    image.disk().write_at(0, &[1; 5000]).unwrap();
    image.disk().flush().unwrap();
    drop(image);
    let token = fs::read(path.join("token")).unwrap();
    for len in [
        1,
        7,
        8,
        12,
        75,
        76,
        95,
        96,
        200,
        711,
        712,
        4096,
        token.len() - 1,
    ] {
        fs::write(path.join("token"), &token[..len]).unwrap();
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let error = open(&path, Some("key"), access).unwrap_err();
            let words = error.to_string();
            assert!(
                error.kind() == Kind::Corrupt && words.contains("token"),
                "{len} bytes: {:?}: {words}",
                error.kind()
            );
            assert!(
                words.contains("truncated within") || words.contains("too few"),
                "{len} bytes: {words}"
            );
        }
    }
    fs::write(path.join("token"), &token).unwrap();
    assert_eq!(
        open(&path, Some("key"), Access::ReadOnly)
            .unwrap()
            .disk()
            .read_vec(0, 2)
            .unwrap(),
        [1, 1]
    );
}

#[test]
fn volumes_are_made_in_encrypted_images() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let bytes = Random::new(3).bytes(700_000);
    fs::write(tree.join("noise"), &bytes).unwrap();
    for (format, path) in places(folder.path()) {
        let options = create::CreateOptions {
            format,
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: "Secret".to_owned(),
                format: NewFormat::HfsPlus,
                block_size: None,
                source: Source::Folder(tree.clone()),
            }),
            encryption: encryption("key", 256),
            ..create::CreateOptions::default()
        };
        drop(create::create(&path, options, &Silent).unwrap());
        let image = open(&path, Some("key"), Access::ReadOnly).unwrap();
        let volume = image.file_system(None).unwrap();
        assert_eq!(volume.volume().name, "Secret");
        let noise = volume.resolve("/noise").unwrap();
        assert_eq!(noise.size, bytes.len() as u64, "{format}");
        assert!(
            !stores(&path, &bytes[..64]) && !stores(&path, b"EFI PART"),
            "{format}"
        );
    }
}

/// No plaintext is written, not even temporarily.
#[test]
fn folders_become_encrypted_compressed_images() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let bytes = Random::new(4).bytes(3_000_000);
    fs::write(tree.join("noise"), &bytes).unwrap();
    for (format, key_bits) in [(Format::Udzo, 128), (Format::Ulfo, 256)] {
        let path = folder.path().join(format!("{format}.dmg"));
        let options = || create::CreateOptions {
            format,
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: "Secret".to_owned(),
                format: NewFormat::HfsPlus,
                block_size: None,
                source: Source::Folder(tree.clone()),
            }),
            encryption: encryption("key", key_bits),
            ..create::CreateOptions::default()
        };
        let looked = Looking {
            folder: folder.path(),
            needle: &bytes[1_000_000..1_000_064],
            found: AtomicU64::new(0),
        };
        drop(create::create(&path, options(), &looked).unwrap());
        assert_eq!(
            looked.found.load(Ordering::Relaxed),
            0,
            "{format}: the clear text was on the host"
        );
        assert_eq!(
            open(&path, None, Access::ReadOnly).unwrap_err().kind(),
            Kind::WrongKey
        );
        let image = open(&path, Some("key"), Access::ReadOnly).unwrap();
        assert_eq!(
            (image.format(), image.encryption().unwrap().key_bits),
            (format, key_bits)
        );
        let volume = image.file_system(None).unwrap();
        assert_eq!(
            volume.resolve("/noise").unwrap().size,
            bytes.len() as u64,
            "{format}"
        );
        assert!(
            image
                .udif()
                .unwrap()
                .verify(&Silent)
                .unwrap()
                .iter()
                .all(|verdict| verdict.agrees() == Some(true)),
            "{format}"
        );
        assert!(
            !stores(&path, b"koly") && !stores(&path, b"EFI PART"),
            "{format}"
        );
        fs::remove_file(&path).unwrap();
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "{format}: only the tree is left"
        );
    }
}

/// Searches for bytes in the files of a folder at each progress report.
#[derive(Debug)]
struct Looking<'a> {
    folder: &'a Path,
    needle: &'a [u8],
    found: AtomicU64,
}

impl Progress for Looking<'_> {
    fn stage(&self, _name: &str, _total: u64) {
        for entry in fs::read_dir(self.folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.is_dir() && stores(&path, self.needle) {
                self.found.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn advance(&self, _n: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}

#[test]
fn a_disk_goes_through_every_encryption_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.img");
    let source = open::create(
        &plain,
        &CreateOptions {
            len: 6 * MIB,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    source
        .disk()
        .write_at(MIB - 5000, &Random::new(1).bytes(2_000_000))
        .unwrap();
    source.disk().write_at(6 * MIB - 700, &[7; 700]).unwrap();
    source.disk().flush().unwrap();
    let expected = source.disk().read_vec(0, 6 << 20).unwrap();
    let mut last = source;
    let mut uuids = Vec::new();
    for (number, (format, path)) in places(folder.path()).into_iter().enumerate() {
        let options = ConvertOptions {
            format,
            encryption: encryption(&format!("key {number}"), 256),
            ..ConvertOptions::default()
        };
        drop(convert(&last, &path, &options, &Silent).unwrap());
        last = open(&path, Some(&format!("key {number}")), Access::ReadOnly).unwrap();
        assert!(
            last.disk().read_vec(0, 6 << 20).unwrap() == expected,
            "{format}"
        );
        uuids.push(last.encryption().unwrap().uuid);
    }
    uuids.sort();
    uuids.dedup();
    assert_eq!(uuids.len(), 4, "keys are fresh each time");
    let back = folder.path().join("back.img");
    let image = convert(&last, &back, &ConvertOptions::default(), &Silent)
        .unwrap()
        .image;
    assert!(image.encryption().is_none() && image.disk().read_vec(0, 6 << 20).unwrap() == expected);
}

#[test]
fn compressed_images_are_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.img");
    let source = open::create(
        &plain,
        &CreateOptions {
            len: 3 * MIB,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    let words = b"written in the clear ".repeat(9000);
    source.disk().write_at(MIB - 5000, &words).unwrap();
    source.disk().flush().unwrap();
    let expected = source.disk().read_vec(0, 3 << 20).unwrap();
    for format in [
        Format::Udro,
        Format::Udco,
        Format::Udzo,
        Format::Udbz,
        Format::Ulfo,
        Format::Ulmo,
    ] {
        let path = folder.path().join(format!("{format}.dmg"));
        let key_bits = if format == Format::Udzo { 128 } else { 256 };
        let options = ConvertOptions {
            format,
            encryption: encryption("key", key_bits),
            ..ConvertOptions::default()
        };
        drop(convert(&source, &path, &options, &Silent).unwrap());
        assert!(
            !stores(&path, b"koly") && !stores(&path, b"written in the clear"),
            "{format}"
        );
        assert_eq!(
            open(&path, Some("Key"), Access::ReadOnly)
                .unwrap_err()
                .kind(),
            Kind::WrongKey
        );
        let image = open(&path, Some("key"), Access::ReadOnly).unwrap();
        assert_eq!(
            (image.format(), image.encryption().unwrap().key_bits),
            (format, key_bits)
        );
        assert!(
            image.disk().read_vec(0, 3 << 20).unwrap() == expected,
            "{format}"
        );
        let verdicts = image.udif().unwrap().verify(&Silent).unwrap();
        assert!(
            verdicts
                .iter()
                .all(|verdict| verdict.agrees() == Some(true)),
            "{format}"
        );
    }
}

#[test]
fn an_encrypted_raw_image_stores_every_block_unless_it_is_thin() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, thin| {
        let path = folder.path().join(name);
        let options = CreateOptions {
            len: 8 * MIB,
            encryption: encryption("key", 128),
            thin,
            ..CreateOptions::default()
        };
        let image = open::create(&path, &options).unwrap();
        let stored = fs::metadata(&path).unwrap().blocks() * 512;
        (image, stored)
    };
    let (full, stored) = make("full.img", false);
    assert!(stored >= 8 * MIB, "{stored}");
    assert_eq!(full.disk().read_vec(3 * MIB, 4096).unwrap(), [0; 4096]);
    let (thin, stored) = make("thin.img", true);
    assert!(stored < MIB, "{stored}");
    assert!(
        thin.disk().read_vec(3 * MIB, 4096).unwrap() != [0; 4096],
        "noise"
    );
    thin.disk().write_at(3 * MIB, &[5; 4096]).unwrap();
    assert_eq!(thin.disk().read_vec(3 * MIB, 4096).unwrap(), [5; 4096]);

    let thin = |options: CreateOptions| {
        let error = open::create(
            &folder.path().join("no"),
            &CreateOptions {
                thin: true,
                len: MIB,
                ..options
            },
        )
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    };
    thin(CreateOptions::default());
    thin(CreateOptions {
        format: Format::Udsb,
        encryption: encryption("key", 256),
        ..CreateOptions::default()
    });
}

#[test]
fn cipher_blocks_follow_from_the_size_of_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let options = |format, len: u64, cipher_block| CreateOptions {
        format,
        len,
        encryption: encryption("key", 256).map(|asked| Encryption {
            cipher_block,
            ..asked
        }),
        ..CreateOptions::default()
    };
    for (format, len, asked, block) in [
        (Format::Udsb, 2 << 40, None, 512),
        (Format::Udsb, 3 << 40, None, 512),
        (Format::Udsb, 17 << 40, Some(512), 512),
        (Format::Udsb, MIB, Some(4096), 4096),
        (Format::Udsp, 3 << 40, None, 4096),
        (Format::Asif, 3 << 40, None, 4096),
    ] {
        let path = folder.path().join(format!("{format}-{len}"));
        let image = open::create(&path, &options(format, len, asked)).unwrap();
        assert_eq!(
            image.encryption().unwrap().block,
            block,
            "{format} of {len}"
        );
        image.disk().write_at(len - 512, &[1; 512]).unwrap();
        assert_eq!(
            image.disk().read_vec(len - 512, 512).unwrap(),
            [1; 512],
            "{format} of {len}"
        );
    }
    for (format, len, asked) in [
        (Format::Udrw, 17 << 40, None),
        (Format::Asif, 16 << 40, None),
        (Format::Udsp, 3 << 40, Some(512)),
    ] {
        let path = folder.path().join("refused");
        let error = open::create(&path, &options(format, len, asked)).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
        assert!(!path.exists());
    }
}

/// Cancels after a number of bytes.
#[derive(Debug, Default)]
struct Impatient(AtomicU64);

impl Progress for Impatient {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 20 << 20
    }
}

#[test]
fn stopped_work_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.img");
    let options = || create::CreateOptions {
        len: Some(64 * MIB),
        encryption: encryption("key", 256),
        ..create::CreateOptions::default()
    };
    let error = create::create(&path, options(), &Impatient::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled, "{error}");
    let source = folder.path().join("source.img");
    let image = open::create(
        &source,
        &CreateOptions {
            len: 64 * MIB,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    for format in [Format::Udrw, Format::Udsb] {
        image.disk().write_at(0, &vec![1; 64 << 20]).unwrap();
        let options = ConvertOptions {
            format,
            encryption: encryption("key", 256),
            ..ConvertOptions::default()
        };
        let error = convert(&image, &path, &options, &Impatient::default()).unwrap_err();
        assert_eq!(error.kind(), Kind::Cancelled, "{error}");
    }
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["source.img"]);
}
