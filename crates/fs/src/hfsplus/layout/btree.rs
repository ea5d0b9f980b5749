//! B-tree nodes and the header of a tree (§6).

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Minimum and maximum node size in bytes.
pub(crate) const NODE_SIZES: std::ops::RangeInclusive<u16> = 512..=32768;
/// Maximum depth of a tree. Real trees have fewer levels; Apple's kernel has the same limit.
pub(crate) const MAX_DEPTH: u16 = 16;

/// Kinds of nodes, in [`NodeDescriptorRaw::kind`].
pub(crate) mod node_kind {
    /// Leaf: records of the tree.
    pub(crate) const LEAF: i8 = -1;
    /// Index node: keys and child nodes.
    pub(crate) const INDEX: i8 = 0;
    /// Header node: node 0.
    pub(crate) const HEADER: i8 = 1;
    /// Map node: a continuation of the map of used nodes.
    pub(crate) const MAP: i8 = 2;
}

/// Head of every node (§6.1). Record offsets are at the end of the node, in descending order.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, BTNodeDescriptor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct NodeDescriptorRaw {
    /*00*/ pub(crate) forward_link: U32, // next node of the level, 0 for none
    /*04*/ pub(crate) backward_link: U32, // previous node of the level, 0 for none
    /*08*/ pub(crate) kind: i8, // node_kind
    /*09*/ pub(crate) height: u8, // 0 header and map, 1 leaf, child + 1 index
    /*10*/ pub(crate) record_count: U16,
    /*12*/ pub(crate) reserved: U16,
}
const _: () = assert!(size_of::<NodeDescriptorRaw>() == 14);

/// Offset of the first record of a node.
pub(crate) const FIRST_RECORD: u16 = 14;

/// The tree header, record 0 of node 0 (§6.2).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, BTHeaderRec.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct TreeHeaderRaw {
    /*00*/ pub(crate) tree_depth: U16, // 0 empty, 1 root is a leaf
    /*02*/ pub(crate) root_node: U32,
    /*06*/ pub(crate) leaf_records: U32,
    /*10*/ pub(crate) first_leaf_node: U32,
    /*14*/ pub(crate) last_leaf_node: U32,
    /*18*/ pub(crate) node_size: U16,
    /*20*/ pub(crate) max_key_length: U16,
    /*22*/ pub(crate) total_nodes: U32,
    /*26*/ pub(crate) free_nodes: U32,
    /*30*/ pub(crate) reserved1: U16,
    /*32*/ pub(crate) clump_size: U32,
    /*36*/ pub(crate) tree_type: u8, // 0
    /*37*/ pub(crate) key_compare_type: u8, // KEY_COMPARE_FOLD or KEY_COMPARE_BINARY
    /*38*/ pub(crate) attributes: U32, // BIG_KEYS, VARIABLE_INDEX_KEYS
    /*42*/ pub(crate) reserved3: [u8; 64],
}
const _: () = assert!(size_of::<TreeHeaderRaw>() == 106);

/// Length of record 1 of node 0, reserved for the tree's user; zero.
pub(crate) const USER_RECORD_LEN: u16 = 128;
/// Offset of record 2 of node 0, the map of used nodes.
pub(crate) const HEADER_MAP_OFFSET: u16 = 248;

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
