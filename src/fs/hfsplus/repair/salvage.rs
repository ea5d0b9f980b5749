//! Recovery of all leaf records of the trees, including those that no index node refers to any
//! more.

use std::sync::Arc;

use zerocopy::FromBytes;

use super::rewrite::TreeSpec;
use crate::device::{BlockDevice, BlockDeviceExt, is_zero};
use crate::fs::hfsplus::btree::{KeyOrder, Node, TreeKind};
use crate::fs::hfsplus::check::{Report, Rules, walk_tree};
use crate::fs::hfsplus::extents::{ForkDevice, ForkSpace, Owner};
use crate::fs::hfsplus::layout::{
    Cnid, FIRST_RECORD, ForkRaw, KEY_COMPARE_BINARY, KEY_COMPARE_FOLD, NODE_SIZES, TreeHeaderRaw,
    Variant, VolumeHeader, VolumeHeaderRaw, fork_type, node_kind, volume_attributes,
};
use crate::fs::hfsplus::overflow::Overflow;
use crate::fs::hfsplus::unicode::NameOrder;
use crate::progress::Progress;
use crate::{Kind, Result};

/// The leaf records of a tree, and the properties from its header.
#[derive(Debug)]
pub(super) struct Salvaged {
    /// Records, key and data unchanged, in key order, without duplicate keys.
    pub(super) records: Vec<Box<[u8]>>,
    pub(super) order: KeyOrder,
    pub(super) spec: TreeSpec,
    /// True if parts of the tree could not be walked.
    pub(super) torn: bool,
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
        let (id, name, default_node): (_, _, u16) = match kind {
            TreeKind::Extents => (Cnid::EXTENTS, "extents file", 4096),
            TreeKind::Catalog(_) => (Cnid::CATALOG, "catalog file", 8192),
            TreeKind::Attributes => (Cnid::ATTRIBUTES, "attributes file", 8192),
        };
        let compare = match kind {
            TreeKind::Catalog(Variant::Hfsx) => KEY_COMPARE_BINARY,
            TreeKind::Catalog(Variant::HfsPlus) => KEY_COMPARE_FOLD,
            TreeKind::Extents | TreeKind::Attributes => 0,
        };
        let mut found = Salvaged {
            records: Vec::new(),
            order: match kind {
                TreeKind::Extents => KeyOrder::Extents,
                TreeKind::Attributes => KeyOrder::Attributes,
                TreeKind::Catalog(Variant::HfsPlus) => KeyOrder::Catalog(NameOrder::Folding),
                TreeKind::Catalog(Variant::Hfsx) => KeyOrder::Catalog(NameOrder::Binary),
            },
            spec: TreeSpec {
                kind,
                node_size: default_node,
                key_compare_type: compare,
                clump: 0,
            },
            torn: false,
        };
        let Some(file) = self.file(id, name)? else {
            return Ok(found);
        };
        if let Some(header) = sane_header(&file, kind)? {
            found.order = kind.order(&header).unwrap_or(found.order);

            found.spec.node_size = header.node_size.get();
            found.spec.key_compare_type = header.key_compare_type;
            found.spec.clump = header.clump_size.get();
        } else {
            found.spec.node_size = likely_node_size(&file, default_node)?;
        }
        let mut ignored = Report::default();
        let rules = Rules {
            whole_nodes: false,
            zeroed: false,
        };
        let records = &mut found.records;
        let whole = walk_tree(
            &file,
            kind,
            rules,
            &mut ignored,
            self.progress,
            &mut |record, _, _| {
                records.push(record.into());
                Ok(())
            },
        )?;
        found.torn = !whole;
        if found.torn {
            self.scan(&file, &mut found)?;
        }
        let order = found.order;
        found
            .records
            .retain(|record| order.compare(record, record).is_some());
        // The sort is stable: of two records with the same key, the one that was reached through
        // the tree comes first.
        found
            .records
            .sort_by(|a, b| order.compare(a, b).unwrap_or(std::cmp::Ordering::Equal));
        found.records.dedup_by(|later, first| {
            order.compare(first, later) == Some(std::cmp::Ordering::Equal)
        });
        Ok(found)
    }

    /// Opens the tree's file at the location in the primary header, otherwise at that in the
    /// alternate.
    pub(super) fn file(&self, id: Cnid, name: &'static str) -> Result<Option<ForkDevice>> {
        let overflow = Overflow::open(self.space, &self.whole(self.header.raw.extents_file)).ok();
        let fork_in = |raw: &VolumeHeaderRaw| -> ForkRaw {
            match id {
                Cnid::EXTENTS => raw.extents_file,
                Cnid::CATALOG => raw.catalog_file,
                Cnid::ALLOCATION => raw.allocation_file,
                _ => raw.attributes_file,
            }
        };
        for raw in std::iter::once(&self.header.raw).chain(self.alternate) {
            let fork = self.whole(fork_in(raw));
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
    fn whole(&self, fork: ForkRaw) -> ForkRaw {
        let size = u64::from(fork.total_blocks.get()) * u64::from(self.header.block_size);
        ForkRaw {
            logical_size: size.into(),
            ..fork
        }
    }

    /// Adds the records of every leaf in the file. Skipped if records were already found and free
    /// nodes are not zeroed (volumes older than 2009): those may contain deleted records, and only
    /// the map of used nodes could tell.
    fn scan(&self, file: &ForkDevice, found: &mut Salvaged) -> Result<()> {
        if !self.header.has(volume_attributes::UNUSED_NODE_FIX) && !found.records.is_empty() {
            return Ok(());
        }
        let size = u64::from(found.spec.node_size);
        self.progress
            .stage("look for lost records", file.len() / size);
        for number in 1..u32::try_from(file.len() / size).unwrap_or(u32::MAX) {
            self.progress.check()?;
            self.progress.advance(1);
            let bytes = file.read_vec(u64::from(number) * size, size as usize)?;
            let Ok(node) = Node::parse(number, bytes.into()) else {
                continue;
            };
            // Either the kind or the height of a leaf may be damaged.
            let is_other = matches!(
                node.kind,
                node_kind::INDEX | node_kind::HEADER | node_kind::MAP
            );
            if node.kind == node_kind::LEAF || (node.height == 1 && !is_other) {
                found.records.extend(
                    (0..node.records)
                        .filter_map(|index| node.record(index))
                        .map(Box::from),
                );
            }
        }
        Ok(())
    }
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
            nodes += u32::from(Node::parse(number as u32, bytes.into()).is_ok_and(sound));
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
