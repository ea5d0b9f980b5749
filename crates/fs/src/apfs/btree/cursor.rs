//! Iteration over the leaves of a tree in key order.

use std::cmp::Ordering;
use std::sync::Arc;

use super::node::Node;
use super::{Key, Tree};
use bandsaw_core::Result;

/// A position between the records of a tree.
#[derive(Debug)]
pub(in crate::apfs) struct Cursor<'t> {
    tree: &'t Tree,
    /// The nodes from the root to the leaf, each with the index of the entry that is followed; in
    /// the leaf, the index of the next record.
    path: Vec<(Arc<Node>, usize)>,
}

/// A key and its value.
#[derive(Debug, Clone, Copy)]
pub(in crate::apfs) struct Record<'a> {
    pub(in crate::apfs) key: Key<'a>,
    pub(in crate::apfs) value: &'a [u8],
}

impl<'t> Cursor<'t> {
    pub(super) fn new(tree: &'t Tree, path: Vec<(Arc<Node>, usize)>) -> Self {
        Self { tree, path }
    }

    /// Returns the next record, `None` after the last. Keys are checked to ascend, so every
    /// iteration ends.
    pub(in crate::apfs) fn next(&mut self) -> Result<Option<Record<'_>>> {
        if !self.seek_record()? {
            return Ok(None);
        }
        let Some((leaf, next)) = self.path.last_mut() else {
            return Ok(None);
        };
        let index = *next;
        *next += 1;
        self.tree.record(leaf, index).map(Some)
    }

    /// Positions the cursor on a record, in the next leaf if the current one is exhausted. Returns
    /// `false` at the end of the tree.
    fn seek_record(&mut self) -> Result<bool> {
        let Some((leaf, index)) = self.path.last() else {
            return Ok(false);
        };
        if *index < leaf.count {
            if let Some(before) = index.checked_sub(1) {
                self.check_ascends(leaf, before, leaf, *index)?;
            }
            return Ok(true);
        }
        let before = leaf.clone();
        while self
            .path
            .last()
            .is_some_and(|(node, index)| node.level == 0 || index + 1 >= node.count)
        {
            self.path.pop();
        }
        let Some((parent, index)) = self.path.last_mut() else {
            return Ok(false);
        };
        *index += 1;
        let (mut parent, mut index) = (parent.clone(), *index);
        while parent.level > 0 {
            let child = self.tree.child(&parent, index)?;
            self.path.push((child.clone(), 0));
            (parent, index) = (child, 0);
        }
        if let Some(last) = before.count.checked_sub(1) {
            self.check_ascends(&before, last, &parent, 0)?;
        }
        Ok(true)
    }

    fn check_ascends(&self, a: &Node, a_index: usize, b: &Node, b_index: usize) -> Result<()> {
        let (before, after) = (self.tree.record(a, a_index)?, self.tree.record(b, b_index)?);
        match before.key.cmp(&after.key) {
            Ordering::Less => Ok(()),
            _ => Err(self.tree.corrupt(
                b,
                format_args!(
                    "the keys are out of order: key {b_index} does not sort after the key before it"
                ),
            )),
        }
    }
}
