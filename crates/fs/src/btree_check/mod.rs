//! Check of every rule for a B-tree of HFS or HFS+: header, levels, links, keys, map
//! (`docs/formats/hfsplus.md` §6, §17; `docs/formats/hfs.md` §4, §8).

mod map;
mod node_set;

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use zerocopy::FromBytes;

use self::node_set::NodeSet;
use crate::btree_node::{
    FIRST_RECORD, HEADER_MAP_OFFSET, MAX_DEPTH, TreeHeaderRaw, check_role, checked_descriptor,
    node_kind, record_offset,
};
use crate::check_report::Report;
use crate::extent_device::ExtentDevice;
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::problem::Severity;
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

/// Rules that apply only to some trees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Nodes must be contiguous on the volume (HFS+ with a journal).
    pub(crate) whole_nodes: bool,
    /// Unused nodes must be zero (HFS+).
    pub(crate) zeroed: bool,
}

/// A kind of tree: what its walk must know of the format.
pub(crate) trait TreeFormat: Copy {
    /// The keys of such a tree.
    type Keys: TreeKeys;
    /// Minimum and maximum size of a node in bytes, powers of two.
    const NODE_SIZES: RangeInclusive<u16>;
    /// Severity of wrong links between index nodes, which no reader follows.
    const INDEX_LINKS: Severity = Severity::Damage;
    /// Minimum and maximum length of a key in bytes, without its length field.
    fn key_lengths(self) -> (u16, u16);
    /// Returns the layer of findings.
    fn layer(self) -> &'static str;
    /// Returns the name of the stage of a check.
    fn stage(self) -> &'static str;
    /// Returns the faults of fields of the header that only this format has.
    fn header_faults(self, header: &TreeHeaderRaw) -> Vec<String>;
    /// Returns the rules for keys in a tree with this header.
    fn keys(self, header: &TreeHeaderRaw) -> Result<Self::Keys>;
}

/// The keys of a tree.
pub(crate) trait TreeKeys {
    /// Compares the keys at the beginning of two records; `None` if either is not a key.
    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering>;
    /// Returns the length of the key at the beginning of a record, without its length field; 0 if there
    /// is none.
    fn length(&self, record: &[u8]) -> u16;
    /// Returns the node that an index record points to.
    fn child_of(&self, record: &[u8]) -> Option<u32>;

    /// Returns the severity of a record that follows `before` and should not; `None` if it may.
    fn order_fault(&self, before: &[u8], record: &[u8]) -> Option<Severity> {
        (self.compare(before, record) != Some(Ordering::Less)).then_some(Severity::Damage)
    }

    /// Returns the length of keys in index nodes, if all of them have the same.
    fn index_length(&self) -> Option<u16> {
        None
    }

    /// Returns true if a leaf record is marked as deleted.
    fn is_deleted(&self, _record: &[u8]) -> bool {
        false
    }
}

/// A node whose record offsets are ascending and within it.
#[derive(Debug)]
struct WalkedNode {
    number: u32,
    /// Next node of the same level, 0 for none.
    next: u32,
    /// Previous node of the same level, 0 for none.
    previous: u32,
    kind: i8,
    height: u8,
    /// Number of records.
    records: u16,
    bytes: Vec<u8>,
}

impl WalkedNode {
    /// Parses a node; the error describes the defect.
    fn parse(number: u32, bytes: Vec<u8>) -> Result<Self, String> {
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

    /// Returns the first odd offset. Records have even lengths, and macOS refuses nodes in which one has
    /// not.
    fn odd_offset(&self) -> Option<usize> {
        (0..=self.records)
            .filter_map(|index| record_offset(&self.bytes, index))
            .find(|offset| !offset.is_multiple_of(2))
    }

    /// Returns a record, `None` past the last.
    fn record(&self, index: u16) -> Option<&[u8]> {
        if index >= self.records {
            return None;
        }
        let offset = |index| record_offset(&self.bytes, index);
        self.bytes.get(offset(index)?..offset(index + 1)?)
    }
}

/// Receiver of each leaf record in order, with the number of its node.
pub(crate) type EachRecord<'a> = dyn FnMut(&[u8], u32, &mut Report) -> Result<()> + 'a;

/// Checks the tree in `file` and passes its leaf records to `each`. Findings are added to `report`;
/// an error is a read error or one returned by `each`. Returns true if every node of the tree could
/// be walked.
pub(crate) fn walk_tree<F: TreeFormat>(
    file: &ExtentDevice,
    kind: F,
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

struct TreeWalk<'a, F: TreeFormat> {
    file: &'a ExtentDevice,
    kind: F,
    keys: F::Keys,
    rules: Rules,
    header: TreeHeaderRaw,
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

impl<'a, F: TreeFormat> TreeWalk<'a, F> {
    /// Checks the header node. `None` if the rest of the tree cannot be found with it.
    fn begin(
        file: &'a ExtentDevice,
        kind: F,
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
        let (least, most) = F::NODE_SIZES.into_inner();
        let is_possible = size.is_power_of_two() && (least..=most).contains(&size);
        if !is_possible || u64::from(size) > file.len() {
            let expected = match least == most {
                true => least.to_string(),
                false => format!("a power of two from {least} to {most}"),
            };
            report.damage(damage(format!(
                "invalid node size {size}: expected {expected}"
            )));
            return Ok(None);
        }
        let mut found = Vec::new();
        match WalkedNode::parse(0, file.read_vec(0, size.into())?) {
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
        found.extend(kind.header_faults(&header));
        let (_, expected) = kind.key_lengths();
        if header.max_key_length.get() != expected {
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
        let keys = match kind.keys(&header) {
            Ok(keys) => keys,
            Err(error) => {
                report.damage(error);
                return Ok(None);
            }
        };
        progress.stage(kind.stage(), nodes);
        Ok(Some(Self {
            file,
            kind,
            keys,
            rules: Rules {
                whole_nodes: false,
                zeroed: false,
            },
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
            .is_some_and(|first| self.keys.compare(first, key_of_first) != Some(Ordering::Equal))
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
            match self.keys.child_of(record) {
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
    fn fetch(
        &mut self,
        number: u32,
        height: u8,
        report: &mut Report,
    ) -> Result<Option<WalkedNode>> {
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
        let node = match WalkedNode::parse(number, bytes) {
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
        let found = (node.kind, node.height);
        if let Err(message) = check_role(found, (kind, height), node.records) {
            report.damage(self.wrong(number, message));
            return Ok(None);
        }
        Ok(Some(node))
    }

    /// Checks the links between neighbors in both directions.
    fn links(&mut self, node: &WalkedNode, height: u8, report: &mut Report) {
        let level = self.levels[usize::from(height)];
        let severity = link_severity::<F>(height);
        if let Some((before, next)) = level.before {
            if next != node.number {
                let message = format!(
                    "node {} follows in the index, but the next node is recorded as {next}",
                    node.number
                );
                report.push(severity, self.wrong(before, message));
            }
            if node.previous != before {
                let message = format!(
                    "follows node {before}, but the previous node is recorded as {}",
                    node.previous
                );
                report.push(severity, self.wrong(node.number, message));
            }
        } else if !level.incomplete && node.previous != 0 {
            let message = format!(
                "is the first of its level, but the previous node is recorded as {}",
                node.previous
            );
            report.push(severity, self.wrong(node.number, message));
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
        for (height, level) in (0_u8..).zip(&self.levels) {
            let Some((before, next)) = level.before.filter(|&(_, next)| next != 0) else {
                continue;
            };
            let message =
                format!("is the last of its level, but the next node is recorded as {next}");
            report.push(link_severity::<F>(height), self.wrong(before, message));
        }
    }

    /// Checks that the keys of a node ascend, follow `before`, and have valid lengths.
    fn ascends(&self, node: &WalkedNode, before: Option<&[u8]>, report: &mut Report) {
        let (mut least, mut most) = self.kind.key_lengths();
        if node.kind == node_kind::INDEX
            && let Some(length) = self.keys.index_length()
        {
            (least, most) = (length, length);
        }
        let mut last = before;
        for index in 0..node.records {
            let record = node.record(index).unwrap_or_default();
            if node.kind == node_kind::LEAF && self.keys.is_deleted(record) {
                let message = format!("record {index} is marked as deleted");
                report.note(self.wrong(node.number, message));
                continue;
            }
            let length = self.keys.length(record);
            if !(least..=most).contains(&length) {
                let expected = match least == most {
                    true => least.to_string(),
                    false => format!("{least} to {most}"),
                };
                let message =
                    format!("record {index} has a key of {length} bytes, expected {expected}");
                report.damage(self.wrong(node.number, message));
            }
            if let Some(severity) = last.and_then(|last| self.keys.order_fault(last, record)) {
                let message = format!(
                    "the records are out of order: record {index} does not sort after the record \
                     before it"
                );
                report.push(severity, self.wrong(node.number, message));
            }
            last = Some(record);
        }
    }

    fn leaf(
        &mut self,
        node: &WalkedNode,
        report: &mut Report,
        each: &mut EachRecord<'_>,
    ) -> Result<()> {
        self.ascends(node, self.last_key.as_deref(), report);
        self.leaf_records += u64::from(node.records);
        let records = (0..node.records).filter_map(|index| node.record(index));
        let mut last = None;
        for record in records.filter(|record| !self.keys.is_deleted(record)) {
            each(record, node.number, report)?;
            last = Some(record);
        }
        if let Some(last) = last {
            self.last_key = Some(last.to_vec());
        }
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

/// Returns the severity of a wrong link between nodes of a height.
fn link_severity<F: TreeFormat>(height: u8) -> Severity {
    match height {
        0 | 1 => Severity::Damage,
        _ => F::INDEX_LINKS,
    }
}

/// Returns a description of the first error in the records of a header node.
fn header_node_faults(node: &WalkedNode, size: u16) -> Option<String> {
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
