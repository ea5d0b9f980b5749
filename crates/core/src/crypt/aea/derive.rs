//! Keys that are derived from others with HKDF-SHA-256, and what is encrypted and authenticated
//! with them. Source: docs/formats/aea.md §4.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use zeroize::{Zeroize, Zeroizing};

use super::layout::Mac;
use crate::crypt::hmac256::hmac_sha256_of;

/// A key from which others are derived.
pub(super) type DerivationKey = Zeroizing<[u8; 32]>;

/// Number of cipher blocks that are encrypted at a time.
const LANES: usize = 32;

/// Derives bytes with HKDF-SHA-256 (RFC 5869), at most 255 hashes of them. The info is in parts.
pub(super) fn hkdf(salt: &[u8], key: &[u8], info: &[&[u8]], out: &mut [u8]) {
    hkdf_expand(&hkdf_extract(salt, &[key]), info, out);
}

/// Extracts a pseudorandom key, the first step of HKDF. The input key is in parts.
pub(super) fn hkdf_extract(salt: &[u8], key: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(hmac_sha256_of(salt, key))
}

/// Expands a pseudorandom key, the second step of HKDF.
pub(super) fn hkdf_expand(pseudorandom: &[u8; 32], info: &[&[u8]], out: &mut [u8]) {
    let mut last = Zeroizing::new(Vec::with_capacity(32));
    for (number, piece) in (1..=u8::MAX).zip(out.chunks_mut(32)) {
        let number = [number];
        let mut parts = vec![&last[..]];
        parts.extend_from_slice(info);
        parts.push(&number);
        let mut block = hmac_sha256_of(pseudorandom, &parts);
        piece.copy_from_slice(&block[..piece.len()]);
        last.clear();
        last.extend_from_slice(&block);
        block.zeroize();
    }
}

/// Derives a key from which others are derived.
pub(super) fn derivation_key(salt: &[u8], key: &[u8], info: &[&[u8]]) -> DerivationKey {
    let mut derived = DerivationKey::default();
    hkdf(salt, key, info, &mut *derived);
    derived
}

/// The derived keys of an archive.
#[derive(Clone)]
pub(super) struct KeySchedule {
    main: DerivationKey,
    is_encrypted: bool,
    /// False if the main key is not known, so that no MAC can be compared.
    is_authenticated: bool,
}

impl KeySchedule {
    /// Creates the keys of an archive with its main key.
    pub(super) fn new(main: DerivationKey, is_encrypted: bool) -> Self {
        Self {
            main,
            is_encrypted,
            is_authenticated: true,
        }
    }

    /// Creates the keys of an archive that is not encrypted, and whose MACs are not compared.
    pub(super) fn unknown() -> Self {
        Self {
            main: DerivationKey::default(),
            is_encrypted: false,
            is_authenticated: false,
        }
    }

    /// Returns true if MACs are compared.
    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    pub(super) fn root(&self) -> DataKey {
        self.data_key(&self.main, &[b"AEA_RHEK"])
    }

    pub(super) fn signature(&self) -> DataKey {
        let key = derivation_key(&[], &*self.main, &[b"AEA_SEK"]);
        self.data_key(&key, &[b"AEA_SEK2"])
    }

    pub(super) fn cluster(&self, number: u32) -> DerivationKey {
        derivation_key(&[], &*self.main, &[b"AEA_CK", &number.to_le_bytes()])
    }

    pub(super) fn cluster_header(&self, cluster: &DerivationKey) -> DataKey {
        self.data_key(cluster, &[b"AEA_CHEK"])
    }

    pub(super) fn segment(&self, cluster: &DerivationKey, number: u32) -> DataKey {
        self.data_key(cluster, &[b"AEA_SK", &number.to_le_bytes()])
    }

    fn data_key(&self, key: &DerivationKey, info: &[&[u8]]) -> DataKey {
        let mut bytes = Zeroizing::new([0; 80]);
        // Without encryption, a key is that of the MAC alone, which is derived as its beginning.
        hkdf(&[], &**key, info, &mut *bytes);
        DataKey {
            bytes,
            is_encrypted: self.is_encrypted,
            is_authenticated: self.is_authenticated,
        }
    }
}

impl std::fmt::Debug for KeySchedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeySchedule(..)")
    }
}

/// The keys of one piece of an archive: 32 bytes for its MAC, 32 for AES-256, and the first
/// counter.
pub(super) struct DataKey {
    bytes: Zeroizing<[u8; 80]>,
    is_encrypted: bool,
    is_authenticated: bool,
}

impl DataKey {
    /// Returns the MAC of cipher text, with the data before it that it covers, too.
    pub(super) fn mac(&self, before: &[&[u8]], data: &[u8]) -> Mac {
        let len = before.iter().map(|part| part.len() as u64).sum::<u64>();
        let len = len.to_le_bytes();
        let mut parts = before.to_vec();
        parts.extend([data, &len]);
        hmac_sha256_of(&self.bytes[..32], &parts)
    }

    /// Decrypts `data` in place, and returns true, if its MAC is `mac`. Otherwise returns false
    /// and leaves it as it is.
    pub(super) fn open(&self, before: &[&[u8]], data: &mut [u8], mac: &Mac) -> bool {
        if self.is_authenticated && !is_equal(&self.mac(before, data), mac) {
            return false;
        }
        self.apply(data);
        true
    }

    /// Encrypts or decrypts `data` with AES-256 in counter mode, unless the archive is not
    /// encrypted.
    pub(super) fn apply(&self, data: &mut [u8]) {
        if !self.is_encrypted {
            return;
        }
        let (Some(key), Some(counter)) = (
            self.bytes[32..].first_chunk::<32>(),
            self.bytes[64..].first_chunk::<16>(),
        ) else {
            return;
        };
        let aes = Aes256::new(key.into());
        let mut counter = u128::from_be_bytes(*counter);
        for piece in data.chunks_mut(16 * LANES) {
            let mut cells = [Block::default(); LANES];
            let cells = &mut cells[..piece.len().div_ceil(16)];
            for cell in cells.iter_mut() {
                *cell = Block::from(counter.to_be_bytes());
                counter = counter.wrapping_add(1);
            }
            aes.encrypt_blocks(cells);
            for (cell, data) in cells.iter().zip(piece.chunks_mut(16)) {
                for (byte, key) in data.iter_mut().zip(cell) {
                    *byte ^= key;
                }
            }
        }
    }
}

/// Compares two MACs in the same time wherever they differ.
fn is_equal(a: &Mac, b: &Mac) -> bool {
    a.iter().zip(b).fold(0, |odd, (a, b)| odd | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 5869, cases 1 and 3.
    #[test]
    fn known_derived_keys() {
        let mut out = [0; 42];
        let salt: Vec<u8> = (0..13).collect();
        let info: Vec<u8> = (0xF0..0xFA).collect();
        hkdf(&salt, &[0x0B; 22], &[&info[..4], &info[4..]], &mut out);
        assert_eq!(
            hex(&out),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
        hkdf(&[], &[0x0B; 22], &[], &mut out);
        assert_eq!(
            hex(&out),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
        );
    }

    /// NIST SP 800-38A, F.5.5: AES-256 in counter mode.
    #[test]
    fn known_cipher_text() {
        let bytes = |text: &str| -> Vec<u8> {
            (0..text.len() / 2)
                .map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap())
                .collect()
        };
        let mut key = DataKey {
            bytes: Zeroizing::new([0; 80]),
            is_encrypted: true,
            is_authenticated: true,
        };
        key.bytes[32..64].copy_from_slice(&bytes(
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        ));
        key.bytes[64..].copy_from_slice(&bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"));
        let plain = bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let mut data = plain.clone();
        key.apply(&mut data);
        assert_eq!(
            hex(&data),
            "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        );
        let mac = key.mac(&[b"before"], &data);
        assert!(!key.open(&[b"befor"], &mut data, &mac));
        assert!(key.open(&[b"before"], &mut data, &mac));
        assert_eq!(data, plain);
        // Long data, whose last piece is odd, is the same in pieces.
        let mut long = vec![7; 16 * LANES * 2 + 5];
        key.apply(&mut long);
        let mut start = vec![7; 40];
        key.apply(&mut start);
        assert_eq!(long[..40], start);
    }
}
