//! B-trees: search and iteration over the leaves, with every node checked when it is read (§6).

mod change;
mod cursor;
mod draft;
mod map;
mod node;
mod rebalance;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use zerocopy::FromBytes;
use zerocopy::big_endian::{U16, U32};

pub(super) use change::SavedTree;
use cursor::Cursor;
use map::NodeMap;
pub(super) use node::Node;
use node::NodeCache;

use super::extents::ForkDevice;
use super::layout::{
    AttributeKey, BIG_KEYS, CatalogKey, ExtentKeyRaw, HeaderNodeRaw, KEY_COMPARE_BINARY,
    KEY_COMPARE_FOLD, MAX_DEPTH, NODE_SIZES, TreeHeaderRaw, VARIABLE_INDEX_KEYS, Variant,
    node_kind,
};
#[cfg(feature = "testing")]
use super::layout::{AttributeRecord, CatalogRecord};
use super::read_structure;
use super::unicode::{NameOrder, compare_binary};
use crate::btree_node::check_role;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

/// One of the three trees of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeKind {
    Extents,
    Catalog(Variant),
    Attributes,
}

impl TreeKind {
    pub(super) fn layer(self) -> &'static str {
        match self {
            Self::Extents => "hfs+ extents tree",
            Self::Catalog(_) => "hfs+ catalog",
            Self::Attributes => "hfs+ attributes tree",
        }
    }

    /// Returns the name of the check stage that walks the tree.
    pub(super) fn stage(self) -> &'static str {
        match self {
            Self::Extents => "check the extents tree",
            Self::Catalog(_) => "check the catalog",
            Self::Attributes => "check the attributes",
        }
    }

    /// Returns the key order of a tree with this header.
    pub(super) fn order(self, header: &TreeHeaderRaw) -> Result<KeyOrder> {
        match (self, header.key_compare_type) {
            (Self::Extents, _) => Ok(KeyOrder::Extents),
            (Self::Attributes, _) => Ok(KeyOrder::Attributes),
            (Self::Catalog(Variant::HfsPlus), _) => Ok(KeyOrder::Catalog(NameOrder::Folding)),
            (Self::Catalog(Variant::Hfsx), KEY_COMPARE_FOLD) => {
                Ok(KeyOrder::Catalog(NameOrder::Folding))
            }
            (Self::Catalog(Variant::Hfsx), KEY_COMPARE_BINARY) => {
                Ok(KeyOrder::Catalog(NameOrder::Binary))
            }
            (Self::Catalog(Variant::Hfsx), other) => Err(Error::unsupported(
                self.layer(),
                format!("expected key comparison 0xcf or 0xbc, found {other:#04x}"),
            )),
        }
    }
}

/// The key order of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOrder {
    Extents,
    Catalog(NameOrder),
    Attributes,
}

impl KeyOrder {
    /// Compares the keys at the beginning of two records; `None` if either is not a key.
    pub(super) fn compare(self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        self.wanted(b)?.compare(a)
    }

    /// Parses the key at the beginning of `record` for comparison with others; `None` if there is
    /// none.
    fn wanted(self, record: &[u8]) -> Option<SearchKey<'_>> {
        Some(match self {
            Self::Extents => {
                let (key, _) = ExtentKeyRaw::read_from_prefix(record).ok()?;
                SearchKey::Extents(key.file_id.get(), key.fork_type, key.start_block.get())
            }
            Self::Catalog(names) => SearchKey::Catalog(names, CatalogKey::split(record)?.0),
            Self::Attributes => SearchKey::Attributes(AttributeKey::split(record)?.0),
        })
    }
}

/// A search key, parsed once.
#[derive(Debug, Clone, Copy)]
pub(super) enum SearchKey<'a> {
    Extents(u32, u8, u32),
    Catalog(NameOrder, CatalogKey<'a>),
    Attributes(AttributeKey<'a>),
}

impl SearchKey<'_> {
    /// Returns true for an entry of a folder, whose thread is elsewhere in the tree.
    fn has_name(&self) -> bool {
        matches!(self, Self::Catalog(_, key) if !key.name.is_empty())
    }

    /// Compares the key at the beginning of `record` with this key; `None` if that is not a key.
    #[inline]
    pub(super) fn compare(&self, record: &[u8]) -> Option<Ordering> {
        match self {
            Self::Extents(file, fork, start) => {
                let (key, _) = ExtentKeyRaw::read_from_prefix(record).ok()?;
                Some(
                    (key.file_id.get(), key.fork_type, key.start_block.get())
                        .cmp(&(*file, *fork, *start)),
                )
            }
            Self::Catalog(names, wanted) => {
                let (key, _) = CatalogKey::split(record)?;
                Some(
                    key.parent
                        .cmp(&wanted.parent)
                        .then_with(|| names.compare(key.name, wanted.name)),
                )
            }
            Self::Attributes(wanted) => {
                let (key, _) = AttributeKey::split(record)?;
                let names = || compare_binary(key.name, wanted.name);
                Some(
                    key.file
                        .cmp(&wanted.file)
                        .then_with(names)
                        .then(key.start_block.cmp(&wanted.start_block)),
                )
            }
        }
    }
}

/// An open tree, read by any number of threads or changed by one.
#[derive(Debug)]
pub(super) struct Tree {
    kind: TreeKind,
    order: KeyOrder,
    file: ForkDevice,
    node_size: u16,
    /// The header as it will be written; newer than the one in the file while a change is in
    /// progress.
    head: TreeHeaderRaw,
    /// Number of levels, from the header.
    depth: u8,
    /// Size of the key field in index nodes, if all have the same.
    index_key: Option<u16>,
    cache: NodeCache,
    /// The leaves of the last searches, for objects that are read in order: of keys with a name, and of others
    /// (threads). 0: none.
    recent: [AtomicU32; 2],
    /// The map of free nodes; read when it is first needed.
    map: Option<NodeMap>,
    /// Nodes written since the last commit or rollback of the changes.
    touched: Vec<u32>,
    /// Ranks of the nodes written since the last commit, which give the preferred order of writes.
    ranks: HashMap<u32, WriteOrder>,
}

/// The preferred order in which changed nodes are written in place, so that a reader that ignores
/// the journal finds the former records in the meantime: first nodes that nothing points to yet;
/// then those that point to them; then those that lost records; then those that nothing points to
/// any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WriteOrder {
    New,
    Other,
    Leaf,
    Freed,
}

impl Tree {
    /// Opens the tree in `file`.
    pub(super) fn open(file: ForkDevice, kind: TreeKind) -> Result<Self> {
        let header = read_header(&file, kind)?;
        let corrupt = |message: String| {
            Error::corrupt(
                kind.layer(),
                file.volume_offset(0),
                format!("node 0 (header): {message}"),
            )
        };
        let node_size = header.node_size.get();
        if !node_size.is_power_of_two() || !NODE_SIZES.contains(&node_size) {
            return Err(corrupt(format!(
                "invalid node size {node_size}: expected a power of two from 512 to 32768"
            )));
        }
        let total_nodes = header.total_nodes.get();
        if u64::from(total_nodes) * u64::from(node_size) > file.len() {
            let message = format!(
                "{total_nodes} nodes of {node_size} bytes exceed the file of {} bytes",
                file.len()
            );
            return Err(corrupt(message));
        }
        let (root, depth) = (header.root_node.get(), header.tree_depth.get());
        let Some(depth) = u8::try_from(depth)
            .ok()
            .filter(|&depth| u16::from(depth) <= MAX_DEPTH)
        else {
            return Err(corrupt(format!(
                "invalid depth {depth}: the maximum is {MAX_DEPTH}"
            )));
        };
        if (depth == 0) != (root == 0) || root >= total_nodes.max(1) {
            return Err(corrupt(format!(
                "invalid root: node {root} of {total_nodes} in a tree of depth {depth}"
            )));
        }
        let attributes = header.attributes.get();
        if attributes & BIG_KEYS == 0 {
            return Err(corrupt(format!(
                "the tree's attributes {attributes:#x} lack the flag of 16-bit key lengths"
            )));
        }
        let index_key =
            (attributes & VARIABLE_INDEX_KEYS == 0).then(|| header.max_key_length.get());
        let (order, cache) = (kind.order(&header)?, NodeCache::new());
        let (map, touched, ranks) = (None, Vec::new(), HashMap::new());
        Ok(Self {
            kind,
            order,
            file,
            node_size,
            head: header,
            depth,
            index_key,
            cache,
            recent: Default::default(),
            map,
            touched,
            ranks,
        })
    }

    /// Limits the node cache to `bytes`, but never to fewer than `MIN_CACHED` nodes.
    pub(super) fn bound_cache(&mut self, bytes: usize) {
        let nodes = usize::try_from(self.head.total_nodes.get()).unwrap_or(usize::MAX);
        self.cache = NodeCache::of_bytes(bytes, self.node_size, nodes);
    }

    /// Returns the size of the cached nodes in bytes.
    pub(super) fn cached(&self) -> usize {
        self.cache.len() * usize::from(self.node_size)
    }

    /// Returns the key order of the tree.
    pub(super) fn order(&self) -> KeyOrder {
        self.order
    }

    /// Returns an error about node `number`.
    pub(super) fn corrupt(&self, number: u32, message: impl std::fmt::Display) -> Error {
        let offset = self
            .file
            .volume_offset(u64::from(number) * u64::from(self.node_size));
        Error::corrupt(
            self.kind.layer(),
            offset,
            format!("node {number}: {message}"),
        )
    }

    /// Returns a cursor at the first record whose key is not before `key`.
    pub(super) fn seek(&self, key: &[u8]) -> Result<Cursor<'_>> {
        let wanted = self.wanted(key)?;
        let recent = &self.recent[usize::from(wanted.has_name())];
        if let Some(leaf) = self.recent_leaf(recent.load(Relaxed), &wanted) {
            let index = self.partition(&leaf, |record| Some(wanted.compare(record)?.is_lt()))?;
            return Ok(Cursor::new(self, Some(leaf), index));
        }
        let mut number = self.head.root_node.get();
        for height in (2..=self.depth).rev() {
            let node = self.node(number, node_kind::INDEX, height)?;
            // The last child that begins at or before the key; the first if there is none.
            let after = self.partition(&node, |record| Some(wanted.compare(record)?.is_le()))?;
            number = self.child(&node, after.saturating_sub(1))?;
        }
        if self.depth == 0 {
            return Ok(Cursor::new(self, None, 0));
        }
        let leaf = self.node(number, node_kind::LEAF, 1)?;
        recent.store(number, Relaxed);
        let index = self.partition(&leaf, |record| Some(wanted.compare(record)?.is_lt()))?;
        Ok(Cursor::new(self, Some(leaf), index))
    }

    /// Returns the leaf `number` if it is in memory and the key is among its own, so that no search from the
    /// root leads elsewhere.
    fn recent_leaf(&self, number: u32, wanted: &SearchKey<'_>) -> Option<Arc<Node>> {
        let leaf = self.cache.get(number).filter(|_| number != 0)?;
        let is_leaf = (leaf.kind, leaf.height) == (node_kind::LEAF, 1);
        let first = leaf.record(0).filter(|_| is_leaf)?;
        let last = leaf.record(leaf.records.checked_sub(1)?)?;
        let is_within = wanted.compare(first)?.is_le() && wanted.compare(last)?.is_ge();
        is_within.then_some(leaf)
    }

    /// Passes the record with exactly this key to `found` and returns the result.
    pub(super) fn get<T>(&self, key: &[u8], found: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let mut cursor = self.seek(key)?;
        let order = self.order;
        Ok(cursor
            .next()?
            .filter(|record| order.compare(record, key) == Some(Ordering::Equal))
            .map(found))
    }

    /// Returns a cursor at the first record.
    pub(super) fn first(&self) -> Result<Cursor<'_>> {
        let node = match self.depth {
            0 => None,
            _ => Some(self.node(self.head.first_leaf_node.get(), node_kind::LEAF, 1)?),
        };
        Ok(Cursor::new(self, node, 0))
    }

    /// Parses a key built by this crate, for comparison with others.
    fn wanted<'k>(&self, key: &'k [u8]) -> Result<SearchKey<'k>> {
        let message = "malformed search key";
        self.order
            .wanted(key)
            .ok_or_else(|| Error::invalid(self.kind.layer(), message))
    }

    /// Returns the number of records at the beginning of a node that satisfy `before`.
    fn partition(&self, node: &Node, before: impl Fn(&[u8]) -> Option<bool>) -> Result<u16> {
        let (mut low, mut high) = (0, node.records);
        while low < high {
            let middle = low + (high - low) / 2;
            match node.record(middle).and_then(&before) {
                Some(true) => low = middle + 1,
                Some(false) => high = middle,
                None => {
                    return Err(
                        self.corrupt(node.number, format!("malformed key of record {middle}"))
                    );
                }
            }
        }
        Ok(low)
    }

    /// Returns the child that index record `index` points to.
    fn child(&self, node: &Node, index: u16) -> Result<u32> {
        let child = node
            .record(index)
            .and_then(|record| child_of(record, self.index_key));
        child.ok_or_else(|| {
            self.corrupt(
                node.number,
                format!("record {index} of the index node has no valid node number"),
            )
        })
    }

    /// Returns a node, which must be of this kind and height.
    fn node(&self, number: u32, kind: i8, height: u8) -> Result<Arc<Node>> {
        let node = match self.cache.get(number) {
            Some(node) => node,
            None => self.read(number)?,
        };
        check_role((node.kind, node.height), (kind, height), node.records)
            .map_err(|message| self.corrupt(number, message))?;
        Ok(node)
    }

    fn read(&self, number: u32) -> Result<Arc<Node>> {
        let total_nodes = self.head.total_nodes.get();
        if number == 0 || number >= total_nodes {
            let message = format!(
                "the tree points to node {number}, expected 1 to {}",
                total_nodes.saturating_sub(1)
            );
            return Err(Error::new(Kind::Corrupt, self.kind.layer(), message));
        }
        let mut bytes = vec![0; usize::from(self.node_size)].into_boxed_slice();
        self.file
            .read_at(u64::from(number) * u64::from(self.node_size), &mut bytes)?;
        let node = Node::parse(number, bytes)
            .map(Arc::new)
            .map_err(|message| self.corrupt(number, message))?;
        self.cache.put(&node);
        Ok(node)
    }
}

/// Returns the child that an index record points to. `room` is the size of the key field, if all
/// index records have the same.
pub(super) fn child_of(record: &[u8], room: Option<u16>) -> Option<u32> {
    let (length, _) = U16::read_from_prefix(record).ok()?;
    let room = room.unwrap_or(length.get());
    let (child, _) = U32::read_from_prefix(record.get(2 + usize::from(room)..)?).ok()?;
    Some(child.get())
}

fn read_header(file: &ForkDevice, kind: TreeKind) -> Result<TreeHeaderRaw> {
    let corrupt = |message| Error::corrupt(kind.layer(), file.volume_offset(0), message);
    if file.len() < size_of::<HeaderNodeRaw>() as u64 {
        return Err(corrupt(format!(
            "expected a B-tree, found a file of {} bytes",
            file.len()
        )));
    }
    let header: HeaderNodeRaw = read_structure(file, 0)?;
    if header.node.kind != node_kind::HEADER {
        return Err(corrupt(format!(
            "node 0: expected a header node (kind 1), found kind {}",
            header.node.kind
        )));
    }
    Ok(header.tree)
}

/// Returns the number of records of a node that are keys with data of any tree; 0 if the bytes are
/// not a node. Applies the parsers of [`Tree`] to a node outside of a tree.
#[cfg(feature = "testing")]
pub fn read_node(bytes: &[u8]) -> usize {
    let Ok(node) = Node::parse(1, bytes.into()) else {
        return 0;
    };
    let records: Vec<_> = (0..node.records)
        .filter_map(|index| node.record(index))
        .collect();
    assert_eq!(
        records.len(),
        usize::from(node.records),
        "a record exceeds its node"
    );
    for order in [
        KeyOrder::Extents,
        KeyOrder::Catalog(NameOrder::Folding),
        KeyOrder::Catalog(NameOrder::Binary),
        KeyOrder::Attributes,
    ] {
        for pair in records.windows(2) {
            let turned = order.compare(pair[1], pair[0]).map(Ordering::reverse);
            assert_eq!(order.compare(pair[0], pair[1]), turned, "{order:?}");
        }
    }
    let in_catalog = |record| CatalogRecord::parse(CatalogKey::split(record)?.1).map(drop);
    let of_attributes = |record| AttributeRecord::parse(AttributeKey::split(record)?.1).map(drop);
    records
        .iter()
        .filter(|record| {
            in_catalog(record)
                .or_else(|| of_attributes(record))
                .is_some()
        })
        .count()
}
