//! Encrypted images made by macOS open with their passphrases, and with nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::corpus;
use bandsaw::crypt::{Device, KeyWrap, LockedHeader, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::{Kind, Result};

fn open(bytes: &[u8], passphrase: &[u8]) -> Result<Device> {
    let file = Arc::new(Memory::read_only(bytes));
    let locked = LockedHeader::read(&*file)?.expect("an encrypted image");
    let keys = locked.unlock(passphrase)?;
    Device::new(file, locked, &keys)
}

#[test]
fn corpus_decrypts_to_known_contents() {
    let Some(images) = corpus::images("corpus_decrypts_to_known_contents") else {
        return;
    };
    let mut seen = 0;
    for image in images
        .iter()
        .filter(|image| !image.entry()["encrypted"]["plaintext_sha256"].is_null())
    {
        let (Some(bytes), facts) = (image.bytes(), &image.entry()["encrypted"]) else {
            continue;
        };
        let device = open(&bytes, facts["password"].as_str().unwrap().as_bytes()).unwrap();
        assert_eq!(
            Some(device.info().len),
            facts["plaintext_size"].as_u64(),
            "{}",
            image.path()
        );
        let plain = device.read_vec(0, device.info().len as usize).unwrap();
        assert_eq!(
            Some(corpus::sha256(&plain).as_str()),
            facts["plaintext_sha256"].as_str(),
            "{}",
            image.path()
        );
        seen += 1;
    }
    assert!(seen >= 18, "{seen} encrypted images seen");
}

#[test]
fn a_wrong_passphrase_is_distinguished_from_damage() {
    let name = "a_wrong_passphrase_is_distinguished_from_damage";
    for path in [
        "encrypted/john-v2-aes256.dmg",
        "encrypted/john-v1-aes128.dmg",
    ] {
        let Some(image) = corpus::image(name, path) else {
            return;
        };
        let mut bytes = image.bytes().unwrap();
        assert_eq!(
            open(&bytes, b"vilefaulT").unwrap_err().kind(),
            Kind::WrongKey
        );
        let end = bytes.len();
        // The cipher of version 2; the MAC's length of version 1.
        bytes[if path.contains("v2") {
            0x14
        } else {
            end - 0x4FC + 0x3E4
        }] ^= 1;
        assert_eq!(
            open(&bytes, b"vilefault").unwrap_err().kind(),
            Kind::Unsupported
        );
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    let Some(image) = corpus::image(
        "a_header_that_lies_is_refused",
        "encrypted/john-v2-aes256.dmg",
    ) else {
        return;
    };
    let patched = |at: usize, patch: &[u8]| {
        let mut bytes = image.bytes().unwrap();
        bytes[at..at + patch.len()].copy_from_slice(patch);
        open(&bytes, b"vilefault").unwrap_err().kind()
    };
    // A data size beyond the file, an iteration count of 2^31, a key entry beyond the header.
    assert_eq!(patched(0x38, &(1u64 << 40).to_be_bytes()), Kind::Corrupt);
    assert_eq!(patched(0x60 + 8, &(1u32 << 31).to_be_bytes()), Kind::Limit);
    assert_eq!(patched(0x50, &u64::MAX.to_be_bytes()), Kind::Corrupt);
    for length in [20, 0x100] {
        assert_eq!(
            open(&image.bytes().unwrap()[..length], b"vilefault")
                .unwrap_err()
                .kind(),
            Kind::Corrupt
        );
    }
}

/// Creates an image of 1 MiB, identical in every run except for its keys.
fn made() -> Vec<u8> {
    let file = Arc::new(Memory::zeros(0));
    let passphrase = Some(Secret::new(b"right".to_vec()));
    let protection = Protection {
        key_bits: 256,
        block: 512,
        iterations: 1000,
        key_wrap: KeyWrap::TripleDes,
        passphrase,
        certificates: Vec::new(),
    };
    let device = Device::create(file.clone(), &protection).unwrap();
    device.set_len(1 << 20, AfterDiscard::Zeros).unwrap();
    device.flush().unwrap();
    file.to_vec()
}

/// Checks that `bytes` with each of the patches is refused with this kind and message, and that all
/// messages differ.
fn each_has_its_own_words(
    bytes: &[u8],
    base: usize,
    passphrase: &[u8],
    patches: &[(usize, &[u8], Kind, &str)],
) {
    let mut seen = BTreeSet::new();
    for &(at, patch, kind, words) in patches {
        let mut bytes = bytes.to_vec();
        bytes[base + at..base + at + patch.len()].copy_from_slice(patch);
        let error = open(&bytes, passphrase).unwrap_err();
        assert!(
            error.kind() == kind && error.message().contains(words),
            "{at:#x}: {:?}: {error}",
            error.kind()
        );
        assert!(seen.insert(error.to_string()), "{at:#x}: {error}");
    }
    let wrong = open(bytes, b"wrong").unwrap_err();
    assert!(
        wrong.kind() == Kind::WrongKey && wrong.message().contains("wrong"),
        "{wrong}"
    );
    assert!(open(bytes, passphrase).is_ok());
}

#[test]
fn each_damaged_field_of_a_header_has_its_own_words() {
    let (odd, all): (&[u8], &[u8]) = (&[0x77], &[0xFF; 8]);
    each_has_its_own_words(
        &made(),
        0,
        b"right",
        &[
            (0x0B, odd, Kind::Unsupported, "version"),
            (0x0F, odd, Kind::Unsupported, "vector length"),
            (0x13, odd, Kind::Unsupported, "cipher mode"),
            (0x17, odd, Kind::Unsupported, "cipher 0x"),
            (0x1B, odd, Kind::Unsupported, "key bits 0x"),
            (0x1F, odd, Kind::Unsupported, "vector algorithm"),
            (0x23, odd, Kind::Unsupported, "vector key bits"),
            (0x37, odd, Kind::Unsupported, "block size"),
            // A data size beyond the file, and beyond any possible size.
            (
                0x38,
                &(1u64 << 40).to_be_bytes(),
                Kind::Corrupt,
                "1099511627776",
            ),
            (0x38, all, Kind::Corrupt, "would end past byte 2^64"),
            (0x40, all, Kind::Corrupt, "the header ends at byte"),
            (0x48, &all[..4], Kind::Corrupt, "4294967295 key entries"),
            (
                0x50,
                all,
                Kind::Corrupt,
                "overlaps the directory of entries or the data",
            ),
            (0x63, odd, Kind::Unsupported, "key derivation"),
            (0x67, odd, Kind::Unsupported, "derivation's MAC"),
            (0x68, &(1u32 << 31).to_be_bytes(), Kind::Limit, "2147483648"),
            (0x68, &[0; 4], Kind::Limit, "iterations 0"),
            (0x6F, odd, Kind::Corrupt, "salt of"),
            (0x93, odd, Kind::Unsupported, "vector length"),
            (0xB7, odd, Kind::Unsupported, "wrapping key bits"),
            (0xBB, odd, Kind::Unsupported, "wrapping cipher"),
            (0xBF, odd, Kind::Unsupported, "padding"),
            (0xC3, odd, Kind::Unsupported, "wrapping mode"),
            (0xC4, odd, Kind::Corrupt, "wrapped keys of"),
        ],
    );
}

#[test]
fn each_damaged_field_of_a_trailer_has_its_own_words() {
    let Some(image) = corpus::image(
        "each_damaged_field_of_a_trailer_has_its_own_words",
        "encrypted/john-v1-aes128.dmg",
    ) else {
        return;
    };
    let bytes = image.bytes().unwrap();
    let (odd, all): (&[u8], &[u8]) = (&[0x77], &[0xFF; 8]);
    each_has_its_own_words(
        &bytes,
        bytes.len() - 0x4FC,
        b"vilefault",
        &[
            (0x00, odd, Kind::Corrupt, "MAC"),
            (0x13, odd, Kind::Unsupported, "block size"),
            (0x17, odd, Kind::Unsupported, "wrapping cipher"),
            (0x2B, odd, Kind::Unsupported, "key derivation"),
            (0x30, &(1u32 << 31).to_be_bytes(), Kind::Limit, "2147483648"),
            (0x37, odd, Kind::Corrupt, "salt"),
            (0x63, odd, Kind::Unsupported, "cipher 0x"),
            (0x67, odd, Kind::Unsupported, "key bits"),
            // The wrapped key itself, and its length.
            (
                0x60 + 0x2C + 20,
                all,
                Kind::Corrupt,
                "a wrapped key is damaged",
            ),
            (0x60 + 0x28, all, Kind::Corrupt, "wrapped key of"),
            (0x3E7, odd, Kind::Unsupported, "MAC length"),
            (0x4E8, all, Kind::Corrupt, "the trailer records"),
            (0x4F3, odd, Kind::Unsupported, "version"),
        ],
    );
}

#[test]
fn a_truncated_header_is_damage() {
    let bytes = made();
    for length in [8, 20, 0x4C, 0x60, 0x100, 0x1DDFF] {
        assert_eq!(
            open(&bytes[..length], b"right").unwrap_err().kind(),
            Kind::Corrupt,
            "{length}"
        );
    }
}
