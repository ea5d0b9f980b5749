//! Sizes of a container's own structures by its length (`docs/formats/apfs-write.md` §2).

use super::layout::{
    BlockSize, MAX_VOLUMES, RING_VERSIONS, SPACEMAN_ARRAYS, blocks_per_chunk,
    checkpoint_map_capacity, chunks_per_cib, cibs_per_cab,
};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

const LAYER: &str = "apfs";

/// Minimum length of a container in bytes: a disk of 1 MiB with a partition map is sufficient.
pub(crate) const MIN_CONTAINER_LEN: u64 = (1 << 20) - (64 << 10);
/// Maximum supported length of a container in bytes: for longer ones, the number of CIBs in the
/// space manager has not been observed.
pub(crate) const MAX_CONTAINER_LEN: u64 = 1 << 50;
/// A container may have one volume for each started unit of this many bytes.
pub(crate) const BYTES_PER_VOLUME: u64 = 512 << 20;
/// Below this length in bytes, bits 32 and up of `ephemeral_info` are the node limit of the main
/// queue.
const SMALL_CONTAINER: u64 = 128 << 20;
/// Number of checkpoints for which the areas have space.
const CHECKPOINTS: u64 = 4;

/// The sizes of a container of a certain length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) block_size: BlockSize,
    /// Number of blocks of the container.
    pub(crate) blocks: u64,
    /// Number of chunks: runs of blocks with one bitmap block each.
    pub(crate) chunks: u64,
    /// Number of CIBs, which describe chunks.
    pub(crate) cibs: u64,
    /// Number of CABs, which list CIBs; 0 while the space manager lists the CIBs itself.
    pub(crate) cabs: u64,
    /// Number of blocks of the pool, which holds bitmaps, CIBs and CABs in three versions.
    pub(crate) pool_blocks: u64,
    /// Number of blocks of the pool's own bitmap.
    pub(crate) pool_bitmap_blocks: u64,
    /// Maximum number of nodes of the pool's free queue.
    pub(crate) pool_queue_limit: u16,
    /// Maximum number of nodes of the main device's free queue.
    pub(crate) main_queue_limit: u16,
    /// Maximum number of volumes.
    pub(crate) max_volumes: u32,
    /// `nx_ephemeral_info[0]` of the container superblock.
    pub(crate) ephemeral_info: u64,
    /// Number of blocks of the descriptor area.
    pub(crate) desc_blocks: u32,
    /// Number of blocks of the data area.
    pub(crate) data_blocks: u32,
}

impl Geometry {
    /// Returns the sizes for a container of `len` bytes; an incomplete last block is not used.
    pub(crate) fn new(len: u64, block_size: BlockSize) -> Result<Self> {
        if !(MIN_CONTAINER_LEN..=MAX_CONTAINER_LEN).contains(&len) {
            let message = format!(
                "invalid container size {len}: expected {MIN_CONTAINER_LEN} to \
                 {MAX_CONTAINER_LEN} bytes"
            );
            return Err(Error::limit(LAYER, message));
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
            max_volumes: narrow(
                (blocks * bytes)
                    .div_ceil(BYTES_PER_VOLUME)
                    .min(MAX_VOLUMES as u64),
            ),
            ephemeral_info: 0,
            desc_blocks: 0,
            data_blocks: 0,
        };
        geometry.size_checkpoints();
        Ok(geometry)
    }

    /// Sizes the areas for four checkpoints. The documentation derives the formulas from containers
    /// that macOS made.
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
        // No overflow: at most 512 nodes, 1024 volumes' nodes and some blocks of a space manager.
        self.data_blocks = narrow::<u32>(CHECKPOINTS * objects);
        self.desc_blocks = narrow::<u32>(CHECKPOINTS * (maps + 1));
    }

    /// Returns the number of slots of the ring of the pool's bitmaps.
    pub(crate) fn ring_blocks(&self) -> u64 {
        self.pool_bitmap_blocks * u64::from(RING_VERSIONS)
    }

    /// Returns the offsets of the arrays of the space manager.
    pub(crate) fn spaceman_arrays(&self) -> SpacemanArrays {
        self.spaceman_arrays_from(SPACEMAN_ARRAYS)
    }

    /// Returns the offsets of the arrays of a space manager whose first array begins at
    /// `pool_xids`.
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

    /// Returns the number of blocks of the space manager.
    pub(crate) fn spaceman_blocks(&self) -> u64 {
        self.block_size.blocks_for(self.spaceman_arrays().tier_2)
    }
}

/// Offsets in the space manager, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpacemanArrays {
    pub(crate) pool_xids: u64,
    pub(crate) pool_slots: u64,
    pub(crate) ring_free_next: u64,
    /// Addresses of the main device.
    pub(crate) main: u64,
    /// Addresses of the second tier, which has none; also the end.
    pub(crate) tier_2: u64,
}

fn pool_queue_limit(chunks: u64) -> u16 {
    limit(3 * (chunks + 751) / 1127 - 1)
}

/// Returns the exact limit that `apfsck` requires and, by report, macOS too.
fn main_queue_limit(blocks: u64) -> u16 {
    limit(match blocks {
        0..0x4_0000 => 1 + blocks.saturating_sub(1) / 4544,
        0x4_0000..0x10_0000 => 116 + blocks.saturating_sub(261_281) / 2272,
        _ => 512,
    })
}

/// Returns a limit other than 2: a tree of two nodes would have one leaf.
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
    use bandsaw_core::Kind;

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
        // All fields are large enough at the maximum length.
        assert!(
            Geometry::new(MAX_CONTAINER_LEN, BlockSize::DEFAULT)
                .unwrap()
                .pool_blocks
                > 0
        );
    }
}
