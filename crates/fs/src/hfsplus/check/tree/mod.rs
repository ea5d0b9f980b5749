//! Check of every rule for a B-tree: header, levels, links, keys, map (§6, §17).

mod map;
mod node_set;

use std::cmp::Ordering;

use zerocopy::FromBytes;

use self::node_set::NodeSet;
use super::report::Report;
use crate::hfsplus::btree::{KeyOrder, Node, TreeKind, child_of};
use crate::hfsplus::extents::ForkDevice;
use crate::hfsplus::layout::{
    ATTRIBUTES_MAX_KEY_LENGTH, ATTRIBUTES_MIN_KEY_LENGTH, BIG_KEYS, CATALOG_MAX_KEY_LENGTH,
    CATALOG_MIN_KEY_LENGTH, EXTENTS_KEY_LENGTH, FIRST_RECORD, HEADER_MAP_OFFSET, MAX_DEPTH,
    NODE_SIZES, TreeHeaderRaw, VARIABLE_INDEX_KEYS, node_kind,
};
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

/// Rules that apply only to some trees.
#[derive(Debug, Clone, Copy)]
pub(in crate::hfsplus) struct Rules {
    /// Nodes must be contiguous on the volume (journaled volumes, §6.7).
    pub(in crate::hfsplus) whole_nodes: bool,
    /// Unused nodes must be zero (§17).
    pub(in crate::hfsplus) zeroed: bool,
}

/// Receiver of each leaf record in order, with the number of its node.
pub(in crate::hfsplus) type EachRecord<'a> = dyn FnMut(&[u8], u32, &mut Report) -> Result<()> + 'a;

/// Checks the tree in `file` and passes its leaf records to `each`. Findings are added to `report`;
/// an error is a read error or one returned by `each`. Returns true if every node of the tree could
/// be walked.
pub(in crate::hfsplus) fn walk_tree(
    file: &ForkDevice,
    kind: TreeKind,
    rules: Rules,
    report: &mut Report,
    progress: &dyn Progress,
    each: &mut EachRecord<'_>,
) -> Result<bool> {
    let Some(mut walk) = TreeWalk::begin(file, kind, report, progress)? else {
        return Ok(false);
    };
    walk.rules = rules;
    if walk.header.tree_depth.get() > 0 {
        let (root, depth) = (walk.header.root_node.get(), walk.header.tree_depth.get());
        walk.visit(
            root,
            u8::try_from(depth).unwrap_or(u8::MAX),
            None,
            report,
            each,
        )?;
        walk.ends(report);
    }
    walk.totals(report);
    walk.map(report)?;
    Ok(!walk.incomplete)
}

/// State of the walk at one level of the tree.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    /// Previous node of the level, and its forward link; `None` at first and after a node that
    /// could not be read.
    before: Option<(u32, u32)>,
    /// True if a node of this level could not be read, so its neighbors cannot be compared with it.
    incomplete: bool,
}

struct TreeWalk<'a> {
    file: &'a ForkDevice,
    kind: TreeKind,
    order: KeyOrder,
    rules: Rules,
    header: TreeHeaderRaw,
    /// Size of the key field in index nodes, if all have the same.
    index_key: Option<u16>,
    progress: &'a dyn Progress,
    reached: NodeSet,
    levels: [Level; MAX_DEPTH as usize + 1],
    first_leaf: u32,
    last_leaf: u32,
    last_key: Option<Vec<u8>>,
    leaf_records: u64,
    /// True if a part of the tree could not be walked, so totals cannot be compared.
    incomplete: bool,
}

impl<'a> TreeWalk<'a> {
    /// Checks the header node. `None` if the rest of the tree cannot be found with it.
    fn begin(
        file: &'a ForkDevice,
        kind: TreeKind,
        report: &mut Report,
        progress: &'a dyn Progress,
    ) -> Result<Option<Self>> {
        let damage = |message: String| {
            Error::corrupt(
                kind.layer(),
                file.volume_offset(0),
                format!("header node: {message}"),
            )
        };
        let head_len = u64::from(FIRST_RECORD) + size_of::<TreeHeaderRaw>() as u64;
        if file.len() < head_len {
            report.damage(damage(format!(
                "expected {head_len} bytes, found a file of {}",
                file.len()
            )));
            return Ok(None);
        }
        let head = file.read_vec(0, to_usize(head_len))?;
        let Ok((header, _)) = TreeHeaderRaw::read_from_prefix(&head[usize::from(FIRST_RECORD)..])
        else {
            return Ok(None);
        };
        let size = header.node_size.get();
        if !size.is_power_of_two() || !NODE_SIZES.contains(&size) || u64::from(size) > file.len() {
            report.damage(damage(format!(
                "invalid node size {size}: expected a power of two from 512 to 32768"
            )));
            return Ok(None);
        }
        let mut found = Vec::new();
        match Node::parse(0, file.read_vec(0, size.into())?.into()) {
            Err(message) => found.push(message),
            Ok(node) => {
                found.extend(header_node_faults(&node, size));
                found.extend(node.odd_offset().map(|offset| {
                    format!("offset {offset} of a record is odd, expected even offsets only")
                }));
            }
        }
        let total = header.total_nodes.get();
        let nodes = file.len() / u64::from(size);
        if !file.len().is_multiple_of(size.into()) || nodes != u64::from(total) {
            found.push(format!(
                "{total} nodes of {size} bytes exceed the file of {} bytes",
                file.len()
            ));
        }
        let attributes = header.attributes.get();
        if attributes & BIG_KEYS == 0 {
            found.push(format!(
                "the tree's attributes {attributes:#x} lack the flag of 16-bit key lengths"
            ));
        }
        if header.tree_type != 0 && kind != TreeKind::Attributes {
            found.push(format!("expected tree type 0, found {}", header.tree_type));
        }
        if header.max_key_length.get() != key_lengths(kind).1 {
            let expected = key_lengths(kind).1;
            found.push(format!(
                "the header records {} bytes for the longest key, expected {expected}",
                header.max_key_length
            ));
        }
        found
            .drain(..)
            .for_each(|message| report.damage(damage(message)));
        let (depth, root) = (header.tree_depth.get(), header.root_node.get());
        if depth > MAX_DEPTH || (depth == 0) != (root == 0) || u64::from(root) >= nodes.max(1) {
            report.damage(damage(format!(
                "invalid root: node {root} of {nodes} in a tree of depth {depth}"
            )));
            return Ok(None);
        }
        let order = match kind.order(&header) {
            Ok(order) => order,
            Err(error) => {
                report.damage(error);
                return Ok(None);
            }
        };
        progress.stage(kind.stage(), nodes);
        Ok(Some(Self {
            file,
            kind,
            order,
            rules: Rules {
                whole_nodes: false,
                zeroed: false,
            },
            index_key: (attributes & VARIABLE_INDEX_KEYS == 0).then(|| header.max_key_length.get()),
            header,
            progress,
            reached: NodeSet::default(),
            levels: Default::default(),
            first_leaf: 0,
            last_leaf: 0,
            last_key: None,
            leaf_records: 0,
            incomplete: false,
        }))
    }

    fn nodes(&self) -> u64 {
        self.file.len() / u64::from(self.header.node_size.get())
    }

    fn at(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.header.node_size.get())
    }

    fn wrong(&self, number: u32, message: impl std::fmt::Display) -> Error {
        Error::corrupt(
            self.kind.layer(),
            self.file.volume_offset(self.at(number)),
            format!("node {number}: {message}"),
        )
    }

    /// Records that a subtree could not be walked.
    fn tear(&mut self, height: u8) {
        self.incomplete = true;
        // The walk goes on behind the subtree, whose last nodes it does not know.
        for level in &mut self.levels[..=usize::from(height).min(MAX_DEPTH.into())] {
            *level = Level {
                before: None,
                incomplete: true,
            };
        }
    }

    /// Checks the subtree at node `number`; `first` is its key in the parent. Descends at most
    /// [`MAX_DEPTH`] levels, and visits no node twice.
    fn visit(
        &mut self,
        number: u32,
        height: u8,
        first: Option<&[u8]>,
        report: &mut Report,
        each: &mut EachRecord<'_>,
    ) -> Result<()> {
        self.progress.check()?;
        let Some(node) = self.fetch(number, height, report)? else {
            self.tear(height);
            return Ok(());
        };
        self.progress.advance(1);
        self.links(&node, height, report);
        let key_of_first = node.record(0).unwrap_or_default();
        if first
            .is_some_and(|first| self.order.compare(first, key_of_first) != Some(Ordering::Equal))
        {
            report.damage(self.wrong(
                number,
                "its first key differs from its key in the parent node",
            ));
        }
        if height == 1 {
            return self.leaf(&node, report, each);
        }
        self.ascends(&node, None, report);
        for index in 0..node.records {
            let record = node.record(index).unwrap_or_default();
            match child_of(record, self.index_key) {
                Some(child) => self.visit(child, height - 1, Some(record), report, each)?,
                None => {
                    report.damage(self.wrong(
                        number,
                        format!("record {index} of the index node has no valid node number"),
                    ));
                    self.tear(height - 1);
                }
            }
        }
        Ok(())
    }

    /// Reads a node; `None` if it is invalid or was visited before.
    fn fetch(&mut self, number: u32, height: u8, report: &mut Report) -> Result<Option<Node>> {
        if number == 0 || u64::from(number) >= self.nodes() {
            let message = format!(
                "the tree points to node {number}, expected 1 to {}",
                self.nodes().saturating_sub(1)
            );
            report.damage(Error::new(Kind::Corrupt, self.kind.layer(), message));
            return Ok(None);
        }
        if !self.reached.insert(number) {
            report.damage(self.wrong(number, "the tree refers to this node twice"));
            return Ok(None);
        }
        let size = self.header.node_size.get();
        if self.rules.whole_nodes && self.file.volume_run(self.at(number)) < size.into() {
            report.damage(self.wrong(
                number,
                "the node is in two extents, expected one on a journaled volume",
            ));
        }
        let bytes = self.file.read_vec(self.at(number), size.into())?;
        let node = match Node::parse(number, bytes.into()) {
            Ok(node) => node,
            Err(message) => {
                report.damage(self.wrong(number, message));
                return Ok(None);
            }
        };
        if let Some(offset) = node.odd_offset() {
            report.damage(self.wrong(
                number,
                format!("offset {offset} of a record is odd, expected even offsets only"),
            ));
        }
        let kind = if height == 1 {
            node_kind::LEAF
        } else {
            node_kind::INDEX
        };
        if (node.kind, node.height) != (kind, height) {
            let message = format!(
                "expected a node of kind {kind} and height {height}, found kind {} and height {}",
                node.kind, node.height
            );
            report.damage(self.wrong(number, message));
            return Ok(None);
        }
        if node.records == 0 {
            report.damage(self.wrong(number, "the node is in use, but has no records"));
            return Ok(None);
        }
        Ok(Some(node))
    }

    /// Checks the links between neighbors in both directions.
    fn links(&mut self, node: &Node, height: u8, report: &mut Report) {
        let level = self.levels[usize::from(height)];
        if let Some((before, next)) = level.before {
            if next != node.number {
                report.damage(self.wrong(
                    before,
                    format!(
                        "node {} follows in the index, but the next node is recorded as {next}",
                        node.number
                    ),
                ));
            }
            if node.previous != before {
                report.damage(self.wrong(
                    node.number,
                    format!(
                        "follows node {before}, but the previous node is recorded as {}",
                        node.previous
                    ),
                ));
            }
        } else if !level.incomplete && node.previous != 0 {
            report.damage(self.wrong(
                node.number,
                format!(
                    "is the first of its level, but the previous node is recorded as {}",
                    node.previous
                ),
            ));
        }
        self.levels[usize::from(height)] = Level {
            before: Some((node.number, node.next)),
            incomplete: false,
        };
        if height == 1 {
            self.last_leaf = node.number;
            if self.first_leaf == 0 {
                self.first_leaf = node.number;
            }
        }
    }

    /// Checks that the last node of each level has no forward link.
    fn ends(&self, report: &mut Report) {
        for (before, next) in self
            .levels
            .iter()
            .filter_map(|level| level.before)
            .filter(|&(_, next)| next != 0)
        {
            report.damage(self.wrong(
                before,
                format!("is the last of its level, but the next node is recorded as {next}"),
            ));
        }
    }

    /// Checks that the keys of a node ascend, follow `before`, and have valid lengths.
    fn ascends(&self, node: &Node, before: Option<&[u8]>, report: &mut Report) {
        let (least, most) = key_lengths(self.kind);
        let mut last = before;
        for index in 0..node.records {
            let record = node.record(index).unwrap_or_default();
            let length = record
                .get(..2)
                .map_or(0, |head| u16::from_be_bytes([head[0], head[1]]));
            if !(least..=most).contains(&length) {
                let message = format!(
                    "record {index} has a key of {length} bytes, expected {least} to {most}"
                );
                report.damage(self.wrong(node.number, message));
            }
            if last.is_some_and(|last| self.order.compare(last, record) != Some(Ordering::Less)) {
                report.damage(self.wrong(
                    node.number,
                    format!(
                        "the records are out of order: record {index} does not sort after the \
                         record before it"
                    ),
                ));
            }
            last = Some(record);
        }
    }

    fn leaf(&mut self, node: &Node, report: &mut Report, each: &mut EachRecord<'_>) -> Result<()> {
        self.ascends(node, self.last_key.as_deref(), report);
        self.leaf_records += u64::from(node.records);
        for record in (0..node.records).filter_map(|index| node.record(index)) {
            each(record, node.number, report)?;
        }
        self.last_key = node.record(node.records - 1).map(<[u8]>::to_vec);
        Ok(())
    }

    /// Compares the leaf counts and leaf numbers of the header with the walk.
    fn totals(&self, report: &mut Report) {
        // Every number would differ, and hide the damage that is the cause.
        if self.incomplete {
            return;
        }
        let header = &self.header;
        let claims = [
            (
                "first leaf",
                u64::from(header.first_leaf_node.get()),
                u64::from(self.first_leaf),
            ),
            (
                "last leaf",
                header.last_leaf_node.get().into(),
                self.last_leaf.into(),
            ),
            (
                "leaf records",
                header.leaf_records.get().into(),
                self.leaf_records,
            ),
        ];
        for (what, claimed, found) in claims
            .into_iter()
            .filter(|(_, claimed, found)| claimed != found)
        {
            report.damage(self.wrong(
                0,
                format!("{what}: the header records {claimed}, but the tree has {found}"),
            ));
        }
    }
}

/// Returns a description of the first error in the records of a header node.
fn header_node_faults(node: &Node, size: u16) -> Option<String> {
    if (node.kind, node.height) != (node_kind::HEADER, 0) {
        return Some(format!(
            "expected a node of kind 1 and height 0, found kind {} and height {}",
            node.kind, node.height
        ));
    }
    let map_len = usize::from(size) - usize::from(HEADER_MAP_OFFSET) - 8;
    let expected = [size_of::<TreeHeaderRaw>(), 128, map_len];
    let lengths: Vec<usize> = (0..node.records)
        .filter_map(|index| node.record(index))
        .map(<[u8]>::len)
        .collect();
    (lengths != expected)
        .then(|| format!("the header node has records of {lengths:?} bytes, expected {expected:?}"))
}

/// Returns the minimum and maximum key length of a tree.
fn key_lengths(kind: TreeKind) -> (u16, u16) {
    match kind {
        TreeKind::Extents => (EXTENTS_KEY_LENGTH, EXTENTS_KEY_LENGTH),
        TreeKind::Catalog(_) => (CATALOG_MIN_KEY_LENGTH, CATALOG_MAX_KEY_LENGTH),
        TreeKind::Attributes => (ATTRIBUTES_MIN_KEY_LENGTH, ATTRIBUTES_MAX_KEY_LENGTH),
    }
}
