//! Additional structures of sealed volumes: hashes, and extents in a tree of their own (§8.10).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ObjectRaw;

/// The integrity metadata of a sealed volume: a virtual object.
///
/// Source: Apple File System Reference (2020-06-22), integrity_meta_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct IntegrityRaw {
    /*00*/ pub(crate) object: ObjectRaw,
    /*20*/ pub(crate) version: U32,
    /*24*/ pub(crate) flags: U32, // INTEGRITY_BROKEN
    /*28*/
    pub(crate) hash_type: U32, // 1 SHA-256, 2 and 5 SHA-512/256, 3 SHA-384, 4 SHA-512
    /*2C*/ pub(crate) root_hash_offset: U32,
    /*30*/ pub(crate) broken_xid: U64,
}
const _: () = assert!(size_of::<IntegrityRaw>() == 0x38);

/// In [`IntegrityRaw::flags`]: the store_checksum is broken.
pub(crate) const INTEGRITY_BROKEN: u32 = 1;

/// A key of the tree of file extents. Order: stream, offset.
///
/// Source: Apple File System Reference (2020-06-22), fext_tree_key_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FextKeyRaw {
    /*00*/ pub(crate) private_id: U64,
    /*08*/ pub(crate) offset: U64, // in bytes
}
const _: () = assert!(size_of::<FextKeyRaw>() == 16);

/// A value of the tree of file extents.
///
/// Source: Apple File System Reference (2020-06-22), fext_tree_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FextValueRaw {
    /*00*/ pub(crate) len_and_flags: U64, // as in FileExtentRaw
    /*08*/ pub(crate) paddr: U64,
}
const _: () = assert!(size_of::<FextValueRaw>() == 16);

/// The head of [`super::record_type::FILE_INFO`], whose key has the address; the hash follows.
///
/// Source: Apple File System Reference (2020-06-22), j_file_info_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FileInfoRaw {
    /*00*/ pub(crate) blocks: U16,
    /*02*/ pub(crate) hash_len: u8,
}
const _: () = assert!(size_of::<FileInfoRaw>() == 3);

/// In the key of a file info, above the address: the hash is of file data.
pub(crate) const FILE_INFO_DATA_HASH: u64 = 1 << 56;
