//! Snapshots (§8.9).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ObjectRaw, split_name};

/// The head of [`super::record_type::SNAPSHOT`], whose key's object is the snapshot's xid; its name
/// follows.
///
/// Source: Apple File System Reference (2020-06-22), j_snap_metadata_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SnapshotRaw {
    /*00*/ pub(crate) extent_ref_tree_oid: U64, // physical; 0 without contents
    /*08*/ pub(crate) superblock_oid: U64, // physical
    /*10*/ pub(crate) created: U64,
    /*18*/ pub(crate) changed: U64,
    /*20*/ pub(crate) file_id: U64,
    /*28*/ pub(crate) extent_ref_tree_type: U32,
    /*2C*/ pub(crate) flags: U32, // snapshot_flags
}
const _: () = assert!(size_of::<SnapshotRaw>() == 0x30);

/// Bits of [`SnapshotRaw::flags`].
pub(crate) mod snapshot_flags {
    pub(crate) const PENDING_DATALESS: u32 = 1;
    pub(crate) const MERGE_IN_PROGRESS: u32 = 2;
}

impl SnapshotRaw {
    /// Returns the snapshot and its name without NUL.
    pub(crate) fn parse(value: &[u8]) -> Option<(&Self, &[u8])> {
        let (head, rest) = Self::ref_from_prefix(value).ok()?;
        Some((head, split_name(rest)?))
    }
}

/// The value of [`super::record_type::SNAPSHOT_NAME`].
///
/// Source: Apple File System Reference (2020-06-22), j_snap_name_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SnapshotNameRaw {
    /*00*/ pub(crate) xid: U64,
}
const _: () = assert!(size_of::<SnapshotNameRaw>() == 8);

/// The extended metadata of a snapshot: a virtual object. The rest of its block is zero.
///
/// Source: Apple File System Reference (2020-06-22), snap_meta_ext_obj_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SnapshotExtRaw {
    /*00*/ pub(crate) object: ObjectRaw,
    /*20*/ pub(crate) version: U32, // 1
    /*24*/ pub(crate) flags: U32,
    /*28*/ pub(crate) snapshot_xid: U64,
    /*30*/ pub(crate) uuid: [u8; 16],
    /*40*/ pub(crate) token: U64,
}
const _: () = assert!(size_of::<SnapshotExtRaw>() == 0x48);
