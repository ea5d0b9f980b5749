//! On-disk structures of EWF, version 1. Little-endian.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// [`SegmentRaw::signature`] of a disk (`.E01`).
pub(super) const SIGNATURE: [u8; 8] = *b"EVF\x09\x0d\x0a\xff\0";

/// The header of a file of the set.
///
/// Source: libewf, "Expert Witness Compression Format (EWF)", "File header".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SegmentRaw {
    /*0*/ pub(super) signature: [u8; 8], // SIGNATURE
    /*8*/ pub(super) fields_start: u8, // 1
    /*9*/ pub(super) number: U16,
    /*b*/ pub(super) fields_end: U16, // 0
}
const _: () = assert!(size_of::<SegmentRaw>() == 13);

/// The header of a section. The last one of a file refers to itself.
///
/// Source: libewf, "Expert Witness Compression Format (EWF)", "Section descriptor".
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SectionRaw {
    /*00*/ pub(super) kind: [u8; 16], // text, padded with zeros
    /*10*/ pub(super) next: U64, // file offset
    /*18*/ pub(super) size: U64, // bytes, with this header
    /*20*/ pub(super) padding: [u8; 40],
    /*48*/ pub(super) checksum: U32, // Adler-32 of the bytes before
}
const _: () = assert!(size_of::<SectionRaw>() == 76);

/// The beginning of the sections `volume`, `disk` and `data`.
///
/// Source: libewf, "Expert Witness Compression Format (EWF)", "Volume section".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct VolumeRaw {
    /*00*/ pub(super) media: [u8; 4],
    /*04*/ pub(super) chunks: U32,
    /*08*/ pub(super) chunk_sectors: U32,
    /*0c*/ pub(super) sector_size: U32, // bytes
    /*10*/ pub(super) sectors: U64, // 32 bits if the section is that of SMART
}
const _: () = assert!(size_of::<VolumeRaw>() == 24);
/// Length of the section of SMART after its header, in bytes.
pub(super) const SMART_VOLUME: u64 = 94;

/// The beginning of the section `table`; entries of 32 bits follow, and their Adler-32.
///
/// Source: libewf, "Expert Witness Compression Format (EWF)", "Table section".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TableRaw {
    /*00*/ pub(super) entries: U32,
    /*04*/ pub(super) padding_1: U32,
    /*08*/ pub(super) base: U64, // added to the offsets of entries
    /*10*/ pub(super) padding_2: U32,
    /*14*/ pub(super) checksum: U32, // Adler-32 of the bytes before
}
const _: () = assert!(size_of::<TableRaw>() == 24);
/// Bit of an entry of a compressed chunk; the others are its offset.
pub(super) const PACKED: u32 = 1 << 31;

/// The section `digest`.
///
/// Source: libewf, "Expert Witness Compression Format (EWF)", "Digest section".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DigestRaw {
    /*00*/ pub(super) md5: [u8; 16],
    /*10*/ pub(super) sha1: [u8; 20],
    /*24*/ pub(super) padding: [u8; 40],
    /*4c*/ pub(super) checksum: U32,
}
const _: () = assert!(size_of::<DigestRaw>() == 80);

/// The section `hash`.
///
/// Source: libewf, "Expert Witness Compression Format (EWF)", "Hash section".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HashRaw {
    /*00*/ pub(super) md5: [u8; 16],
    /*10*/ pub(super) unknown: [u8; 16],
    /*20*/ pub(super) checksum: U32,
}
const _: () = assert!(size_of::<HashRaw>() == 36);
