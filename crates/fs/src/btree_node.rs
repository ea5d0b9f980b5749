//! Nodes and the header of the B-trees of HFS and HFS+, which are laid out alike
//! (`docs/formats/hfsplus.md` §6.1, §6.2).
#![allow(dead_code, reason = "each format reads a part of the fields")]

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// Head of every node. Record offsets are at the end of the node, in descending order.
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

/// Offset of record 2 of node 0, the map of used nodes.
pub(crate) const HEADER_MAP_OFFSET: u16 = 248;

/// The tree header, record 0 of node 0.
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
    // Reserved on HFS from here on.
    /*30*/ pub(crate) reserved1: U16,
    /*32*/ pub(crate) clump_size: U32,
    /*36*/ pub(crate) tree_type: u8, // 0
    /*37*/ pub(crate) key_compare_type: u8, // KEY_COMPARE_FOLD or KEY_COMPARE_BINARY
    /*38*/ pub(crate) attributes: U32, // BIG_KEYS, VARIABLE_INDEX_KEYS
    /*42*/ pub(crate) reserved3: [u8; 64],
}
const _: () = assert!(size_of::<TreeHeaderRaw>() == 106);

/// Returns the descriptor of the node in `bytes`, whose record offsets are ascending and within it.
/// The error describes the defect.
pub(crate) fn checked_descriptor(bytes: &[u8]) -> Result<NodeDescriptorRaw, String> {
    let (head, _) = NodeDescriptorRaw::read_from_prefix(bytes).map_err(|_| "is truncated")?;
    let records = head.record_count.get();
    let table = 2 * (usize::from(records) + 1);
    let Some(end) = bytes
        .len()
        .checked_sub(table)
        .filter(|&end| end >= usize::from(FIRST_RECORD))
    else {
        return Err(format!(
            "{records} records exceed the {} bytes of the node",
            bytes.len()
        ));
    };
    let mut before = usize::from(FIRST_RECORD);
    for index in 0..=records {
        let offset = record_offset(bytes, index).unwrap_or(usize::MAX);
        let in_order = if index == 0 {
            offset == before
        } else {
            offset > before
        };
        if !in_order || offset > end {
            return Err(format!(
                "invalid offset {index} of a record: {offset}, expected more than {before} up to \
                 {end}"
            ));
        }
        before = offset;
    }
    Ok(head)
}

/// Fails unless a node that is in use has this kind and height, and records. The error describes the
/// defect.
pub(crate) fn check_role(found: (i8, u8), expected: (i8, u8), records: u16) -> Result<(), String> {
    if found != expected {
        let ((kind, height), (found_kind, found_height)) = (expected, found);
        return Err(format!(
            "expected a node of kind {kind} and height {height}, found kind {found_kind} and height \
             {found_height}"
        ));
    }
    match records {
        0 => Err("the node is in use, but has no records".to_owned()),
        _ => Ok(()),
    }
}

/// Returns the offset of record `index` of the node in `bytes`; that of the record after the last is
/// the start of the free space.
#[inline]
pub(crate) fn record_offset(bytes: &[u8], index: u16) -> Option<usize> {
    let at = bytes.len().checked_sub(2 * (usize::from(index) + 1))?;
    Some(usize::from(u16::from_be_bytes(
        *bytes.get(at..)?.first_chunk()?,
    )))
}
