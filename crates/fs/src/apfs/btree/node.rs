//! Nodes, checked when they are read, and the cache of the nodes read last (§5.1).

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use crate::apfs::layout::{
    EntryRaw, FixedEntryRaw, NO_OFFSET, NODE_HEADER, NodeRaw, Oid, Paddr, TREE_INFO, node_flags,
};
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::{Mutex, MutexGuard};

/// Lengths of keys and values in the leaves of a tree with fixed-size records, in bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::apfs) struct Sizes {
    pub(in crate::apfs) key: usize,
    pub(in crate::apfs) value: usize,
}

/// A node whose table, keys and values have been checked to lie within it.
#[derive(Debug)]
pub(in crate::apfs) struct Node {
    pub(in crate::apfs) oid: Oid,
    pub(in crate::apfs) paddr: Paddr,
    pub(in crate::apfs) flags: u16,
    /// Level in the tree, 0 for leaves.
    pub(in crate::apfs) level: u16,
    /// Number of records.
    pub(in crate::apfs) count: usize,
    /// Byte range of the table of contents; keys begin at its end.
    table: Range<usize>,
    /// Offset of the end of the values.
    end: usize,
    /// Lengths of keys and values if the table does not contain them.
    fixed: Option<Sizes>,
    pub(in crate::apfs) bytes: Box<[u8]>,
}

impl Node {
    /// Parses a node, or returns a message about what is wrong with `bytes`. `sizes` are those of
    /// the tree's leaves if they are fixed.
    pub(in crate::apfs) fn parse(
        oid: Oid,
        paddr: Paddr,
        bytes: Box<[u8]>,
        sizes: Option<Sizes>,
    ) -> Result<Self, String> {
        let (head, _) = NodeRaw::read_from_prefix(&bytes).map_err(|_| "is truncated")?;
        let (flags, level) = (head.flags.get(), head.level.get());
        if (flags & node_flags::LEAF != 0) != (level == 0) {
            return Err(format!(
                "has flags {flags:#x}, which do not fit its level {level}: only nodes of level 0 \
                 are leaves"
            ));
        }
        let info = if flags & node_flags::ROOT != 0 {
            TREE_INFO
        } else {
            0
        };
        let end = bytes.len().checked_sub(info).ok_or("is truncated")?;
        let start = NODE_HEADER + usize::from(head.table.offset.get());
        let table = start..start + usize::from(head.table.len.get());
        let fixed = match (flags & node_flags::FIXED != 0, sizes) {
            (false, _) => None,
            (true, Some(sizes)) if level == 0 => Some(sizes),
            (true, Some(sizes)) => Some(Sizes {
                value: size_of::<u64>(),
                ..sizes
            }),
            (true, None) => {
                return Err(
                    "the node has keys of fixed length, but its tree keys of variable length"
                        .to_owned(),
                );
            }
        };
        let entry = if fixed.is_some() {
            size_of::<FixedEntryRaw>()
        } else {
            size_of::<EntryRaw>()
        };
        let count = usize::try_from(head.count.get()).unwrap_or(usize::MAX);
        if table.end > end
            || count
                .checked_mul(entry)
                .is_none_or(|needed| needed > table.len())
        {
            return Err(format!(
                "records {count} keys, which do not fit in its table of {} bytes at byte {start}",
                table.len()
            ));
        }
        let node = Self {
            oid,
            paddr,
            flags,
            level,
            count,
            table,
            end,
            fixed,
            bytes,
        };
        match (0..count).find(|&index| node.entry(index).is_none()) {
            Some(index) => Err(format!(
                "key or value {index} of {count} reaches past the end of the node"
            )),
            None => Ok(node),
        }
    }

    /// Returns the byte ranges of the key and the value of an entry; `None` past the last, or if
    /// one exceeds the node.
    pub(in crate::apfs) fn entry(&self, index: usize) -> Option<(Range<usize>, Range<usize>)> {
        if index >= self.count {
            return None;
        }
        let table = self.bytes.get(self.table.clone())?;
        let (key, value) = match self.fixed {
            Some(sizes) => {
                let entry = <[FixedEntryRaw]>::ref_from_prefix_with_elems(table, self.count)
                    .ok()?
                    .0
                    .get(index)?;
                (
                    (entry.key.get(), sizes.key),
                    (entry.value.get(), sizes.value),
                )
            }
            None => {
                let entry = <[EntryRaw]>::ref_from_prefix_with_elems(table, self.count)
                    .ok()?
                    .0
                    .get(index)?;
                let span = |offset: u16, len: u16| (offset, usize::from(len));
                let key = span(entry.key.offset.get(), entry.key.len.get());
                (key, span(entry.value.offset.get(), entry.value.len.get()))
            }
        };
        let start = self.table.end + usize::from(key.0);
        let key = start..start + key.1;
        let value = match value {
            (NO_OFFSET, _) => self.end..self.end,
            (back, len) => {
                let start = self.end.checked_sub(back.into())?;
                start..start + len
            }
        };
        (key.end <= self.end && value.start >= self.table.end && value.end <= self.end)
            .then_some((key, value))
    }

    /// Returns key and value of an entry, `None` past the last.
    pub(in crate::apfs) fn record(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.entry(index)?;
        Some((self.bytes.get(key)?, self.bytes.get(value)?))
    }

    /// Returns the key of an entry, `None` past the last.
    pub(in crate::apfs) fn key(&self, index: usize) -> Option<&[u8]> {
        Some(self.record(index)?.0)
    }
}

/// A cache of the nodes read last. A slot is selected by the object number; its lock is held for
/// the lookup only, never while a node is read.
#[derive(Debug)]
pub(in crate::apfs) struct NodeCache {
    slots: Box<[Mutex<Option<Arc<Node>>>]>,
}

impl NodeCache {
    /// Returns a cache of at most `nodes` nodes.
    pub(in crate::apfs) fn new(nodes: usize) -> Self {
        Self {
            slots: (0..nodes.max(1)).map(|_| Mutex::default()).collect(),
        }
    }

    fn slot(&self, oid: Oid) -> MutexGuard<'_, Option<Arc<Node>>> {
        // The remainder is below the number of slots.
        let slot = to_usize(oid.0 % self.slots.len() as u64);
        self.slots[slot].lock()
    }

    pub(in crate::apfs) fn get(&self, oid: Oid) -> Option<Arc<Node>> {
        self.slot(oid)
            .as_ref()
            .filter(|node| node.oid == oid)
            .cloned()
    }

    pub(in crate::apfs) fn put(&self, node: &Arc<Node>) {
        *self.slot(node.oid) = Some(node.clone());
    }
}
