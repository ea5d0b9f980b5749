//! On-disk structures of a UDIF file: trailer, block tables, and their checksums. All integers are
//! big-endian. Source: docs/formats/udif.md.

pub(super) mod fork;
pub(super) mod signature;
mod table;
mod trailer;

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use table::{MAX_SECTORS, MishRaw, RunKind, RunRaw, SectorRun, Table};
pub(crate) use trailer::{KOLY_MAGIC, KOLY_SIZE, Koly, KolyRaw, NewKoly, find_trailer, koly_field};

pub use trailer::Segment;

/// A checksum with its type: 0 none, 2 CRC-32, 4 MD5, stored from the start of the field.
///
/// Source: images of hdiutil in keramics and john-samples (docs/formats/udif.md §5).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ChecksumRaw {
    /*00*/ kind: U32,
    /*04*/ bits: U32,
    /*08*/ value: [u8; 128],
}

/// A stored checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// None is stored.
    None,
    /// CRC-32 as in zlib.
    Crc32(u32),
    /// A type that is not verified, by its number (4 is MD5).
    Other(u32),
}

impl ChecksumRaw {
    fn parse(&self) -> Checksum {
        match (self.kind.get(), self.bits.get()) {
            (0, _) => Checksum::None,
            (2, 32) => Checksum::Crc32(u32::from_be_bytes([
                self.value[0],
                self.value[1],
                self.value[2],
                self.value[3],
            ])),
            (kind, _) => Checksum::Other(kind),
        }
    }
}

impl From<Checksum> for ChecksumRaw {
    /// Converts a checksum; a type that is not verified has the value 0.
    fn from(sum: Checksum) -> Self {
        let mut value = [0; 128];
        let (kind, bits) = match sum {
            Checksum::None => (0, 0),
            Checksum::Crc32(sum) => {
                value[..4].copy_from_slice(&sum.to_be_bytes());
                (2, 32)
            }
            Checksum::Other(kind) => (kind, 0),
        };
        Self {
            kind: kind.into(),
            bits: bits.into(),
            value,
        }
    }
}
