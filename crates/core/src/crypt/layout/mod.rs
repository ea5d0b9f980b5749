//! On-disk structures of `encrcdsa` headers and `cdsaencr` trailers. All integers are big-endian.
//! Source: docs/formats/encrypted.md; every value was confirmed on images made by macOS unless
//! noted otherwise.

mod entry;
mod trailer;

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Error, Result};

pub(super) use entry::{
    DIRECTORY_SIZE, DirectoryRaw, PASSPHRASE, PASSPHRASE_FIELDS, PASSPHRASE_SIZE, PUBLIC_KEY,
    PUBLIC_KEY_SIZE, PassphraseEntry, PassphraseRaw, PublicKeyEntry, PublicKeyRaw,
};
pub(super) use trailer::{TRAILER_SIZE, Trailer, TrailerRaw};

/// Magic at the start of a version 2 header.
pub(super) const MAGIC_V2: [u8; 8] = *b"encrcdsa";
/// Magic at the end of a version 1 trailer, which is the end of the file.
pub(super) const MAGIC_V1: [u8; 8] = *b"cdsaencr";
/// Offset of the data in images of each cipher block size: room for 192 entries, rounded up to a
/// block.
pub(super) const DATA_OFFSET_512: u64 = 0x1DE00;
pub(super) const DATA_OFFSET_4096: u64 = 0x1E000;
/// Maximum size of a header in bytes; no known header is larger.
pub(super) const LARGEST_HEADER: u64 = 1 << 20;
/// Maximum number of entries for which a header has room; see [`DATA_OFFSET_512`].
pub(super) const MAX_ENTRIES: u32 = 192;

const AES: u32 = 0x8000_0001;
const CBC: u32 = 5;
const HMAC_SHA1: u32 = 0x5B;
const PBKDF2: u32 = 0x67;
const TRIPLE_DES: u32 = 0x11;
const PKCS7: u32 = 7;
const CBC_PADDED: u32 = 6;

/// The version 2 header, at byte 0.
///
/// Source: john-samples Apple_DMG (docs/formats/encrypted.md §2).
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
/// File offset of [`HeaderRaw::entries`].
pub(super) const ENTRIES_AT: u64 = 0x48;
/// File offset of [`HeaderRaw::data_size`].
pub(super) const DATA_SIZE_AT: u64 = 0x38;
const _: () = assert!(size_of::<HeaderRaw>() as u64 == HEADER_SIZE);

const HEADER: &str = "encryption header";

/// A parsed and validated version 2 header.
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
            return Err(Error::corrupt(
                HEADER,
                0,
                "not an encryption header: expected the signature encrcdsa",
            ));
        }
        if raw.version.get() != 2 {
            return Err(Error::unsupported(
                HEADER,
                format!("unsupported version {}: expected 2", raw.version),
            )
            .at(8));
        }
        known(HEADER, "vector length", 0x0C, raw.iv_length, 16)?;
        known(HEADER, "cipher mode", 0x10, raw.mode, CBC)?;
        known(HEADER, "cipher", 0x14, raw.algorithm, AES)?;
        known(
            HEADER,
            "vector algorithm",
            0x1C,
            raw.iv_algorithm,
            HMAC_SHA1,
        )?;
        known(HEADER, "vector key bits", 0x20, raw.iv_key_bits, 160)?;
        let header = Self {
            key_bits: one_of(HEADER, "key bits", 0x18, raw.key_bits, [128, 256])?,
            uuid: raw.uuid,
            block: one_of(HEADER, "block size", 0x34, raw.block_size, [512, 4096])?,
            data_size: raw.data_size.get(),
            data_offset: raw.data_offset.get(),
            entries: raw.entries.get(),
        };
        if header.data_offset > LARGEST_HEADER {
            let message = format!(
                "the header ends at byte {}, where the data begins: headers of at most \
                 {LARGEST_HEADER} bytes are supported",
                header.data_offset
            );
            return Err(Error::corrupt(HEADER, 0x40, message));
        }
        if header.entries > MAX_ENTRIES || Self::directory_at(header.entries) > header.data_offset {
            let message = format!(
                "{} key entries before the data at {}: at most {MAX_ENTRIES} are possible",
                header.entries, header.data_offset
            );
            return Err(Error::corrupt(HEADER, ENTRIES_AT, message));
        }
        if header
            .data_size
            .checked_next_multiple_of(u64::from(header.block))
            .and_then(|size| size.checked_add(header.data_offset))
            .is_none()
        {
            return Err(Error::corrupt(
                HEADER,
                DATA_SIZE_AT,
                format!(
                    "the header records {} bytes of data, which would end past byte 2^64",
                    header.data_size
                ),
            ));
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

    /// Returns the file offset of entry `n` of the directory.
    pub(super) fn directory_at(n: u32) -> u64 {
        HEADER_SIZE + u64::from(n) * DIRECTORY_SIZE
    }
}

fn known(layer: &'static str, what: &str, at: u64, found: U32, known: u32) -> Result<()> {
    one_of(layer, what, at, found, [known]).map(drop)
}

fn one_of<const N: usize>(
    layer: &'static str,
    what: &str,
    at: u64,
    found: U32,
    known: [u32; N],
) -> Result<u32> {
    if known.contains(&found.get()) {
        return Ok(found.get());
    }
    let known = known.map(|value| format!("{value:#x}")).join(" or ");
    Err(Error::unsupported(
        layer,
        format!("unsupported {what} {:#x}: expected {known}", found.get()),
    )
    .at(at))
}

/// Returns the used part of a fixed-size field.
fn prefix(layer: &'static str, what: &str, at: u64, field: &[u8], length: U32) -> Result<Vec<u8>> {
    match field.get(..length.get() as usize) {
        Some(used) => Ok(used.to_vec()),
        None => Err(Error::corrupt(
            layer,
            at,
            format!(
                "{what} of {length} bytes exceeds its field of {}",
                field.len()
            ),
        )),
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
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn real_header_parses_and_is_written_the_same() {
        let bytes = real();
        let (raw, rest) = HeaderRaw::ref_from_prefix(&bytes).unwrap();
        let header = Header::parse(raw).unwrap();
        assert_eq!(
            (
                header.key_bits,
                header.block,
                header.data_size,
                header.data_offset
            ),
            (128, 4096, 65536, DATA_OFFSET_4096)
        );
        assert_eq!(header.to_raw().as_bytes(), raw.as_bytes());
        let entry = DirectoryRaw::ref_from_bytes(rest).unwrap();
        assert_eq!(entry.range(&header).unwrap(), 0x60..0x60 + PASSPHRASE_SIZE);
    }

    #[test]
    fn unknown_numbers_are_refused_by_name() {
        for (at, name) in [
            (0x14, "cipher"),
            (0x18, "key bits"),
            (0x1C, "vector algorithm"),
            (0x34, "block size"),
        ] {
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
