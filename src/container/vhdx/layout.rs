//! On-disk structures of VHDX. Little-endian.

use std::mem::offset_of;
use std::ops::RangeInclusive;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a file.
pub(super) const FILE_MAGIC: [u8; 8] = *b"vhdxfile";
/// [`VhdxHeaderRaw::signature`].
pub(super) const HEADER_SIGNATURE: [u8; 4] = *b"head";
/// [`RegionTableRaw::signature`].
pub(super) const REGION_SIGNATURE: [u8; 4] = *b"regi";
/// [`MetadataTableRaw::signature`].
pub(super) const METADATA_SIGNATURE: [u8; 8] = *b"metadata";
/// Offsets of the two headers, and of the two region tables.
pub(super) const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
pub(super) const REGION_TABLES: [u64; 2] = [192 << 10, 256 << 10];
/// Bytes of a header and of a region table that their checksums cover.
pub(super) const HEADER_SIZE: usize = 4 << 10;
pub(super) const TABLE_SIZE: usize = 64 << 10;

/// A header. The one with the larger sequence number counts.
///
/// Source: [MS-VHDX] §2.2.2.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct VhdxHeaderRaw {
    /*00*/ pub(super) signature: [u8; 4], // HEADER_SIGNATURE
    /*04*/ pub(super) checksum: U32,
    /*08*/ pub(super) sequence: U64,
    /*10*/ pub(super) file_write: [u8; 16],
    /*20*/ pub(super) data_write: [u8; 16],
    /*30*/ pub(super) log: [u8; 16], // not zero: the log is to be replayed
    /*40*/ pub(super) log_version: U16,
    /*42*/ pub(super) version: U16, // 1
    /*44*/ pub(super) log_length: U32,
    /*48*/ pub(super) log_offset: U64,
}
const _: () = assert!(size_of::<VhdxHeaderRaw>() == 80);

/// Offset of the checksum in a header and in a region table.
pub(super) const CHECKSUM_AT: usize = offset_of!(VhdxHeaderRaw, checksum);
const _: () = assert!(offset_of!(RegionTableRaw, checksum) == CHECKSUM_AT);

/// The header of a region table; entries follow.
///
/// Source: [MS-VHDX] §2.2.3.1.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RegionTableRaw {
    /*00*/ pub(super) signature: [u8; 4], // REGION_SIGNATURE
    /*04*/ pub(super) checksum: U32,
    /*08*/ pub(super) entries: U32,
    /*0c*/ pub(super) reserved: U32,
}
const _: () = assert!(size_of::<RegionTableRaw>() == 16);

/// An entry of a region table.
///
/// Source: [MS-VHDX] §2.2.3.2.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RegionRaw {
    /*00*/ pub(super) id: [u8; 16],
    /*10*/ pub(super) offset: U64,
    /*18*/ pub(super) length: U32,
    /*1c*/ pub(super) is_required: U32,
}
const _: () = assert!(size_of::<RegionRaw>() == 32);

/// The header of the table of metadata; entries follow.
///
/// Source: [MS-VHDX] §2.6.1.1.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MetadataTableRaw {
    /*00*/ pub(super) signature: [u8; 8], // METADATA_SIGNATURE
    /*08*/ pub(super) reserved: U16,
    /*0a*/ pub(super) entries: U16,
    /*0c*/ pub(super) more: [u8; 20],
}
const _: () = assert!(size_of::<MetadataTableRaw>() == 32);

/// An entry of the table of metadata.
///
/// Source: [MS-VHDX] §2.6.1.2.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MetadataRaw {
    /*00*/ pub(super) id: [u8; 16],
    /*10*/ pub(super) offset: U32, // in the region
    /*14*/ pub(super) length: U32,
    /*18*/ pub(super) flags: U32, // METADATA_REQUIRED, ...
    /*1c*/ pub(super) reserved: U32,
}
const _: () = assert!(size_of::<MetadataRaw>() == 32);

/// [`MetadataRaw::flags`]: a reader must know the item.
pub(super) const METADATA_REQUIRED: u32 = 1 << 2;
/// Flag of the file parameters: the image is a layer over a parent.
pub(super) const HAS_PARENT: u32 = 1 << 1;

/// Region of the block allocation table: 2DC27766-F623-4200-9D64-115E9BFD4A08.
pub(super) const BAT: [u8; 16] = [
    0x66, 0x77, 0xC2, 0x2D, 0x23, 0xF6, 0x00, 0x42, 0x9D, 0x64, 0x11, 0x5E, 0x9B, 0xFD, 0x4A, 0x08,
];
/// Region of the metadata: 8B7CA206-4790-4B9A-B8FE-575F050F886E.
pub(super) const METADATA: [u8; 16] = [
    0x06, 0xA2, 0x7C, 0x8B, 0x90, 0x47, 0x9A, 0x4B, 0xB8, 0xFE, 0x57, 0x5F, 0x05, 0x0F, 0x88, 0x6E,
];
/// File parameters, block size and flags: CAA16737-FA36-4D43-B3B6-33F0AA44E76B.
pub(super) const FILE_PARAMETERS: [u8; 16] = [
    0x37, 0x67, 0xA1, 0xCA, 0x36, 0xFA, 0x43, 0x4D, 0xB3, 0xB6, 0x33, 0xF0, 0xAA, 0x44, 0xE7, 0x6B,
];
/// Size of the disk: 2FA54224-CD1B-4876-B211-5DBED83BF4B8.
pub(super) const DISK_SIZE: [u8; 16] = [
    0x24, 0x42, 0xA5, 0x2F, 0x1B, 0xCD, 0x76, 0x48, 0xB2, 0x11, 0x5D, 0xBE, 0xD8, 0x3B, 0xF4, 0xB8,
];
/// Size of a logical sector: 8141BF1D-A96F-4709-BA47-F233A8FAAB5F.
pub(super) const LOGICAL_SECTOR: [u8; 16] = [
    0x1D, 0xBF, 0x41, 0x81, 0x6F, 0xA9, 0x09, 0x47, 0xBA, 0x47, 0xF2, 0x33, 0xA8, 0xFA, 0xAB, 0x5F,
];
/// Size of a physical sector: CDA348C7-445D-4471-9CC9-E9885251C556.
pub(super) const PHYSICAL_SECTOR: [u8; 16] = [
    0xC7, 0x48, 0xA3, 0xCD, 0x5D, 0x44, 0x71, 0x44, 0x9C, 0xC9, 0xE9, 0x88, 0x52, 0x51, 0xC5, 0x56,
];
/// Identifier of the disk: BECA12AB-B2E6-4523-93EF-C309E000C746.
pub(super) const DISK_ID: [u8; 16] = [
    0xAB, 0x12, 0xCA, 0xBE, 0xE6, 0xB2, 0x23, 0x45, 0x93, 0xEF, 0xC3, 0x09, 0xE0, 0x00, 0xC7, 0x46,
];

/// Place of a parent: A8D35F2D-B30B-454D-ABF7-D3D84834AB0C.
pub(super) const PARENT_LOCATOR: [u8; 16] = [
    0x2D, 0x5F, 0xD3, 0xA8, 0x0B, 0xB3, 0x4D, 0x45, 0xAB, 0xF7, 0xD3, 0xD8, 0x48, 0x34, 0xAB, 0x0C,
];

/// The beginning of the item of a parent; entries of [`LocatorEntryRaw`] follow.
///
/// Source: [MS-VHDX] §2.6.2.6.1.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct LocatorRaw {
    /*00*/ pub(super) kind: [u8; 16],
    /*10*/ pub(super) reserved: U16,
    /*12*/ pub(super) entries: U16,
}
const _: () = assert!(size_of::<LocatorRaw>() == 20);

/// A key and its value, both in UTF-16.
///
/// Source: [MS-VHDX] §2.6.2.6.2.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct LocatorEntryRaw {
    /*00*/ pub(super) key_at: U32, // in the item
    /*04*/ pub(super) value_at: U32,
    /*08*/ pub(super) key_length: U16, // bytes
    /*0a*/ pub(super) value_length: U16,
}
const _: () = assert!(size_of::<LocatorEntryRaw>() == 12);

/// State of a block, the lowest three bits of its entry: zeros. Blocks of the states 0 (not present), 1
/// (undefined) and 3 (unmapped) are not stored.
pub(super) const BLOCK_ZERO: u64 = 2;
/// States that [MS-VHDX] §2.5.1.1 does not define.
pub(super) const BLOCK_RESERVED: RangeInclusive<u64> = 4..=5;
/// Stored as a whole.
pub(super) const BLOCK_PRESENT: u64 = 6;
/// Stored in part, over a parent.
pub(super) const BLOCK_PARTIAL: u64 = 7;
/// Bits of the state.
pub(super) const BLOCK_STATE: u64 = 7;
/// The offset is in the bits from here on, in MiB.
pub(super) const OFFSET_SHIFT: u32 = 20;
