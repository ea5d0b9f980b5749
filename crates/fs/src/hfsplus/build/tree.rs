//! B-trees built bottom up from sorted records: the leaves are filled one after another, then the
//! levels above them, up to the root.
//!
//! The order of the nodes is: header, leaves, index levels, map nodes, unused. [`Shape`] counts the
//! nodes before the volume is laid out, [`Writer`] writes them; both receive the same records.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use crate::build::output::Output;
use crate::hfsplus::layout::{
    BIG_KEYS, FIRST_RECORD, HEADER_MAP_OFFSET, NodeDescriptorRaw, TreeHeaderRaw, header_map_bits,
    map_node_bits, node_kind,
};
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

/// Bytes of a record's entry in the table of offsets of its node.
const OFFSET_LEN: usize = 2;
/// Bytes of the child's number in an index record.
const CHILD_LEN: usize = 4;

/// Counts the nodes of a tree of certain records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    node_size: usize,
    /// Number of nodes of each finished level, leaves first.
    levels: Vec<u32>,
    /// Lengths of the first keys of the nodes of the level that is being filled.
    first_keys: Vec<u16>,
    room: usize,
}

impl Shape {
    /// Creates the shape of a tree without records.
    pub(super) fn new(node_size: u16) -> Self {
        Self {
            node_size: node_size.into(),
            levels: Vec::new(),
            first_keys: Vec::new(),
            room: 0,
        }
    }

    /// Adds a record that follows all records before.
    pub(super) fn add(&mut self, key: &[u8], data: &[u8]) {
        self.add_lengths(key.len(), data.len());
    }

    fn add_lengths(&mut self, key: usize, data: usize) {
        let taken = even(key + data) + OFFSET_LEN;
        if self.room < taken {
            self.first_keys.push(narrow(key)); // a key is shorter than a node
            self.room = node_room(self.node_size);
        }
        self.room -= taken;
    }

    /// Returns the number of nodes that the records added so far need, including header and index
    /// nodes, excluding map nodes.
    pub(super) fn nodes(mut self) -> u32 {
        while !self.first_keys.is_empty() {
            let keys = std::mem::take(&mut self.first_keys);
            self.levels.push(narrow(keys.len()));
            self.room = 0;
            if keys.len() > 1 {
                keys.into_iter()
                    .for_each(|key| self.add_lengths(key.into(), CHILD_LEN));
            }
        }
        1 + self.levels.iter().sum::<u32>()
    }
}

/// Returns the space for records and their offsets in an empty node; the offset of the free space
/// is always present.
fn node_room(node_size: usize) -> usize {
    node_size - usize::from(FIRST_RECORD) - OFFSET_LEN
}

fn even(length: usize) -> usize {
    length.next_multiple_of(2)
}

/// Returns the number of map nodes of a tree of `total` nodes.
pub(in crate::hfsplus) fn map_nodes(node_size: u16, total: u32) -> u32 {
    total
        .saturating_sub(header_map_bits(node_size))
        .div_ceil(map_node_bits(node_size))
}

/// Header fields of a tree that do not depend on its records.
#[derive(Debug, Clone, Copy)]
pub(in crate::hfsplus) struct HeaderKind {
    pub(in crate::hfsplus) node_size: u16,
    pub(in crate::hfsplus) max_key_length: u16,
    /// `VARIABLE_INDEX_KEYS` or 0.
    pub(in crate::hfsplus) attributes: u32,
    pub(in crate::hfsplus) key_compare_type: u8,
    pub(in crate::hfsplus) total_nodes: u32,
    pub(in crate::hfsplus) clump: u32,
}

/// Writes a tree from records in key order.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    kind: HeaderKind,
    out: Output<'a>,
    node: FilledNode,
    /// Number of the node that is being filled.
    at: u32,
    /// The first keys of the nodes of this level, concatenated, and the end of each.
    first_keys: Vec<u8>,
    key_ends: Vec<usize>,
    leaf_records: u32,
    base: u64,
}

impl<'a> Writer<'a> {
    /// Creates a writer of a tree whose file begins at the position of `out`.
    pub(super) fn new(kind: HeaderKind, mut out: Output<'a>) -> Result<Self> {
        let base = out.position();
        out.seek(base + u64::from(kind.node_size))?;
        let node = FilledNode::new(kind.node_size, node_kind::LEAF, 1);
        Ok(Self {
            kind,
            out,
            node,
            at: 1,
            first_keys: Vec::new(),
            key_ends: Vec::new(),
            leaf_records: 0,
            base,
        })
    }

    /// Appends a leaf record.
    pub(super) fn add(&mut self, key: &[u8], data: &[u8]) -> Result<()> {
        self.leaf_records += 1;
        self.place(key, data)
    }

    fn place(&mut self, key: &[u8], data: &[u8]) -> Result<()> {
        if !self.node.fits(key.len() + data.len()) {
            self.node.forward = self.at + 1;
            self.close()?;
            self.node.backward = self.at - 1;
        }
        if self.node.is_empty() {
            self.first_keys.extend_from_slice(key);
            self.key_ends.push(self.first_keys.len());
        }
        self.node.push(key, data);
        Ok(())
    }

    /// Writes the node that is being filled and begins the next one.
    fn close(&mut self) -> Result<()> {
        self.out.append(self.node.finish())?;
        self.node.clear();
        self.at += 1;
        Ok(())
    }

    /// Writes the last leaf, the levels above the leaves, the map and finally the header. Returns
    /// the number of free nodes.
    pub(super) fn finish(mut self) -> Result<u32> {
        let (mut depth, mut root, mut last_leaf) = (0, 0, 0);
        while !self.key_ends.is_empty() {
            root = self.at;
            if depth == 0 {
                last_leaf = root;
            }
            depth += 1;
            self.close()?;
            self.raise()?;
        }
        let maps = map_nodes(self.kind.node_size, self.kind.total_nodes);
        let (first_map, used) = (self.at, self.at + maps);
        let free = self.kind.total_nodes - used;
        for map in 0..maps {
            let next = if map + 1 < maps {
                first_map + map + 1
            } else {
                0
            };
            self.out.append(&map_node(&self.kind, map, next, used))?;
        }
        let header = TreeHeaderRaw {
            tree_depth: depth.into(),
            root_node: root.into(),
            leaf_records: self.leaf_records.into(),
            first_leaf_node: u32::from(depth > 0).into(),
            last_leaf_node: last_leaf.into(),
            node_size: self.kind.node_size.into(),
            max_key_length: self.kind.max_key_length.into(),
            total_nodes: self.kind.total_nodes.into(),
            free_nodes: free.into(),
            reserved1: 0.into(),
            clump_size: self.kind.clump.into(),
            tree_type: 0,
            key_compare_type: self.kind.key_compare_type,
            attributes: (BIG_KEYS | self.kind.attributes).into(),
            reserved3: [0; 64],
        };
        let first_map = if maps > 0 { first_map } else { 0 };
        self.out.seek(self.base)?;
        self.out.append(&header_node(&header, first_map, used))?;
        self.out.flush()?;
        Ok(free)
    }

    /// Fills the level above the one just finished, if that has more than one node.
    fn raise(&mut self) -> Result<()> {
        let keys = std::mem::take(&mut self.first_keys);
        let ends = std::mem::take(&mut self.key_ends);
        if ends.len() < 2 {
            return Ok(());
        }
        self.node.raise();
        let first_child = self.at - narrow::<u32>(ends.len());
        let mut start = 0;
        for (child, end) in (first_child..).zip(ends) {
            self.place(&keys[start..end], &child.to_be_bytes())?;
            start = end;
        }
        Ok(())
    }
}

/// A node that is being filled.
#[derive(Debug)]
struct FilledNode {
    bytes: Vec<u8>,
    offsets: Vec<U16>,
    size: usize,
    forward: u32,
    backward: u32,
    kind: i8,
    height: u8,
}

impl FilledNode {
    fn new(size: u16, kind: i8, height: u8) -> Self {
        let mut node = Self {
            bytes: Vec::new(),
            offsets: Vec::new(),
            size: size.into(),
            forward: 0,
            backward: 0,
            kind,
            height,
        };
        node.clear();
        node
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(FIRST_RECORD.into(), 0);
        self.offsets.clear();
        (self.forward, self.backward) = (0, 0);
    }

    /// Continues with nodes of the next level.
    fn raise(&mut self) {
        self.kind = node_kind::INDEX;
        self.height += 1;
    }

    fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    fn fits(&self, length: usize) -> bool {
        self.bytes.len() + even(length) + OFFSET_LEN * (self.offsets.len() + 2) <= self.size
    }

    fn push(&mut self, key: &[u8], data: &[u8]) {
        self.offsets.push(narrow::<u16>(self.bytes.len()).into());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(data);
        self.bytes.resize(even(self.bytes.len()), 0);
    }

    /// Returns the whole node in its on-disk form.
    fn finish(&mut self) -> &[u8] {
        let descriptor = NodeDescriptorRaw {
            forward_link: self.forward.into(),
            backward_link: self.backward.into(),
            kind: self.kind,
            height: self.height,
            record_count: narrow::<u16>(self.offsets.len()).into(),
            reserved: 0.into(),
        };
        self.bytes[..FIRST_RECORD.into()].copy_from_slice(descriptor.as_bytes());
        self.offsets.push(narrow::<u16>(self.bytes.len()).into());
        self.bytes
            .resize(self.size - OFFSET_LEN * self.offsets.len(), 0);
        self.offsets.reverse();
        self.bytes.extend_from_slice(self.offsets.as_bytes());
        &self.bytes
    }
}

fn header_node(header: &TreeHeaderRaw, first_map: u32, used: u32) -> Vec<u8> {
    let size = header.node_size.get();
    let mut node = FilledNode::new(size, node_kind::HEADER, 0);
    node.forward = first_map;
    node.push(header.as_bytes(), &[]);
    node.push(
        &[0; (HEADER_MAP_OFFSET - FIRST_RECORD) as usize - size_of::<TreeHeaderRaw>()],
        &[],
    );
    node.push(&map_bits(header_map_bits(size), 0, used), &[]);
    node.finish().to_vec()
}

/// Returns map node `number` of a tree whose first `used` nodes are used.
fn map_node(kind: &HeaderKind, number: u32, next: u32, used: u32) -> Vec<u8> {
    let bits = map_node_bits(kind.node_size);
    let first = header_map_bits(kind.node_size) + number * bits;
    let mut node = FilledNode::new(kind.node_size, node_kind::MAP, 0);
    node.forward = next;
    node.push(&map_bits(bits, first, used), &[]);
    node.finish().to_vec()
}

/// Returns the bits of nodes `first..first + count`, of which those below `used` are used.
fn map_bits(count: u32, first: u32, used: u32) -> Vec<u8> {
    let mut bytes = vec![0; count as usize / 8];
    super::bitmap::set_bits(
        &mut bytes,
        0..used.saturating_sub(first).min(count) as usize,
    );
    bytes
}
