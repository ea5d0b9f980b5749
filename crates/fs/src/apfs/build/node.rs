//! Nodes of new trees: the number of records that fit, and the placement of keys and values.

use zerocopy::{Immutable, IntoBytes};

use crate::apfs::layout::{
    BlockSize, EntryRaw, FixedEntryRaw, NO_OFFSET, NODE_HEADER, NodeRaw, ObjectRaw, SpanRaw,
    TREE_INFO, TreeInfoRaw, node_flags, object_type, storage, store_checksum, tree_flags,
};
use bandsaw_core::size::narrow;

/// Length of a child's object number in an index node, in bytes.
pub(super) const CHILD_LEN: usize = 8;
/// Number of entries by which the table of a node with records of variable length grows.
const TABLE_STEP: usize = 8;

/// The properties of a kind of tree.
#[derive(Debug, Clone, Copy)]
pub(in crate::apfs) struct TreeKind {
    pub(in crate::apfs) block_size: BlockSize,
    /// Object subtype, of `object_type`.
    pub(in crate::apfs) subtype: u32,
    /// Storage flags of the nodes, of `storage`.
    pub(in crate::apfs) storage: u32,
    /// Flags of the root, of `tree_flags`.
    pub(in crate::apfs) flags: u32,
    /// Lengths of all keys and all values in leaves, if they are fixed.
    pub(in crate::apfs) fixed: Option<(usize, usize)>,
}

impl TreeKind {
    /// Returns the kind of an object map's tree.
    pub(in crate::apfs) fn omap(block_size: BlockSize) -> Self {
        let flags = tree_flags::PHYSICAL | tree_flags::SEQUENTIAL_INSERT;
        Self {
            block_size,
            subtype: object_type::OMAP,
            storage: storage::PHYSICAL,
            flags,
            fixed: Some((16, 16)),
        }
    }

    /// Returns the kind of a free queue.
    pub(in crate::apfs) fn free_queue(block_size: BlockSize) -> Self {
        let flags =
            tree_flags::EPHEMERAL | tree_flags::SEQUENTIAL_INSERT | tree_flags::ALLOW_GHOSTS;
        Self {
            block_size,
            subtype: object_type::FREE_QUEUE,
            storage: storage::EPHEMERAL,
            flags,
            fixed: Some((16, 8)),
        }
    }

    /// Returns the kind of a tree of physical nodes with records of variable length: extent
    /// references, snapshot metadata.
    pub(in crate::apfs) fn physical(block_size: BlockSize, subtype: u32) -> Self {
        let flags = tree_flags::PHYSICAL | tree_flags::SEQUENTIAL_INSERT | tree_flags::NOT_ALIGNED;
        Self {
            block_size,
            subtype,
            storage: storage::PHYSICAL,
            flags,
            fixed: None,
        }
    }

    /// Returns the kind of a volume's file-system tree.
    pub(in crate::apfs) fn files(block_size: BlockSize, encrypted: bool) -> Self {
        let storage = storage::VIRTUAL | if encrypted { storage::ENCRYPTED } else { 0 };
        let flags = tree_flags::SEQUENTIAL_INSERT | tree_flags::NOT_ALIGNED;
        Self {
            block_size,
            subtype: object_type::FS_TREE,
            storage,
            flags,
            fixed: None,
        }
    }

    /// Returns the length of the table of a node with `count` records, in bytes.
    fn table_len(&self, count: usize, leaf: bool) -> usize {
        match self.fixed {
            None => count.max(1).next_multiple_of(TABLE_STEP) * size_of::<EntryRaw>(),
            // The table of a tree with fixed-size records has its final size from the beginning.
            // The size ignores that a root ends with tree information, and that values of free
            // queues may be absent.
            Some((key, value)) => {
                let value = if leaf { value } else { CHILD_LEN };
                let entry = size_of::<FixedEntryRaw>();
                (self.block_size.bytes() - NODE_HEADER) / (key + value + entry) * entry
            }
        }
    }

    /// Returns the number of records for which the table of a node has space, if keys and values
    /// are fixed; values may be absent.
    pub(in crate::apfs) fn capacity(&self, leaf: bool) -> usize {
        self.fixed.map_or(usize::MAX, |_| {
            self.table_len(0, leaf) / size_of::<FixedEntryRaw>()
        })
    }

    /// Returns true if `count` records with `bytes` bytes of keys and values fit into a node.
    pub(in crate::apfs) fn fits(&self, count: usize, bytes: usize, leaf: bool) -> bool {
        count <= self.capacity(leaf)
            && NODE_HEADER + self.table_len(count, leaf) + bytes + TREE_INFO
                <= self.block_size.bytes()
    }

    /// Returns the maximum length of key and value together of a record of variable length, in
    /// bytes.
    pub(super) fn longest_record(block_size: BlockSize) -> usize {
        block_size.bytes() - NODE_HEADER - TREE_INFO - TABLE_STEP * size_of::<EntryRaw>()
    }
}

/// A node that is being filled.
#[derive(Debug, Default)]
pub(in crate::apfs) struct Node {
    pub(super) level: u16,
    keys: Vec<u8>,
    /// In the order of the records; on disk they are in reverse order.
    values: Vec<u8>,
    /// End offsets of each record's key and value.
    ends: Vec<(usize, usize)>,
}

impl Node {
    /// Returns an empty node of this level, 0 for leaves.
    pub(in crate::apfs) fn of_level(level: u16) -> Self {
        Self {
            level,
            ..Self::default()
        }
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.ends.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn has_room(&self, kind: &TreeKind, taken: usize) -> bool {
        kind.fits(
            self.ends.len() + 1,
            self.keys.len() + self.values.len() + taken,
            self.level == 0,
        )
    }

    pub(in crate::apfs) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.values.extend_from_slice(value);
        self.ends.push((self.keys.len(), self.values.len()));
    }

    /// Returns the node as on disk. All lengths within a node fit 16 bits.
    pub(in crate::apfs) fn finish(
        &self,
        kind: &TreeKind,
        object: ObjectRaw,
        info: Option<TreeInfoRaw>,
    ) -> Vec<u8> {
        let (leaf, size) = (self.level == 0, kind.block_size.bytes());
        let table = kind.table_len(self.ends.len(), leaf);
        let keys_at = NODE_HEADER + table;
        let values_end = size - if info.is_some() { TREE_INFO } else { 0 };
        let free = values_end - keys_at - self.keys.len() - self.values.len();
        let mut flags = if leaf { node_flags::LEAF } else { 0 };
        flags |= if info.is_some() { node_flags::ROOT } else { 0 };
        flags |= if kind.fixed.is_some() {
            node_flags::FIXED
        } else {
            0
        };
        let head = NodeRaw {
            object,
            flags: flags.into(),
            level: self.level.into(),
            count: narrow::<u32>(self.ends.len()).into(),
            table: SpanRaw::new(0, narrow(table)),
            free: SpanRaw::new(narrow(self.keys.len()), narrow(free)),
            key_free_list: SpanRaw::NO_LIST,
            value_free_list: SpanRaw::NO_LIST,
        };
        let mut node = vec![0; size];
        put(&mut node, 0, &head);
        node[keys_at..keys_at + self.keys.len()].copy_from_slice(&self.keys);
        let (mut key, mut value, mut entry) = (0, 0, NODE_HEADER);
        for &(key_end, value_end) in &self.ends {
            let at = values_end - value_end;
            node[at..at + value_end - value].copy_from_slice(&self.values[value..value_end]);
            if kind.fixed.is_some() {
                // In a free queue a value may be absent.
                let at = if value_end == value {
                    NO_OFFSET
                } else {
                    narrow::<u16>(value_end)
                };
                entry += put(
                    &mut node,
                    entry,
                    &FixedEntryRaw {
                        key: narrow::<u16>(key).into(),
                        value: at.into(),
                    },
                );
            } else {
                let key = SpanRaw::new(narrow(key), narrow(key_end - key));
                let value = SpanRaw::new(narrow(value_end), narrow(value_end - value));
                entry += put(&mut node, entry, &EntryRaw { key, value });
            }
            (key, value) = (key_end, value_end);
        }
        if let Some(info) = info {
            put(&mut node, values_end, &info);
        }
        store_checksum(&mut node);
        node
    }
}

/// Copies a structure into a block at offset `at` and returns its length.
pub(in crate::apfs) fn put(
    block: &mut [u8],
    at: usize,
    structure: &(impl IntoBytes + Immutable + ?Sized),
) -> usize {
    let bytes = structure.as_bytes();
    block[at..at + bytes.len()].copy_from_slice(bytes);
    bytes.len()
}
