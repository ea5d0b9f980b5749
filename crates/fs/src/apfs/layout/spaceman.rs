//! The space manager, which tracks the free blocks of a container (§14).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockSize, ObjectRaw};
use bandsaw_core::size::narrow;

/// Bits of [`SpacemanRaw::flags`].
pub(crate) mod spaceman_flags {
    /// [`super::SpacemanVersionRaw`] follows.
    pub(crate) const VERSIONED: u32 = 0x1;
}

/// In [`SpacemanRaw::pool_blocks`]: the pool is not contiguous.
pub(crate) const POOL_SCATTERED: u64 = 1 << 63;
/// In [`SpacemanRaw::ring_blocks`]: the ring of pool bitmaps is not contiguous.
pub(crate) const RING_SCATTERED: u32 = 1 << 31;
/// In [`SpacemanRaw::ring_multiplier`]: number of versions of each pool bitmap for which the ring
/// has space.
pub(crate) const RING_VERSIONS: u32 = 16;
/// In the list of free slots of the ring: end of the list, or a used slot.
pub(crate) const NO_SLOT: u16 = 0xFFFF;

/// One of a container's devices.
///
/// Source: Apple File System Reference (2020-06-22), spaceman_device_t.
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
pub(crate) struct SpacemanDeviceRaw {
    /*00*/ pub(crate) blocks: U64,
    /*08*/ pub(crate) chunks: U64,
    /*10*/ pub(crate) cibs: U32,
    /*14*/ pub(crate) cabs: U32, // 0: the array has the addresses of CIBs
    /*18*/ pub(crate) free: U64, // blocks
    /*20*/
    pub(crate) addresses: U32, // where the array of CABs or CIBs is in the space manager
    /*24*/ pub(crate) reserved: U32,
    /*28*/ pub(crate) reserved2: U64,
}
const _: () = assert!(size_of::<SpacemanDeviceRaw>() == 0x30);

/// A queue of blocks that are freed in a later transaction.
///
/// Source: Apple File System Reference (2020-06-22), spaceman_free_queue_t.
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
pub(crate) struct FreeQueueRaw {
    /*00*/ pub(crate) blocks: U64,
    /*08*/ pub(crate) tree_oid: U64, // ephemeral, 0 for none
    /*10*/ pub(crate) oldest_xid: U64,
    /*18*/ pub(crate) node_limit: U16, // nodes the tree may have
    /*1A*/ pub(crate) pad: U16,
    /*1C*/ pub(crate) pad2: U32,
    /*20*/ pub(crate) reserved: U64,
}
const _: () = assert!(size_of::<FreeQueueRaw>() == 0x28);

/// Indices into [`SpacemanRaw::devices`] and [`SpacemanRaw::queues`].
pub(crate) mod space_device {
    pub(crate) const MAIN: usize = 0;
    pub(crate) const TIER_2: usize = 1;
    /// The queue of the internal pool.
    pub(crate) const QUEUE_POOL: usize = 0;
    /// The queue of the main device.
    pub(crate) const QUEUE_MAIN: usize = 1;
}

/// The space manager. Arrays follow at the offsets in its fields, which are relative to its start:
/// xids of the pool's bitmaps, their slots in the ring, the list of free slots, and the addresses
/// of each device.
///
/// Source: Apple File System Reference (2020-06-22), spaceman_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SpacemanRaw {
    /*000*/ pub(crate) object: ObjectRaw, // ephemeral
    /*020*/ pub(crate) block_size: U32,
    /*024*/ pub(crate) blocks_per_chunk: U32,
    /*028*/ pub(crate) chunks_per_cib: U32,
    /*02C*/ pub(crate) cibs_per_cab: U32,
    /*030*/ pub(crate) devices: [SpacemanDeviceRaw; 2], // space_device
    /*090*/ pub(crate) flags: U32, // spaceman_flags
    /*094*/ pub(crate) ring_multiplier: U32, // RING_VERSIONS
    /*098*/ pub(crate) pool_blocks: U64, // POOL_SCATTERED
    /*0A0*/ pub(crate) pool_bitmap_blocks: U32,
    /*0A4*/ pub(crate) ring_blocks: U32, // RING_SCATTERED
    /*0A8*/ pub(crate) ring_base: U64,
    /*0B0*/ pub(crate) pool_base: U64,
    /*0B8*/ pub(crate) reserved_blocks: U64,
    /*0C0*/ pub(crate) reserved_allocated: U64,
    /*0C8*/ pub(crate) queues: [FreeQueueRaw; 3], // space_device
    /*140*/ pub(crate) ring_free_head: U16,
    /*142*/ pub(crate) ring_free_tail: U16,
    /*144*/ pub(crate) pool_xids: U32, // offset of U64s
    /*148*/ pub(crate) pool_slots: U32, // offset of U16s
    /*14C*/ pub(crate) ring_free_next: U32, // offset of U16s
}
const _: () = assert!(size_of::<SpacemanRaw>() == 0x150);

/// The additional fields of a versioned space manager.
///
/// Source: linux-apfs/apfsprogs, include/apfs/raw.h; container of macOS 12 in dfvfs, apfs.raw.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SpacemanVersionRaw {
    /*150*/ pub(crate) version: U32, // 1
    /*154*/ pub(crate) struct_size: U32, // SPACEMAN_ARRAYS
    /*158*/ pub(crate) zones: [[u8; 0x88]; 16], // hints for the allocator
}
const _: () =
    assert!(size_of::<SpacemanRaw>() + size_of::<SpacemanVersionRaw>() == SPACEMAN_ARRAYS as usize);

/// First possible offset of the arrays of a versioned space manager.
pub(crate) const SPACEMAN_ARRAYS: u32 = 0x9D8;

/// Returns the number of blocks of a chunk, whose bits fill one bitmap block.
pub(crate) fn blocks_per_chunk(block_size: BlockSize) -> u32 {
    block_size.get() * 8
}

/// Returns the maximum number of chunks that a CIB describes.
pub(crate) fn chunks_per_cib(block_size: BlockSize) -> u32 {
    narrow::<u32>((block_size.bytes() - size_of::<ChunkInfoRaw>()) / size_of::<ChunkRaw>()) // smaller than a block
}

/// Returns the maximum number of CIBs that a CAB lists.
pub(crate) fn cibs_per_cab(block_size: BlockSize) -> u32 {
    narrow::<u32>((block_size.bytes() - size_of::<ChunkInfoRaw>()) / size_of::<U64>()) // smaller than a block
}

/// The head of a block that describes chunks (CIB) or lists such blocks (CAB); [`ChunkRaw`]s or
/// addresses follow.
///
/// Source: Apple File System Reference (2020-06-22), chunk_info_block_t and cib_addr_block_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ChunkInfoRaw {
    /*00*/ pub(crate) object: ObjectRaw, // physical
    /*20*/ pub(crate) index: U32,
    /*24*/ pub(crate) count: U32,
}
const _: () = assert!(size_of::<ChunkInfoRaw>() == 0x28);

/// The record of a chunk.
///
/// Source: Apple File System Reference (2020-06-22), chunk_info_t.
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
pub(crate) struct ChunkRaw {
    /*00*/ pub(crate) xid: U64, // not 0; that of the CIB is the highest in it
    /*08*/ pub(crate) first: U64, // its first block
    /*10*/ pub(crate) blocks: U32, // CHUNK_COUNT_MASK
    /*14*/ pub(crate) free: U32, // CHUNK_COUNT_MASK
    /*18*/ pub(crate) bitmap: U64, // its block; 0: the whole chunk is free
}
const _: () = assert!(size_of::<ChunkRaw>() == 0x20);

/// Bits of [`ChunkRaw::blocks`] and [`ChunkRaw::free`] that hold the count; the others are hints
/// for the allocator.
pub(crate) const CHUNK_COUNT_MASK: u32 = 0x000F_FFFF;

/// A key of a free queue: a run of blocks and the transaction that freed it. Order: xid, block.
///
/// Source: Apple File System Reference (2020-06-22), spaceman_free_queue_key_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FreeQueueKeyRaw {
    /*00*/ pub(crate) xid: U64,
    /*08*/ pub(crate) paddr: U64,
}
const _: () = assert!(size_of::<FreeQueueKeyRaw>() == 0x10);

/// Number of earlier boundaries that a zone keeps.
pub(crate) const ZONE_PREVIOUS: usize = 7;

/// An allocation zone: its boundaries, start and end each, and its earlier ones.
///
/// Source: linux-apfs/apfsprogs, include/apfs/raw.h; container of macOS 12 in dfvfs, apfs.raw.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ZoneRaw {
    /*00*/ pub(crate) now: [U64; 2],
    /*10*/ pub(crate) previous: [[U64; 2]; ZONE_PREVIOUS],
    /*80*/ pub(crate) id: U16, // 0 for none
    /*82*/ pub(crate) previous_index: U16, // from 1, 0 for none
    /*84*/ pub(crate) reserved: U32,
}
const _: () = assert!(size_of::<ZoneRaw>() == 0x88);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_4096_bytes_hold_what_apple_says() {
        let size = BlockSize::DEFAULT;
        assert_eq!(
            (
                blocks_per_chunk(size),
                chunks_per_cib(size),
                cibs_per_cab(size)
            ),
            (32768, 126, 507)
        );
    }
}
