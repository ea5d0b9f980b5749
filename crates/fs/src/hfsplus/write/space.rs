//! Allocation and freeing of blocks, and growth of trees (§4.1, §6.7).

use crate::hfsplus::btree::{Tree, TreeKind};
use crate::hfsplus::build::{self, write_empty_tree};
use crate::hfsplus::layout::{
    ATTRIBUTES_MAX_KEY_LENGTH, Cnid, Extent, ForkRaw, VARIABLE_INDEX_KEYS, fork_type,
};
use bandsaw_core::device::AfterDiscard;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Kind, Reason, Result};

use super::LAYER;
use super::block_counts::blocks_of;
use super::forks::ForkMap;
use super::reserved::ahead;
use super::volume::Volume;

/// Node size of a new attributes tree, on which Linux and the inline limit of macOS depend.
const ATTRIBUTES_NODE: u16 = 8192;
/// Maximum number of zero bytes that are written instead of requested from the device.
const WRITTEN_ZEROS: u64 = 64 << 10;

/// One of the volume's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeName {
    Overflow,
    Catalog,
    Attributes,
}

impl Volume {
    /// Allocates `blocks` blocks in extents that are multiples of `grain`, at or after `near`, or
    /// after the last allocation.
    pub(super) fn allocate(
        &mut self,
        blocks: u32,
        grain: u32,
        near: Option<u32>,
    ) -> Result<Vec<Extent>> {
        let mut taken = Vec::new();
        let mut missing = blocks;
        while missing > 0 {
            let from = near.unwrap_or(self.read.header.raw.next_allocation.get());
            let pieces = if missing <= self.read.header.raw.free_blocks.get() {
                self.bitmap.allocate(missing, grain, from)?
            } else {
                Vec::new()
            };
            if pieces.is_empty() {
                self.short = true;
                let free = self.read.header.raw.free_blocks.get();
                let message = format!(
                    "not enough room: {missing} blocks of {} bytes are required, {free} are free",
                    self.read.header.block_size
                );
                return Err(Error::limit("hfs+ space", message).because(Reason::VolumeFull));
            }
            for piece in pieces {
                missing -= piece.count;
                self.header().count_used(piece.count);
                taken.push(piece);
            }
        }
        if let Some(last) = taken.last().filter(|_| grain == 1) {
            self.search_after(*last);
        }
        Ok(taken)
    }

    /// Allocates blocks for the end of a fork. For a fork that grows in small steps, further blocks
    /// are reserved, so that forks that grow alternately are not interleaved.
    pub(super) fn allocate_behind(&mut self, fork: &ForkMap, blocks: u32) -> Result<Vec<Extent>> {
        if blocks == 0 {
            return Ok(Vec::new());
        }
        let (have, free) = (
            fork.raw.total_blocks.get(),
            self.read.header.raw.free_blocks.get(),
        );
        let near = fork
            .extents
            .last()
            .map(|last| u32::try_from(last.end()).unwrap_or(0));
        // Blocks stay reserved until a file is closed, and a program that is started meanwhile holds
        // it open. With a fixed date, equal changes give equal bytes.
        let ahead = match self.options.now {
            Some(_) => 0,
            None => ahead(have, free, self.read.header.block_size),
        };
        if let Some(end) = near.filter(|_| blocks <= ahead) {
            let next = self.read.header.raw.next_allocation.get();
            if let Some(taken) =
                self.bitmap
                    .allocate_ahead(fork.owner(), blocks, ahead, end, next)?
            {
                self.header().count_used(blocks);
                self.search_after(taken);
                return Ok(vec![taken]);
            }
        }
        self.bitmap.give_up(fork.owner());
        self.allocate(blocks, 1, near)
    }

    /// Sets the start of the next search to the block after `last`.
    fn search_after(&mut self, last: Extent) {
        if last.end() < u64::from(self.read.header.total_blocks) {
            self.header().next_allocation = narrow::<u32>(last.end()).into();
        }
    }

    /// Frees blocks.
    pub(super) fn free_extent(&mut self, extent: Extent) -> Result<()> {
        self.bitmap.free(extent)?;
        self.header().count_freed(extent.count);
        Ok(())
    }

    /// Zeros blocks that are not in use yet, or the unused end of a file.
    pub(super) fn zero(&self, offset: u64, len: u64) -> Result<()> {
        if len <= WRITTEN_ZEROS {
            return self.device.write_at(offset, &vec![0; to_usize(len)]);
        }
        self.device
            .discard(offset..offset + len, AfterDiscard::Zeros)
    }

    /// Grows trees that may be too small for an operation, as operations of their own. A failure is
    /// not an error yet: the operation may need less, or remove something.
    pub(super) fn make_room(&mut self) -> Result<()> {
        for which in [TreeName::Overflow, TreeName::Catalog, TreeName::Attributes] {
            let Some(tree) = self.tree(which) else {
                continue;
            };
            let (free, needed) = tree.free_nodes();
            let wanted = needed * which.max_records();
            if free < wanted {
                match self.step(&mut |volume| volume.grow_tree(which, wanted)) {
                    Err(error) if error.kind() != Kind::Limit => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    pub(super) fn tree(&mut self, which: TreeName) -> Option<&mut Tree> {
        match which {
            TreeName::Overflow => self.read.overflow.tree_mut(),
            TreeName::Catalog => Some(self.read.catalog.tree_mut()),
            TreeName::Attributes => self.read.attributes.tree_mut(),
        }
    }

    pub(super) fn tree_fork(&mut self, which: TreeName) -> &mut ForkRaw {
        let header = self.header();
        match which {
            TreeName::Overflow => &mut header.extents_file,
            TreeName::Catalog => &mut header.catalog_file,
            TreeName::Attributes => &mut header.attributes_file,
        }
    }

    /// Adds nodes to a tree: a clump, or at least `wanted` if the volume is nearly full.
    fn grow_tree(&mut self, which: TreeName, wanted: u32) -> Result<()> {
        let Some(node_size) = self.tree(which).map(|tree| u32::from(tree.node_size())) else {
            return Ok(());
        };
        let block_size = self.read.header.block_size;
        let raw = *self.tree_fork(which);
        let grain = (node_size / block_size).max(1);
        let least =
            blocks_of(wanted.saturating_mul(node_size).into(), block_size)?.next_multiple_of(grain);
        let clump = blocks_of(raw.clump_size.get().into(), block_size)?.next_multiple_of(grain);
        // Limit the growth to an eighth of the free space, but not below what is needed.
        let most = self.read.header.raw.free_blocks.get() / 8;
        let blocks = clump.min(most - most % grain).max(least);
        let mut fork = self.fork_map(&raw, which.id(), fork_type::DATA)?;
        let before = fork.extents.len();
        let near = fork
            .extents
            .last()
            .map(|last| u32::try_from(last.end()).unwrap_or(0));
        for extent in self.allocate(blocks, grain, near)? {
            self.zero(
                extent.start.offset(block_size),
                u64::from(extent.count) * u64::from(block_size),
            )?;
            fork.push(extent);
        }
        debug_assert!(fork.extents.len() >= before);
        fork.raw.logical_size =
            (u64::from(fork.raw.total_blocks.get()) * u64::from(block_size)).into();
        // The overflow extents of the extents tree cannot be stored in that tree itself.
        if which == TreeName::Overflow && fork.extents.len() > fork.raw.extents.len() {
            return Err(Error::limit(
                LAYER,
                "cannot enlarge the extents tree: it is too fragmented (limit 8 extents)",
            ));
        }
        self.store_fork(&mut fork, &raw)?;
        *self.tree_fork(which) = fork.raw;
        let file = self
            .read
            .space
            .device_over(&fork.extents, fork.raw.logical_size.get());
        self.tree(which).map_or(Ok(()), |tree| tree.grow(file))
    }

    /// Creates an attributes tree on a volume without one.
    pub(super) fn make_attributes_tree(&mut self) -> Result<()> {
        let block_size = self.read.header.block_size;
        let grain = (u32::from(ATTRIBUTES_NODE) / block_size).max(1);
        let clump = self
            .read
            .header
            .raw
            .catalog_file
            .clump_size
            .get()
            .max(ATTRIBUTES_NODE.into());
        let blocks = blocks_of(clump.into(), block_size)?.next_multiple_of(grain);
        let extents = match self.allocate(blocks, grain, None)?.as_slice() {
            [extent] => [*extent],
            _ => {
                return Err(Error::limit(
                    LAYER,
                    "cannot store attributes: no contiguous free space for an attributes tree",
                ));
            }
        };
        let [extent] = extents;
        let len = u64::from(blocks) * u64::from(block_size);
        self.zero(extent.start.offset(block_size), len)?;
        let kind = build::HeaderKind {
            node_size: ATTRIBUTES_NODE,
            max_key_length: ATTRIBUTES_MAX_KEY_LENGTH,
            attributes: VARIABLE_INDEX_KEYS,
            key_compare_type: 0,
            total_nodes: u32::try_from(len / u64::from(ATTRIBUTES_NODE)).unwrap_or(u32::MAX),
            clump: (blocks * block_size),
        };
        write_empty_tree(&*self.device, extent.start.offset(block_size), kind)?;
        let mut raw = ForkRaw {
            logical_size: len.into(),
            clump_size: kind.clump.into(),
            total_blocks: blocks.into(),
            ..Default::default()
        };
        raw.extents[0] = extent.into();
        self.header().attributes_file = raw;
        let mut tree = Tree::open(
            self.read.space.device_over(&extents, len),
            TreeKind::Attributes,
        )?;
        tree.set_cache(self.options.cache / 4);
        self.read.attributes.set_tree(Some(tree));
        Ok(())
    }

    /// Returns a number for a new file or folder.
    pub(super) fn next_id(&mut self) -> Result<Cnid> {
        use crate::hfsplus::layout::volume_attributes::CNIDS_REUSED;
        let mut tried = 0_u32;
        loop {
            let id = Cnid(
                self.read
                    .header
                    .raw
                    .next_catalog_id
                    .get()
                    .max(Cnid::FIRST_USER.0),
            );
            let reused = self.read.header.raw.attributes.get() & CNIDS_REUSED != 0;
            let header = self.header();
            match id.0.checked_add(1).filter(|&next| next < u32::MAX) {
                Some(next) => header.next_catalog_id = next.into(),
                None => {
                    header.next_catalog_id = Cnid::FIRST_USER.0.into();
                    header.attributes = (header.attributes.get() | CNIDS_REUSED).into();
                }
            }
            if !reused
                || (self.read.catalog.by_id(id)?.is_none()
                    && self.read.attributes.all_names(id)?.is_empty())
            {
                return Ok(id);
            }
            tried += 1;
            if tried == u32::MAX {
                return Err(Error::limit(
                    LAYER,
                    "the volume has no free object number: all 2^32 are in use",
                ));
            }
        }
    }
}

impl TreeName {
    /// Returns the number of records that one operation adds, for the estimate of free nodes.
    /// Extents records are inserted in order and fill their nodes.
    fn max_records(self) -> u32 {
        match self {
            Self::Overflow | Self::Attributes => 2,
            Self::Catalog => 3,
        }
    }

    /// Returns the number of the tree's file.
    pub(super) fn id(self) -> Cnid {
        match self {
            Self::Overflow => Cnid::EXTENTS,
            Self::Catalog => Cnid::CATALOG,
            Self::Attributes => Cnid::ATTRIBUTES,
        }
    }
}
