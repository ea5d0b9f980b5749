//! The layout of a volume of a certain length.

use super::LAYER;
use super::recipe::{
    self, ATTRIBUTES_NODE_SIZE, EXTENTS_NODE_SIZE, GAP_CLUMPS, MIN_LEN_FOR_GAPS, MIN_VOLUME_LEN,
};
use super::tree::map_nodes;
use crate::hfsplus::layout::{
    AllocBlock, Extent, ForkRaw, HEADER_OFFSET, MIN_BLOCK_SIZE, reserved_blocks,
};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// The space that a tree of files needs on its volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// Number of used nodes of a catalog with 4096-byte and with 8192-byte nodes.
    pub(super) catalog_nodes: (u32, u32),
    pub(super) attribute_nodes: u32,
    /// Number of blocks of all contents.
    pub(super) data_blocks: u64,
    /// Sector size in bytes, if the volume has a journal.
    pub(super) journal: Option<u32>,
}

/// The extents of a journal and its info block; empty if there is no journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JournalPlace {
    pub(super) info: Extent,
    pub(super) body: Extent,
}

impl JournalPlace {
    /// The value for a volume without a journal.
    pub(super) const NONE: Self = Self {
        info: Extent::NONE,
        body: Extent::NONE,
    };
}

/// The extent and the shape of a B-tree's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TreePlace {
    pub(super) extent: Extent,
    pub(super) node_size: u16,
    pub(super) total_nodes: u32,
    pub(super) clump: u32,
}

impl TreePlace {
    /// Returns the fork of the tree's file for the volume header.
    pub(super) fn fork(&self) -> ForkRaw {
        let size = u64::from(self.total_nodes) * u64::from(self.node_size);
        special_fork(self.extent, size, self.clump)
    }
}

/// Returns a fork of the volume header with one extent.
pub(super) fn special_fork(extent: Extent, size: u64, clump: u32) -> ForkRaw {
    let mut fork = ForkRaw {
        logical_size: size.into(),
        clump_size: clump.into(),
        total_blocks: extent.count.into(),
        ..Default::default()
    };
    fork.extents[0] = extent.into();
    fork
}

/// The layout of a volume: header, bitmap, journal, the three trees, data, alternate header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) len: u64,
    pub(super) block_size: u32,
    pub(super) total_blocks: u32,
    pub(super) bitmap: Extent,
    pub(super) journal: JournalPlace,
    pub(super) extents: TreePlace,
    pub(super) attributes: TreePlace,
    pub(super) catalog: TreePlace,
    pub(super) data: Extent,
    /// The blocks at the end that hold the alternate header.
    pub(super) tail: Extent,
}

impl Geometry {
    /// Lays out a volume of `len` bytes. `needs` must be those of this block size.
    pub(super) fn new(len: u64, block_size: u32, needs: &Needs) -> Result<Self> {
        let too_small = |blocks: u64| {
            let least = blocks.saturating_mul(block_size.into());
            let message =
                format!("{len} bytes are too few for the volume: about {least} are required");
            Error::limit(LAYER, message)
        };
        if len < MIN_VOLUME_LEN {
            return Err(too_small(MIN_VOLUME_LEN.div_ceil(block_size.into())));
        }
        let total_blocks = u32::try_from(len / u64::from(block_size)).map_err(|_| {
            let message = format!("{len} bytes exceed 2^32 - 1 blocks of {block_size} bytes");
            Error::limit(LAYER, message)
        })?;
        let sizes = Sizes::new(len, block_size, total_blocks, needs)?;
        let (head, tail) = reserved_blocks(block_size);
        let (head, tail) = (u64::from(head), u64::from(tail));
        let files = sizes.volumes_own();
        let used = (head + files + tail).saturating_add(needs.data_blocks);
        let total = u64::from(total_blocks);
        if used > total {
            return Err(too_small(used));
        }
        let gaps = sizes.gap(sizes.attributes.clump) + sizes.gap(sizes.catalog.clump);
        let with_gaps = len >= MIN_LEN_FOR_GAPS && gaps <= total - used;
        let gap = |clump: u32| if with_gaps { sizes.gap(clump) } else { 0 };
        let mut next = head;
        let mut take = |blocks: u64, gap: u64| {
            let start = AllocBlock(narrow(next)); // within `total_blocks`, as just checked
            next += blocks + gap;
            Extent {
                start,
                count: narrow(blocks),
            }
        };
        Ok(Self {
            len,
            block_size,
            total_blocks,
            bitmap: take(sizes.bitmap_blocks, 0),
            journal: match sizes.journal_blocks {
                0 => JournalPlace::NONE,
                blocks => JournalPlace {
                    info: take(1, 0),
                    body: take(blocks - 1, 0),
                },
            },
            extents: sizes.extents.at(take(sizes.extents.blocks, 0)),
            attributes: sizes
                .attributes
                .at(take(sizes.attributes.blocks, gap(sizes.attributes.clump))),
            catalog: sizes
                .catalog
                .at(take(sizes.catalog.blocks, gap(sizes.catalog.clump))),
            data: take(needs.data_blocks, 0),
            tail: Extent {
                start: AllocBlock(narrow(total - tail)),
                count: narrow(tail),
            },
        })
    }

    /// Returns a length that is sufficient for `needs`, a multiple of [`grain`]. Found by
    /// iteration, because the bitmap and the trees grow with the volume.
    pub(super) fn minimum_len(block_size: u32, needs: &Needs) -> Result<u64> {
        let mut len = MIN_VOLUME_LEN.next_multiple_of(grain(block_size));
        loop {
            let total = u32::try_from(len / u64::from(block_size)).unwrap_or(u32::MAX);
            let sizes = Sizes::new(len, block_size, total, needs)?;
            let (head, tail) = reserved_blocks(block_size);
            let (head, tail) = (u64::from(head), u64::from(tail));
            let files = sizes.volumes_own();
            let blocks = (head + files + tail).saturating_add(needs.data_blocks);
            let enough = blocks.saturating_mul(block_size.into());
            if blocks > u64::from(u32::MAX) {
                let message =
                    format!("the files need more than 2^32 - 1 blocks of {block_size} bytes");
                return Err(Error::limit(LAYER, message));
            }
            if enough <= len {
                return Ok(len);
            }
            len = enough.next_multiple_of(grain(block_size));
        }
    }

    /// Returns all used blocks as extents in order, adjacent ones merged.
    pub(super) fn used(&self) -> Vec<Extent> {
        let head = Extent {
            start: AllocBlock(0),
            count: self.bitmap.start.0,
        };
        let JournalPlace { info, body } = self.journal;
        let all = [
            head,
            self.bitmap,
            info,
            body,
            self.extents.extent,
            self.attributes.extent,
            self.catalog.extent,
            self.data,
            self.tail,
        ];
        let mut used: Vec<Extent> = Vec::new();
        for extent in all.into_iter().filter(|extent| extent.count > 0) {
            match used.last_mut() {
                Some(last) if last.end() == u64::from(extent.start.0) => last.count += extent.count,
                _ => used.push(extent),
            }
        }
        used
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.total_blocks - self.used().iter().map(|extent| extent.count).sum::<u32>()
    }

    /// Returns the block at which the search for free blocks starts: the one after the data.
    pub(super) fn next_allocation(&self) -> u32 {
        let behind = narrow::<u32>(self.data.end().min(u64::from(self.tail.start.0)));
        if behind < self.tail.start.0 {
            behind
        } else {
            self.bitmap.start.0
        }
    }

    /// Returns the offset of the alternate header in bytes.
    pub(super) fn alternate_offset(&self) -> u64 {
        self.len - HEADER_OFFSET
    }
}

/// Returns the granularity of volume lengths that this crate chooses, in bytes.
pub(super) fn grain(block_size: u32) -> u64 {
    block_size.max(4096).into()
}

/// Numbers of blocks of the bitmap, the journal and the trees.
struct Sizes {
    block_size: u32,
    bitmap_blocks: u64,
    /// Includes the info block.
    journal_blocks: u64,
    extents: TreeSize,
    attributes: TreeSize,
    catalog: TreeSize,
}

struct TreeSize {
    blocks: u64,
    node_size: u16,
    total_nodes: u32,
    clump: u32,
}

impl Sizes {
    fn new(len: u64, block_size: u32, total_blocks: u32, needs: &Needs) -> Result<Self> {
        let catalog_node = recipe::catalog_node_size(len, block_size);
        let catalog_nodes = if catalog_node == 4096 {
            needs.catalog_nodes.0
        } else {
            needs.catalog_nodes.1
        };
        let tree = |tree, node_size, nodes| {
            let clump = recipe::clump(tree, len, node_size, block_size);
            TreeSize::new(node_size, nodes, clump, block_size)
        };
        Ok(Self {
            block_size,
            bitmap_blocks: u64::from(total_blocks)
                .div_ceil(8)
                .div_ceil(block_size.into()),
            journal_blocks: needs.journal.map_or(0, |sector| {
                1 + recipe::journal_len(len, sector).div_ceil(block_size.into())
            }),
            extents: tree(recipe::PlannedTree::Extents, EXTENTS_NODE_SIZE, 1)?,
            attributes: tree(
                recipe::PlannedTree::Attributes,
                ATTRIBUTES_NODE_SIZE,
                needs.attribute_nodes,
            )?,
            catalog: tree(recipe::PlannedTree::Catalog, catalog_node, catalog_nodes)?,
        })
    }

    /// Returns the number of blocks of the volume's own files.
    fn volumes_own(&self) -> u64 {
        self.bitmap_blocks
            + self.journal_blocks
            + self.extents.blocks
            + self.attributes.blocks
            + self.catalog.blocks
    }

    fn gap(&self, clump: u32) -> u64 {
        GAP_CLUMPS * u64::from(clump / self.block_size)
    }
}

impl TreeSize {
    /// Computes a whole number of clumps that holds `used` nodes and the map nodes that the total
    /// then needs.
    fn new(node_size: u16, used: u32, clump: u32, block_size: u32) -> Result<Self> {
        let per_clump = u64::from(clump / u32::from(node_size));
        let mut clumps = 1;
        loop {
            let total = u32::try_from(clumps * per_clump)
                .map_err(|_| Error::limit(LAYER, "a tree would have more than 2^32 nodes"))?;
            let needed = u64::from(used) + u64::from(map_nodes(node_size, total));
            if needed <= u64::from(total) {
                let blocks = clumps * u64::from(clump) / u64::from(block_size);
                return Ok(Self {
                    blocks,
                    node_size,
                    total_nodes: total,
                    clump,
                });
            }
            clumps = needed.div_ceil(per_clump);
        }
    }

    fn at(&self, extent: Extent) -> TreePlace {
        TreePlace {
            extent,
            node_size: self.node_size,
            total_nodes: self.total_nodes,
            clump: self.clump,
        }
    }
}

/// Refuses a block size that no volume can have.
pub(super) fn check_block_size(block_size: u32) -> Result<()> {
    if block_size.is_power_of_two() && block_size >= MIN_BLOCK_SIZE {
        return Ok(());
    }
    let message = format!(
        "invalid block size {block_size}: expected a power of two of at least \
                 {MIN_BLOCK_SIZE}"
    );
    Err(Error::invalid(LAYER, message))
}
