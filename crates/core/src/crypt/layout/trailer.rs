//! Version 1: the trailer at the end of the file. Source: docs/formats/encrypted.md §6.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    AES, CBC, CBC_PADDED, HMAC_SHA1, MAGIC_V1, PBKDF2, PKCS7, TRIPLE_DES, known, one_of, prefix,
};
use crate::{Error, Result};

const TRAILER: &str = "encryption trailer";

/// The version 1 trailer, the last 1276 bytes of the file.
///
/// Source: john-samples Apple_DMG (docs/formats/encrypted.md §6).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::crypt) struct TrailerRaw {
    /*000*/ uuid: [u8; 16],
    /*010*/ block_size: U32, // 4096
    /*014*/ algorithm: U32,
    /*018*/ padding: U32,
    /*01C*/ mode: U32,
    /*020*/ key_bits: U32,
    /*024*/ iv_length: U32,
    /*028*/ kdf: U32,
    /*02C*/ prf: U32,
    /*030*/ iterations: U32,
    /*034*/ salt_length: U32,
    /*038*/ salt: [u8; 32],
    /*058*/ data_iv_length: U32, // 16
    /*05C*/ data_mode: U32, // 5
    /*060*/ cipher_key: KeyRecordRaw,
    /*18C*/ mac_key: KeyRecordRaw,
    /*2B8*/ integrity_key: KeyRecordRaw,
    /*3E4*/ mac_length: U32, // 20
    /*3E8*/ mac: [u8; 256], // HMAC-SHA1 by the integrity key over the bytes before mac
    /*4E8*/ data_size: U64,
    /*4F0*/ version: U32, // 1
    /*4F4*/ magic: [u8; 8],
}
pub(in crate::crypt) const TRAILER_SIZE: u64 = 0x4FC;
const MAC_AT: usize = 0x3E8;
const _: () = assert!(size_of::<TrailerRaw>() as u64 == TRAILER_SIZE);

/// A wrapped key of a version 1 trailer.
///
/// Source: john-samples Apple_DMG (docs/formats/encrypted.md §6).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct KeyRecordRaw {
    /*00*/ algorithm: U32,
    /*04*/ key_bits: U32,
    /*08*/ iv: [u8; 32],
    /*28*/ blob_length: U32,
    /*2C*/ blob: [u8; 256],
}

/// A parsed and validated version 1 trailer.
#[derive(Debug, Clone)]
pub(in crate::crypt) struct Trailer {
    pub(in crate::crypt) uuid: [u8; 16],
    pub(in crate::crypt) block: u32,
    pub(in crate::crypt) key_bits: u32,
    pub(in crate::crypt) iterations: u32,
    pub(in crate::crypt) salt: Vec<u8>,
    /// The three wrapped keys: cipher, MAC, integrity.
    pub(in crate::crypt) blobs: [Vec<u8>; 3],
    pub(in crate::crypt) mac: [u8; 20],
    /// The bytes that `mac` covers.
    pub(in crate::crypt) covered: Vec<u8>,
    pub(in crate::crypt) data_size: u64,
}

impl Trailer {
    /// Parses a trailer; `at` is its file offset, for errors.
    pub(in crate::crypt) fn parse(raw: &TrailerRaw, at: u64) -> Result<Self> {
        if raw.magic != MAGIC_V1 {
            return Err(Error::corrupt(
                TRAILER,
                at + 0x4F4,
                "not an encryption trailer: expected the signature cdsaencr",
            ));
        }
        known(TRAILER, "version", at + 0x4F0, raw.version, 1)?;
        known(
            TRAILER,
            "wrapping cipher",
            at + 0x14,
            raw.algorithm,
            TRIPLE_DES,
        )?;
        known(TRAILER, "padding", at + 0x18, raw.padding, PKCS7)?;
        known(TRAILER, "wrapping mode", at + 0x1C, raw.mode, CBC_PADDED)?;
        known(TRAILER, "wrapping key bits", at + 0x20, raw.key_bits, 192)?;
        known(
            TRAILER,
            "wrapping vector length",
            at + 0x24,
            raw.iv_length,
            8,
        )?;
        known(TRAILER, "key derivation", at + 0x28, raw.kdf, PBKDF2)?;
        known(TRAILER, "derivation's MAC", at + 0x2C, raw.prf, 0)?;
        known(TRAILER, "vector length", at + 0x58, raw.data_iv_length, 16)?;
        known(TRAILER, "cipher mode", at + 0x5C, raw.data_mode, CBC)?;
        known(TRAILER, "cipher", at + 0x60, raw.cipher_key.algorithm, AES)?;
        known(
            TRAILER,
            "vector algorithm",
            at + 0x18C,
            raw.mac_key.algorithm,
            HMAC_SHA1,
        )?;
        known(TRAILER, "MAC length", at + 0x3E4, raw.mac_length, 20)?;
        let blob = |record: &KeyRecordRaw, place: u64| {
            prefix(
                TRAILER,
                "wrapped key",
                at + place + 0x28,
                &record.blob,
                record.blob_length,
            )
        };
        let trailer = Self {
            uuid: raw.uuid,
            block: one_of(
                TRAILER,
                "block size",
                at + 0x10,
                raw.block_size,
                [512, 4096],
            )?,
            key_bits: one_of(
                TRAILER,
                "key bits",
                at + 0x64,
                raw.cipher_key.key_bits,
                [128, 256],
            )?,
            iterations: raw.iterations.get(),
            salt: prefix(TRAILER, "salt", at + 0x34, &raw.salt, raw.salt_length)?,
            blobs: [
                blob(&raw.cipher_key, 0x60)?,
                blob(&raw.mac_key, 0x18C)?,
                blob(&raw.integrity_key, 0x2B8)?,
            ],
            mac: std::array::from_fn(|n| raw.mac[n]),
            covered: raw.as_bytes()[..MAC_AT].to_vec(),
            data_size: raw.data_size.get(),
        };
        if trailer.data_size > at {
            return Err(Error::corrupt(
                TRAILER,
                at + 0x4E8,
                format!(
                    "the trailer records {} bytes of data, but {at} precede it",
                    trailer.data_size
                ),
            ));
        }
        Ok(trailer)
    }
}
