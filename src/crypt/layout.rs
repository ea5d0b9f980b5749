//! The bytes of `encrcdsa` headers and `cdsaencr` trailers. All integers are big-endian.
//! Source: docs/formats/encrypted.md; every value was confirmed on images made by macOS unless said otherwise.

use std::ops::Range;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Error, Result};

/// Starts a version 2 header.
pub(super) const MAGIC_V2: [u8; 8] = *b"encrcdsa";
/// Ends a version 1 trailer, and so the file.
pub(super) const MAGIC_V1: [u8; 8] = *b"cdsaencr";
/// Where the data begins in images of each block size: room for 192 entries, rounded up to a block.
pub(super) const DATA_OFFSET_512: u64 = 0x1DE00;
pub(super) const DATA_OFFSET_4096: u64 = 0x1E000;
/// No header seen is larger; what claims to be is not read.
pub(super) const LARGEST_HEADER: u64 = 1 << 20;

const AES: u32 = 0x8000_0001;
const CBC: u32 = 5;
const HMAC_SHA1: u32 = 0x5B;
const PBKDF2: u32 = 0x67;
const TRIPLE_DES: u32 = 0x11;
const PKCS7: u32 = 7;
const CBC_PADDED: u32 = 6;

/// Version 2, at byte 0. Source: §2.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeaderRaw {
    /*00*/ pub(super) magic: [u8; 8],
    /*08*/ pub(super) version: U32, // 2
    /*0C*/ pub(super) iv_length: U32, // 16
    /*10*/ pub(super) mode: U32, // 5
    /*14*/ pub(super) algorithm: U32, // 0x80000001, AES
    /*18*/ pub(super) key_bits: U32, // 128 or 256
    /*1C*/ pub(super) iv_algorithm: U32, // 0x5B, HMAC-SHA1
    /*20*/ pub(super) iv_key_bits: U32, // 160
    /*24*/ pub(super) uuid: [u8; 16],
    /*34*/ pub(super) block_size: U32, // 512 or 4096
    /*38*/ pub(super) data_size: U64, // bytes of plain text; 0 in a bundle's token
    /*40*/ pub(super) data_offset: U64,
    /*48*/ pub(super) entries: U32,
    /*4C*/ // the directory of entries
}
pub(super) const HEADER_SIZE: u64 = 0x4C;
/// Where [`HeaderRaw::data_size`] stands.
pub(super) const DATA_SIZE_AT: u64 = 0x38;
const _: () = assert!(size_of::<HeaderRaw>() as u64 == HEADER_SIZE);

/// An entry of the directory. Source: §2.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DirectoryRaw {
    /*00*/ pub(super) kind: U32, // 1 passphrase, 2 public key, 3 other key
    /*04*/ pub(super) offset: U64,
    /*0C*/ pub(super) size: U64,
}
pub(super) const DIRECTORY_SIZE: u64 = 20;
const _: () = assert!(size_of::<DirectoryRaw>() as u64 == DIRECTORY_SIZE);

/// The keys wrapped by a passphrase. Source: §2.1.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct PassphraseRaw {
    /*000*/ kdf: U32, // 0x67, PBKDF2
    /*004*/ prf: U32, // 0, HMAC-SHA1
    /*008*/ iterations: U32,
    /*00C*/ salt_length: U32, // 20
    /*010*/ salt: [u8; 32],
    /*030*/ iv_length: U32, // 8
    /*034*/ iv: [u8; 32],
    /*054*/ key_bits: U32, // 192
    /*058*/ algorithm: U32, // 0x11, triple DES
    /*05C*/ padding: U32, // 7, PKCS#7
    /*060*/ mode: U32, // 6, CBC
    /*064*/ blob_length: U32, // 48 for AES-128, 64 for AES-256
    /*068*/ blob: [u8; 512],
}
pub(super) const PASSPHRASE_SIZE: u64 = 616;
const _: () = assert!(size_of::<PassphraseRaw>() as u64 == PASSPHRASE_SIZE);

/// Version 1, the last 1276 bytes of the file. Source: §6.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TrailerRaw {
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
pub(super) const TRAILER_SIZE: u64 = 0x4FC;
const MAC_AT: usize = 0x3E8;
const _: () = assert!(size_of::<TrailerRaw>() as u64 == TRAILER_SIZE);

/// A wrapped key of a version 1 trailer.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct KeyRecordRaw {
    /*00*/ algorithm: U32,
    /*04*/ key_bits: U32,
    /*08*/ iv: [u8; 32],
    /*28*/ blob_length: U32,
    /*2C*/ blob: [u8; 256],
}

const HEADER: &str = "encryption header";
const ENTRY: &str = "encryption key entry";
const TRAILER: &str = "encryption trailer";

/// What a version 2 header says, all of it checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) key_bits: u32,
    pub(super) uuid: [u8; 16],
    pub(super) block: u32,
    pub(super) data_size: u64,
    pub(super) data_offset: u64,
    pub(super) entries: u32,
}

impl Header {
    pub(super) fn parse(raw: &HeaderRaw) -> Result<Self> {
        if raw.magic != MAGIC_V2 {
            return Err(Error::corrupt(HEADER, 0, "encrcdsa expected"));
        }
        if raw.version.get() != 2 {
            return Err(Error::unsupported(HEADER, format!("version {}; 2 is known", raw.version)).at(8));
        }
        known(HEADER, "vector length", 0x0C, raw.iv_length, 16)?;
        known(HEADER, "cipher mode", 0x10, raw.mode, CBC)?;
        known(HEADER, "cipher", 0x14, raw.algorithm, AES)?;
        known(HEADER, "vector algorithm", 0x1C, raw.iv_algorithm, HMAC_SHA1)?;
        known(HEADER, "vector key bits", 0x20, raw.iv_key_bits, 160)?;
        let header = Self {
            key_bits: one_of(HEADER, "key bits", 0x18, raw.key_bits, [128, 256])?,
            uuid: raw.uuid,
            block: one_of(HEADER, "block size", 0x34, raw.block_size, [512, 4096])?,
            data_size: raw.data_size.get(),
            data_offset: raw.data_offset.get(),
            entries: raw.entries.get(),
        };
        let directory_end = HEADER_SIZE + u64::from(header.entries) * DIRECTORY_SIZE;
        if header.data_offset > LARGEST_HEADER || directory_end > header.data_offset {
            let message = format!(
                "{} key entries before the data at {}; data begin within {LARGEST_HEADER} bytes",
                header.entries, header.data_offset
            );
            return Err(Error::corrupt(HEADER, 0x40, message));
        }
        if header
            .data_size
            .checked_next_multiple_of(u64::from(header.block))
            .and_then(|size| size.checked_add(header.data_offset))
            .is_none()
        {
            return Err(Error::corrupt(HEADER, DATA_SIZE_AT, format!("{} bytes of data reach past any file", header.data_size)));
        }
        Ok(header)
    }

    pub(super) fn to_raw(&self) -> HeaderRaw {
        HeaderRaw {
            magic: MAGIC_V2,
            version: 2.into(),
            iv_length: 16.into(),
            mode: CBC.into(),
            algorithm: AES.into(),
            key_bits: self.key_bits.into(),
            iv_algorithm: HMAC_SHA1.into(),
            iv_key_bits: 160.into(),
            uuid: self.uuid,
            block_size: self.block.into(),
            data_size: self.data_size.into(),
            data_offset: self.data_offset.into(),
            entries: self.entries.into(),
        }
    }

    /// Where entry `n` of the directory stands.
    pub(super) fn directory_at(n: u32) -> u64 {
        HEADER_SIZE + u64::from(n) * DIRECTORY_SIZE
    }
}

impl DirectoryRaw {
    /// The entry's bytes, checked to lie behind the directory and before the data.
    pub(super) fn range(&self, header: &Header) -> Result<Range<u64>> {
        let (start, size) = (self.offset.get(), self.size.get());
        match start.checked_add(size) {
            Some(end) if start >= Header::directory_at(header.entries) && end <= header.data_offset => Ok(start..end),
            _ => Err(Error::corrupt(ENTRY, start, format!("{size} bytes are not between the directory and the data"))),
        }
    }
}

/// A passphrase entry, all of it checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passphrase {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) iv: [u8; 8],
    pub(super) blob: Vec<u8>,
}

impl Passphrase {
    /// `at` is where the entry stands, for errors.
    pub(super) fn parse(raw: &PassphraseRaw, at: u64) -> Result<Self> {
        known(ENTRY, "key derivation", at, raw.kdf, PBKDF2)?;
        known(ENTRY, "derivation's MAC", at + 4, raw.prf, 0)?;
        known(ENTRY, "vector length", at + 0x30, raw.iv_length, 8)?;
        known(ENTRY, "wrapping key bits", at + 0x54, raw.key_bits, 192)?;
        known(ENTRY, "wrapping cipher", at + 0x58, raw.algorithm, TRIPLE_DES)?;
        known(ENTRY, "padding", at + 0x5C, raw.padding, PKCS7)?;
        known(ENTRY, "wrapping mode", at + 0x60, raw.mode, CBC_PADDED)?;
        Ok(Self {
            iterations: raw.iterations.get(),
            salt: prefix("salt", at + 0x0C, &raw.salt, raw.salt_length)?,
            iv: std::array::from_fn(|n| raw.iv[n]),
            blob: prefix("wrapped keys", at + 0x64, &raw.blob, raw.blob_length)?,
        })
    }

    /// Salt and blob fit their fields by construction.
    pub(super) fn to_raw(&self) -> PassphraseRaw {
        PassphraseRaw {
            kdf: PBKDF2.into(),
            prf: 0.into(),
            iterations: self.iterations.into(),
            salt_length: (self.salt.len() as u32).into(),
            salt: padded(&self.salt),
            iv_length: 8.into(),
            iv: padded(&self.iv),
            key_bits: 192.into(),
            algorithm: TRIPLE_DES.into(),
            padding: PKCS7.into(),
            mode: CBC_PADDED.into(),
            blob_length: (self.blob.len() as u32).into(),
            blob: padded(&self.blob),
        }
    }
}

/// What a version 1 trailer says, all of it checked.
#[derive(Debug, Clone)]
pub(super) struct Trailer {
    pub(super) uuid: [u8; 16],
    pub(super) block: u32,
    pub(super) key_bits: u32,
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    /// The three wrapped keys: cipher, MAC, integrity.
    pub(super) blobs: [Vec<u8>; 3],
    pub(super) mac: [u8; 20],
    /// The bytes that `mac` covers.
    pub(super) covered: Vec<u8>,
    pub(super) data_size: u64,
}

impl Trailer {
    /// `at` is where the trailer stands, for errors.
    pub(super) fn parse(raw: &TrailerRaw, at: u64) -> Result<Self> {
        if raw.magic != MAGIC_V1 {
            return Err(Error::corrupt(TRAILER, at + 0x4F4, "cdsaencr expected"));
        }
        known(TRAILER, "version", at + 0x4F0, raw.version, 1)?;
        known(TRAILER, "wrapping cipher", at + 0x14, raw.algorithm, TRIPLE_DES)?;
        known(TRAILER, "padding", at + 0x18, raw.padding, PKCS7)?;
        known(TRAILER, "wrapping mode", at + 0x1C, raw.mode, CBC_PADDED)?;
        known(TRAILER, "wrapping key bits", at + 0x20, raw.key_bits, 192)?;
        known(TRAILER, "wrapping vector length", at + 0x24, raw.iv_length, 8)?;
        known(TRAILER, "key derivation", at + 0x28, raw.kdf, PBKDF2)?;
        known(TRAILER, "derivation's MAC", at + 0x2C, raw.prf, 0)?;
        known(TRAILER, "vector length", at + 0x58, raw.data_iv_length, 16)?;
        known(TRAILER, "cipher mode", at + 0x5C, raw.data_mode, CBC)?;
        known(TRAILER, "cipher", at + 0x60, raw.cipher_key.algorithm, AES)?;
        known(TRAILER, "vector algorithm", at + 0x18C, raw.mac_key.algorithm, HMAC_SHA1)?;
        known(TRAILER, "MAC length", at + 0x3E4, raw.mac_length, 20)?;
        let blob = |record: &KeyRecordRaw, place: u64| prefix("wrapped key", at + place + 0x28, &record.blob, record.blob_length);
        let trailer = Self {
            uuid: raw.uuid,
            block: one_of(TRAILER, "block size", at + 0x10, raw.block_size, [512, 4096])?,
            key_bits: one_of(TRAILER, "key bits", at + 0x64, raw.cipher_key.key_bits, [128, 256])?,
            iterations: raw.iterations.get(),
            salt: prefix("salt", at + 0x34, &raw.salt, raw.salt_length)?,
            blobs: [blob(&raw.cipher_key, 0x60)?, blob(&raw.mac_key, 0x18C)?, blob(&raw.integrity_key, 0x2B8)?],
            mac: std::array::from_fn(|n| raw.mac[n]),
            covered: raw.as_bytes()[..MAC_AT].to_vec(),
            data_size: raw.data_size.get(),
        };
        if trailer.data_size > at {
            return Err(Error::corrupt(
                TRAILER,
                at + 0x4E8,
                format!("{} bytes of data where {at} stand before the trailer", trailer.data_size),
            ));
        }
        Ok(trailer)
    }
}

fn known(layer: &'static str, what: &str, at: u64, found: U32, known: u32) -> Result<()> {
    one_of(layer, what, at, found, [known]).map(drop)
}

fn one_of<const N: usize>(layer: &'static str, what: &str, at: u64, found: U32, known: [u32; N]) -> Result<u32> {
    if known.contains(&found.get()) {
        return Ok(found.get());
    }
    let known = known.map(|value| format!("{value:#x}")).join(" or ");
    Err(Error::unsupported(layer, format!("{what} {:#x}; {known} is known", found.get())).at(at))
}

/// The used part of a field of fixed size.
fn prefix(what: &str, at: u64, field: &[u8], length: U32) -> Result<Vec<u8>> {
    match field.get(..length.get() as usize) {
        Some(used) => Ok(used.to_vec()),
        None => Err(Error::corrupt(ENTRY, at, format!("{what} of {length} bytes in a field of {}", field.len()))),
    }
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|n| bytes.get(n).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/formats/encrypted.md §8, V1: the first 96 bytes of a real image.
    const REAL: &str = "656e63726364736100000002000000100000000580000001000000800000005b000000a012d14a6efa1f4a6bad033e720963b105\
                        000010000000000000010000000000000001e000000000010000000100000000000000600000000000000268";

    fn real() -> Vec<u8> {
        let digits: Vec<u8> = REAL.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn real_header_parses_and_is_written_the_same() {
        let bytes = real();
        let (raw, rest) = HeaderRaw::ref_from_prefix(&bytes).unwrap();
        let header = Header::parse(raw).unwrap();
        assert_eq!((header.key_bits, header.block, header.data_size, header.data_offset), (128, 4096, 65536, DATA_OFFSET_4096));
        assert_eq!(header.to_raw().as_bytes(), raw.as_bytes());
        let entry = DirectoryRaw::ref_from_bytes(rest).unwrap();
        assert_eq!(entry.range(&header).unwrap(), 0x60..0x60 + PASSPHRASE_SIZE);
    }

    #[test]
    fn unknown_numbers_are_refused_by_name() {
        for (at, name) in [(0x14, "cipher"), (0x18, "key bits"), (0x1C, "vector algorithm"), (0x34, "block size")] {
            let mut bytes = real();
            bytes[at] ^= 0x40;
            let error = Header::parse(HeaderRaw::ref_from_prefix(&bytes).unwrap().0).unwrap_err();
            assert!(error.message().contains(name), "{error}");
            assert_eq!(error.kind(), crate::Kind::Unsupported);
        }
    }

    #[test]
    fn lying_counts_and_sizes_are_corrupt() {
        for (at, value) in [(0x48, 0xFFu8), (0x38, 0xFF), (0x40, 0x01)] {
            let mut bytes = real();
            bytes[at] = value;
            if at == 0x38 {
                bytes[at..at + 8].fill(0xFF);
            }
            let error = Header::parse(HeaderRaw::ref_from_prefix(&bytes).unwrap().0).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Corrupt, "{error}");
        }
    }
}
