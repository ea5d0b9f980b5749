//! On-disk structures of a code signature.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The beginning of every blob.
///
/// Source: Apple xnu, `osfmk/kern/cs_blobs.h`, `CS_GenericBlob`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct BlobRaw {
    /*00*/ pub(in crate::container::udif) magic: U32,
    /*04*/ pub(in crate::container::udif) len: U32, // of the whole blob
}
const _: () = assert!(size_of::<BlobRaw>() == 8);

/// The signature: blobs, which `count` entries locate.
///
/// Source: Apple xnu, `osfmk/kern/cs_blobs.h`, `CS_SuperBlob`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct SuperBlobRaw {
    /*00*/ pub(in crate::container::udif) head: BlobRaw,
    /*08*/ pub(in crate::container::udif) count: U32,
}
const _: () = assert!(size_of::<SuperBlobRaw>() == 12);

/// An entry of the signature.
///
/// Source: Apple xnu, `osfmk/kern/cs_blobs.h`, `CS_BlobIndex`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct BlobIndexRaw {
    /*00*/ pub(in crate::container::udif) kind: U32,
    /*04*/
    pub(in crate::container::udif) offset: U32, // from the start of the signature
}
const _: () = assert!(size_of::<BlobIndexRaw>() == 8);

/// The fields that every code directory has.
///
/// Source: Apple xnu, `osfmk/kern/cs_blobs.h`, `CS_CodeDirectory`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct CodeDirectoryRaw {
    /*00*/ pub(in crate::container::udif) head: BlobRaw,
    /*08*/ pub(in crate::container::udif) version: U32,
    /*0c*/ pub(in crate::container::udif) flags: U32,
    /*10*/
    pub(in crate::container::udif) hashes_at: U32, // of page 0; special slots are before it
    /*14*/ pub(in crate::container::udif) identifier_at: U32,
    /*18*/ pub(in crate::container::udif) special_slots: U32,
    /*1c*/ pub(in crate::container::udif) pages: U32,
    /*20*/ pub(in crate::container::udif) limit: U32, // signed bytes
    /*24*/ pub(in crate::container::udif) hash_len: u8,
    /*25*/ pub(in crate::container::udif) hash_kind: u8,
    /*26*/ pub(in crate::container::udif) platform: u8,
    /*27*/ pub(in crate::container::udif) page_log: u8, // 0: one page
    /*28*/ pub(in crate::container::udif) spare: U32,
}
const _: () = assert!(size_of::<CodeDirectoryRaw>() == 0x2c);

/// The fields that follow in later versions of a code directory.
///
/// Source: Apple xnu, `osfmk/kern/cs_blobs.h`, `CS_CodeDirectory`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::container::udif) struct LaterFieldsRaw {
    /*2c*/ scatter_at: U32, // version 0x20100
    /*30*/ pub(in crate::container::udif) team_at: U32, // version 0x20200; 0: none
    /*34*/ spare: U32, // version 0x20300
    /*38*/
    pub(in crate::container::udif) long_limit: U64, // version 0x20300; 0: `limit` counts
}
const _: () = assert!(size_of::<LaterFieldsRaw>() == 0x14);
