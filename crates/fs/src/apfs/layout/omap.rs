//! Object maps: the locations of virtual objects (§4).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ObjectRaw;

/// An object map. The rest of its block is zero.
///
/// Source: Apple File System Reference (2020-06-22), omap_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct OmapRaw {
    /*00*/ pub(crate) object: ObjectRaw, // physical
    /*20*/ pub(crate) flags: U32, // omap_flags
    /*24*/ pub(crate) snapshot_count: U32,
    /*28*/ pub(crate) tree_type: U32,
    /*2C*/ pub(crate) snapshot_tree_type: U32,
    /*30*/ pub(crate) tree_oid: U64, // physical
    /*38*/ pub(crate) snapshot_tree_oid: U64, // physical, 0 for none
    /*40*/ pub(crate) most_recent_snapshot: U64,
    /*48*/ pub(crate) pending_revert_min: U64,
    /*50*/ pub(crate) pending_revert_max: U64,
    /*58*/ pub(crate) min_oid: U64,
}
const _: () = assert!(size_of::<OmapRaw>() == 0x60);

/// Bits of [`OmapRaw::flags`].
pub(crate) mod omap_flags {
    /// Set on the container's map only.
    pub(crate) const MANUALLY_MANAGED: u32 = 0x01;
    /// Objects are being encrypted.
    pub(crate) const ENCRYPTING: u32 = 0x02;
    /// Objects are being decrypted.
    pub(crate) const DECRYPTING: u32 = 0x04;
    /// The key is being changed.
    pub(crate) const KEY_ROLLING: u32 = 0x08;
    /// Some objects use another generation of the key.
    pub(crate) const CRYPTO_GENERATION: u32 = 0x10;
}

/// A key of an object map's tree. Order: oid, xid.
///
/// Source: Apple File System Reference (2020-06-22), omap_key_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct OmapKeyRaw {
    /*00*/ pub(crate) oid: U64,
    /*08*/ pub(crate) xid: U64,
}
const _: () = assert!(size_of::<OmapKeyRaw>() == 16);

/// A value of an object map's tree.
///
/// Source: Apple File System Reference (2020-06-22), omap_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct OmapValueRaw {
    /*00*/ pub(crate) flags: U32, // omap_value
    /*04*/ pub(crate) size: U32, // in bytes
    /*08*/ pub(crate) paddr: U64,
}
const _: () = assert!(size_of::<OmapValueRaw>() == 16);

/// Bits of [`OmapValueRaw::flags`].
pub(crate) mod omap_value {
    /// The object does not exist from this transaction on.
    pub(crate) const DELETED: u32 = 0x01;
    /// The object is encrypted.
    pub(crate) const ENCRYPTED: u32 = 0x04;
    /// The object's header is zero.
    pub(crate) const NO_HEADER: u32 = 0x08;
}

/// A value of an object map's tree of snapshots; the key is a xid.
///
/// Source: Apple File System Reference (2020-06-22), omap_snapshot_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct OmapSnapshotRaw {
    /*00*/ pub(crate) flags: U32, // 1 deleted, 2 reverted
    /*04*/ pub(crate) pad: U32,
    /*08*/ pub(crate) oid: U64, // 0
}
const _: () = assert!(size_of::<OmapSnapshotRaw>() == 16);
