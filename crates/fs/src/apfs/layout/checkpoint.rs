//! Checkpoint maps: the locations of a checkpoint's ephemeral objects (§3).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockSize, ObjectRaw};

/// The head of a checkpoint map; entries follow.
///
/// Source: Apple File System Reference (2020-06-22), checkpoint_map_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct CheckpointMapRaw {
    /*00*/ pub(crate) object: ObjectRaw, // physical
    /*20*/ pub(crate) flags: U32, // CHECKPOINT_MAP_LAST
    /*24*/ pub(crate) count: U32,
}
const _: () = assert!(size_of::<CheckpointMapRaw>() == 0x28);

/// In [`CheckpointMapRaw::flags`]: the checkpoint's last map.
pub(crate) const CHECKPOINT_MAP_LAST: u32 = 1;

/// An entry of a checkpoint map.
///
/// Source: Apple File System Reference (2020-06-22), checkpoint_mapping_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct CheckpointEntryRaw {
    /*00*/ pub(crate) kind: U32, // as in the object's header
    /*04*/ pub(crate) subtype: U32,
    /*08*/ pub(crate) size: U32, // in bytes, whole blocks
    /*0C*/ pub(crate) pad: U32,
    /*10*/ pub(crate) fs_oid: U64, // 0 in practice
    /*18*/ pub(crate) oid: U64,
    /*20*/ pub(crate) paddr: U64,
}
const _: () = assert!(size_of::<CheckpointEntryRaw>() == 0x28);

/// Returns the number of entries that fit into one map.
pub(crate) fn checkpoint_map_capacity(block_size: BlockSize) -> usize {
    (block_size.bytes() - size_of::<CheckpointMapRaw>()) / size_of::<CheckpointEntryRaw>()
}

impl CheckpointMapRaw {
    /// Returns the head and the entries of a map; `None` if its count exceeds the block.
    pub(crate) fn parse(block: &[u8]) -> Option<(&Self, &[CheckpointEntryRaw])> {
        let (head, rest) = Self::ref_from_prefix(block).ok()?;
        let count = usize::try_from(head.count.get()).ok()?;
        let (entries, _) = <[CheckpointEntryRaw]>::ref_from_prefix_with_elems(rest, count).ok()?;
        Some((head, entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_holds_what_fits() {
        assert_eq!(checkpoint_map_capacity(BlockSize::DEFAULT), 101);
        let mut block = vec![0; 4096];
        block[0x24] = 101;
        assert_eq!(CheckpointMapRaw::parse(&block).unwrap().1.len(), 101);
        block[0x24] = 102;
        assert!(CheckpointMapRaw::parse(&block).is_none());
        block[0x24..0x28].fill(0xFF);
        assert!(CheckpointMapRaw::parse(&block).is_none());
    }
}
