//! Recovery of all leaf records of the trees, including those that no index node refers to any
//! more.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use zerocopy::FromBytes;

use super::forks::UsedBlocks;
use super::leaf::{self, Leaf};
use super::packed::{PackedRecord, RecordPrefix};
use super::rewrite::TreeSpec;
use crate::hfsplus::btree::{KeyOrder, Node, TreeKind};
use crate::hfsplus::check::{Report, Rules, walk_tree};
use crate::hfsplus::extents::{ForkDevice, ForkSpace, Owner};
use crate::hfsplus::layout::{
    CatalogKey, CatalogRecord, Cnid, Extent, FIRST_RECORD, ForkRaw, HEADER_MAP_OFFSET,
    KEY_COMPARE_BINARY, KEY_COMPARE_FOLD, NODE_SIZES, NodeDescriptorRaw, TreeHeaderRaw, Variant,
    VolumeHeader, VolumeHeaderRaw, extents_of, fork_type, node_kind, volume_attributes,
};
use crate::hfsplus::overflow::Overflow;
use crate::hfsplus::unicode::NameOrder;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, is_zero};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Kind, Result};

/// Seconds by which a record may be newer than the volume header.
const DAY: u64 = 24 * 60 * 60;
/// The least length of a leaf record with its offset, in bytes.
const MIN_RECORD: u64 = 16;
/// Bytes of the bitmap that are read at a time.
const PIECE: u64 = 1 << 16;

/// The evidence that a record belongs to its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecordEvidence {
    /// Its leaf is in the tree, is a neighbor of such a leaf, or is marked used in a map that is
    /// in order.
    Live,
    /// Its leaf is in none of these, and may be the remains of an older state.
    Stray,
}

/// A leaf record.
#[derive(Debug)]
pub(super) struct SalvagedRecord {
    /// Key and data, unchanged.
    packed: PackedRecord,
    pub(super) standing: RecordEvidence,
    /// True if what follows in its leaf cannot be read: its own end may be damaged as well.
    pub(super) is_before_gap: bool,
    /// Number of its leaf.
    leaf: u32,
}

impl SalvagedRecord {
    pub(super) fn is_live(&self) -> bool {
        self.standing == RecordEvidence::Live
    }

    /// Returns key and data.
    pub(super) fn bytes(&self) -> Box<[u8]> {
        self.packed.bytes()
    }

    /// Compares the keys of two records; `None` if either is not a key.
    fn compare(&self, other: &Self, order: KeyOrder) -> Option<Ordering> {
        let (mut one, mut two) = (RecordPrefix::default(), RecordPrefix::default());
        order.compare(self.packed.start(&mut one), other.packed.start(&mut two))
    }
}

/// The leaf records of a tree, and the properties from its header.
#[derive(Debug)]
pub(super) struct Salvaged {
    /// Records in key order, without duplicate keys.
    pub(super) records: Vec<SalvagedRecord>,
    pub(super) order: KeyOrder,
    pub(super) spec: TreeSpec,
    /// True if parts of the tree could not be walked.
    pub(super) incomplete: bool,
    /// True if the structure of the tree is damaged, so that records may be missing.
    pub(super) is_damaged: bool,
    /// True if the leaves hold more records than the header states: some are remains.
    pub(super) has_surplus: bool,
    /// Number of records that the header states and no leaf holds, if a part of the tree cannot be
    /// read; otherwise 0.
    pub(super) missing: u64,
    /// Records that are not used: strays of a tree that is whole, and older ones with the same
    /// key.
    pub(super) unused: Vec<PackedRecord>,
}

impl Salvaged {
    /// No records, with the node size and the order of names that the tree has by default.
    fn none(kind: TreeKind) -> Self {
        let (node_size, key_compare_type, order) = match kind {
            TreeKind::Extents => (4096, 0, KeyOrder::Extents),
            TreeKind::Attributes => (8192, 0, KeyOrder::Attributes),
            TreeKind::Catalog(Variant::HfsPlus) => {
                let order = KeyOrder::Catalog(NameOrder::Folding);
                (8192, KEY_COMPARE_FOLD, order)
            }
            TreeKind::Catalog(Variant::Hfsx) => {
                let order = KeyOrder::Catalog(NameOrder::Binary);
                (8192, KEY_COMPARE_BINARY, order)
            }
        };
        Self {
            records: Vec::new(),
            order,
            spec: TreeSpec {
                kind,
                node_size,
                key_compare_type,
                clump: 0,
            },
            incomplete: false,
            is_damaged: false,
            has_surplus: false,
            missing: 0,
            unused: Vec::new(),
        }
    }

    /// Keeps one of the records with the same key, of those that are sorted so that the best comes first,
    /// unless a later one is known to be newer. The others are unused.
    fn keep_one_of_each_key(&mut self, newest: &AgeEvidence<'_>) -> Result<()> {
        let order = self.order;
        // In place, as the records of a large volume fill the memory.
        let records = &mut self.records;
        let mut kept = 0_usize;
        for at in 0..records.len() {
            let is_same = |former: &SalvagedRecord| {
                former.compare(&records[at], order) == Some(Ordering::Equal)
            };
            let Some(former) = kept.checked_sub(1).filter(|&at| is_same(&records[at])) else {
                records.swap(kept, at);
                kept += 1;
                continue;
            };
            if records[former].packed != records[at].packed {
                if newest.is_later(&records[at], &records[former])? {
                    records.swap(former, at);
                }
                self.unused.push(PackedRecord::new(&records[at].bytes()));
            }
        }
        records.truncate(kept);
        Ok(())
    }
}

/// Reads the trees of a damaged volume.
pub(super) struct Salvage<'a> {
    pub(super) space: &'a ForkSpace,
    pub(super) header: &'a VolumeHeader,
    /// The alternate header, for file locations that the primary has lost.
    pub(super) alternate: Option<&'a VolumeHeaderRaw>,
    pub(super) progress: &'a dyn Progress,
}

impl Salvage<'_> {
    pub(super) fn tree(&self, kind: TreeKind) -> Result<Salvaged> {
        let (id, name) = match kind {
            TreeKind::Extents => (Cnid::EXTENTS, "extents file"),
            TreeKind::Catalog(_) => (Cnid::CATALOG, "catalog file"),
            TreeKind::Attributes => (Cnid::ATTRIBUTES, "attributes file"),
        };
        let mut found = Salvaged::none(kind);
        let mut stated = None;
        let Some(file) = self.file(id, name)? else {
            return Ok(found);
        };
        if let Some(header) = sane_header(&file, kind)? {
            found.order = kind.order(&header).unwrap_or(found.order);

            found.spec.node_size = header.node_size.get();
            found.spec.key_compare_type = header.key_compare_type;
            found.spec.clump = header.clump_size.get();
            stated = Some(u64::from(header.leaf_records.get()));
        } else {
            found.spec.node_size = likely_node_size(&file, found.spec.node_size)?;
        }
        let mut report = Report::default();
        let rules = Rules {
            whole_nodes: false,
            zeroed: false,
        };
        let mut walked: Vec<u32> = Vec::new();
        let whole = walk_tree(
            &file,
            kind,
            rules,
            &mut report,
            self.progress,
            &mut |_, node, _| {
                if walked.last() != Some(&node) {
                    walked.push(node);
                }
                Ok(())
            },
        )?;
        let mut leaves = FoundLeaves {
            file: &file,
            kind,
            node_size: found.spec.node_size,
            links: HashMap::new(),
            records: Vec::new(),
            is_whole: true,
        };
        for number in walked {
            self.progress.check()?;
            if let Some(leaf) = leaves.read(number)? {
                leaves.add_leaf(number, leaf, RecordEvidence::Live);
            }
        }
        found.has_surplus = stated.is_some_and(|stated| stated < leaves.records.len() as u64);
        found.is_damaged = !whole || report.len() > 0 || !leaves.is_whole;
        if found.is_damaged {
            // A tree without a root is damaged like one whose root cannot be read.
            let is_incomplete = !whole || leaves.records.is_empty();
            found.unused = self.scan(&mut leaves, is_incomplete)?;
            found.incomplete = is_incomplete && (!whole || !leaves.records.is_empty());
        }
        found.records = std::mem::take(&mut leaves.records);
        // A number that is wrong on its own is not evidence, nor is one that the file has no room for.
        let stated = stated.filter(|stated| stated.saturating_mul(MIN_RECORD) <= file.len());
        if !whole || !leaves.is_whole {
            found.missing = stated
                .unwrap_or(0)
                .saturating_sub(found.records.len() as u64);
        }
        let order = found.order;
        let all = found.records.len();
        found
            .records
            .retain(|record| record.compare(record, order).is_some());
        found.is_damaged |= found.records.len() != all;
        // Of records with one key, live ones come first, then newer ones; the sort is stable.
        let latest = u64::from(self.header.raw.modify_date.get()) + DAY;
        found.records.sort_by(|a, b| {
            let date = |record: &SalvagedRecord| changed(&record.bytes(), kind, latest);
            a.compare(b, order)
                .unwrap_or(Ordering::Equal)
                .then(a.standing.cmp(&b.standing))
                .then_with(|| date(b).cmp(&date(a)))
        });
        let newest = AgeEvidence::new(self.bitmap()?, kind, &leaves.links, latest);
        found.keep_one_of_each_key(&newest)?;
        Ok(found)
    }

    /// Counts the blocks that the bitmap marks used and that are not in `stated`. `None` if the
    /// bitmap cannot be read.
    pub(super) fn ownerless(&self, stated: &UsedBlocks) -> Result<Option<u64>> {
        let total = u64::from(self.header.total_blocks);
        let Some(bitmap) = self.bitmap()? else {
            return Ok(None);
        };
        let mut found = 0;
        let mut free_from = 0;
        for (start, end) in stated.runs().chain([(total, total)]) {
            let mut at = free_from;
            let gap_end = start.min(total);
            free_from = end;
            while at < gap_end {
                self.progress.check()?;
                let until = gap_end.min((at / 8 + PIECE) * 8);
                let first = at / 8;
                let bytes = bitmap.read_vec(first, to_usize(until.div_ceil(8) - first))?;
                let is_used = |block: &u64| bit(&bytes, narrow(block - first * 8));
                found += (at..until).filter(is_used).count() as u64;
                at = until;
            }
        }
        Ok(Some(found))
    }

    /// Returns true if the bitmap marks every block of an extent used; false if it cannot be read.
    pub(super) fn is_used(&self, extent: Extent) -> Result<bool> {
        let blocks = u64::from(extent.start.0)..extent.end();
        let Some(bitmap) = self
            .bitmap()?
            .filter(|_| blocks.end <= self.header.total_blocks.into())
        else {
            return Ok(false);
        };
        let first = blocks.start / 8;
        let bytes = bitmap.read_vec(first, to_usize(blocks.end.div_ceil(8) - first))?;
        let mut blocks = blocks;
        Ok(blocks.all(|block| bit(&bytes, narrow(block - first * 8))))
    }

    /// Opens the bitmap; `None` if it does not cover the volume.
    fn bitmap(&self) -> Result<Option<ForkDevice>> {
        let len = u64::from(self.header.total_blocks).div_ceil(8);
        let bitmap = self.file(Cnid::ALLOCATION, "bitmap")?;
        Ok(bitmap.filter(|bitmap| bitmap.len() >= len))
    }

    /// Opens the tree's file at the location in the primary header, otherwise at that in the
    /// alternate.
    pub(super) fn file(&self, id: Cnid, name: &'static str) -> Result<Option<ForkDevice>> {
        let overflow = Overflow::open(
            self.space,
            &self.with_full_size(self.header.raw.extents_file),
        )
        .ok();
        let fork_in = |raw: &VolumeHeaderRaw| -> ForkRaw {
            match id {
                Cnid::EXTENTS => raw.extents_file,
                Cnid::CATALOG => raw.catalog_file,
                Cnid::ALLOCATION => raw.allocation_file,
                _ => raw.attributes_file,
            }
        };
        for raw in std::iter::once(&self.header.raw).chain(self.alternate) {
            let fork = self.with_full_size(fork_in(raw));
            if fork.total_blocks.get() == 0 {
                continue;
            }
            let mut more = |block| match &overflow {
                Some(overflow) if id != Cnid::EXTENTS => overflow.get(id, fork_type::DATA, block),
                _ => Ok(None),
            };
            match self.space.fork(&fork, &Owner::Special(name), &mut more) {
                Ok(file) => return Ok(Some(file)),
                Err(error) if error.kind() == Kind::Io => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Returns a fork extended to all of its blocks: trees fill theirs, and the recorded size may
    /// be damaged.
    fn with_full_size(&self, fork: ForkRaw) -> ForkRaw {
        let size = u64::from(fork.total_blocks.get()) * u64::from(self.header.block_size);
        ForkRaw {
            logical_size: size.into(),
            ..fork
        }
    }

    /// Adds the records of leaves that the walk did not reach. Strays are added if the tree is
    /// incomplete, and free nodes are zeroed (volumes since 2009) or nothing else is left: otherwise
    /// they may contain deleted records, and are returned.
    fn scan(&self, leaves: &mut FoundLeaves<'_>, is_incomplete: bool) -> Result<Vec<PackedRecord>> {
        let count = leaves.file.len() / u64::from(leaves.node_size);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.progress.stage("search for lost records", count.into());
        let used = leaves.used_nodes()?;
        let mut candidates = Vec::new();
        for number in 1..count {
            self.progress.check()?;
            self.progress.advance(1);
            if leaves.links.contains_key(&number) {
                continue;
            }
            if let Some(leaf) = leaves.read(number)? {
                candidates.push((number, leaf));
            }
        }
        let links =
            |(number, (leaf, _)): &(u32, (Leaf, Vec<u8>))| (*number, (leaf.next, leaf.previous));
        let others: HashMap<u32, (u32, u32)> = candidates.iter().map(links).collect();
        let is_used = |number: u32| used.as_ref().is_some_and(|used| bit(used, number));
        let mut live: HashSet<u32> = others.keys().copied().filter(|&at| is_used(at)).collect();
        if leaves.links.is_empty() && live.is_empty() {
            for (&number, &(next, _)) in &others {
                if others.get(&next).is_some_and(|&(_, back)| back == number) {
                    live.extend([number, next]);
                }
            }
            // A tree of one leaf has no neighbors.
            if live.is_empty() {
                live.extend(others.keys());
            }
        }
        let mut ahead: Vec<u32> = live.iter().copied().collect();
        let neighbors = leaves.links.values().flat_map(|&(next, back)| [next, back]);
        ahead.extend(neighbors.filter(|number| others.contains_key(number)));
        while let Some(number) = ahead.pop() {
            live.insert(number);
            let (next, back) = others.get(&number).copied().unwrap_or_default();
            ahead.extend(
                [next, back]
                    .into_iter()
                    .filter(|number| others.contains_key(number) && !live.contains(number)),
            );
        }
        let with_strays = is_incomplete
            && (self.header.has(volume_attributes::UNUSED_NODE_FIX)
                || (leaves.records.is_empty() && live.is_empty()));
        let mut unused = Vec::new();
        for (number, leaf) in candidates {
            if live.contains(&number) {
                leaves.add_leaf(number, leaf, RecordEvidence::Live);
            } else if with_strays {
                leaves.add_leaf(number, leaf, RecordEvidence::Stray);
            } else {
                let (Leaf { records, .. }, bytes) = leaf;
                let records = records.into_iter().filter_map(|range| bytes.get(range));
                unused.extend(records.map(PackedRecord::new));
            }
        }
        Ok(unused)
    }
}

/// The leaves of a tree that were found so far.
struct FoundLeaves<'a> {
    file: &'a ForkDevice,
    kind: TreeKind,
    node_size: u16,
    /// Next and previous leaf of each.
    links: HashMap<u32, (u32, u32)>,
    records: Vec<SalvagedRecord>,
    /// True if all records of these leaves could be read.
    is_whole: bool,
}

impl FoundLeaves<'_> {
    /// Reads node `number`; `None` if it is no leaf.
    fn read(&self, number: u32) -> Result<Option<(Leaf, Vec<u8>)>> {
        let size = u64::from(self.node_size);
        let bytes = self
            .file
            .read_vec(u64::from(number) * size, self.node_size.into())?;
        Ok(leaf::read(&bytes, self.kind).map(|leaf| (leaf, bytes)))
    }

    fn add_leaf(&mut self, number: u32, (leaf, bytes): (Leaf, Vec<u8>), standing: RecordEvidence) {
        self.links.insert(number, (leaf.next, leaf.previous));
        self.is_whole &= leaf.is_whole;
        for range in leaf.records {
            let Some(record) = bytes.get(range.clone()) else {
                continue;
            };
            let repaired = (!leaf.is_whole).then(|| leaf::repaired(record, self.kind));
            self.records.push(SalvagedRecord {
                packed: PackedRecord::new(repaired.flatten().as_deref().unwrap_or(record)),
                standing,
                is_before_gap: leaf.gaps.binary_search(&range.end).is_ok(),
                leaf: number,
            });
        }
    }

    /// Returns the map of used nodes if it is in order: complete, with as many free nodes as the
    /// header states, and with all leaves of the tree.
    fn used_nodes(&self) -> Result<Option<Vec<u8>>> {
        let Some(header) = sane_header(self.file, self.kind)? else {
            return Ok(None);
        };
        let size = u64::from(self.node_size);
        let nodes = self.file.len() / size;
        if header.node_size.get() != self.node_size || u64::from(header.total_nodes.get()) != nodes
        {
            return Ok(None);
        }
        let (head, tail) = (u64::from(HEADER_MAP_OFFSET), 8);
        let mut map = self
            .file
            .read_vec(head, to_usize(size.saturating_sub(head + tail)))?;
        let mut at = 0;
        while (map.len() as u64) < nodes.div_ceil(8) {
            let bytes = self.file.read_vec(at, size_of::<NodeDescriptorRaw>())?;
            let next = NodeDescriptorRaw::read_from_prefix(&bytes)
                .map_or(0, |(head, _)| u64::from(head.forward_link.get()));
            if next == 0 || next >= nodes {
                return Ok(None);
            }
            at = next * size;
            let node = self.file.read_vec(at, to_usize(size))?;
            let is_map = NodeDescriptorRaw::read_from_prefix(&node)
                .is_ok_and(|(head, _)| head.kind == node_kind::MAP);
            if !is_map {
                return Ok(None);
            }
            map.extend_from_slice(&node[usize::from(FIRST_RECORD)..node.len() - 6]);
        }
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        let free = (0..nodes).filter(|&number| !bit(&map, number)).count();
        let is_in_order = free as u64 == u64::from(header.free_nodes.get())
            && self.links.keys().all(|&number| bit(&map, number));
        Ok(is_in_order.then_some(map))
    }
}

/// Returns the bit of a node in a map.
fn bit(map: &[u8], number: u32) -> bool {
    map.get(number as usize / 8)
        .is_some_and(|byte| byte & (0x80 >> (number % 8)) != 0)
}

/// The evidence on the age of records with one key.
struct AgeEvidence<'a> {
    bitmap: Option<ForkDevice>,
    kind: TreeKind,
    /// Next and previous leaf of each.
    links: &'a HashMap<u32, (u32, u32)>,
    /// The number of leaves that state to be a neighbor of a leaf that states another one.
    contradictions: HashMap<u32, i32>,
    /// Seconds up to which a date is possible.
    latest: u64,
}

impl<'a> AgeEvidence<'a> {
    fn new(
        bitmap: Option<ForkDevice>,
        kind: TreeKind,
        links: &'a HashMap<u32, (u32, u32)>,
        latest: u64,
    ) -> Self {
        let mut contradictions = HashMap::new();
        for (&leaf, &(next, previous)) in links {
            if !follows(links, leaf, next) {
                *contradictions.entry(next).or_default() += 1;
            }
            if !follows(links, previous, leaf) {
                *contradictions.entry(previous).or_default() += 1;
            }
        }
        Self {
            bitmap,
            kind,
            links,
            contradictions,
            latest,
        }
    }

    /// Returns true if `record` is of a later state than `other`, a record with the same key,
    /// although its date is not: blocks of the other one are marked free, or the neighbors of the
    /// other one's leaf state other links.
    fn is_later(&self, record: &SalvagedRecord, other: &SalvagedRecord) -> Result<bool> {
        let date = |record: &SalvagedRecord| changed(&record.bytes(), self.kind, self.latest);
        if (record.standing, date(record)) != (other.standing, date(other)) {
            return Ok(false);
        }
        let states_free = self.states_free(&record.bytes())?;
        if states_free != self.states_free(&other.bytes())? {
            return Ok(!states_free);
        }
        Ok(self.agreement(record.leaf) > self.agreement(other.leaf))
    }

    /// Returns true if a block of a file's record is marked free, or outside of the volume.
    fn states_free(&self, record: &[u8]) -> Result<bool> {
        let file = CatalogKey::split(record).and_then(|(_, data)| CatalogRecord::parse(data));
        let (TreeKind::Catalog(_), Some(CatalogRecord::File(file)), Some(bitmap)) =
            (self.kind, file, &self.bitmap)
        else {
            return Ok(false);
        };
        for extent in [&file.data_fork, &file.resource_fork]
            .into_iter()
            .flat_map(|fork| extents_of(&fork.extents))
        {
            let (start, end) = (u64::from(extent.start.0), extent.end());
            if end > bitmap.len() * 8 {
                return Ok(true);
            }
            // One piece of a long run is enough, and bounds the time.
            let first = start / 8;
            let end = end.min((first + PIECE) * 8);
            let bytes = bitmap.read_vec(first, to_usize(end.div_ceil(8) - first))?;
            if !(start..end).all(|block| bit(&bytes, narrow(block - first * 8))) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns how many neighbors of a leaf agree with its links, less those that contradict them.
    fn agreement(&self, leaf: u32) -> i32 {
        let contradictions = self.contradictions.get(&leaf).copied().unwrap_or(0);
        let agree = self.links.get(&leaf).map_or(0, |&(next, previous)| {
            i32::from(follows(self.links, leaf, next))
                + i32::from(follows(self.links, previous, leaf))
        });
        agree - contradictions
    }
}

/// Returns true if both leaves state that `next` follows `leaf`.
fn follows(links: &HashMap<u32, (u32, u32)>, leaf: u32, next: u32) -> bool {
    links.get(&leaf).is_some_and(|&(ahead, _)| ahead == next)
        && links.get(&next).is_some_and(|&(_, back)| back == leaf)
}

/// Returns the time of the last change that a record of the catalog states; 0 if it states none
/// up to `latest`.
fn changed(record: &[u8], kind: TreeKind, latest: u64) -> u32 {
    let TreeKind::Catalog(_) = kind else { return 0 };
    let dates = CatalogKey::split(record).and_then(|(_, data)| CatalogRecord::parse(data));
    let dates = match dates {
        Some(CatalogRecord::Folder(folder)) => folder.dates,
        Some(CatalogRecord::File(file)) => file.dates,
        _ => return 0,
    };
    let date = dates.attribute_mod.get().max(dates.content_mod.get());
    if u64::from(date) <= latest { date } else { 0 }
}

/// Returns the tree's header, if the fields needed to find the nodes are valid.
fn sane_header(file: &ForkDevice, kind: TreeKind) -> Result<Option<TreeHeaderRaw>> {
    let len = usize::from(FIRST_RECORD) + size_of::<TreeHeaderRaw>();
    if file.len() < len as u64 {
        return Ok(None);
    }
    let head = file.read_vec(0, len)?;
    let Ok(header) = TreeHeaderRaw::read_from_bytes(&head[usize::from(FIRST_RECORD)..]) else {
        return Ok(None);
    };
    let size = header.node_size.get();
    let sane = size.is_power_of_two() && NODE_SIZES.contains(&size) && kind.order(&header).is_ok();
    Ok(sane.then_some(header))
}

/// Returns the smallest node size for which nearly as many of the first nodes are valid as for any
/// size. With a size that is too large, the second of two nodes with similar records can be taken
/// for the tail of the first.
fn likely_node_size(file: &ForkDevice, default: u16) -> Result<u16> {
    const LOOKED_AT: u64 = 256 << 10;
    let mut shares = Vec::new();
    for size in (9..=15).map(|shift| 1_u16 << shift) {
        let (mut looked_at, mut nodes) = (0_u32, 0_u32);
        for number in 1..(file.len().min(LOOKED_AT) / u64::from(size)) {
            let bytes = file.read_vec(number * u64::from(size), size.into())?;
            if is_zero(&bytes) {
                continue;
            }
            looked_at += 1;
            let sound = |node: Node| {
                node.records > 0 && (node.kind == node_kind::LEAF) == (node.height == 1)
            };
            nodes += u32::from(Node::parse(narrow(number), bytes.into()).is_ok_and(sound));
        }
        shares.push((size, (nodes * 100).checked_div(looked_at).unwrap_or(0)));
    }
    let best = shares.iter().map(|&(_, share)| share).max().unwrap_or(0);
    let likely = shares
        .into_iter()
        .find(|&(_, share)| share > 0 && share + 20 >= best);
    Ok(likely.map_or(default, |(size, _)| size))
}

/// Returns the space of the volume.
pub(super) fn space(device: Arc<dyn BlockDevice>, header: &VolumeHeader) -> ForkSpace {
    ForkSpace {
        device,
        block_size: header.block_size,
        total_blocks: header.total_blocks,
    }
}
