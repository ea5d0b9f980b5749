//! A B-tree modified in memory: records are inserted and removed, full nodes split, small ones
//! merged, empty ones removed (§5).
//!
//! Changed nodes are kept in [`Nodes`] until a commit assigns blocks to them
//! ([`ChangingTree::relocate`]). The commit moves nodes of a physical tree, with all nodes above
//! them. Until then they keep their old numbers, and new ones have numbers that no block has.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromBytes;

use super::nodes::Nodes;
use crate::apfs::btree::{Addressing, Node, NodeSource, Tree, TreeKind};
use crate::apfs::build::node::{Node as Draft, TreeKind as Shape};
use crate::apfs::layout::{ObjectRaw, Oid, Paddr, TreeInfoRaw, Xid, object_type, storage};
use crate::apfs::store::Store;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

/// First number of new nodes of physical trees: no container has so many blocks.
pub(super) const FIRST_NEW: u64 = 1 << 62;

/// A source of object numbers, shared by the trees of a volume.
#[derive(Debug, Clone)]
pub(super) struct OidCounter(Arc<AtomicU64>);

impl OidCounter {
    pub(super) fn new(next: u64) -> Self {
        Self(Arc::new(AtomicU64::new(next)))
    }

    /// Creates a source for the new nodes of a physical tree.
    pub(super) fn physical() -> Self {
        Self::new(FIRST_NEW)
    }

    /// Takes `count` numbers; returns the first.
    pub(super) fn reserve(&self, count: u64) -> Oid {
        Oid(self.0.fetch_add(count, Ordering::Relaxed))
    }

    /// Returns the next number.
    pub(super) fn next(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A key and its value.
type TreeRecord<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);
/// A changed node, and its previous state.
type ReplacedNode = (Oid, Option<Arc<Node>>);

/// A range of entries of a parent, and the entry that replaces them.
type MergedEntries = (Range<usize>, TreeRecord<'static>);

/// The change of a node's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeChange {
    /// A record was appended at the end.
    Appended,
    /// A record was inserted or replaced.
    Put,
    /// A record was removed.
    Removed,
}

/// A tree that can be read and modified.
#[derive(Debug)]
pub(super) struct ChangingTree {
    store: Store,
    kind: TreeKind,
    shape: Shape,
    nodes: Arc<Nodes>,
    root: Oid,
    info: TreeInfoRaw,
    /// Source of the numbers of new nodes.
    numbers: OidCounter,
    /// Nodes removed from the tree since the last commit.
    dropped: Vec<Oid>,
    rollback: Vec<ReplacedNode>,
    saved: (TreeInfoRaw, usize),
}

/// The result of committing a changed node.
#[derive(Debug)]
pub(super) struct Written {
    /// Number before and after the commit.
    pub(super) was: Oid,
    pub(super) oid: Oid,
    pub(super) place: Paddr,
    pub(super) bytes: Box<[u8]>,
}

impl ChangingTree {
    pub(super) fn open(
        store: &Store,
        (kind, shape): (TreeKind, Shape),
        stored: Addressing,
        root: Oid,
        numbers: OidCounter,
    ) -> Result<Self> {
        let nodes = Arc::new(Nodes::new(store.clone(), kind, stored));
        let node = nodes.node(root)?;
        let Ok((_, info)) = TreeInfoRaw::read_from_suffix(&node.bytes) else {
            return Err(store.corrupt(kind.layer(), root, node.paddr, "is truncated"));
        };
        let shape = Shape {
            flags: info.flags.get(),
            ..shape
        };
        let (dropped, rollback, saved) = (Vec::new(), Vec::new(), (info, 0));
        Ok(Self {
            store: store.clone(),
            kind,
            shape,
            nodes,
            root,
            info,
            numbers,
            dropped,
            rollback,
            saved,
        })
    }

    pub(super) fn root(&self) -> Oid {
        self.root
    }

    /// Returns a reader of the current state of the tree.
    pub(super) fn reader(&self) -> Result<Tree> {
        Tree::over(&self.store, self.kind, self.nodes.clone(), self.root)
    }

    /// Sets the method of locating nodes on disk.
    pub(super) fn find_by(&self, stored: Addressing) {
        self.nodes.find_by(stored);
    }

    /// Returns the number of node requests so far.
    #[cfg(test)]
    pub(super) fn asked(&self) -> u64 {
        self.nodes.asked()
    }

    /// Returns the number of changed nodes.
    pub(super) fn changed(&self) -> u64 {
        self.nodes.changed_count() as u64
    }

    /// Returns true if there is anything to commit.
    pub(super) fn is_changed(&self) -> bool {
        self.changed() > 0 || !self.dropped.is_empty()
    }

    /// Inserts a record, replacing one with the same key.
    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.edit(key, Some(value)).map(drop)
    }

    /// Removes a record. Returns true if it existed.
    pub(super) fn remove(&mut self, key: &[u8]) -> Result<bool> {
        self.edit(key, None)
    }

    /// Inserts, replaces or, with `None`, removes a record. Returns true if the key existed.
    fn edit(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<bool> {
        let tree = self.reader()?;
        let Some(wanted) = self.kind.key(key) else {
            return Err(Error::invalid(self.kind.layer(), "malformed key"));
        };
        let path = tree.descend(&wanted)?;
        let Some((leaf, _)) = path.last().cloned() else {
            return Ok(false);
        };
        let at = tree.partition(&leaf, |found| found < wanted)?;
        let there = at < leaf.count && tree.key(&leaf, at)? == wanted;
        let mut records = records(&leaf);
        match value {
            Some(value) => {
                let end = at + usize::from(there);
                records.splice(at..end, [(Cow::Borrowed(key), Cow::Borrowed(value))]);
                self.info.longest_key = (self.info.longest_key.get().max(narrow(key.len()))).into(); // at most a node's
                self.info.longest_value =
                    (self.info.longest_value.get().max(narrow(value.len()))).into();
                if !there {
                    self.info.key_count += 1;
                }
            }
            None if !there => return Ok(false),
            None => {
                records.remove(at);
                self.info.key_count = self.info.key_count.get().saturating_sub(1).into();
            }
        }
        self.pull_up(&path);
        let change = match value {
            None => NodeChange::Removed,
            Some(_) if at + 1 >= leaf.count => NodeChange::Appended,
            Some(_) => NodeChange::Put,
        };
        self.replace(path, records, change)?;
        Ok(there)
    }

    /// Returns true if nodes are located by block number.
    fn is_physical(&self) -> bool {
        self.shape.storage & storage::MASK == storage::PHYSICAL
    }

    /// Marks the nodes as changed that must be rewritten besides the leaf: the root, which counts
    /// records, and in a physical tree all nodes on the path.
    fn pull_up(&mut self, path: &[(Arc<Node>, usize)]) {
        let moves = self.is_physical();
        let many = if moves { path.len() } else { 1 };
        for (node, _) in path.iter().take(many) {
            if self.nodes.changed(node.oid).is_none() {
                self.set(node.oid, Some(node.clone()));
            }
        }
    }

    fn set(&mut self, oid: Oid, node: Option<Arc<Node>>) {
        let before = self.nodes.set(oid, node);
        self.rollback.push((oid, before));
    }

    /// Replaces the records of the last node of `path`, splitting it if necessary, and updates the
    /// nodes above it.
    fn replace(
        &mut self,
        mut path: Vec<(Arc<Node>, usize)>,
        records: Vec<TreeRecord<'_>>,
        change: NodeChange,
    ) -> Result<()> {
        let Some((node, _)) = path.pop() else {
            return Ok(());
        };
        let level = node.level;
        let parts = self.divide(&records, level, change)?;
        let Some((parent, index)) = path.last().cloned() else {
            return self.replace_root(level, &records, &parts);
        };
        if change == NodeChange::Removed
            && parts.len() == 1
            && let Some((joined, entry)) = self.join(&parent, index, &node, &records)?
        {
            let mut above = self::records(&parent);
            above.splice(joined, [entry]);
            return self.replace(path, above, NodeChange::Removed);
        }
        let mut entries: Vec<TreeRecord<'_>> = Vec::with_capacity(parts.len());
        for (nth, part) in parts.iter().enumerate() {
            let oid = if nth == 0 { node.oid } else { self.new_node() };
            let part = &records[part.clone()];
            self.store_node(oid, level, part)?;
            entries.push((
                Cow::Owned(part[0].0.to_vec()),
                Cow::Owned(oid.0.to_le_bytes().to_vec()),
            ));
        }
        if parts.is_empty() {
            self.drop_node(node.oid);
        }
        if let [(first, _)] = entries.as_slice()
            && parent.key(index) == Some(first)
        {
            return Ok(());
        }
        let mut above = self::records(&parent);
        let change = match entries.len() {
            0 => NodeChange::Removed,
            1 => NodeChange::Put,
            _ if index + 1 == parent.count => NodeChange::Appended,
            _ => NodeChange::Put,
        };
        above.splice(index..index + 1, entries);
        self.replace(path, above, change)
    }

    /// Merges a node that has become small with a neighbor, if both fit into one. Returns the
    /// entries of the parent for both, and the entry that replaces them.
    fn join(
        &mut self,
        parent: &Node,
        index: usize,
        node: &Node,
        records: &[TreeRecord<'_>],
    ) -> Result<Option<MergedEntries>> {
        let leaf = node.level == 0;
        let size = |records: &[TreeRecord<'_>]| {
            records
                .iter()
                .map(|(key, value)| key.len() + value.len())
                .sum::<usize>()
        };
        if !self.shape.fits(records.len(), 3 * size(records), leaf) {
            return Ok(None);
        }
        for beside in [index + 1, index.wrapping_sub(1)] {
            let Some(oid) = parent
                .record(beside)
                .and_then(|(_, value)| value.first_chunk())
            else {
                continue;
            };
            let oid = Oid(u64::from_le_bytes(*oid));
            let other = self.nodes.node(oid)?;
            let others = self::records(&other);
            let after = beside > index;
            let all: Vec<_> = if after {
                [records, others.as_slice()].concat()
            } else {
                [others.as_slice(), records].concat()
            };
            if other.level != node.level
                || all.is_empty()
                || !self.shape.fits(all.len(), size(&all), leaf)
            {
                continue;
            }
            let (kept, gone) = if after {
                (node.oid, oid)
            } else {
                (oid, node.oid)
            };
            self.store_node(kept, node.level, &all)?;
            self.drop_node(gone);
            let first = index.min(beside);
            let entry = (
                Cow::Owned(all[0].0.to_vec()),
                Cow::Owned(kept.0.to_le_bytes().to_vec()),
            );
            return Ok(Some((first..first + 2, entry)));
        }
        Ok(None)
    }

    /// Replaces the records of the root, which keeps its number: records that do not fit are moved
    /// to new nodes below it.
    fn replace_root(
        &mut self,
        level: u16,
        records: &[TreeRecord<'_>],
        parts: &[Range<usize>],
    ) -> Result<()> {
        if parts.len() > 1 {
            let mut entries: Vec<TreeRecord<'_>> = Vec::with_capacity(parts.len());
            for part in parts {
                let (oid, part) = (self.new_node(), &records[part.clone()]);
                self.store_node(oid, level, part)?;
                entries.push((part[0].0.clone(), Cow::Owned(oid.0.to_le_bytes().to_vec())));
            }
            return self.store_node(self.root, level + 1, &entries);
        }
        if records.is_empty() {
            return self.store_node(self.root, 0, &[]);
        }
        // A root with one child is replaced by the records of that child, which fit because those
        // of any node do.
        let (mut level, mut kept) = (level, records.to_vec());
        while let ([(_, child)], true) = (kept.as_slice(), level > 0)
            && let Some(child) = child.first_chunk().map(|oid| Oid(u64::from_le_bytes(*oid)))
        {
            let below = self.nodes.node(child)?;
            let inner = self::records(&below);
            if below.level >= level || self.divide(&inner, below.level, NodeChange::Put)?.len() > 1
            {
                break;
            }
            self.drop_node(child);
            let owned = |bytes: &Cow<'_, [u8]>| Cow::Owned(bytes.to_vec());
            (level, kept) = (
                below.level,
                inner
                    .iter()
                    .map(|(key, value)| (owned(key), owned(value)))
                    .collect(),
            );
        }
        self.store_node(self.root, level, &kept)
    }

    /// Returns the ranges of records for each node of a level: one if they fit, none if there are none.
    fn divide(
        &self,
        records: &[TreeRecord<'_>],
        level: u16,
        change: NodeChange,
    ) -> Result<Vec<Range<usize>>> {
        let leaf = level == 0;
        let size = |record: &TreeRecord<'_>| record.0.len() + record.1.len();
        let bytes: usize = records.iter().map(size).sum();
        if records.is_empty() || self.shape.fits(records.len(), bytes, leaf) {
            return Ok(Some(0..records.len())
                .filter(|all| !all.is_empty())
                .into_iter()
                .collect());
        }
        // Records appended in order fill their nodes; otherwise nodes are split in half.
        let wanted = if change == NodeChange::Appended {
            bytes - size(&records[records.len() - 1])
        } else {
            bytes / 2
        };
        let mut parts = Vec::new();
        let (mut start, mut taken) = (0, 0);
        for (at, record) in records.iter().enumerate() {
            let full = !self.shape.fits(at - start + 1, taken + size(record), leaf);
            let enough = parts.is_empty() && at > start && taken + size(record) / 2 >= wanted;
            if full || enough {
                if at == start {
                    let message =
                        format!("record of {} bytes does not fit in a node", size(record));
                    return Err(Error::limit(self.kind.layer(), message));
                }
                parts.push(start..at);
                (start, taken) = (at, 0);
            }
            taken += size(record);
        }
        parts.push(start..records.len());
        Ok(parts)
    }

    fn new_node(&mut self) -> Oid {
        self.info.node_count += 1;
        self.numbers.reserve(1)
    }

    fn drop_node(&mut self, oid: Oid) {
        self.info.node_count = self.info.node_count.get().saturating_sub(1).into();
        self.set(oid, None);
        self.dropped.push(oid);
    }

    fn store_node(&mut self, oid: Oid, level: u16, records: &[TreeRecord<'_>]) -> Result<()> {
        let node = self.encode(oid, Xid(0), oid, Paddr(0), level, records)?;
        self.set(oid, Some(Arc::new(node)));
        Ok(())
    }

    fn encode(
        &self,
        was: Oid,
        xid: Xid,
        oid: Oid,
        place: Paddr,
        level: u16,
        records: &[TreeRecord<'_>],
    ) -> Result<Node> {
        let mut draft = Draft::of_level(level);
        records
            .iter()
            .for_each(|(key, value)| draft.push(key, value));
        let is_root = was == self.root;
        let kind = if is_root {
            object_type::BTREE_ROOT
        } else {
            object_type::BTREE_NODE
        };
        let head = ObjectRaw::new(oid, xid, kind | self.shape.storage, self.shape.subtype);
        let bytes = draft
            .finish(&self.shape, head, is_root.then_some(self.info))
            .into_boxed_slice();
        let parsed = Node::parse(oid, place, bytes, self.kind.sizes());
        parsed.map_err(|message| Error::new(Kind::Corrupt, self.kind.layer(), message))
    }

    /// Sets the point to which changes can be reverted.
    pub(super) fn mark(&mut self) {
        self.rollback.clear();
        self.saved = (self.info, self.dropped.len());
    }

    /// Reverts all changes since the last mark.
    pub(super) fn rollback(&mut self) {
        for (oid, node) in std::mem::take(&mut self.rollback).into_iter().rev() {
            self.nodes.set(oid, node);
        }
        self.info = self.saved.0;
        self.dropped.truncate(self.saved.1);
    }

    /// Returns the nodes removed since the last commit.
    pub(super) fn take_dropped(&mut self) -> Vec<Oid> {
        std::mem::take(&mut self.dropped)
    }

    /// Assigns to every changed node a block from `place`, with transaction `xid`; in a physical
    /// tree the block is also the new number.
    pub(super) fn relocate(
        &mut self,
        xid: Xid,
        place: &mut dyn FnMut() -> Result<Paddr>,
    ) -> Result<Vec<Written>> {
        let physical = self.is_physical();
        let mut moved = HashMap::new();
        let (mut written, mut nodes) = (Vec::new(), Vec::new());
        for node in self.nodes.all_changed() {
            let paddr = place()?;
            let oid = if physical { Oid(paddr.0) } else { node.oid };
            moved.insert(node.oid, oid);
            let mut records = records(&node);
            if node.level > 0 && physical {
                for (_, child) in &mut records {
                    let now = child
                        .first_chunk()
                        .and_then(|oid| moved.get(&Oid(u64::from_le_bytes(*oid))));
                    if let Some(now) = now {
                        *child = Cow::Owned(now.0.to_le_bytes().to_vec());
                    }
                }
            }
            let new = self.encode(node.oid, xid, oid, paddr, node.level, &records)?;
            written.push(Written {
                was: node.oid,
                oid,
                place: paddr,
                bytes: new.bytes.clone(),
            });
            nodes.push(Arc::new(new));
        }
        self.root = moved.get(&self.root).copied().unwrap_or(self.root);
        self.nodes.mark_written(&nodes);
        self.rollback.clear();
        Ok(written)
    }
}

fn records(node: &Node) -> Vec<TreeRecord<'_>> {
    let all = (0..node.count).filter_map(|index| node.record(index));
    all.map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value)))
        .collect()
}
