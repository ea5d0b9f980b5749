//! Modification of a tree: insertion, replacement and removal of records, propagated from the leaf
//! towards the root as far as needed (§6.6, §6.8).
//!
//! Nodes are written to the tree's file immediately. The layer below that file buffers the writes
//! until the whole operation has succeeded; [`Tree::rollback`] is called when that buffer is rolled
//! back.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::draft::Draft;
use super::map::NodeMap;
use super::node::{Node, NodeCache};
use super::{Tree, WriteOrder};
use crate::hfsplus::layout::{FIRST_RECORD, TreeHeaderRaw, node_kind};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

/// A node on the path from the root to a leaf.
#[derive(Debug)]
pub(super) struct PathNode {
    pub(super) node: Arc<Node>,
    /// Record index: in an index node, the record that was followed; in a leaf, the first record
    /// that is not before the key.
    pub(super) index: usize,
}

/// The state of a tree before a change.
#[derive(Debug, Clone)]
pub(in crate::hfsplus) struct SavedTree {
    head: TreeHeaderRaw,
    map: Option<NodeMap>,
}

impl Tree {
    /// Prepares for changes with a cache of `bytes`, regardless of the present size of the tree.
    pub(in crate::hfsplus) fn set_cache(&mut self, bytes: usize) {
        self.cache = NodeCache::of_bytes(bytes, self.node_size, usize::MAX);
    }

    /// Returns the size of a node in bytes.
    pub(in crate::hfsplus) fn node_size(&self) -> u16 {
        self.node_size
    }

    /// Returns the number of free nodes, and the number that one more record may need.
    pub(in crate::hfsplus) fn free_nodes(&self) -> (u32, u32) {
        (self.head.free_nodes.get(), u32::from(self.depth) + 1)
    }

    /// Returns the state that [`rollback`](Self::rollback) restores.
    pub(in crate::hfsplus) fn save(&self) -> SavedTree {
        SavedTree {
            head: self.head,
            map: self.map.clone(),
        }
    }

    /// Writes the header if it differs from the one in `saved`, and keeps the changes.
    pub(in crate::hfsplus) fn commit_header(&mut self, saved: &SavedTree) -> Result<()> {
        if self.head != saved.head {
            self.file
                .overwrite(FIRST_RECORD.into(), self.head.as_bytes())?;
        }
        Ok(())
    }

    /// Clears the list of changed nodes, after which they can no longer be undone.
    pub(in crate::hfsplus) fn forget_changed(&mut self) {
        self.touched.clear();
    }

    /// Returns the volume offset and the rank of each node written since the last call.
    pub(in crate::hfsplus) fn take_ranks(&mut self) -> Vec<(u64, WriteOrder)> {
        let ranks = std::mem::take(&mut self.ranks);
        ranks
            .into_iter()
            .map(|(number, rank)| (self.file.volume_offset(self.offset(number)), rank))
            .collect()
    }

    /// Ranks a node that receives records of another one as new: it should be written before the
    /// other loses them.
    pub(super) fn gains(&mut self, number: u32) {
        self.ranks.insert(number, WriteOrder::New);
    }

    /// Restores the state in `saved`. The caller has already rolled back the file.
    pub(in crate::hfsplus) fn rollback(&mut self, saved: SavedTree) {
        for number in self.touched.drain(..) {
            self.cache.invalidate(number);
        }
        self.depth = narrow::<u8>(saved.head.tree_depth.get()); // checked when the tree was opened
        (self.head, self.map) = (saved.head, saved.map);
    }

    /// Inserts a record. Fails with [`Kind::Conflict`] if its key exists.
    pub(in crate::hfsplus) fn insert(&mut self, key: &[u8], data: &[u8]) -> Result<()> {
        let (path, found) = self.path(key)?;
        if found {
            return Err(Error::conflict(
                self.kind.layer(),
                "a record with this key already exists",
            ));
        }
        self.head.leaf_records = self.head.leaf_records.get().saturating_add(1).into();
        let record = [key, data].concat();
        match path.last() {
            Some(leaf) => {
                let place = leaf.index..leaf.index;
                self.splice(path, place, vec![record])
            }
            None => self.plant(record),
        }
    }

    /// Replaces the data of a key that exists.
    pub(in crate::hfsplus) fn replace(&mut self, key: &[u8], data: &[u8]) -> Result<()> {
        let (path, found) = self.path(key)?;
        let Some(leaf) = path.last().filter(|_| found) else {
            return Err(Error::new(
                Kind::Corrupt,
                self.kind.layer(),
                "the record to change does not exist",
            ));
        };
        let place = leaf.index..leaf.index + 1;
        // Keep the key that is stored: the tree may treat another spelling of it as equal.
        let old = leaf.node.record(narrow(leaf.index)).unwrap_or_default();
        let length = old
            .first_chunk()
            .map_or(0, |length| 2 + usize::from(u16::from_be_bytes(*length)));
        let record = [old.get(..length).unwrap_or(key), data].concat();
        self.splice(path, place, vec![record])
    }

    /// Removes a record; returns `false` if no record has that key.
    pub(in crate::hfsplus) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        let (path, found) = self.path(key)?;
        let Some(leaf) = path.last().filter(|_| found) else {
            return Ok(false);
        };
        self.head.leaf_records = self.head.leaf_records.get().saturating_sub(1).into();
        let place = leaf.index..leaf.index + 1;
        self.splice(path, place, Vec::new())?;
        Ok(true)
    }

    /// Returns the path from the root to the position of `key`, and true if the key exists.
    fn path(&self, key: &[u8]) -> Result<(Vec<PathNode>, bool)> {
        let wanted = self.wanted(key)?;
        let mut number = self.head.root_node.get();
        let mut path = Vec::with_capacity(self.depth.into());
        for height in (2..=self.depth).rev() {
            let node = self.node(number, node_kind::INDEX, height)?;
            let after = self.partition(&node, |record| Some(wanted.compare(record)?.is_le()))?;
            let index = after.saturating_sub(1);
            number = self.child(&node, index)?;
            path.push(PathNode {
                node,
                index: index.into(),
            });
        }
        if self.depth == 0 {
            return Ok((path, false));
        }
        let node = self.node(number, node_kind::LEAF, 1)?;
        let index = self.partition(&node, |record| Some(wanted.compare(record)?.is_lt()))?;
        let found = node
            .record(index)
            .is_some_and(|record| wanted.compare(record) == Some(Ordering::Equal));
        path.push(PathNode {
            node,
            index: index.into(),
        });
        Ok((path, found))
    }

    /// Inserts the first record into an empty tree.
    fn plant(&mut self, record: Vec<u8>) -> Result<()> {
        let number = self.take_node()?;
        let mut leaf = Draft::new(number, node_kind::LEAF, 1);
        leaf.splice(0..0, &[record]);
        self.check_fits(&leaf)?;
        self.put(&leaf)?;
        (self.head.first_leaf_node, self.head.last_leaf_node) = (number.into(), number.into());
        self.set_root(number, 1);
        Ok(())
    }

    /// Replaces the records in `range` of the last node of `path` by `records`, and updates the
    /// levels above.
    fn splice(
        &mut self,
        mut path: Vec<PathNode>,
        mut range: Range<usize>,
        mut records: Vec<Vec<u8>>,
    ) -> Result<()> {
        while let Some(step) = path.pop() {
            self.check_records(&step.node)?;
            if let Some(bytes) = self.edited(&step, path.is_empty(), &range, &records) {
                return self.put_bytes(step.node.number, step.node.kind, bytes);
            }
            let mut draft = Draft::of(&step.node);
            let appended = range.end == draft.len() && !records.is_empty();
            draft.splice(range, &records);
            let Some(parent) = path.last() else {
                return self.put_root(draft, appended);
            };
            let (slots, nodes) = self.arrange(draft, appended, parent)?;
            nodes.iter().try_for_each(|node| self.put(node))?;
            let entries: Vec<_> = nodes.iter().map(|node| self.index_record(node)).collect();
            let same = |(slot, entry): (usize, &Vec<u8>)| {
                parent.node.record(narrow(slot)) == Some(entry.as_slice())
            };
            if slots.len() == entries.len() && slots.clone().zip(&entries).all(same) {
                return Ok(());
            }
            (range, records) = (slots, entries);
        }
        Ok(())
    }

    /// Returns the last node of a path with the records in `range` replaced by `records`, or `None`
    /// if other nodes would have to change too: if it overflows, becomes less than a quarter full,
    /// or begins with a different key.
    fn edited(
        &self,
        step: &PathNode,
        is_root: bool,
        range: &Range<usize>,
        records: &[Vec<u8>],
    ) -> Option<Box<[u8]>> {
        let [record] = records else { return None };
        let key_length = |record: &[u8]| {
            record
                .first_chunk()
                .map_or(0, |length| 2 + usize::from(u16::from_be_bytes(*length)))
        };
        let same_beginning = || {
            let (old, length) = (step.node.record(0).unwrap_or_default(), key_length(record));
            range.end == 1
                && old
                    .get(..length)
                    .is_some_and(|key| Some(key) == record.get(..length))
        };
        if !is_root && range.start == 0 && !same_beginning() {
            return None;
        }
        let (bytes, used) = step.node.with(range, record)?;
        (is_root || used >= usize::from(self.node_size) / 4).then_some(bytes)
    }

    /// Writes the root; divides it first and writes a new root above the halves if it is too full.
    fn put_root(&mut self, draft: Draft, appended: bool) -> Result<()> {
        if draft.is_empty() {
            self.free_node(draft.number)?;
            (self.head.first_leaf_node, self.head.last_leaf_node) = (0.into(), 0.into());
            self.set_root(0, 0);
            return Ok(());
        }
        if draft.used() > self.node_size.into() {
            let height = draft.height + 1;
            let halves = self.divide(draft, appended)?;
            halves.iter().try_for_each(|node| self.put(node))?;
            let mut root = Draft::new(self.take_node()?, node_kind::INDEX, height);
            let entries: Vec<_> = halves.iter().map(|node| self.index_record(node)).collect();
            root.splice(0..0, &entries);
            self.check_fits(&root)?;
            self.put(&root)?;
            self.set_root(root.number, height);
            return Ok(());
        }
        self.put(&draft)?;
        self.lower_root()
    }

    /// Replaces the root by its child as long as it has only one.
    fn lower_root(&mut self) -> Result<()> {
        while self.depth > 1 {
            let root = self.node(self.head.root_node.get(), node_kind::INDEX, self.depth)?;
            if root.records > 1 {
                break;
            }
            let child = self.child(&root, 0)?;
            self.free_node(root.number)?;
            self.set_root(child, self.depth - 1);
        }
        Ok(())
    }

    fn set_root(&mut self, number: u32, depth: u8) {
        (self.head.root_node, self.head.tree_depth, self.depth) =
            (number.into(), u16::from(depth).into(), depth);
    }

    pub(super) fn put(&mut self, draft: &Draft) -> Result<()> {
        self.put_bytes(draft.number, draft.kind, draft.finish(self.node_size))
    }

    fn put_bytes(&mut self, number: u32, kind: i8, bytes: Box<[u8]>) -> Result<()> {
        self.file.overwrite(self.offset(number), &bytes)?;
        self.touched.push(number);
        let rank = self.ranks.entry(number).or_insert(WriteOrder::Other);
        if *rank != WriteOrder::New {
            *rank = if kind == node_kind::LEAF {
                WriteOrder::Leaf
            } else {
                WriteOrder::Other
            };
        }
        let mut node =
            Node::parse(number, bytes).map_err(|message| self.corrupt(number, message))?;
        node.is_checked = true;
        self.cache.put(&Arc::new(node));
        Ok(())
    }

    /// Unpacks a node whose records are in order.
    pub(super) fn draft(&self, node: &Node) -> Result<Draft> {
        self.check_records(node)?;
        Ok(Draft::of(node))
    }

    /// Fails if the keys of a node do not ascend. One wrong offset of a record hides it, and a change of
    /// the record before it would overwrite its beginning.
    fn check_records(&self, node: &Node) -> Result<()> {
        if node.is_checked {
            return Ok(());
        }
        let mut before: Option<&[u8]> = None;
        for index in 0..node.records {
            let record = node.record(index).unwrap_or_default();
            let key = self.order.wanted(record).ok_or_else(|| {
                self.corrupt(node.number, format!("malformed key of record {index}"))
            })?;
            if before.is_some_and(|before| key.compare(before) != Some(Ordering::Less)) {
                let message =
                    format!("the key of record {index} does not sort after the one before");
                return Err(self.corrupt(node.number, message));
            }
            before = Some(record);
        }
        Ok(())
    }

    /// Returns the index record that points to a node, for the level above.
    fn index_record(&self, node: &Draft) -> Vec<u8> {
        let first = node.record(0);
        let length = first
            .first_chunk()
            .map_or(0, |length| u16::from_be_bytes(*length));
        let mut record = first
            .get(..2 + usize::from(length))
            .unwrap_or(first)
            .to_vec();
        if let Some(room) = self.index_key {
            // The key keeps its own length, in a field of the fixed size.
            record.resize(2 + usize::from(room.max(length)), 0);
        }
        debug_assert_eq!(U16::new(length).as_bytes(), &record[..2]);
        record.extend_from_slice(&node.number.to_be_bytes());
        record
    }

    pub(super) fn check_fits(&self, draft: &Draft) -> Result<()> {
        if draft.used() <= self.node_size.into() {
            return Ok(());
        }
        let message = format!("record does not fit in a node of {} bytes", self.node_size);
        Err(Error::limit(self.kind.layer(), message))
    }
}
