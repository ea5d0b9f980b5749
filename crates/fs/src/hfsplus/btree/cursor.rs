//! Iteration over the leaves of a tree in order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Tree;
use super::node::Node;
use crate::hfsplus::layout::node_kind;
use bandsaw_core::Result;

/// A position among the leaf records of a tree.
#[derive(Debug)]
pub(in crate::hfsplus) struct Cursor<'t> {
    tree: &'t Tree,
    node: Option<Arc<Node>>,
    index: u16,
}

impl<'t> Cursor<'t> {
    /// Creates a cursor at record `index` of a leaf, or at the end of an empty tree.
    pub(super) fn new(tree: &'t Tree, node: Option<Arc<Node>>, index: u16) -> Self {
        Self { tree, node, index }
    }

    /// Returns the next record, `None` after the last. Keys are checked to ascend, so a cycle in
    /// the chain of leaves is detected.
    pub(in crate::hfsplus) fn next(&mut self) -> Result<Option<&[u8]>> {
        if !self.seek_record()? {
            return Ok(None);
        }
        let index = self.index;
        self.index += 1;
        Ok(self.node.as_ref().and_then(|node| node.record(index)))
    }

    /// Returns the number of the leaf that contains the last record returned.
    pub(in crate::hfsplus) fn node_number(&self) -> u32 {
        self.node.as_ref().map_or(0, |node| node.number)
    }

    /// Moves to the next leaf if this one has no more records; returns `false` at the end of the
    /// tree.
    fn seek_record(&mut self) -> Result<bool> {
        let Some(node) = &self.node else {
            return Ok(false);
        };
        if self.index < node.records {
            if let Some(before) = self.index.checked_sub(1) {
                self.check_ascends(node, before, node, self.index)?;
            }
            return Ok(true);
        }
        if node.next == 0 {
            return Ok(false);
        }
        if node.next == node.number {
            return Err(self
                .tree
                .corrupt(node.number, "the next leaf is the node itself"));
        }
        let next = self.tree.node(node.next, node_kind::LEAF, 1)?;
        if next.previous != node.number {
            let message = format!(
                "follows leaf {}, but the previous leaf is recorded as {}",
                node.number, next.previous
            );
            return Err(self.tree.corrupt(next.number, message));
        }
        self.check_ascends(node, node.records - 1, &next, 0)?;
        self.node = Some(next);
        self.index = 0;
        Ok(true)
    }

    fn check_ascends(&self, a: &Node, a_index: u16, b: &Node, b_index: u16) -> Result<()> {
        let order = a
            .record(a_index)
            .zip(b.record(b_index))
            .and_then(|(a, b)| self.tree.order.compare(a, b));
        match order {
            Some(Ordering::Less) => Ok(()),
            Some(_) => Err(self.tree.corrupt(
                b.number,
                format!(
                    "the records are out of order: record {b_index} does not sort after the record \
                     before it"
                ),
            )),
            None => Err(self.tree.corrupt(
                b.number,
                format!("malformed key of record {b_index} or of the record before it"),
            )),
        }
    }
}
