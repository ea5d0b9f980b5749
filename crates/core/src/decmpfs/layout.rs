//! On-disk structures: the header of the attribute (§2) and of the two kinds of resource fork (§4).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian, little_endian,
};

/// The header of the attribute; the contents follow for some types.
///
/// Source: Apple xnu, bsd/sys/decmpfs.h, decmpfs_disk_header.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct HeaderRaw {
    /*00*/ pub(crate) magic: [u8; 4], // MAGIC
    /*04*/ pub(crate) compression_type: little_endian::U32,
    /*08*/ pub(crate) uncompressed_size: little_endian::U64,
}
const _: () = assert!(size_of::<HeaderRaw>() == 16);

/// Value of [`HeaderRaw::magic`].
pub const MAGIC: [u8; 4] = *b"fpmc";
/// Maximum length of an attribute that macOS accepts, in bytes.
pub const MAX_ATTRIBUTE: usize = 3802;

/// Types of files whose contents are stored on a server.
pub(crate) const DATALESS_FILE: u32 = 0x8000_0001;
pub(crate) const DATALESS_PACKAGE: u32 = 0x8000_0002;

/// Returns the length of the contents in bytes. A package has the number of its children in the
/// high bits.
pub(crate) fn size(header: &HeaderRaw) -> u64 {
    let size = header.uncompressed_size.get();
    match header.compression_type.get() {
        DATALESS_PACKAGE => size & ((1 << 40) - 1),
        _ => size,
    }
}

/// The header of a classic resource fork with zlib chunks (§4.1).
///
/// Source: RJVB/afsctool, src/afsctool.h (docs/formats/decmpfs.md §4.1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ResourceForkRaw {
    /*00*/ pub(crate) data: big_endian::U32, // where the resources begin: RESOURCES
    /*04*/ pub(crate) map: big_endian::U32,
    /*08*/ pub(crate) data_len: big_endian::U32,
    /*12*/ pub(crate) map_len: big_endian::U32,
}
const _: () = assert!(size_of::<ResourceForkRaw>() == 16);

/// Offset of the single resource, as in macOS.
pub(crate) const RESOURCES: u32 = 0x100;

/// The header of the resource; an [`EntryRaw`] for each chunk follows.
///
/// Source: files compressed by macOS (docs/formats/decmpfs.md §4.1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ResourceRaw {
    /*00*/ pub(crate) len: big_endian::U32, // of the rest of the resource
    /*04*/ pub(crate) chunks: little_endian::U32,
}
const _: () = assert!(size_of::<ResourceRaw>() == 8);

/// Location of a chunk, relative to [`ResourceRaw::chunks`].
///
/// Source: files compressed by macOS (docs/formats/decmpfs.md §4.1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct EntryRaw {
    /*00*/ pub(crate) offset: little_endian::U32,
    /*04*/ pub(crate) len: little_endian::U32,
}
const _: () = assert!(size_of::<EntryRaw>() == 8);

/// The map of a classic resource fork with one resource and no names (§4.1), at its end.
///
/// Source: RJVB/afsctool, src/afsctool.h (docs/formats/decmpfs.md §4.1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct MapRaw {
    /*00*/ pub(crate) head: [u8; 16], // a copy of the fork's head, or zero
    /*16*/ pub(crate) next_map: big_endian::U32,
    /*20*/ pub(crate) file: big_endian::U16,
    /*22*/ pub(crate) attributes: big_endian::U16,
    /*24*/ pub(crate) types_at: big_endian::U16, // from the beginning of the map
    /*26*/ pub(crate) names_at: big_endian::U16, // the same
    /*28*/ pub(crate) last_type: big_endian::U16, // one less than there are types
    /*30*/ pub(crate) kind: [u8; 4],
    /*34*/
    pub(crate) last_resource: big_endian::U16, // one less than there are of this type
    /*36*/ pub(crate) references_at: big_endian::U16, // from the list of types
    /*38*/ pub(crate) id: big_endian::U16,
    /*40*/ pub(crate) name_at: big_endian::U16, // 0xFFFF: none
    /*42*/
    pub(crate) data_at: big_endian::U32, // attributes in the high byte; from the first resource
    /*46*/ pub(crate) handle: big_endian::U32,
}
const _: () = assert!(size_of::<MapRaw>() == 50);

/// Value of [`MapRaw::name_at`] of a resource without a name.
pub(crate) const NO_NAME: u16 = 0xFFFF;
