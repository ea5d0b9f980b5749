//! Nodes of B-trees and the information at the end of a root (§5).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ObjectRaw;

/// Maximum number of levels, more than any real tree has: with two children per node there would be
/// more nodes than block numbers in use.
pub(crate) const MAX_LEVELS: u16 = 16;

/// A span within a node. The base of the offset depends on the field.
///
/// Source: Apple File System Reference (2020-06-22), nloc_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct SpanRaw {
    /*00*/ pub(crate) offset: U16,
    /*02*/ pub(crate) len: U16,
}
const _: () = assert!(size_of::<SpanRaw>() == 4);

impl SpanRaw {
    /// The empty free list.
    pub(crate) const NO_LIST: Self = Self {
        offset: U16::new(NO_OFFSET),
        len: U16::ZERO,
    };

    /// Returns a span of `len` bytes at `offset`.
    pub(crate) fn new(offset: u16, len: u16) -> Self {
        Self {
            offset: offset.into(),
            len: len.into(),
        }
    }
}

/// End of a free list; as a value's offset, no value.
pub(crate) const NO_OFFSET: u16 = 0xFFFF;

/// The head of a node. The table of contents follows, then keys growing up, free space, values
/// growing down, and in a root [`TreeInfoRaw`].
///
/// Source: Apple File System Reference (2020-06-22), btree_node_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct NodeRaw {
    /*00*/
    pub(crate) object: ObjectRaw, // BTREE_ROOT or BTREE_NODE; subtype is the tree's
    /*20*/ pub(crate) flags: U16, // node_flags
    /*22*/ pub(crate) level: U16, // 0 for leaves
    /*24*/ pub(crate) count: U32, // keys
    /*28*/ pub(crate) table: SpanRaw, // from the end of this head
    /*2C*/ pub(crate) free: SpanRaw, // from the end of the table
    /*30*/
    pub(crate) key_free_list: SpanRaw, // first free piece among the keys, free bytes in all
    /*34*/ pub(crate) value_free_list: SpanRaw, // the same among the values
}
const _: () = assert!(size_of::<NodeRaw>() == NODE_HEADER);

/// Length of a node's head in bytes.
pub(crate) const NODE_HEADER: usize = 0x38;

/// Bits of [`NodeRaw::flags`].
pub(crate) mod node_flags {
    pub(crate) const ROOT: u16 = 0x01;
    pub(crate) const LEAF: u16 = 0x02;
    /// Keys and values have the lengths in the tree information: entries of the table are
    /// [`super::FixedEntryRaw`].
    pub(crate) const FIXED: u16 = 0x04;
    /// Values of index nodes include hashes of the children.
    pub(crate) const HASHED: u16 = 0x08;
    /// The object's header is zero.
    pub(crate) const NO_HEADER: u16 = 0x10;
}

/// An entry of the table of a node with keys and values of fixed length.
///
/// Source: Apple File System Reference (2020-06-22), kvoff_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FixedEntryRaw {
    /*00*/ pub(crate) key: U16, // from the end of the table
    /*02*/
    pub(crate) value: U16, // back from the end of the values, to the value's first byte
}
const _: () = assert!(size_of::<FixedEntryRaw>() == 4);

/// An entry of the table of any other node.
///
/// Source: Apple File System Reference (2020-06-22), kvloc_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct EntryRaw {
    /*00*/ pub(crate) key: SpanRaw, // from the end of the table
    /*04*/
    pub(crate) value: SpanRaw, // back from the end of the values, to the value's first byte
}
const _: () = assert!(size_of::<EntryRaw>() == 8);

/// The tree information at the end of a root.
///
/// Source: Apple File System Reference (2020-06-22), btree_info_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct TreeInfoRaw {
    /*00*/ pub(crate) flags: U32, // tree_flags
    /*04*/ pub(crate) node_size: U32,
    /*08*/ pub(crate) key_size: U32, // 0 for any
    /*0C*/ pub(crate) value_size: U32, // 0 for any
    /*10*/ pub(crate) longest_key: U32, // ever
    /*14*/ pub(crate) longest_value: U32, // ever
    /*18*/ pub(crate) key_count: U64,
    /*20*/ pub(crate) node_count: U64,
}
const _: () = assert!(size_of::<TreeInfoRaw>() == TREE_INFO);

/// Length of the tree information in bytes.
pub(crate) const TREE_INFO: usize = 0x28;

/// Bits of [`TreeInfoRaw::flags`].
pub(crate) mod tree_flags {
    pub(crate) const UINT64_KEYS: u32 = 0x01;
    /// Keys are inserted in order: a hint.
    pub(crate) const SEQUENTIAL_INSERT: u32 = 0x02;
    /// A key may have no value.
    pub(crate) const ALLOW_GHOSTS: u32 = 0x04;
    /// Children are ephemeral objects.
    pub(crate) const EPHEMERAL: u32 = 0x08;
    /// Children are physical objects; with neither flag they are virtual.
    pub(crate) const PHYSICAL: u32 = 0x10;
    pub(crate) const NON_PERSISTENT: u32 = 0x20;
    /// Keys and values are not aligned to eight bytes.
    pub(crate) const NOT_ALIGNED: u32 = 0x40;
    pub(crate) const HASHED: u32 = 0x80;
    pub(crate) const NO_HEADER: u32 = 0x100;
}

/// The value in index nodes of a hashed tree.
///
/// Source: Apple File System Reference (2020-06-22), btn_index_node_val_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct HashedChildRaw {
    /*00*/ pub(crate) oid: U64, // counted from the root's
    /*08*/ pub(crate) hash: [u8; 32], // SHA-256 of the child's block
}
const _: () = assert!(size_of::<HashedChildRaw>() == 40);
