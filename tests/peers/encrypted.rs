//! A decrypter of `encrcdsa` images in Python, written from docs/formats/encrypted.md only, with
//! the ciphers of the package `cryptography`; and OpenSSL, which unwraps our keys with a private
//! key.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::crypt::{
    Certificate, Device, Encryption, Key, KeyWrap, LockedHeader, Protection, Secret,
};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::fs::{FileSystemExt, Fork};
use bandsaw::open;
use bandsaw::ops::convert::{ConvertOptions, convert};
use bandsaw::ops::create;
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw::store::{Local, LocalFile, Open};

use crate::common::corpus;
use crate::noise::noise;
use crate::programs::{Program, run};
use crate::suite::Suite;

const PYTHON: Program = Program::PeerModule("cryptography");
const OPENSSL: Program = Program::Command(&["openssl"]);
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/encrypted.py");
const PASSPHRASE: &str = "correct horse";
/// Length in bytes, not a multiple of the cipher block.
const LEN: usize = (1 << 20) + 300;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("cryptography", &[PYTHON])
        .test("decrypts_our_files", decrypts_our_files)
        .test("decrypts_our_bundle", decrypts_our_bundle)
        .test(
            "decrypts_our_compressed_images",
            decrypts_our_compressed_images,
        )
        .test(
            "decrypts_what_is_made_of_a_folder",
            decrypts_what_is_made_of_a_folder,
        )
        .test("opens_our_certificate_entry", opens_our_certificate_entry)
        .test("we_decrypt_its_files", we_decrypt_its_files)
        .corpus_test("reads_what_macos_wrote", reads_what_macos_wrote);
    suite
        .peer("openssl", &[OPENSSL])
        .test("unwraps_our_keys", unwraps_our_keys);
}

fn protection(key_bits: u32, block: u32) -> Protection {
    let passphrase = Some(Secret::new(PASSPHRASE.into()));
    Protection {
        key_bits,
        block,
        passphrase,
        iterations: 1500,
        key_wrap: KeyWrap::TripleDes,
        certificates: Vec::new(),
    }
}

fn key_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/keys")
        .join(name)
}

fn with_certificate() -> Protection {
    let certificate = std::fs::read(key_of("owner-certificate.pem")).expect("a test key");
    let certificates =
        vec![Certificate::parse(&certificate).expect("a passphrase or certificate is required")];
    Protection {
        certificates,
        ..protection(256, 512)
    }
}

/// Creates an encrypted file; returns its plaintext.
fn make(path: &Path, protection: &Protection) -> Vec<u8> {
    let file = LocalFile::open(path, Open::CreateNew)
        .expect("making a file")
        .expect("a new file");
    let device = Device::create(Arc::new(file), protection).expect("encrypting");
    device
        .set_len(LEN as u64, AfterDiscard::Zeros)
        .expect("growing");
    let mut plain = vec![0; LEN];
    // Whole blocks, and parts of some.
    for (offset, len) in [(0, 100_000), (300_001, 77), (LEN - 50, 50)] {
        plain[offset..offset + len].copy_from_slice(&noise(len));
        device
            .write_at(offset as u64, &noise(len))
            .expect("writing");
    }
    device.flush().expect("flushing");
    plain
}

fn decrypt(image: &Path, key: &Path, out: &Path) -> Vec<u8> {
    run(PYTHON
        .command()
        .arg(SCRIPT)
        .arg("decrypt")
        .args([image, key, out]));
    std::fs::read(out).expect("what was decrypted")
}

fn decrypts_our_files() {
    for (bits, block) in [(128, 512), (256, 512), (128, 4096), (256, 4096)] {
        let scratch = crate::scratch();
        let [image, key, out] = ["image", "key", "out"].map(|name| scratch.path().join(name));
        std::fs::write(&key, PASSPHRASE).expect("writing the passphrase");
        let plain = make(&image, &protection(bits, block));
        assert!(
            decrypt(&image, &key, &out) == plain,
            "AES-{bits}, blocks of {block} bytes"
        );
    }
}

fn decrypts_our_bundle() {
    for block in [512, 4096] {
        let scratch = crate::scratch();
        let [folder, key, out] =
            ["b.sparsebundle", "key", "out"].map(|name| scratch.path().join(name));
        std::fs::write(&key, PASSPHRASE).expect("writing the passphrase");
        let options = BundleOptions {
            len: 3 << 20,
            band_size: Some(1 << 20),
        };
        let store = Arc::new(Local::new(&folder));
        let bundle = Bundle::create_encrypted(store, &options, &protection(256, block))
            .expect("making a bundle");
        let mut plain = vec![0; 3 << 20];
        // Within the first band, only the end of the second, and across the boundary to the third.
        for (offset, len) in [(5000, 9000), ((2 << 20) - 700, 1500)] {
            plain[offset..offset + len].copy_from_slice(&noise(len));
            bundle
                .write_at(offset as u64, &noise(len))
                .expect("writing");
        }
        bundle.flush().expect("flushing");
        assert!(
            decrypt(&folder, &key, &out) == plain,
            "blocks of {block} bytes"
        );
    }
}

/// The decrypted file is a valid compressed image.
fn decrypts_our_compressed_images() {
    let scratch = crate::scratch();
    let [raw, key] = ["raw.img", "key"].map(|name| scratch.path().join(name));
    std::fs::write(&key, PASSPHRASE).expect("writing the passphrase");
    let source = open::create(
        &raw,
        &open::CreateOptions {
            len: 2 << 20,
            ..Default::default()
        },
    )
    .expect("a disk");
    source
        .disk()
        .write_at(700_000, &noise(300_000))
        .expect("writing");
    source.disk().flush().expect("flushing");
    for format in [Format::Udzo, Format::Ulmo] {
        let [image, out] =
            ["dmg", "plain.dmg"].map(|end| scratch.path().join(format!("{format}.{end}")));
        let encryption = Encryption {
            iterations: Some(150_000),
            ..Encryption::new(Secret::new(PASSPHRASE.into()))
        };
        let options = ConvertOptions {
            format,
            encryption: Some(encryption),
            ..ConvertOptions::default()
        };
        drop(convert(&source, &image, &options, &Silent).expect("packing"));
        let decrypted = decrypt(&image, &key, &out);
        assert_eq!(
            decrypted[decrypted.len() - 512..][..4],
            *b"koly",
            "{format}"
        );
        let opening = open::OpenOptions {
            image_format: Some(format),
            ..Default::default()
        };
        let opened = open::open(&out, &opening).expect("opening what was decrypted");
        assert!(opened.encryption().is_none());
        let bytes = |image: &open::Image| image.disk().read_vec(0, 2 << 20).expect("reading");
        assert!(bytes(&opened) == bytes(&source), "{format}");
    }
}

fn decrypts_what_is_made_of_a_folder() {
    let scratch = crate::scratch();
    let [tree, key, image, out] =
        ["tree", "key", "Docs.dmg", "plain.dmg"].map(|name| scratch.path().join(name));
    std::fs::write(&key, PASSPHRASE).expect("writing the passphrase");
    std::fs::create_dir(&tree).expect("a folder");
    std::fs::write(tree.join("noise"), noise(700_000)).expect("a file");
    let volume = create::NewVolume {
        layout: create::Layout::Gptspud,
        name: "Docs".to_owned(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source: create::Source::Folder(tree),
    };
    let encryption = Encryption {
        iterations: Some(150_000),
        ..Encryption::new(Secret::new(PASSPHRASE.into()))
    };
    let options = create::CreateOptions {
        format: Format::Udzo,
        volume: Some(volume),
        encryption: Some(encryption),
        ..create::CreateOptions::default()
    };
    drop(create::create(&image, options, &Silent).expect("creating"));
    assert!(!decrypt(&image, &key, &out).is_empty());
    let opened =
        open::open(&out, &open::OpenOptions::default()).expect("opening what was decrypted");
    assert!(opened.encryption().is_none() && opened.format() == Format::Udzo);
    let volume = opened.file_system(None).expect("a volume");
    let file = volume.resolve("/noise").expect("the file");
    let contents = volume.open(file.id, Fork::Data).expect("its data");
    assert!(contents.read_vec(0, 700_000).expect("reading") == noise(700_000));
}

fn opens_our_certificate_entry() {
    let scratch = crate::scratch();
    let [image, out] = ["image", "out"].map(|name| scratch.path().join(name));
    let plain = make(&image, &with_certificate());
    assert!(decrypt(&image, &key_of("owner.pem"), &out) == plain);
}

fn we_decrypt_its_files() {
    for (bits, block) in [("128", "4096"), ("256", "512")] {
        let scratch = crate::scratch();
        let [plain, key, image] = ["plain", "key", "image"].map(|name| scratch.path().join(name));
        std::fs::write(&key, PASSPHRASE).expect("writing the passphrase");
        std::fs::write(&plain, noise(LEN)).expect("writing the plain text");
        run(PYTHON
            .command()
            .arg(SCRIPT)
            .arg("make")
            .args([&plain, &key, &image])
            .args([bits, block, "1200"]));
        let file: Arc<dyn BlockDevice> = Arc::new(
            LocalFile::open(&image, Open::Read)
                .expect("opening")
                .expect("its image"),
        );
        let header = LockedHeader::read(&*file)
            .expect("reading")
            .expect("a header");
        let keys = header
            .unlock_with(&Key::Passphrase(Secret::new(PASSPHRASE.into())))
            .expect("unlocking");
        let ours = Device::new(file, header, &keys)
            .expect("decrypting")
            .read_vec(0, LEN)
            .expect("reading");
        assert!(ours == noise(LEN), "AES-{bits}, blocks of {block} bytes");
    }
}

/// The script itself, on images made by macOS.
fn reads_what_macos_wrote() {
    let name = "cryptography::reads_what_macos_wrote";
    for path in [
        "encrypted/john-v2-aes256.dmg",
        "encrypted/john-openwall-fixed-2.dmg",
        "encrypted/john-v2-aes256.sparsebundle",
        "encrypted/jief-Test1Enc.sparsebundle",
        "encrypted/fstool-encrcdsa-aes128-fat12.dmg",
    ] {
        let Some(image) = corpus::image(name, path) else {
            continue;
        };
        let facts = &image.entry()["encrypted"];
        let scratch = crate::scratch();
        let [key, out] = ["key", "out"].map(|name| scratch.path().join(name));
        std::fs::write(&key, facts["password"].as_str().expect("a password"))
            .expect("writing the passphrase");
        let expected = facts["plaintext_sha256"]
            .as_str()
            .or(image.text("media_sha256"))
            .expect("a sum");
        assert_eq!(
            corpus::sha256(&decrypt(&image.location(), &key, &out)),
            expected,
            "{path}"
        );
    }
}

/// OpenSSL unwraps the image's keys and the mark after them from our entry; they match those that
/// the passphrase unwraps.
fn unwraps_our_keys() {
    let scratch = crate::scratch();
    let [image, blob] = ["image", "blob"].map(|name| scratch.path().join(name));
    make(&image, &with_certificate());
    // After a directory of two entries; the blob of a 2048-bit key.
    let header = std::fs::read(&image).expect("our image");
    std::fs::write(&blob, &header[0x74 + 0x34..][..256]).expect("writing the blob");
    let mut openssl: Command = OPENSSL.command();
    let plain = run(openssl
        .args([
            "pkeyutl",
            "-decrypt",
            "-pkeyopt",
            "rsa_padding_mode:pkcs1",
            "-inkey",
        ])
        .arg(key_of("owner.pem"))
        .arg("-in")
        .arg(&blob));
    assert!(
        plain.len() == 32 + 20 + 5 && plain.ends_with(b"CKIE\0"),
        "{} bytes",
        plain.len()
    );
    // The identifier of the key in the certificate matches OpenSSL's.
    let mut openssl: Command = OPENSSL.command();
    let report = run(openssl
        .args(["x509", "-noout", "-ext", "subjectKeyIdentifier", "-in"])
        .arg(key_of("owner-certificate.pem")));
    let report: String = String::from_utf8_lossy(&report)
        .lines()
        .last()
        .expect("a line")
        .trim()
        .replace(':', "")
        .to_lowercase();
    let ours: String = header[0x78..0x8C]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(ours, report);
}
