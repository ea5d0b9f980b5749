//! On-disk structures of VHD. Big-endian.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// [`FooterRaw::cookie`].
pub(super) const FOOTER_COOKIE: [u8; 8] = *b"conectix";
/// [`SparseRaw::cookie`].
pub(super) const SPARSE_COOKIE: [u8; 8] = *b"cxsparse";

/// The footer, in the last sector; of dynamic disks also in the first.
///
/// Source: Microsoft, Virtual Hard Disk Image Format Specification 1.0, "Hard Disk Footer Format".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct FooterRaw {
    /*000*/ pub(super) cookie: [u8; 8], // FOOTER_COOKIE
    /*008*/ pub(super) features: U32,
    /*00c*/ pub(super) version: U32,
    /*010*/ pub(super) data_offset: U64, // of SparseRaw
    /*018*/ pub(super) time: U32,
    /*01c*/ pub(super) creator: [u8; 4],
    /*020*/ pub(super) creator_version: U32,
    /*024*/ pub(super) creator_host: [u8; 4],
    /*028*/ pub(super) original_size: U64,
    /*030*/ pub(super) size: U64, // bytes
    /*038*/ pub(super) geometry: U32,
    /*03c*/ pub(super) kind: U32, // FIXED, ...
    /*040*/ pub(super) checksum: U32,
    /*044*/ pub(super) id: [u8; 16],
    /*054*/ pub(super) is_saved: u8,
    /*055*/ pub(super) reserved: [u8; 427],
}
const _: () = assert!(size_of::<FooterRaw>() == 512);

/// [`FooterRaw::kind`] of a disk whose bytes precede the footer.
pub(super) const FIXED: u32 = 2;
/// Of a disk in blocks.
pub(super) const DYNAMIC: u32 = 3;
/// Of a layer over another disk.
pub(super) const DIFFERENCING: u32 = 4;

/// The header of a dynamic disk.
///
/// Source: Microsoft, Virtual Hard Disk Image Format Specification 1.0, "Dynamic Disk Header Format".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SparseRaw {
    /*000*/ pub(super) cookie: [u8; 8], // SPARSE_COOKIE
    /*008*/ pub(super) data_offset: U64,
    /*010*/ pub(super) table_offset: U64,
    /*018*/ pub(super) version: U32,
    /*01c*/ pub(super) entries: U32,
    /*020*/ pub(super) block_size: U32, // bytes
    /*024*/ pub(super) checksum: U32,
    /*028*/ pub(super) parent_id: [u8; 16],
    /*038*/ pub(super) parent_time: U32,
    /*03c*/ pub(super) reserved: U32,
    /*040*/ pub(super) parent_name: [U16; 256], // UTF-16
    /*240*/ pub(super) rest: [u8; 448],
}
const _: () = assert!(size_of::<SparseRaw>() == 1024);

/// Entry of a block that is not stored.
pub(super) const UNUSED: u32 = u32::MAX;
