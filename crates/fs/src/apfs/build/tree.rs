//! B-trees built from sorted records, bottom up: leaves are filled one after another, then each
//! level above them, up to the root.
//!
//! The nodes of a tree are contiguous: leaves, index levels, and the root last. [`Shape`] counts
//! the nodes before the container is laid out, [`Writer`] writes them; both are fed the same
//! records. Every node reserves the space of the tree information at the end of a root, so that a
//! node that is alone on its level can be the root.

use super::node::{CHILD_LEN, Node, TreeKind};
use crate::apfs::layout::{ObjectRaw, Oid, Paddr, TreeInfoRaw, Xid, object_type};
use crate::build::output::Output;
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

/// The shape of a tree with certain records.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    kind: TreeKind,
    leaf: bool,
    /// Number of nodes of all finished levels.
    nodes: u64,
    /// Lengths of the first keys of the nodes of the level that is being filled.
    first_keys: Vec<u16>,
    count: usize,
    bytes: usize,
}

impl Shape {
    /// Returns the shape of a tree without records.
    pub(super) fn new(kind: TreeKind) -> Self {
        Self {
            kind,
            leaf: true,
            nodes: 0,
            first_keys: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }

    /// Adds a record, whose key is after all before.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.add_lengths(key.len(), value.len());
    }

    fn add_lengths(&mut self, key: usize, value: usize) {
        let taken = key + value;
        if self.count == 0
            || !self
                .kind
                .fits(self.count + 1, self.bytes + taken, self.leaf)
        {
            self.first_keys.push(narrow(key)); // a key is shorter than a node
            (self.count, self.bytes) = (0, 0);
        }
        self.count += 1;
        self.bytes += taken;
    }

    /// Returns the number of nodes that the records added so far need, including the root.
    pub(super) fn nodes(mut self) -> u64 {
        while self.first_keys.len() > 1 {
            let keys = std::mem::take(&mut self.first_keys);
            self.nodes += keys.len() as u64;
            self.leaf = false;
            self.count = 0;
            keys.into_iter()
                .for_each(|key| self.add_lengths(key.into(), CHILD_LEN));
        }
        self.nodes + 1
    }
}

/// The location of a tree and the numbers of its nodes.
#[derive(Debug, Clone, Copy)]
pub(in crate::apfs) struct TreePlace {
    /// First block; ignored for an ephemeral tree, whose nodes are elsewhere.
    pub(in crate::apfs) base: Paddr,
    /// The root's number, and the first number of the other nodes, of a tree whose nodes are not
    /// physical.
    pub(in crate::apfs) oids: Option<(Oid, Oid)>,
    pub(in crate::apfs) xid: Xid,
}

/// A writer for a tree, to which records are added in the order of their keys.
#[derive(Debug)]
pub(in crate::apfs) struct Writer<'a> {
    kind: TreeKind,
    place: TreePlace,
    out: Output<'a>,
    node: Node,
    /// Number of nodes written.
    written: u64,
    /// First keys of the nodes of this level, concatenated; `key_ends` has their ends.
    first_keys: Vec<u8>,
    key_ends: Vec<usize>,
    info: Longest,
}

/// Maximum lengths and the count of all records, which the root contains.
#[derive(Debug, Default)]
struct Longest {
    key: usize,
    value: usize,
    count: u64,
}

impl<'a> Writer<'a> {
    /// Returns a writer whose first node goes to the position of `out`.
    pub(in crate::apfs) fn new(kind: TreeKind, place: TreePlace, out: Output<'a>) -> Self {
        let (node, info) = (Node::default(), Longest::default());
        Self {
            kind,
            place,
            out,
            node,
            written: 0,
            first_keys: Vec::new(),
            key_ends: Vec::new(),
            info,
        }
    }

    pub(in crate::apfs) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.info.key = self.info.key.max(key.len());
        self.info.value = self.info.value.max(value.len());
        self.info.count += 1;
        self.insert(key, value)
    }

    fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if !self.node.is_empty() && !self.node.has_room(&self.kind, key.len() + value.len()) {
            self.close()?;
        }
        if self.node.is_empty() {
            self.first_keys.extend_from_slice(key);
            self.key_ends.push(self.first_keys.len());
        }
        self.node.push(key, value);
        Ok(())
    }

    /// Writes the current node, which is not the root, and begins the next one.
    fn close(&mut self) -> Result<()> {
        let head = self.head(object_type::BTREE_NODE, self.oid(self.written));
        self.out.append(&self.node.finish(&self.kind, head, None))?;
        self.node.clear();
        self.written += 1;
        Ok(())
    }

    fn head(&self, kind: u32, oid: Oid) -> ObjectRaw {
        ObjectRaw::new(
            oid,
            self.place.xid,
            kind | self.kind.storage,
            self.kind.subtype,
        )
    }

    /// Returns the object number of node `number`, which is not the root.
    fn oid(&self, number: u64) -> Oid {
        Oid(self
            .place
            .oids
            .map_or(self.place.base.0, |(_, first)| first.0)
            + number)
    }

    /// Closes the leaves and writes the levels above them. Returns the root's object number and the
    /// number of nodes.
    pub(in crate::apfs) fn finish(mut self) -> Result<(Oid, u64)> {
        while self.key_ends.len() > 1 {
            self.close()?;
            self.raise()?;
        }
        let root = self
            .place
            .oids
            .map_or(Oid(self.place.base.0 + self.written), |(root, _)| root);
        let nodes = self.written + 1;
        let (key_size, value_size) = self.kind.fixed.unwrap_or((0, 0));
        // The root of a free queue contains the maximum lengths that are possible, not those that
        // occur.
        let queue =
            Some((key_size, value_size)).filter(|_| self.kind.subtype == object_type::FREE_QUEUE);
        let (longest_key, longest_value) = queue.unwrap_or((self.info.key, self.info.value));
        // Lengths within a node fit any field.
        let info = TreeInfoRaw {
            flags: self.kind.flags.into(),
            node_size: self.kind.block_size.get().into(),
            key_size: narrow::<u32>(key_size).into(),
            value_size: narrow::<u32>(value_size).into(),
            longest_key: narrow::<u32>(longest_key).into(),
            longest_value: narrow::<u32>(longest_value).into(),
            key_count: self.info.count.into(),
            node_count: nodes.into(),
        };
        let head = self.head(object_type::BTREE_ROOT, root);
        self.out
            .append(&self.node.finish(&self.kind, head, Some(info)))?;
        self.out.flush()?;
        Ok((root, nodes))
    }

    /// Fills the level above the one just closed.
    fn raise(&mut self) -> Result<()> {
        let keys = std::mem::take(&mut self.first_keys);
        let ends = std::mem::take(&mut self.key_ends);
        self.node.level += 1;
        let first_child = self.written - ends.len() as u64;
        let mut start = 0;
        for (child, end) in (first_child..).zip(ends) {
            let child = self.oid(child);
            self.insert(&keys[start..end], &child.0.to_le_bytes())?;
            start = end;
        }
        Ok(())
    }
}

/// Returns a root without records, as an object of its own.
pub(in crate::apfs) fn empty_root(kind: TreeKind, oid: Oid, xid: Xid) -> Vec<u8> {
    let (key_size, value_size) = kind.fixed.unwrap_or((0, 0));
    let fixed_len = |len: usize| {
        if kind.subtype == object_type::FREE_QUEUE {
            narrow::<u32>(len)
        } else {
            0
        }
    };
    let info = TreeInfoRaw {
        flags: kind.flags.into(),
        node_size: kind.block_size.get().into(),
        key_size: narrow::<u32>(key_size).into(),
        value_size: narrow::<u32>(value_size).into(),
        longest_key: fixed_len(key_size).into(),
        longest_value: fixed_len(value_size).into(),
        key_count: 0.into(),
        node_count: 1.into(),
    };
    let head = ObjectRaw::new(
        oid,
        xid,
        object_type::BTREE_ROOT | kind.storage,
        kind.subtype,
    );
    Node::default().finish(&kind, head, Some(info))
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::apfs::layout::{BlockSize, OmapKeyRaw, verify};
    use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};

    const PLACE: TreePlace = TreePlace {
        base: Paddr(3),
        oids: None,
        xid: Xid(1),
    };

    fn written(kind: TreeKind, records: &[(Vec<u8>, Vec<u8>)]) -> (Memory, u64, u64) {
        let device = Memory::zeros(8 << 20);
        let mut shape = Shape::new(kind);
        let mut writer = Writer::new(kind, PLACE, Output::new(&device, 3 * 4096));
        for (key, value) in records {
            shape.add(key, value);
            writer.add(key, value).unwrap();
        }
        let (root, nodes) = writer.finish().unwrap();
        assert_eq!(nodes, shape.nodes());
        (device, root.0, nodes)
    }

    #[test]
    fn counted_records_are_written() {
        for count in [0, 1, 20, 111, 112, 5000] {
            let record = |n: u64| {
                let key = OmapKeyRaw {
                    oid: n.into(),
                    xid: 1.into(),
                };
                (key.as_bytes().to_vec(), vec![n as u8; 16])
            };
            let records: Vec<_> = (0..count).map(record).collect();
            let (device, root, nodes) = written(TreeKind::omap(BlockSize::DEFAULT), &records);
            assert_eq!(root, 3 + nodes - 1);
            assert_eq!(
                nodes,
                [1, 1, 1, 1, 3, 47][[0, 1, 20, 111, 112, 5000]
                    .iter()
                    .position(|n| *n == count)
                    .unwrap()]
            );
            for block in 3..3 + nodes {
                assert!(
                    verify(&device.read_vec(block * 4096, 4096).unwrap()),
                    "node {block} of {nodes}"
                );
            }
            assert!(
                device
                    .read_vec((3 + nodes) * 4096, 4096)
                    .unwrap()
                    .iter()
                    .all(|byte| *byte == 0)
            );
            assert_eq!(device.info().len, 8 << 20);
        }
    }

    #[test]
    fn the_longest_record_fits_a_root() {
        let kind = TreeKind::files(BlockSize::DEFAULT, false);
        let most = TreeKind::longest_record(BlockSize::DEFAULT);
        let (_, _, nodes) = written(kind, &[(vec![1; 30], vec![2; most - 30])]);
        assert_eq!(nodes, 1);
        let records: Vec<_> = (0..900_u32)
            .map(|n| {
                (
                    n.to_be_bytes().to_vec(),
                    vec![7; (n as usize * 37) % (most - 4)],
                )
            })
            .collect();
        assert!(written(kind, &records).2 > 400);
    }
}
