//! Encrypted images made by macOS give up their contents to their passwords, and to nothing else.

mod common;

use std::sync::Arc;

use bandsaw::crypt::{Device, Locked};
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw::{Kind, Result};
use common::corpus;

fn open(bytes: &[u8], passphrase: &[u8]) -> Result<Device> {
    let file = Arc::new(Memory::read_only(bytes));
    let locked = Locked::read(&*file)?.expect("an encrypted image");
    let keys = locked.unlock(passphrase)?;
    Device::new(file, locked, &keys)
}

#[test]
fn corpus_decrypts_to_known_contents() {
    let Some(images) = corpus::images("corpus_decrypts_to_known_contents") else { return };
    let mut seen = 0;
    for image in images.iter().filter(|image| !image.entry()["encrypted"]["plaintext_sha256"].is_null()) {
        let (Some(bytes), facts) = (image.bytes(), &image.entry()["encrypted"]) else { continue };
        let device = open(&bytes, facts["password"].as_str().unwrap().as_bytes()).unwrap();
        assert_eq!(Some(device.info().len), facts["plaintext_size"].as_u64(), "{}", image.path());
        let plain = device.read_vec(0, device.info().len as usize).unwrap();
        assert_eq!(Some(corpus::sha256(&plain).as_str()), facts["plaintext_sha256"].as_str(), "{}", image.path());
        seen += 1;
    }
    assert!(seen >= 18, "{seen} encrypted images seen");
}

#[test]
fn a_wrong_passphrase_is_told_apart_from_damage() {
    let name = "a_wrong_passphrase_is_told_apart_from_damage";
    for path in ["encrypted/john-v2-aes256.dmg", "encrypted/john-v1-aes128.dmg"] {
        let Some(image) = corpus::image(name, path) else { return };
        let mut bytes = image.bytes().unwrap();
        assert_eq!(open(&bytes, b"vilefaulT").unwrap_err().kind(), Kind::WrongKey);
        let end = bytes.len();
        // The cipher of version 2; the MAC's length of version 1.
        bytes[if path.contains("v2") { 0x14 } else { end - 0x4FC + 0x3E4 }] ^= 1;
        assert_eq!(open(&bytes, b"vilefault").unwrap_err().kind(), Kind::Unsupported);
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    let Some(image) = corpus::image("a_header_that_lies_is_refused", "encrypted/john-v2-aes256.dmg") else { return };
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
        assert_eq!(open(&image.bytes().unwrap()[..length], b"vilefault").unwrap_err().kind(), Kind::Corrupt);
    }
}
