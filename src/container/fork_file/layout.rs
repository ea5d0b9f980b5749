//! On-disk structures of files with two forks: AppleDouble, AppleSingle and MacBinary. Big-endian.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first four bytes of an AppleDouble file.
pub const APPLE_DOUBLE_MAGIC: u32 = 0x0005_1607;
/// The first four bytes of an AppleSingle file, which has the same structure.
pub const APPLE_SINGLE_MAGIC: u32 = 0x0005_1600;
/// [`AppleDoubleRaw::version`].
pub const APPLE_DOUBLE_VERSION: u32 = 0x0002_0000;
/// Entry of the data fork.
pub const ENTRY_DATA_FORK: u32 = 1;
/// Entry of the resource fork.
pub const ENTRY_RESOURCE_FORK: u32 = 2;

/// Header of an AppleDouble or AppleSingle file; entries follow.
///
/// Source: RFC 1740, "AppleDouble format".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AppleDoubleRaw {
    /// [`APPLE_DOUBLE_MAGIC`] or [`APPLE_SINGLE_MAGIC`].
    /*00*/
    pub magic: U32,
    /// [`APPLE_DOUBLE_VERSION`].
    /*04*/
    pub version: U32,
    /// Zeros, or the name of a system.
    /*08*/
    pub filler: [u8; 16],
    /// Number of entries.
    /*18*/
    pub entries: U16,
}
const _: () = assert!(size_of::<AppleDoubleRaw>() == 26);

/// An entry: its kind, and its place.
///
/// Source: RFC 1740, "AppleDouble format".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AppleDoubleEntryRaw {
    /// The kind.
    /*0*/
    pub id: U32,
    /// Bytes from the beginning of the file.
    /*4*/
    pub offset: U32,
    /// Bytes.
    /*8*/
    pub length: U32,
}
const _: () = assert!(size_of::<AppleDoubleEntryRaw>() == 12);

/// Header of a MacBinary file. The data fork and the resource fork follow, each padded to 128 bytes.
///
/// Source: the standards MacBinary II (1987) and III (1996).
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MacBinaryRaw {
    /*00*/ pub(super) version: u8, // 0
    /*01*/ pub(super) name_length: u8, // 1 to 63
    /*02*/ pub(super) name: [u8; 63],
    /*41*/ pub(super) finder: [u8; 9],
    /*4a*/ pub(super) zero_74: u8,
    /*4b*/ pub(super) finder_more: [u8; 6],
    /*51*/ pub(super) protected: u8,
    /*52*/ pub(super) zero_82: u8,
    /*53*/ pub(super) data_length: U32,
    /*57*/ pub(super) resource_length: U32,
    /*5b*/ pub(super) dates: [U32; 2],
    /*63*/ pub(super) comment_length: U16,
    /*65*/ pub(super) finder_flags: u8,
    /*66*/ pub(super) signature: [u8; 4], // "mBIN" of MacBinary III
    /*6a*/ pub(super) script: [u8; 2],
    /*6c*/ pub(super) reserved: [u8; 8],
    /*74*/ pub(super) unpacked_length: U32,
    /*78*/ pub(super) more_header: U16, // bytes, padded to 128 as well
    /*7a*/ pub(super) writer: u8, // 129 of MacBinary II
    /*7b*/ pub(super) least_reader: u8,
    /*7c*/ pub(super) checksum: U16, // CRC-16 of the bytes before
    /*7e*/ pub(super) computer: [u8; 2],
}
const _: () = assert!(size_of::<MacBinaryRaw>() == 128);
