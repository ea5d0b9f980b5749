//! The container superblock (§2).

use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ObjectRaw, PrangeRaw};

/// Magic number, in [`ContainerRaw::magic`].
pub(crate) const CONTAINER_MAGIC: [u8; 4] = *b"NXSB";
/// Number of volume slots in a container superblock.
pub(crate) const MAX_VOLUMES: usize = 100;
/// In [`ContainerRaw::desc_blocks`] and [`ContainerRaw::data_blocks`]: the area is not contiguous,
/// and its base is the number of a tree.
pub(crate) const AREA_SCATTERED: u32 = 1 << 31;

/// Bits of [`ContainerRaw::incompatible_features`].
pub(crate) mod container_incompatible {
    /// Format of the first beta; unsupported.
    pub(crate) const VERSION_1: u64 = 0x1;
    /// Always set.
    pub(crate) const VERSION_2: u64 = 0x2;
    /// A Fusion drive: two devices.
    pub(crate) const FUSION: u64 = 0x100;
}

/// Bits of [`ContainerRaw::flags`].
pub(crate) mod container_flags {
    /// The container is encrypted by software.
    pub(crate) const SOFTWARE_CRYPTO: u64 = 4;
}

/// The container superblock, at block 0 and in every checkpoint. The rest of its block is zero.
///
/// Source: Apple File System Reference (2020-06-22), nx_superblock_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ContainerRaw {
    /*000*/ pub(crate) object: ObjectRaw, // oid 1, ephemeral
    /*020*/ pub(crate) magic: [u8; 4], // CONTAINER_MAGIC
    /*024*/ pub(crate) block_size: U32,
    /*028*/ pub(crate) block_count: U64,
    /*030*/ pub(crate) features: U64,
    /*038*/ pub(crate) readonly_compatible_features: U64,
    /*040*/ pub(crate) incompatible_features: U64, // container_incompatible
    /*048*/ pub(crate) uuid: [u8; 16],
    /*058*/ pub(crate) next_oid: U64,
    /*060*/ pub(crate) next_xid: U64, // this one's + 1
    /*068*/ pub(crate) desc_blocks: U32, // of the descriptor area; AREA_SCATTERED
    /*06C*/ pub(crate) data_blocks: U32, // of the data area; AREA_SCATTERED
    /*070*/ pub(crate) desc_base: U64,
    /*078*/ pub(crate) data_base: U64,
    /*080*/ pub(crate) desc_next: U32, // where the next checkpoint begins
    /*084*/ pub(crate) data_next: U32,
    /*088*/ pub(crate) desc_index: U32, // where this one begins
    /*08C*/ pub(crate) desc_len: U32, // maps and superblock
    /*090*/ pub(crate) data_index: U32,
    /*094*/ pub(crate) data_len: U32,
    /*098*/ pub(crate) spaceman_oid: U64, // ephemeral
    /*0A0*/ pub(crate) omap_oid: U64, // physical
    /*0A8*/ pub(crate) reaper_oid: U64, // ephemeral
    /*0B0*/ pub(crate) test_type: U32,
    /*0B4*/ pub(crate) max_volumes: U32,
    /*0B8*/ pub(crate) volume_oids: [U64; MAX_VOLUMES], // virtual, 0 for an empty slot
    /*3D8*/ pub(crate) counters: [U64; 32],
    /*4D8*/ pub(crate) blocked_out: PrangeRaw, // while it shrinks
    /*4E8*/ pub(crate) evict_tree_oid: U64, // while it shrinks
    /*4F0*/ pub(crate) flags: U64, // container_flags
    /*4F8*/ pub(crate) efi_jumpstart: U64, // Paddr, 0 for none
    /*500*/ pub(crate) fusion_uuid: [u8; 16],
    /*510*/ pub(crate) key_locker: PrangeRaw, // the container's keybag
    /*520*/ pub(crate) ephemeral_info: [U64; 4],
    /*540*/ pub(crate) test_oid: U64,
    /*548*/ pub(crate) fusion_middle_tree_oid: U64,
    /*550*/ pub(crate) fusion_cache_oid: U64,
    /*558*/ pub(crate) fusion_cache: PrangeRaw,
    /*568*/ pub(crate) newest_mounted_version: U64, // see version_words
    /*570*/ pub(crate) media_key_locker: PrangeRaw,
    /*580*/ pub(crate) pending_xid: U64,
}
const _: () = assert!(size_of::<ContainerRaw>() == 0x588);

impl ContainerRaw {
    /// Returns the container's UUID, which is also the key of its keybag.
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }
}

/// The EFI jumpstart, which names the driver that starts a Mac. The extents of the driver follow.
///
/// Source: Apple File System Reference, `nx_efi_jumpstart_t`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JumpstartRaw {
    /*00*/ pub(crate) object: ObjectRaw,
    /*20*/ pub(crate) magic: [u8; 4], // "RDSJ"
    /*24*/ pub(crate) version: U32,
    /*28*/ pub(crate) driver_len: U32, // bytes
    /*2C*/ pub(crate) extents: U32,
    /*30*/ pub(crate) reserved: [U64; 16],
}
const _: () = assert!(size_of::<JumpstartRaw>() == 0xB0);

/// Returns the five numbers of a version of the APFS driver, A.B.C.D.E, which is packed in decimal.
pub(crate) fn version_words(packed: u64) -> [u64; 5] {
    let part = |unit: u64| packed / unit % 1000;
    [
        packed / 1_000_000_000_000,
        part(1_000_000_000),
        part(1_000_000),
        part(1000),
        part(1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_packed_in_decimal() {
        assert_eq!(version_words(0x9_FCB2_E1DA_FF81), [2811, 120, 14, 0, 1]);
        assert_eq!(version_words(0), [0; 5]);
    }
}
