//! Traversal of a tree: every node once, every rule of §5, and every record of the leaves in order.

mod node_space;
mod sources;

use std::cmp::Ordering;
use std::collections::HashSet;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

pub(super) use self::sources::{Ephemeral, Nodes, Physical, Virtual};
use super::report::Report;
use crate::apfs::btree::{Key, Node, TreeKind};
use crate::apfs::layout::{
    MAX_LEVELS, NodeRaw, ObjectRaw, Oid, Paddr, TreeInfoRaw, Xid, node_flags, object_type, storage,
    tree_flags,
};
use crate::apfs::store::{Expected, Store};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Result};

/// A record of a leaf and its location.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf<'n> {
    pub(super) key: Key<'n>,
    pub(super) value: &'n [u8],
    /// True if it was checked before, as a part of another state of the volume.
    pub(super) known: bool,
    node: (Oid, Paddr),
    at: u64,
    layer: &'static str,
}

impl Leaf<'_> {
    /// Returns an error about the record.
    pub(super) fn wrong(&self, message: impl std::fmt::Display) -> Error {
        let (oid, paddr) = self.node;
        Error::corrupt(
            self.layer,
            self.at,
            format!("object {oid:#x} in block {paddr}: {message}"),
        )
    }
}

/// The parameters of a traversal.
pub(super) struct TreeWalk<'a> {
    pub(super) store: &'a Store,
    pub(super) kind: TreeKind,
    /// Upper limit for the transaction of a node.
    pub(super) newest: Xid,
    pub(super) progress: &'a dyn Progress,
}

/// Totals of a tree.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) nodes: u64,
    pub(super) records: u64,
    longest_key: usize,
    longest_value: usize,
}

impl TreeWalk<'_> {
    /// Traverses the tree with this root. Returns `None` if its root cannot be read, which has been
    /// reported.
    pub(super) fn run(
        &self,
        root: Oid,
        nodes: &mut dyn Nodes,
        report: &mut Report<'_>,
        each: &mut dyn FnMut(&Leaf<'_>, &mut Report<'_>) -> Result<()>,
    ) -> Result<Option<Totals>> {
        let mut walker = Walker {
            walk: self,
            root,
            nodes,
            report,
            each,
            seen: HashSet::new(),
            last: Vec::new(),
            totals: Totals::default(),
        };
        let Some(info) = walker.enter(root, None)? else {
            return Ok(None);
        };
        let totals = walker.totals;
        if let Some((info, place)) = info {
            self.check_info(root, place, &info, &totals, report);
        }
        Ok(Some(totals))
    }

    fn wrong(&self, oid: Oid, paddr: Paddr, message: impl std::fmt::Display) -> Error {
        self.store.corrupt(self.kind.layer(), oid, paddr, message)
    }

    /// Compares the tree information of the root with the totals (§5.2).
    fn check_info(
        &self,
        root: Oid,
        place: Paddr,
        info: &TreeInfoRaw,
        found: &Totals,
        report: &mut Report<'_>,
    ) {
        let wrong = |message: String| self.wrong(root, place, message);
        let counts = [
            ("keys", info.key_count.get(), found.records),
            ("nodes", info.node_count.get(), found.nodes),
        ];
        for (what, recorded, found) in counts {
            if recorded != found {
                report.damage(wrong(format!(
                    "the tree records {recorded} {what}, but has {found}"
                )));
            }
        }
        let longest = [
            ("key", info.longest_key.get(), found.longest_key),
            ("value", info.longest_value.get(), found.longest_value),
        ];
        for (what, recorded, found) in longest {
            if (recorded as usize) < found {
                report.warning(wrong(format!(
                    "the tree records {recorded} bytes for the longest {what}, but one has {found}"
                )));
            }
        }
        let (key, value) = self
            .kind
            .sizes()
            .map_or((0, 0), |sizes| (sizes.key, sizes.value));
        if (info.key_size.get() as usize, info.value_size.get() as usize) != (key, value) {
            let found = (info.key_size.get(), info.value_size.get());
            let message = format!(
                "expected keys of {key} and values of {value} bytes, found {} and {}",
                found.0, found.1
            );
            report.warning(wrong(message));
        }
        // Hashes and missing headers are specific to sealed volumes; the other flags follow from
        // the kind of the tree.
        let sealed = match self.kind {
            TreeKind::Files { .. } | TreeKind::Fext => tree_flags::HASHED | tree_flags::NO_HEADER,
            _ => 0,
        };
        let free = tree_flags::SEQUENTIAL_INSERT | sealed;
        let (flags, expected) = (info.flags.get(), self.kind.tree_flags());
        if flags & !free != expected {
            report.warning(wrong(format!(
                "the tree's flags are {flags:#x}, expected {expected:#x}"
            )));
        }
    }
}

/// The properties of a parent that a node must agree with.
struct Parent {
    level: u16,
    xid: Xid,
    key: Vec<u8>,
}

struct Walker<'a, 'r> {
    walk: &'a TreeWalk<'a>,
    root: Oid,
    nodes: &'a mut dyn Nodes,
    report: &'a mut Report<'r>,
    each: &'a mut dyn FnMut(&Leaf<'_>, &mut Report<'_>) -> Result<()>,
    /// Blocks of nodes that were visited.
    seen: HashSet<u64>,
    /// The previous key.
    last: Vec<u8>,
    totals: Totals,
}

type TreeInfo = Option<(TreeInfoRaw, Paddr)>;

impl Walker<'_, '_> {
    /// Traverses a node and all nodes below it. Returns `None` if it cannot be read; for a root,
    /// returns its tree information.
    fn enter(&mut self, oid: Oid, parent: Option<&Parent>) -> Result<Option<TreeInfo>> {
        self.walk.progress.check()?;
        self.walk.progress.advance(1);
        let TreeWalk { store, kind, .. } = *self.walk;
        let found = self.nodes.find(store, oid);
        let Some(found) = self
            .report
            .value_or_damage(found.map_err(|error| named(error, kind.layer())))?
        else {
            return Ok(None);
        };
        let paddr = found.paddr;
        if !self.seen.insert(paddr.0) {
            self.report.damage(
                self.walk
                    .wrong(oid, paddr, "the tree points to this node twice"),
            );
            return Ok(None);
        }
        self.totals.nodes += 1;
        self.nodes.claim(paddr);
        let mut xid = found.xid.unwrap_or(self.walk.newest);
        let known = found.known;
        if found.has_header && !known {
            let expected = Expected {
                oid,
                kind: object_type::BTREE_NODE,
                subtype: kind.subtype(),
            };
            let header = store.check(kind.layer(), &found.bytes, paddr, &expected);
            let Some(header) = self.report.value_or_damage(header)? else {
                return Ok(None);
            };
            self.check_header(oid, paddr, &header, found.xid, parent);
            xid = header.xid.into();
        }
        let node = match Node::parse(oid, paddr, found.bytes, kind.sizes()) {
            Ok(node) => node,
            Err(message) => {
                self.report.damage(self.walk.wrong(oid, paddr, message));
                return Ok(None);
            }
        };
        if !self.fits(&node, parent) {
            return Ok(None);
        }
        // Hashes and missing headers are specific to sealed volumes.
        let sealed = if found.has_header {
            0
        } else {
            node_flags::HASHED | node_flags::NO_HEADER
        };
        if node.flags & !(node_flags::ROOT | node_flags::LEAF | node_flags::FIXED | sealed) != 0 {
            let message = format!(
                "its flags are {:#x}, of which some are unexpected for a node of this tree",
                node.flags
            );
            self.report.warning(self.walk.wrong(oid, paddr, message));
        }
        if !known && let Err(message) = node_space::check(&node) {
            self.report.damage(self.walk.wrong(oid, paddr, message));
        }
        if node.level == 0 {
            self.leaf(&node, known, parent)?
        } else {
            self.inner(&node, xid, parent)?
        }
        let info = if parent.is_none() {
            TreeInfoRaw::read_from_suffix(&node.bytes).ok()
        } else {
            None
        };
        Ok(Some(info.map(|(_, info)| (info, paddr))))
    }

    fn check_header(
        &mut self,
        oid: Oid,
        paddr: Paddr,
        header: &ObjectRaw,
        recorded: Option<Xid>,
        parent: Option<&Parent>,
    ) {
        let mut wrong = |message: String| self.report.damage(self.walk.wrong(oid, paddr, message));
        let root = header.object_type() == object_type::BTREE_ROOT;
        if root != parent.is_none() {
            wrong(format!(
                "type {:#x} does not fit a node that is {} root of its tree",
                header.object_type(),
                if root { "no" } else { "the" }
            ));
        }
        let (stored, expected) = (header.kind.get() & storage::MASK, self.nodes.storage());
        if stored != expected {
            wrong(format!("is stored as {stored:#x}, expected {expected:#x}"));
        }
        if header.has_odd_flags(matches!(self.walk.kind, TreeKind::Files { .. })) {
            wrong(format!(
                "type {:#x} has storage flags that do not fit its tree",
                header.kind
            ));
        }
        let xid = header.xid.get();
        match recorded {
            Some(recorded) if xid != recorded.0 => wrong(format!(
                "the object map records transaction {recorded}, but the node has {xid}"
            )),
            _ if xid == 0 || xid > self.walk.newest.0 => {
                wrong(format!(
                    "the transaction number {xid} is too large: expected at most {}",
                    self.walk.newest
                ));
            }
            // Moving a physical node rewrites its parent, so a node is never newer than its parent.
            _ if expected == storage::PHYSICAL
                && parent.is_some_and(|parent| xid > parent.xid.0) =>
            {
                wrong(format!(
                    "transaction {xid} is newer than that of the parent node"
                ));
            }
            _ => {}
        }
    }

    /// Returns true if a node agrees with its parent; otherwise the nodes below it cannot be
    /// trusted.
    fn fits(&mut self, node: &Node, parent: Option<&Parent>) -> bool {
        let (root, is_root) = (parent.is_none(), node.flags & node_flags::ROOT != 0);
        let wrong = if root != is_root {
            format!(
                "has flags {:#x}, which do not fit: it is {} root of the tree",
                node.flags,
                if root { "the" } else { "no" }
            )
        } else if let Some(parent) = parent.filter(|parent| node.level + 1 != parent.level) {
            format!(
                "expected a node of level {}, found level {}",
                parent.level - 1,
                node.level
            )
        } else if node.level >= MAX_LEVELS {
            format!(
                "too many levels: {} below this node, the maximum is {MAX_LEVELS}",
                node.level
            )
        } else if node.count == 0 && (!root || node.level > 0) {
            "has no keys".to_owned()
        } else {
            return true;
        };
        self.report
            .damage(self.walk.wrong(node.oid, node.paddr, wrong));
        false
    }

    fn inner(&mut self, node: &Node, xid: Xid, parent: Option<&Parent>) -> Result<()> {
        let base = if node.flags & node_flags::HASHED != 0 {
            self.root.0
        } else {
            0
        };
        let mut last: Option<&[u8]> = None;
        for index in 0..node.count {
            let Some((key, value)) = node.record(index) else {
                continue;
            };
            if index == 0 {
                self.check_first(node, key, parent);
            }
            // Keys of leaves are compared with the previous leaf elsewhere; only misleading keys of
            // index nodes matter here.
            if !self.in_order(node, index, last, key) {
                continue;
            }
            last = Some(key);
            let child = U64::read_from_prefix(value)
                .ok()
                .and_then(|(child, _)| child.get().checked_add(base));
            let Some(child) = child else {
                self.report.damage(self.walk.wrong(
                    node.oid,
                    node.paddr,
                    format!("entry {index} of the index node has no valid node number"),
                ));
                continue;
            };
            self.enter(
                Oid(child),
                Some(&Parent {
                    level: node.level,
                    xid,
                    key: key.to_vec(),
                }),
            )?;
        }
        Ok(())
    }

    fn leaf(&mut self, node: &Node, known: bool, parent: Option<&Parent>) -> Result<()> {
        for index in 0..node.count {
            let Some((raw_key, value)) = node.record(index) else {
                continue;
            };
            if index == 0 {
                self.check_first(node, raw_key, parent);
            }
            let last = std::mem::take(&mut self.last);
            let in_order = self.in_order(
                node,
                index,
                Some(last.as_slice()).filter(|last| !last.is_empty()),
                raw_key,
            );
            self.last = last;
            self.totals.records += 1;
            self.totals.longest_key = self.totals.longest_key.max(raw_key.len());
            self.totals.longest_value = self.totals.longest_value.max(value.len());
            let Some(key) = self.walk.kind.key(raw_key).filter(|_| in_order) else {
                continue;
            };
            self.last.clear();
            self.last.extend_from_slice(raw_key);
            let (at, layer) = (self.walk.store.offset(node.paddr), self.walk.kind.layer());
            let leaf = Leaf {
                known,
                key,
                value,
                node: (node.oid, node.paddr),
                at,
                layer,
            };
            (self.each)(&leaf, self.report)?;
        }
        Ok(())
    }

    /// Returns true if a key is valid in this tree and after the previous one.
    fn in_order(&mut self, node: &Node, index: usize, last: Option<&[u8]>, key: &[u8]) -> bool {
        let kind = self.walk.kind;
        let Some(found) = kind.key(key) else {
            self.report.damage(self.walk.wrong(
                node.oid,
                node.paddr,
                format!("malformed key {index}"),
            ));
            return false;
        };
        match last
            .and_then(|last| kind.key(last))
            .map(|last| last.cmp(&found))
        {
            None | Some(Ordering::Less) => true,
            Some(_) => {
                let message = format!(
                    "the keys are out of order: key {index} does not sort after the key before it"
                );
                self.report
                    .damage(self.walk.wrong(node.oid, node.paddr, message));
                false
            }
        }
    }

    /// Checks that the first key of a node is the one in its parent.
    fn check_first(&mut self, node: &Node, key: &[u8], parent: Option<&Parent>) {
        let Some(parent) = parent else { return };
        let kind = self.walk.kind;
        let order = kind
            .key(&parent.key)
            .zip(kind.key(key))
            .map(|(above, key)| above.cmp(&key));
        match order {
            Some(Ordering::Equal) | None => {}
            Some(Ordering::Greater) => {
                let message = "its first key sorts before its key in the parent node, so searches \
                               do not find it";
                self.report
                    .damage(self.walk.wrong(node.oid, node.paddr, message));
            }
            Some(Ordering::Less) => {
                self.report.warning(self.walk.wrong(
                    node.oid,
                    node.paddr,
                    "its first key differs from its key in the parent node",
                ));
            }
        }
    }
}

/// Replaces the layer of an error, except an I/O error, by the tree in which a node was looked up.
fn named(error: Error, layer: &'static str) -> Error {
    let mut moved = Error::new(error.kind(), layer, error.message().to_owned());
    match error.place() {
        bandsaw_core::error::Place::Offset(at) => moved = moved.at(*at),
        bandsaw_core::error::Place::Name(name) => moved = moved.named(name.clone()),
        bandsaw_core::error::Place::None => {}
    }
    if error.kind() == bandsaw_core::Kind::Io {
        error
    } else {
        moved
    }
}

fn head(bytes: &[u8]) -> Option<&NodeRaw> {
    NodeRaw::ref_from_prefix(bytes).ok().map(|(head, _)| head)
}
