//! B-trees beyond what they share with those of HFS (§6).

use zerocopy::{FromBytes, IntoBytes};

use super::{NodeDescriptorRaw, TreeHeaderRaw};

/// Minimum and maximum node size in bytes.
pub(crate) const NODE_SIZES: std::ops::RangeInclusive<u16> = 512..=32768;

/// Length of record 1 of node 0, reserved for the tree's user; zero.
pub(crate) const USER_RECORD_LEN: u16 = 128;

/// Case-insensitive comparison of names: every `H+` volume, `HX` if the catalog says so.
pub(crate) const KEY_COMPARE_FOLD: u8 = 0xCF;
/// Binary comparison of names: `HX` only.
pub(crate) const KEY_COMPARE_BINARY: u8 = 0xBC;
/// Tree attribute: key lengths are 16-bit. Always set on HFS Plus.
pub(crate) const BIG_KEYS: u32 = 2;
/// Tree attribute: keys in index nodes have variable length. Set for catalog and attributes, not
/// for extents.
pub(crate) const VARIABLE_INDEX_KEYS: u32 = 4;

/// Returns the number of map bits in the header node of a tree with nodes of this size (§6.3).
pub(crate) fn header_map_bits(node_size: u16) -> u32 {
    8 * (u32::from(node_size) - 256)
}

/// Returns the number of map bits in one map node (§6.3).
pub(crate) fn map_node_bits(node_size: u16) -> u32 {
    8 * (u32::from(node_size) - 20)
}

/// The first two structures of node 0.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, BTNodeDescriptor and BTHeaderRec.
#[derive(FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct HeaderNodeRaw {
    pub(crate) node: NodeDescriptorRaw,
    pub(crate) tree: TreeHeaderRaw,
}
