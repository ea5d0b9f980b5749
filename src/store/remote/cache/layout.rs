//! On-disk structures of the index of the cache. Big-endian.
//!
//! Source: docs/formats/object-store.md §10.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// [`HeadRaw::magic`].
pub(super) const INDEX_MAGIC: [u8; 8] = *b"bsCache1";

/// The beginning of the file.
///
/// Source: docs/formats/object-store.md §10.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeadRaw {
    /*00*/ pub(super) magic: [u8; 8], // INDEX_MAGIC
    /*08*/ pub(super) count: U32, // of entries
}
const _: () = assert!(size_of::<HeadRaw>() == 12);

/// An entry.
///
/// Source: docs/formats/object-store.md §10.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct EntryRaw {
    /*00*/
    pub(super) object: [u8; 16], // first half of the SHA-256 of `.bandsaw/objects/...`, or of NAME, SIZE and TAG
    // of a plain object with line feeds between
    /*16*/
    pub(super) offset: U64, // where in the object the bytes begin
    /*24*/ pub(super) len: U32, // 1 to 65,536 bytes; zeros follow in the block
    /*28*/ pub(super) block: U32, // its number
    /*32*/ pub(super) sum: U32, // CRC-32 of the block
    /*36*/ pub(super) reserved: U32, // 0
}
const _: () = assert!(size_of::<EntryRaw>() == 40);
