//! The key entries of a version 2 header: the keys, wrapped in different ways. Source:
//! docs/formats/encrypted.md §2.

use std::ops::Range;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{AES, CBC_PADDED, Header, PBKDF2, PKCS7, TRIPLE_DES, known, one_of, padded, prefix};
use crate::crypt::keys::{KeyWrap, check_iterations};
use crate::size::narrow;
use crate::{Error, Result};

/// Types of entries.
pub(in crate::crypt) const PASSPHRASE: u32 = 1;
pub(in crate::crypt) const PUBLIC_KEY: u32 = 2;

const ENTRY: &str = "encryption key entry";
/// RSA, and its padding of PKCS#1 v1.5.
const RSA: u32 = 42;
const PKCS1: u32 = 10;

/// An entry of the directory.
///
/// Source: john-samples Apple_DMG (docs/formats/encrypted.md §2).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::crypt) struct DirectoryRaw {
    /*00*/ pub(in crate::crypt) kind: U32, // 1 passphrase, 2 public key, 3 other key
    /*04*/ pub(in crate::crypt) offset: U64,
    /*0C*/ pub(in crate::crypt) size: U64,
}
pub(in crate::crypt) const DIRECTORY_SIZE: u64 = 20;
const _: () = assert!(size_of::<DirectoryRaw>() as u64 == DIRECTORY_SIZE);

/// The keys wrapped with a passphrase.
///
/// Source: john-samples Apple_DMG (docs/formats/encrypted.md §2.1).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::crypt) struct PassphraseRaw {
    /*000*/ kdf: U32, // 0x67, PBKDF2
    /*004*/ prf: U32, // 0, HMAC-SHA1
    /*008*/ iterations: U32,
    /*00C*/ salt_length: U32, // 20
    /*010*/ salt: [u8; 32],
    /*030*/ iv_length: U32, // 8, also around AES
    /*034*/ iv: [u8; 32],
    /*054*/ key_bits: U32, // 192; 128 and 256 are possible with AES
    /*058*/ algorithm: U32, // 0x11, triple DES, or 0x80000001, AES
    /*05C*/ padding: U32, // 7, PKCS#7
    /*060*/ mode: U32, // 6, CBC
    /*064*/ blob_length: U32, // 48 for AES-128, 64 for AES-256
    /*068*/ blob: [u8; 512],
}
pub(in crate::crypt) const PASSPHRASE_SIZE: u64 = 616;
/// Offset of [`PassphraseRaw::blob`] in bytes.
pub(in crate::crypt) const PASSPHRASE_FIELDS: usize = 0x68;
const _: () = assert!(size_of::<PassphraseRaw>() as u64 == PASSPHRASE_SIZE);

/// The keys wrapped with a public key.
///
/// Source: nlitsme/encrypteddmg, readencrcdsa.py (docs/formats/encrypted.md §2.2).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::crypt) struct PublicKeyRaw {
    /*000*/ hash_length: U32, // 20
    /*004*/ hash: [u8; 32],
    /*024*/ algorithm: U32, // 42, RSA
    /*028*/ padding: U32, // 10, PKCS#1 v1.5
    /*02C*/ mode: U32, // 0
    /*030*/ blob_length: U32, // of the key's modulus: 256 for RSA-2048
    /*034*/ blob: [u8; 512],
}
pub(in crate::crypt) const PUBLIC_KEY_SIZE: u64 = 564;
const _: () = assert!(size_of::<PublicKeyRaw>() as u64 == PUBLIC_KEY_SIZE);

impl DirectoryRaw {
    /// Returns the directory entry of a key entry at `place`.
    pub(in crate::crypt) fn new(kind: u32, place: &Range<u64>) -> Self {
        Self {
            kind: kind.into(),
            offset: place.start.into(),
            size: (place.end - place.start).into(),
        }
    }

    /// Returns the file range of the entry, which must be between the directory and the data.
    pub(in crate::crypt) fn range(&self, header: &Header) -> Result<Range<u64>> {
        let (start, size) = (self.offset.get(), self.size.get());
        match start.checked_add(size) {
            Some(end)
                if start >= Header::directory_at(header.entries) && end <= header.data_offset =>
            {
                Ok(start..end)
            }
            _ => Err(Error::corrupt(
                ENTRY,
                start,
                format!(
                    "the key entry of {size} bytes overlaps the directory of entries or the data"
                ),
            )),
        }
    }
}

/// A parsed and validated passphrase entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::crypt) struct PassphraseEntry {
    pub(in crate::crypt) iterations: u32,
    pub(in crate::crypt) salt: Vec<u8>,
    pub(in crate::crypt) wrap: KeyWrap,
    pub(in crate::crypt) iv: Vec<u8>,
    pub(in crate::crypt) blob: Vec<u8>,
}

impl PassphraseEntry {
    /// Parses an entry; `at` is its file offset, for errors.
    pub(in crate::crypt) fn parse(raw: &PassphraseRaw, at: u64) -> Result<Self> {
        known(ENTRY, "key derivation", at, raw.kdf, PBKDF2)?;
        known(ENTRY, "derivation's MAC", at + 4, raw.prf, 0)?;
        check_iterations(ENTRY, raw.iterations.get()).map_err(|error| error.at(at + 8))?;
        let wrap = match one_of(
            ENTRY,
            "wrapping cipher",
            at + 0x58,
            raw.algorithm,
            [TRIPLE_DES, AES],
        )? {
            TRIPLE_DES => one_of(ENTRY, "wrapping key bits", at + 0x54, raw.key_bits, [192])
                .map(|_| KeyWrap::TripleDes)?,
            _ => match one_of(
                ENTRY,
                "wrapping key bits",
                at + 0x54,
                raw.key_bits,
                [128, 192, 256],
            )? {
                128 => KeyWrap::Aes128,
                192 => KeyWrap::Aes192,
                _ => KeyWrap::Aes256,
            },
        };
        // A vector for AES is normally as short as one for triple DES; one of full length would be
        // used as it is.
        if wrap == KeyWrap::TripleDes {
            known(ENTRY, "vector length", at + 0x30, raw.iv_length, 8)?;
        } else {
            one_of(ENTRY, "vector length", at + 0x30, raw.iv_length, [8, 16])?;
        }
        known(ENTRY, "padding", at + 0x5C, raw.padding, PKCS7)?;
        known(ENTRY, "wrapping mode", at + 0x60, raw.mode, CBC_PADDED)?;
        let blob = prefix(ENTRY, "wrapped keys", at + 0x64, &raw.blob, raw.blob_length)?;
        if blob.is_empty() || !blob.len().is_multiple_of(wrap.cell()) {
            let message = format!(
                "wrapped keys of {} bytes are not whole {wrap} blocks",
                blob.len()
            );
            return Err(Error::corrupt(ENTRY, at + 0x64, message));
        }
        Ok(Self {
            iterations: raw.iterations.get(),
            salt: prefix(ENTRY, "salt", at + 0x0C, &raw.salt, raw.salt_length)?,
            wrap,
            iv: prefix(ENTRY, "vector", at + 0x30, &raw.iv, raw.iv_length)?,
            blob,
        })
    }

    /// Returns the stored form. Salt, vector and blob fit their fields by construction.
    pub(in crate::crypt) fn to_raw(&self) -> PassphraseRaw {
        PassphraseRaw {
            kdf: PBKDF2.into(),
            prf: 0.into(),
            iterations: self.iterations.into(),
            salt_length: narrow::<u32>(self.salt.len()).into(),
            salt: padded(&self.salt),
            iv_length: narrow::<u32>(self.iv.len()).into(),
            iv: padded(&self.iv),
            key_bits: self.wrap.key_bits().into(),
            algorithm: if self.wrap == KeyWrap::TripleDes {
                TRIPLE_DES
            } else {
                AES
            }
            .into(),
            padding: PKCS7.into(),
            mode: CBC_PADDED.into(),
            blob_length: narrow::<u32>(self.blob.len()).into(),
            blob: padded(&self.blob),
        }
    }
}

/// A parsed and validated public-key entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::crypt) struct PublicKeyEntry {
    /// Identifier of the key: SHA-1 of the public key.
    pub(in crate::crypt) hash: Vec<u8>,
    pub(in crate::crypt) blob: Vec<u8>,
}

impl PublicKeyEntry {
    /// Returns a new entry: RSA with the padding of PKCS#1 v1.5.
    #[cfg(feature = "certificates")]
    pub(in crate::crypt) fn new(hash: [u8; 20], blob: Vec<u8>) -> Self {
        Self {
            hash: hash.to_vec(),
            blob,
        }
    }

    /// Parses an entry; `at` is its file offset, for errors.
    pub(in crate::crypt) fn parse(raw: &PublicKeyRaw, at: u64) -> Result<Self> {
        known(ENTRY, "wrapping cipher", at + 0x24, raw.algorithm, RSA)?;
        known(ENTRY, "padding", at + 0x28, raw.padding, PKCS1)?;
        known(ENTRY, "wrapping mode", at + 0x2C, raw.mode, 0)?;
        Ok(Self {
            hash: prefix(ENTRY, "key hash", at, &raw.hash, raw.hash_length)?,
            blob: prefix(ENTRY, "wrapped keys", at + 0x30, &raw.blob, raw.blob_length)?,
        })
    }

    /// Returns the stored form. Hash and blob fit their fields by construction.
    pub(in crate::crypt) fn to_raw(&self) -> PublicKeyRaw {
        PublicKeyRaw {
            hash_length: narrow::<u32>(self.hash.len()).into(),
            hash: padded(&self.hash),
            algorithm: RSA.into(),
            padding: PKCS1.into(),
            mode: 0.into(),
            blob_length: narrow::<u32>(self.blob.len()).into(),
            blob: padded(&self.blob),
        }
    }
}
