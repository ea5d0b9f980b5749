//! Inodes, data streams and other records of an object besides names and extents (§8.1, §8.6).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{XFields, split_name};

/// An inode; extended fields follow.
///
/// Source: Apple File System Reference (2020-06-22), j_inode_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct InodeRaw {
    /*00*/ pub(crate) parent_id: U64, // of the primary link
    /*08*/ pub(crate) private_id: U64, // of its data stream
    /*10*/ pub(crate) created: U64,
    /*18*/ pub(crate) modified: U64,
    /*20*/ pub(crate) changed: U64,
    /*28*/ pub(crate) accessed: U64,
    /*30*/ pub(crate) internal_flags: U64, // inode_flags
    /*38*/ pub(crate) children_or_links: U32, // of a folder entries, else names
    /*3C*/ pub(crate) protection_class: U32,
    /*40*/ pub(crate) write_generation: U32,
    /*44*/ pub(crate) bsd_flags: U32,
    /*48*/ pub(crate) owner: U32,
    /*4C*/ pub(crate) group: U32,
    /*50*/ pub(crate) mode: U16, // with its type
    /*52*/ pub(crate) pad: U16,
    /*54*/ pub(crate) uncompressed_size: U64, // with HAS_UNCOMPRESSED_SIZE, else 0
}
const _: () = assert!(size_of::<InodeRaw>() == 0x5C);

/// Bits of [`InodeRaw::internal_flags`].
pub(crate) mod inode_flags {
    pub(crate) const PRIVATE: u64 = 0x1;
    pub(crate) const MAINTAIN_DIR_STATS: u64 = 0x2;
    pub(crate) const DIR_STATS_ORIGIN: u64 = 0x4;
    pub(crate) const PROTECTION_CLASS_EXPLICIT: u64 = 0x8;
    pub(crate) const WAS_CLONED: u64 = 0x10;
    pub(crate) const HAS_SECURITY: u64 = 0x40; // com.apple.system.Security
    pub(crate) const BEING_TRUNCATED: u64 = 0x80;
    pub(crate) const HAS_FINDER_INFO: u64 = 0x100;
    pub(crate) const IS_SPARSE: u64 = 0x200;
    pub(crate) const WAS_EVER_CLONED: u64 = 0x400;
    pub(crate) const HAS_RESOURCE_FORK: u64 = 0x4000;
    pub(crate) const NO_RESOURCE_FORK: u64 = 0x8000;
    pub(crate) const HAS_UNCOMPRESSED_SIZE: u64 = 0x4_0000;
}

impl InodeRaw {
    /// Returns the inode and its extended fields; `None` if they are truncated or invalid.
    pub(crate) fn parse(value: &[u8]) -> Option<(&Self, XFields<'_>)> {
        let (inode, rest) = Self::ref_from_prefix(value).ok()?;
        Some((inode, XFields::parse(rest)?))
    }

    /// Returns true if a bit of [`inode_flags`] is set.
    pub(crate) fn has(&self, flag: u64) -> bool {
        self.internal_flags.get() & flag != 0
    }
}

/// A data stream: in an extended field of an inode, or after the stream's number in an attribute
/// (§8.2).
///
/// Source: Apple File System Reference (2020-06-22), j_dstream_t.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct DataStreamRaw {
    /*00*/ pub(crate) size: U64,
    /*08*/ pub(crate) allocated: U64, // whole blocks, holes included
    /*10*/ pub(crate) default_crypto_id: U64,
    /*18*/ pub(crate) bytes_written: U64, // ever
    /*20*/ pub(crate) bytes_read: U64, // ever
}
const _: () = assert!(size_of::<DataStreamRaw>() == 40);

/// The reference count of a stream: the value of [`super::record_type::DATA_STREAM`].
///
/// Source: Apple File System Reference (2020-06-22), j_dstream_id_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct DataStreamIdRaw {
    /*00*/ pub(crate) references: U32,
}
const _: () = assert!(size_of::<DataStreamIdRaw>() == 4);

/// The head of [`super::record_type::SIBLING_LINK`]; a name follows.
///
/// Source: Apple File System Reference (2020-06-22), j_sibling_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SiblingLinkRaw {
    /*00*/ pub(crate) parent_id: U64,
}
const _: () = assert!(size_of::<SiblingLinkRaw>() == 8);

impl SiblingLinkRaw {
    /// Returns the link and its name without NUL.
    pub(crate) fn parse(value: &[u8]) -> Option<(&Self, &[u8])> {
        let (link, rest) = Self::ref_from_prefix(value).ok()?;
        Some((link, split_name(rest)?))
    }
}

/// The value of [`super::record_type::SIBLING_MAP`].
///
/// Source: Apple File System Reference (2020-06-22), j_sibling_map_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SiblingMapRaw {
    /*00*/ pub(crate) file_id: U64,
}
const _: () = assert!(size_of::<SiblingMapRaw>() == 8);

/// The value of [`super::record_type::DIRECTORY_STATS`].
///
/// Source: Apple File System Reference (2020-06-22), j_dir_stats_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct DirectoryStatsRaw {
    /*00*/ pub(crate) children: U64,
    /*08*/ pub(crate) total_size: U64,
    /*10*/ pub(crate) chained_key: U64,
    /*18*/ pub(crate) generation: U64,
}
const _: () = assert!(size_of::<DirectoryStatsRaw>() == 32);

/// The value of [`super::record_type::CRYPTO_STATE`] on a volume with one key; the wrapped key
/// follows.
///
/// Source: Apple File System Reference (2020-06-22), j_crypto_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct CryptoStateRaw {
    /*00*/ pub(crate) references: U32,
    /*04*/ pub(crate) major_version: U16, // 5
    /*06*/ pub(crate) minor_version: U16, // 0
    /*08*/ pub(crate) flags: U32,
    /*0C*/ pub(crate) protection_class: U32,
    /*10*/ pub(crate) key_os_version: U32,
    /*14*/ pub(crate) key_revision: U16,
    /*16*/ pub(crate) key_len: U16,
}
const _: () = assert!(size_of::<CryptoStateRaw>() == 0x18);

/// Default crypto state of every stream on an encrypted volume with one key.
pub(crate) const DEFAULT_CRYPTO_ID: u64 = 4;
