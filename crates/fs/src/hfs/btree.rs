//! B-trees: search by key and iteration over the leaves, with every node checked when it is read (§4).
//!
//! Nodes are not cached: they have 512 bytes, and the layers below cache what is slow to read.

use std::cmp::Ordering;

use zerocopy::FromBytes;

use super::layout::{NODE_SIZE, child_of};
use crate::btree_node::{
    MAX_DEPTH, NodeDescriptorRaw, TreeHeaderRaw, check_role, checked_descriptor, node_kind,
    record_offset,
};
use crate::extent_device::ExtentDevice;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

/// Compares the key at the beginning of a record with the one that is searched; `None` if the record
/// has no valid key.
pub(super) type CompareKey<'a> = dyn Fn(&[u8]) -> Option<Ordering> + 'a;

/// A node whose record offsets are ascending and within the node.
#[derive(Debug)]
pub(super) struct RecordNode {
    pub(super) number: u32,
    /// Next node of the same level, 0 for none.
    next: u32,
    /// Previous node of the same level, 0 for none.
    previous: u32,
    kind: i8,
    height: u8,
    /// Number of records.
    pub(super) records: u16,
    bytes: [u8; NODE_SIZE],
}

impl RecordNode {
    fn parse(number: u32, bytes: [u8; NODE_SIZE]) -> Result<Self, String> {
        let head = checked_descriptor(&bytes)?;
        Ok(Self {
            number,
            next: head.forward_link.get(),
            previous: head.backward_link.get(),
            kind: head.kind,
            height: head.height,
            records: head.record_count.get(),
            bytes,
        })
    }

    /// Returns a record, `None` past the last.
    pub(super) fn record(&self, index: u16) -> Option<&[u8]> {
        if index >= self.records {
            return None;
        }
        let offset = |index| record_offset(&self.bytes, index);
        self.bytes.get(offset(index)?..offset(index + 1)?)
    }
}

/// An open tree, read by any number of threads.
#[derive(Debug)]
pub(super) struct RecordTree {
    layer: &'static str,
    file: ExtentDevice,
    total_nodes: u32,
    root: u32,
    first_leaf: u32,
    /// Number of levels.
    depth: u8,
}

impl RecordTree {
    /// Opens the tree in `file`.
    pub(super) fn open(file: ExtentDevice, layer: &'static str) -> Result<Self> {
        let corrupt = |message: String| {
            let message = format!("node 0 (header): {message}");
            Err(Error::corrupt(layer, file.volume_offset(0), message))
        };
        if file.len() < NODE_SIZE as u64 {
            return corrupt(format!("the file has only {} bytes", file.len()));
        }
        let mut bytes = [0; NODE_SIZE];
        file.read_at(0, &mut bytes)?;
        let parsed = NodeDescriptorRaw::read_from_prefix(&bytes).ok();
        let parsed = parsed.and_then(|(node, rest)| {
            let (header, _) = TreeHeaderRaw::read_from_prefix(rest).ok()?;
            Some((node.kind, header))
        });
        let Some((node_kind::HEADER, header)) = parsed else {
            return corrupt("expected a header node (kind 1)".to_owned());
        };
        let (node_size, total_nodes) = (header.node_size.get(), header.total_nodes.get());
        if usize::from(node_size) != NODE_SIZE {
            return corrupt(format!("invalid node size {node_size}: expected 512"));
        }
        if u64::from(total_nodes) * NODE_SIZE as u64 > file.len() {
            return corrupt(format!(
                "{total_nodes} nodes exceed the file of {} bytes",
                file.len()
            ));
        }
        let (root, depth) = (header.root_node.get(), header.tree_depth.get());
        let Some(depth) = u8::try_from(depth)
            .ok()
            .filter(|&depth| u16::from(depth) <= MAX_DEPTH)
        else {
            return corrupt(format!("invalid depth {depth}: the maximum is {MAX_DEPTH}"));
        };
        if (depth == 0) != (root == 0) || root >= total_nodes.max(1) {
            return corrupt(format!(
                "invalid root: node {root} of {total_nodes} in a tree of depth {depth}"
            ));
        }
        Ok(Self {
            layer,
            file,
            total_nodes,
            root,
            first_leaf: header.first_leaf_node.get(),
            depth,
        })
    }

    /// Returns an error about node `number`.
    pub(super) fn corrupt(&self, number: u32, message: impl std::fmt::Display) -> Error {
        let offset = self
            .file
            .volume_offset(u64::from(number) * NODE_SIZE as u64);
        Error::corrupt(self.layer, offset, format!("node {number}: {message}"))
    }

    /// Returns a cursor before the first record whose key is not before the one that is searched.
    pub(super) fn seek(&self, compare: &CompareKey<'_>) -> Result<Cursor<'_>> {
        if self.depth == 0 {
            return Ok(Cursor::new(self, None, 0));
        }
        let mut number = self.root;
        for height in (2..=self.depth).rev() {
            let node = self.node(number, node_kind::INDEX, height)?;
            // The last child that begins at or before the key; the first if there is none.
            let after = self.partition(&node, |record| Some(compare(record)?.is_le()))?;
            let index = after.saturating_sub(1);
            number = node.record(index).and_then(child_of).ok_or_else(|| {
                let message = format!("record {index} of the index node has no node number");
                self.corrupt(node.number, message)
            })?;
        }
        let leaf = self.leaf(number)?;
        let mut index = 0;
        while let Some(record) = leaf.record(index) {
            match compare(record) {
                _ if is_deleted(record) => {}
                Some(Ordering::Less) => {}
                Some(_) => break,
                None => return Err(self.malformed_key(number, index)),
            }
            index += 1;
        }
        Ok(Cursor::new(self, Some(leaf), index))
    }

    /// Returns a cursor before the first record.
    pub(super) fn first(&self) -> Result<Cursor<'_>> {
        let leaf = match self.depth {
            0 => None,
            _ => Some(self.leaf(self.first_leaf)?),
        };
        Ok(Cursor::new(self, leaf, 0))
    }

    /// Returns a leaf.
    pub(super) fn leaf(&self, number: u32) -> Result<RecordNode> {
        self.node(number, node_kind::LEAF, 1)
    }

    /// Returns the number of records at the beginning of a node that satisfy `before`.
    fn partition(&self, node: &RecordNode, before: impl Fn(&[u8]) -> Option<bool>) -> Result<u16> {
        let (mut low, mut high) = (0, node.records);
        while low < high {
            let middle = low + (high - low) / 2;
            match node.record(middle).and_then(&before) {
                Some(true) => low = middle + 1,
                Some(false) => high = middle,
                None => return Err(self.malformed_key(node.number, middle)),
            }
        }
        Ok(low)
    }

    fn malformed_key(&self, number: u32, index: u16) -> Error {
        self.corrupt(number, format!("malformed key of record {index}"))
    }

    /// Returns a node, which must be of this kind and height.
    fn node(&self, number: u32, kind: i8, height: u8) -> Result<RecordNode> {
        if number == 0 || number >= self.total_nodes {
            let message = format!(
                "the tree points to node {number}, expected 1 to {}",
                self.total_nodes.saturating_sub(1)
            );
            return Err(Error::new(Kind::Corrupt, self.layer, message));
        }
        let mut bytes = [0; NODE_SIZE];
        self.file
            .read_at(u64::from(number) * NODE_SIZE as u64, &mut bytes)?;
        let node =
            RecordNode::parse(number, bytes).map_err(|message| self.corrupt(number, message))?;
        check_role((node.kind, node.height), (kind, height), node.records)
            .map_err(|message| self.corrupt(number, message))?;
        Ok(node)
    }
}

/// A position among the leaf records of a tree.
#[derive(Debug)]
pub(super) struct Cursor<'t> {
    tree: &'t RecordTree,
    node: Option<RecordNode>,
    /// Index of the record after the current one.
    next: u16,
    /// Number of leaves read.
    leaves: u32,
}

impl<'t> Cursor<'t> {
    /// Creates a cursor before record `next` of a leaf, or at the end of an empty tree.
    fn new(tree: &'t RecordTree, node: Option<RecordNode>, next: u16) -> Self {
        Self {
            tree,
            node,
            next,
            leaves: 1,
        }
    }

    /// Moves to the next record that is not deleted; returns false at the end. A cycle in the chain of
    /// leaves is detected by the number of leaves: the order of names is not relied on.
    pub(super) fn advance(&mut self) -> Result<bool> {
        loop {
            let Some(node) = &self.node else {
                return Ok(false);
            };
            if let Some(record) = node.record(self.next) {
                self.next += 1;
                if !is_deleted(record) {
                    return Ok(true);
                }
                continue;
            }
            if node.next == 0 {
                return Ok(false);
            }
            self.leaves += 1;
            if self.leaves >= self.tree.total_nodes {
                let message = "the chain of leaves has a cycle";
                return Err(self.tree.corrupt(node.number, message));
            }
            let next = self.tree.leaf(node.next)?;
            if next.previous != node.number {
                let message = format!(
                    "follows leaf {}, but the previous leaf is recorded as {}",
                    node.number, next.previous
                );
                return Err(self.tree.corrupt(next.number, message));
            }
            (self.node, self.next) = (Some(next), 0);
        }
    }

    /// Returns the record that [`advance`](Self::advance) has moved to.
    pub(super) fn record(&self) -> Option<&[u8]> {
        self.node.as_ref()?.record(self.next.checked_sub(1)?)
    }

    /// Returns the number of its leaf.
    pub(super) fn leaf(&self) -> u32 {
        self.node.as_ref().map_or(0, |node| node.number)
    }
}

/// Returns true if the record is marked as deleted, by a key of length 0.
fn is_deleted(record: &[u8]) -> bool {
    record.first() == Some(&0)
}
