//! The layout of a new container: one run of blocks from the first on, in larger containers with
//! one gap.
//!
//! The order is that of macOS: superblock, both checkpoint areas, the ring and the pool of the
//! space manager, object maps and trees, then contents.

use std::ops::Range;

use super::LAYER;
use crate::apfs::geometry::Geometry;
use crate::apfs::layout::Paddr;
use bandsaw_core::{Error, Result};

/// Numbers of nodes of a volume's trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nodes {
    pub(super) omap: u64,
    pub(super) files: u64,
    pub(super) references: u64,
    /// True if the volume has a keybag, too.
    pub(super) encrypted: bool,
}

impl Nodes {
    /// Returns the number of metadata blocks of the volume without superblock and keybag: the
    /// trees, the object map and the snapshot metadata.
    pub(super) fn blocks(&self) -> u64 {
        self.omap + self.files + self.references + 2
    }
}

/// Returns the number of blocks of keybags: one of each encrypted volume, and the container's.
fn keybags(nodes: &[Nodes]) -> u64 {
    match nodes.iter().filter(|nodes| nodes.encrypted).count() as u64 {
        0 => 0,
        count => count + 1,
    }
}

/// The locations of a volume's structures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VolumePlace {
    pub(super) superblock: Paddr,
    pub(super) omap: Paddr,
    pub(super) omap_tree: Paddr,
    pub(super) files: Paddr,
    pub(super) references: Paddr,
    pub(super) snapshots: Paddr,
    pub(super) keybag: Option<Paddr>,
}

/// The locations of all structures.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) desc: Paddr,
    pub(super) data: Paddr,
    pub(super) ring: Paddr,
    pub(super) pool: Paddr,
    pub(super) omap: Paddr,
    pub(super) omap_tree: Paddr,
    pub(super) volumes: Vec<VolumePlace>,
    /// Keybag of the container.
    pub(super) keybag: Option<Paddr>,
    /// Contents of the first volume.
    pub(super) contents: Range<u64>,
    /// Free blocks among the used ones.
    pub(super) gap: Range<u64>,
    /// End of all used blocks.
    pub(super) end: u64,
}

/// First block for physical objects in containers of [`MIN_WITH_GAP`] blocks or more. The number
/// of such an object is its block; lower numbers are reserved, and some readers enforce that. macOS
/// itself does not.
const FIRST_PHYSICAL: u64 = 1024;
/// 128 MiB; smaller containers have no blocks to spare, and those readers reject them anyway.
const MIN_WITH_GAP: u64 = 32768;

/// Returns the blocks that are left free behind the checkpoint areas.
fn gap(geometry: &Geometry) -> Range<u64> {
    let areas = 1 + u64::from(geometry.desc_blocks) + u64::from(geometry.data_blocks);
    areas..if geometry.blocks < MIN_WITH_GAP {
        areas
    } else {
        areas.max(FIRST_PHYSICAL)
    }
}

impl Places {
    /// Lays out volumes with these numbers of nodes, and `content_blocks` blocks of contents.
    pub(super) fn new(geometry: &Geometry, nodes: &[Nodes], content_blocks: u64) -> Result<Self> {
        let mut next = 1;
        let mut take = |count: u64| {
            let start = next;
            next += count;
            Paddr(start)
        };
        let desc = take(geometry.desc_blocks.into());
        let data = take(geometry.data_blocks.into());
        let gap = gap(geometry);
        take(gap.end - gap.start);
        let (ring, pool) = (take(geometry.ring_blocks()), take(geometry.pool_blocks));
        let (omap, omap_tree) = (take(1), take(1));
        let volume = |nodes: &Nodes| VolumePlace {
            superblock: take(1),
            omap: take(1),
            omap_tree: take(nodes.omap),
            files: take(nodes.files),
            references: take(nodes.references),
            snapshots: take(1),
            keybag: nodes.encrypted.then(|| take(1)),
        };
        let volumes = nodes.iter().map(volume).collect();
        let keybag = (keybags(nodes) > 0).then(|| take(1));
        // The sum covers nodes and blocks of structures in memory, and contents counted before.
        let end = next.saturating_add(content_blocks);
        if end > geometry.blocks {
            let size = u64::from(geometry.block_size.get());
            let message = format!(
                "the files and the container's structures need {} bytes, the container has {}",
                end.saturating_mul(size),
                geometry.blocks * size
            );
            return Err(Error::limit(LAYER, message));
        }
        Ok(Self {
            desc,
            data,
            ring,
            pool,
            omap,
            omap_tree,
            volumes,
            keybag,
            contents: next..end,
            gap,
            end,
        })
    }

    /// Returns the used blocks: two runs, ascending and disjoint.
    pub(super) fn used(&self) -> [Range<u64>; 2] {
        [0..self.gap.start, self.gap.end..self.end]
    }

    /// Returns the number of used blocks among `blocks`.
    pub(super) fn used_of(&self, blocks: Range<u64>) -> u64 {
        self.used()
            .iter()
            .map(|run| {
                run.end
                    .min(blocks.end)
                    .saturating_sub(run.start.max(blocks.start))
            })
            .sum()
    }

    /// Returns the number of blocks that are needed, regardless of the container's length.
    pub(super) fn needed(geometry: &Geometry, nodes: &[Nodes], content_blocks: u64) -> u64 {
        let own =
            gap(geometry).end + geometry.ring_blocks() + geometry.pool_blocks + 2 + keybags(nodes);
        nodes
            .iter()
            .map(|nodes| 1 + nodes.blocks())
            .sum::<u64>()
            .saturating_add(own)
            .saturating_add(content_blocks)
    }
}
