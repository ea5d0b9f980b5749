//! Headers of encrypted images.

use std::sync::Arc;

use super::{describe, disk};
use crate::crypt::{
    self, Device, KeyMaterial, KeyWrap, LockedHeader, MIN_ITERATIONS, Protection, Secret,
};
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use crate::problem::{Problems, Severity};
use crate::testing::Random;

/// Takes an input that describes a file. Its header is refused, or the ranges in it are within the
/// file, and with some key (they are not unlocked here: that is slow by design) the data can be
/// read at both ends. The file is unchanged.
pub fn crypt_header(input: &[u8]) {
    let Some(file) = disk(input) else { return };
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(file.to_vec()));
    let mut problems = Problems::default();
    let checked = crypt::check(&*file, &mut problems);
    let report = checked.is_err() || problems.worst() > Some(Severity::Note);
    let Ok(read) = LockedHeader::read(&*file) else {
        assert!(
            report,
            "a check finds nothing wrong with a header that is refused"
        );
        return;
    };
    assert!(
        report || checked.ok().flatten() == read.as_ref().map(|header| header.describe().block)
    );
    let Some(header) = read else { return };
    let description = header.describe();
    let Ok(keys) = KeyMaterial::random(description.key_bits) else {
        panic!("{description:?}")
    };
    let Ok(device) = Device::new(file.clone(), header, &keys) else {
        assert!(
            report,
            "a check finds nothing wrong with data that are cut short"
        );
        return;
    };
    let len = device.info().len;
    assert!(
        len == description.data_size && len <= file.info().len,
        "{description:?}"
    );
    for offset in [0, len.saturating_sub(512)] {
        assert!(device.read_vec(offset, len.min(512) as usize).is_ok());
    }
    assert!(device.read_vec(len, 1).is_err());
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let made = |key_bits, block| {
        let file = Arc::new(Memory::zeros(0));
        let passphrase = Some(Secret::new(b"seed".to_vec()));
        let protection = Protection {
            key_bits,
            block,
            passphrase,
            iterations: MIN_ITERATIONS,
            key_wrap: KeyWrap::TripleDes,
            certificates: Vec::new(),
        };
        let device = Device::create(file.clone(), &protection);
        let device = device.expect("it can be made");
        let grown = device
            .set_len(8192, AfterDiscard::Zeros)
            .and_then(|()| device.write_at(100, b"secret"))
            .and_then(|()| device.flush());
        grown.expect("it can be written");
        let mut bytes = file.to_vec();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let passphrase = made(128, 512);
    vec![
        describe(&with_certificate(passphrase.clone())),
        describe(&passphrase),
        describe(&made(256, 4096)),
        describe(&trailed()),
    ]
}

/// Replaces the passphrase entry of `image` by that of a private key. Source:
/// docs/formats/encrypted.md §2.2.
fn with_certificate(mut image: Vec<u8>) -> Vec<u8> {
    const ENTRY: usize = 0x60;
    let noise = Random::new(1).bytes(256);
    image[ENTRY..ENTRY + 616].fill(0);
    // In the directory: kind and size (0x234); in the entry: length of the hash, RSA, PKCS#1, no
    // mode, length of the blob.
    for (at, word) in [
        (0x4F, 2),
        (0x5E, 2),
        (0x5F, 0x34),
        (ENTRY + 3, 20),
        (ENTRY + 0x27, 42),
        (ENTRY + 0x2B, 10),
        (ENTRY + 0x32, 1),
    ] {
        image[at] = word;
    }
    image[ENTRY + 4..][..20].copy_from_slice(&noise[..20]);
    image[ENTRY + 0x34..][..256].copy_from_slice(&noise);
    image
}

/// Returns an image of version 1, with 8192 bytes of data. Source: docs/formats/encrypted.md §6.
fn trailed() -> Vec<u8> {
    let mut image = Random::new(2).bytes(19 * 512);
    let at = image.len() - 0x4FC;
    let trailer = &mut image[at..];
    for (at, word) in [
        (0x10, 4096),
        (0x14, 17),
        (0x18, 7),
        (0x1C, 6),
        (0x20, 192),
        (0x24, 8),
        (0x28, 103),
        (0x2C, 0),
        (0x30, 1000),
        (0x34, 20),
        (0x58, 16),
        (0x5C, 5),
        (0x60, 0x8000_0001),
        (0x64, 128),
        (0x60 + 0x28, 40),
        (0x18C, 0x5B),
        (0x190, 160),
        (0x18C + 0x28, 48),
        (0x2B8, 0x5B),
        (0x2BC, 160),
        (0x2B8 + 0x28, 48),
        (0x3E4, 20),
        (0x4E8, 0),
        (0x4EC, 8192),
        (0x4F0, 1_u32),
    ] {
        trailer[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    trailer[0x4F4..].copy_from_slice(b"cdsaencr");
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused immediately is useless to a fuzzer.
    #[test]
    fn all_seeds_are_headers() {
        let ways: Vec<_> = seeds()
            .iter()
            .map(|seed| {
                let header = LockedHeader::read(&disk(seed).unwrap())
                    .unwrap()
                    .unwrap()
                    .describe();
                (
                    header.version,
                    header.has_passphrase(),
                    header.has_public_key(),
                )
            })
            .collect();
        assert_eq!(
            ways,
            [
                (2, false, true),
                (2, true, false),
                (2, true, false),
                (1, true, false)
            ]
        );
    }
}
