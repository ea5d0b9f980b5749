//! How large a container's own structures are, by its size (`docs/formats/apfs-write.md` §2).

use super::layout::{
    BlockSize, MAX_VOLUMES, RING_VERSIONS, SPACEMAN_ARRAYS, blocks_per_chunk,
    checkpoint_map_capacity, chunks_per_cib, cibs_per_cab,
};
use crate::{Error, Kind, Result};

const LAYER: &str = "apfs";

/// The least that makes a container: a disk of 1 MiB with a partition map is enough.
pub(crate) const MIN_CONTAINER_LEN: u64 = (1 << 20) - (64 << 10);
/// The most that this knows the structures of: beyond, the space manager's numbers of CIBs have not
/// been seen anywhere.
pub(crate) const MAX_CONTAINER_LEN: u64 = 1 << 50;
/// A container has room for one volume more for each started one of so many bytes.
pub(crate) const BYTES_PER_VOLUME: u64 = 512 << 20;
/// Below, the fourth of the words about ephemeral objects is larger.
const SMALL_CONTAINER: u64 = 128 << 20;
/// Checkpoints that the areas have room for.
const CHECKPOINTS: u64 = 4;

/// The sizes of a container of a certain length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) block_size: BlockSize,
    /// Blocks of the container.
    pub(crate) blocks: u64,
    /// Runs of blocks with a bitmap each.
    pub(crate) chunks: u64,
    /// Blocks that describe chunks.
    pub(crate) cibs: u64,
    /// Blocks that list CIBs; 0 while the space manager lists them itself.
    pub(crate) cabs: u64,
    /// Blocks of the pool that holds all of these in three versions.
    pub(crate) pool_blocks: u64,
    /// Blocks of the pool's own bitmap.
    pub(crate) pool_bitmap_blocks: u64,
    /// Nodes that the free queue of the pool may have.
    pub(crate) pool_queue_limit: u16,
    /// Nodes that the free queue of the device may have.
    pub(crate) main_queue_limit: u16,
    /// Volumes that the container has room for.
    pub(crate) max_volumes: u32,
    /// The first word about ephemeral objects in the container superblock.
    pub(crate) ephemeral_info: u64,
    /// Blocks of the ring of checkpoint maps and superblocks.
    pub(crate) desc_blocks: u32,
    /// Blocks of the ring of ephemeral objects.
    pub(crate) data_blocks: u32,
}

impl Geometry {
    /// The sizes for a container of `len` bytes, of which the last block's fraction is left alone.
    pub(crate) fn new(len: u64, block_size: BlockSize) -> Result<Self> {
        if !(MIN_CONTAINER_LEN..=MAX_CONTAINER_LEN).contains(&len) {
            let message = format!(
                "a container has {MIN_CONTAINER_LEN} to {MAX_CONTAINER_LEN} bytes, not {len}"
            );
            return Err(Error::new(Kind::Limit, LAYER, message));
        }
        let bytes = u64::from(block_size.get());
        let blocks = len / bytes;
        let chunks = blocks.div_ceil(blocks_per_chunk(block_size).into());
        let cibs = chunks.div_ceil(chunks_per_cib(block_size).into());
        let cabs = match cibs.div_ceil(cibs_per_cab(block_size).into()) {
            1 => 0,
            more => more,
        };
        let pool_blocks = 3 * (chunks + cibs + cabs);
        let mut geometry = Self {
            block_size,
            blocks,
            chunks,
            cibs,
            cabs,
            pool_blocks,
            pool_bitmap_blocks: pool_blocks.div_ceil(blocks_per_chunk(block_size).into()),
            pool_queue_limit: pool_queue_limit(chunks),
            main_queue_limit: main_queue_limit(blocks),
            // At most a hundred.
            max_volumes: (blocks * bytes)
                .div_ceil(BYTES_PER_VOLUME)
                .min(MAX_VOLUMES as u64) as u32,
            ephemeral_info: 0,
            desc_blocks: 0,
            data_blocks: 0,
        };
        geometry.size_checkpoints();
        Ok(geometry)
    }

    /// Room for four checkpoints: the page derived the formulas from containers that macOS made.
    fn size_checkpoints(&mut self) {
        let limit = u64::from(self.main_queue_limit);
        let per_volume = if self.blocks * u64::from(self.block_size.get()) < SMALL_CONTAINER {
            limit
        } else {
            8
        };
        self.ephemeral_info = per_volume << 32 | CHECKPOINTS << 16 | 1;
        let objects = 2 + self.spaceman_blocks() + u64::from(self.pool_queue_limit) + limit;
        let objects = objects + 8 * per_volume * u64::from(self.max_volumes);
        let maps = objects.div_ceil(checkpoint_map_capacity(self.block_size) as u64);
        // All are small: at most 512 nodes, 1024 volumes' nodes and some blocks of a space manager.
        self.data_blocks = (CHECKPOINTS * objects) as u32;
        self.desc_blocks = (CHECKPOINTS * (maps + 1)) as u32;
    }

    /// Slots of the ring of the pool's bitmaps.
    pub(crate) fn ring_blocks(&self) -> u64 {
        self.pool_bitmap_blocks * u64::from(RING_VERSIONS)
    }

    /// Where the arrays of the space manager begin.
    pub(crate) fn spaceman_arrays(&self) -> SpacemanArrays {
        self.spaceman_arrays_from(SPACEMAN_ARRAYS)
    }

    /// The same of one in which the first of them begins at `pool_xids`.
    pub(crate) fn spaceman_arrays_from(&self, pool_xids: u32) -> SpacemanArrays {
        let aligned = |len: u64| len.next_multiple_of(8);
        let pool_xids = u64::from(pool_xids);
        let pool_slots = pool_xids + 8 * self.pool_bitmap_blocks;
        let ring_free_next = pool_slots + aligned(2 * self.pool_bitmap_blocks);
        let main = ring_free_next + aligned(2 * self.ring_blocks());
        let tier_2 = main + 8 * if self.cabs > 0 { self.cabs } else { self.cibs };
        SpacemanArrays {
            pool_xids,
            pool_slots,
            ring_free_next,
            main,
            tier_2,
        }
    }

    /// Blocks of the space manager.
    pub(crate) fn spaceman_blocks(&self) -> u64 {
        self.block_size.blocks_for(self.spaceman_arrays().tier_2)
    }
}

/// Offsets in the space manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpacemanArrays {
    pub(crate) pool_xids: u64,
    pub(crate) pool_slots: u64,
    pub(crate) ring_free_next: u64,
    /// Addresses of the main device.
    pub(crate) main: u64,
    /// Those of the second tier, of which there are none; also the end.
    pub(crate) tier_2: u64,
}

fn pool_queue_limit(chunks: u64) -> u16 {
    limit(3 * (chunks + 751) / 1127 - 1)
}

/// As `apfsck` demands it exactly, and by report macOS too.
fn main_queue_limit(blocks: u64) -> u16 {
    limit(match blocks {
        0..0x4_0000 => 1 + blocks.saturating_sub(1) / 4544,
        0x4_0000..0x10_0000 => 116 + blocks.saturating_sub(261_281) / 2272,
        _ => 512,
    })
}

/// No queue has two nodes: a tree of two would have one leaf.
fn limit(nodes: u64) -> u16 {
    match u16::try_from(nodes) {
        Ok(2) => 3,
        Ok(nodes) => nodes,
        Err(_) => u16::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blocks: u64) -> Geometry {
        Geometry::new(blocks * 4096, BlockSize::DEFAULT).unwrap()
    }

    #[test]
    fn the_areas_are_those_of_containers_made_by_macos() {
        for (blocks, desc, data) in [
            (1014, 8, 52),
            (4086, 8, 52),
            (12288, 8, 124),
            (32758, 8, 304),
        ] {
            let geometry = of(blocks);
            assert_eq!(
                (geometry.desc_blocks, geometry.data_blocks),
                (desc, data),
                "{blocks}"
            );
        }
        for blocks in [67_000_000, 117_000_000, 183_000_000, 268_000_000] {
            assert_eq!(of(blocks).desc_blocks, 280);
        }
        // 50 GiB: the largest data area that is known.
        assert_eq!(of(50 << 18).data_blocks, 27672);
    }

    #[test]
    fn arrays_of_a_small_container() {
        let arrays = of(1014).spaceman_arrays();
        assert_eq!(
            (arrays.pool_xids, arrays.pool_slots, arrays.ring_free_next),
            (0x9D8, 0x9E0, 0x9E8)
        );
        assert_eq!((arrays.main, arrays.tier_2), (0xA08, 0xA10));
        assert_eq!(
            (
                of(1014).pool_blocks,
                of(1014).ring_blocks(),
                of(1014).spaceman_blocks()
            ),
            (6, 16, 1)
        );
    }

    #[test]
    fn lists_of_cibs_appear_when_one_block_is_not_enough() {
        let most = 507 * 126 * 32768;
        assert_eq!(
            (of(most).cibs, of(most).cabs, of(most).spaceman_blocks()),
            (507, 0, 2)
        );
        assert_eq!(
            (
                of(most + 1).cibs,
                of(most + 1).cabs,
                of(most + 1).spaceman_blocks()
            ),
            (508, 2, 1)
        );
        assert_eq!(of(most + 1).max_volumes, 100);
    }

    #[test]
    fn containers_have_bounds() {
        for len in [0, MIN_CONTAINER_LEN - 1, MAX_CONTAINER_LEN + 1, u64::MAX] {
            assert_eq!(
                Geometry::new(len, BlockSize::DEFAULT).unwrap_err().kind(),
                Kind::Limit
            );
        }
        assert_eq!(of(256).max_volumes, 1);
        assert_eq!(of((512 << 20) / 4096 + 1).max_volumes, 2);
        // At the bound everything still fits its field.
        assert!(
            Geometry::new(MAX_CONTAINER_LEN, BlockSize::DEFAULT)
                .unwrap()
                .pool_blocks
                > 0
        );
    }
}
