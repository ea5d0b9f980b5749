//! The space manager of a new container and its structures: bitmaps, chunk-info blocks, free
//! queues.

use std::ops::Range;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, transmute};

use super::XID;
use super::node::put;
use super::places::Places;
use crate::apfs::geometry::{Geometry, SpacemanArrays};
use crate::apfs::layout::{
    BlockSize, ChunkInfoRaw, ChunkRaw, FreeQueueRaw, NO_SLOT, ObjectRaw, Oid, Paddr, RING_VERSIONS,
    SPACEMAN_ARRAYS, SpacemanDeviceRaw, SpacemanRaw, SpacemanVersionRaw, Xid, blocks_per_chunk,
    chunks_per_cib, cibs_per_cab, object_type, space_device, spaceman_flags, storage,
    store_checksum,
};
use crate::bitmap::set_bits;
use crate::build::output::Output;
use bandsaw_core::Result;
use bandsaw_core::size::{narrow, to_usize};

/// Number of CIBs that are written in one call. A container of 8 TiB has 521 of them, and filling
/// fresh memory costs more than a few additional calls.
const CIBS_AT_A_TIME: u64 = 16;

/// The allocation state of a container whose used blocks are its first ones.
#[derive(Debug)]
pub(super) struct Space<'a> {
    geometry: &'a Geometry,
    places: &'a Places,
    /// Blocks per chunk, chunks per CIB, CIBs per CAB.
    per_chunk: u64,
    per_cib: u64,
    per_cab: u64,
}

/// Object numbers of the trees of the free queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queues {
    pub(super) pool: Oid,
    pub(super) main: Oid,
}

impl<'a> Space<'a> {
    pub(super) fn new(geometry: &'a Geometry, places: &'a Places) -> Self {
        let size = geometry.block_size;
        Self {
            geometry,
            places,
            per_chunk: blocks_per_chunk(size).into(),
            per_cib: chunks_per_cib(size).into(),
            per_cab: cibs_per_cab(size).into(),
        }
    }

    pub(super) fn free(&self) -> u64 {
        self.geometry.blocks - self.places.used_of(0..self.geometry.blocks)
    }

    /// Returns the number of chunks with used blocks; only these have bitmaps.
    fn bitmaps(&self) -> u64 {
        self.places.end.div_ceil(self.per_chunk)
    }

    /// Returns the block of a CIB: in the pool, bitmaps come first, then the CIBs and the CABs.
    fn cib(&self, index: u64) -> Paddr {
        Paddr(self.places.pool.0 + self.bitmaps() + index)
    }

    fn cab(&self, index: u64) -> Paddr {
        Paddr(self.cib(self.geometry.cibs).0 + index)
    }

    /// Returns the number of used blocks of the pool.
    fn pool_used(&self) -> u64 {
        self.bitmaps() + self.geometry.cibs + self.geometry.cabs
    }

    /// Writes ring and pool; the position of `out` is changed.
    pub(super) fn write_pool(&self, out: &mut Output<'_>) -> Result<()> {
        let size = u64::from(self.geometry.block_size.get());
        out.seek(self.places.ring.0 * size)?;
        self.append_bits(out, std::slice::from_ref(&(0..self.pool_used())))?;
        out.seek(self.places.pool.0 * size)?;
        self.append_bits(out, &self.places.used())?;
        for index in 0..self.geometry.cibs {
            if index.is_multiple_of(CIBS_AT_A_TIME) {
                out.flush()?;
            }
            out.append_with(to_usize(size), |block| {
                self.chunk_info(index, block);
                Ok(())
            })?;
        }
        for index in 0..self.geometry.cabs {
            out.append(&self.chunk_info_addresses(index))?;
        }
        out.flush()
    }

    /// Appends whole bitmap blocks with the bits of these runs set, up to the end of the last run.
    fn append_bits(&self, out: &mut Output<'_>, runs: &[Range<u64>]) -> Result<()> {
        let end = runs.iter().map(|run| run.end).max().unwrap_or(0);
        for start in (0..end).step_by(to_usize(self.per_chunk)) {
            let mut block = vec![0; self.geometry.block_size.bytes()];
            for run in runs {
                let inside =
                    |block: u64| to_usize(block.clamp(start, start + self.per_chunk) - start);
                set_bits(&mut block, inside(run.start)..inside(run.end));
            }
            out.append(&block)?;
        }
        Ok(())
    }

    /// Fills a CIB.
    fn chunk_info(&self, index: u64, block: &mut [u8]) {
        let chunks = index * self.per_cib..((index + 1) * self.per_cib).min(self.geometry.chunks);
        let at = put(
            block,
            0,
            &info_head(
                object_type::CHUNK_INFO,
                (self.cib(index), XID),
                index,
                &chunks,
            ),
        );
        let (entries, rest) = block[at..].as_chunks_mut::<{ size_of::<ChunkRaw>() }>();
        let (entries, unused) = entries.split_at_mut(to_usize(chunks.end - chunks.start));
        unused.as_flattened_mut().fill(0);
        rest.fill(0);
        for (chunk, entry) in chunks.zip(entries) {
            let first = chunk * self.per_chunk;
            let blocks = (self.geometry.blocks - first).min(self.per_chunk);
            // Nearly all of a large container's chunks are free.
            let used = if first < self.places.end {
                self.places.used_of(first..first + blocks)
            } else {
                0
            };
            let bitmap = if used > 0 {
                self.places.pool.0 + chunk
            } else {
                0
            };
            *entry = transmute!(ChunkRaw {
                xid: XID.into(),
                first: first.into(),
                // A chunk has 2^15 blocks of 4096 bytes, and larger blocks give 2^19.
                blocks: narrow::<u32>(blocks).into(),
                free: narrow::<u32>(blocks - used).into(),
                bitmap: bitmap.into(),
            });
        }
        store_checksum(block);
    }

    fn chunk_info_addresses(&self, index: u64) -> Vec<u8> {
        let cibs = index * self.per_cab..((index + 1) * self.per_cab).min(self.geometry.cibs);
        let mut block = info_block(
            self.geometry.block_size,
            object_type::CHUNK_INFO_ADDRESSES,
            (self.cab(index), XID),
            index,
            &cibs,
        );
        let mut at = size_of::<ChunkInfoRaw>();
        for cib in cibs {
            at += put(&mut block, at, &U64::from(self.cib(cib)));
        }
        store_checksum(&mut block);
        block
    }

    /// Returns the space manager, in whole blocks.
    pub(super) fn manager(&self, oid: Oid, queues: Queues) -> Vec<u8> {
        let geometry = self.geometry;
        let arrays = geometry.spaceman_arrays();
        let size = geometry.block_size;
        let queue = |tree_oid: Oid, limit: u16| FreeQueueRaw {
            tree_oid: tree_oid.into(),
            node_limit: limit.into(),
            ..FreeQueueRaw::default()
        };
        let mut queue_of = [FreeQueueRaw::default(); 3];
        queue_of[space_device::QUEUE_POOL] = queue(queues.pool, geometry.pool_queue_limit);
        queue_of[space_device::QUEUE_MAIN] = queue(queues.main, geometry.main_queue_limit);
        let mut devices = [SpacemanDeviceRaw::default(); 2];
        // All counts and offsets were bounded with the container's length.
        devices[space_device::MAIN] = SpacemanDeviceRaw {
            blocks: geometry.blocks.into(),
            chunks: geometry.chunks.into(),
            cibs: narrow::<u32>(geometry.cibs).into(),
            cabs: narrow::<u32>(geometry.cabs).into(),
            free: self.free().into(),
            addresses: narrow::<u32>(arrays.main).into(),
            ..SpacemanDeviceRaw::default()
        };
        devices[space_device::TIER_2].addresses = narrow::<u32>(arrays.tier_2).into();
        let slots = geometry.ring_blocks();
        let head = SpacemanRaw {
            object: ObjectRaw::new(oid, XID, object_type::SPACE_MANAGER | storage::EPHEMERAL, 0),
            block_size: size.get().into(),
            blocks_per_chunk: blocks_per_chunk(size).into(),
            chunks_per_cib: chunks_per_cib(size).into(),
            cibs_per_cab: cibs_per_cab(size).into(),
            devices,
            flags: spaceman_flags::VERSIONED.into(),
            ring_multiplier: RING_VERSIONS.into(),
            pool_blocks: geometry.pool_blocks.into(),
            pool_bitmap_blocks: narrow::<u32>(geometry.pool_bitmap_blocks).into(),
            ring_blocks: narrow::<u32>(slots).into(),
            ring_base: self.places.ring.into(),
            pool_base: self.places.pool.into(),
            reserved_blocks: 0.into(),
            reserved_allocated: 0.into(),
            queues: queue_of,
            ring_free_head: narrow::<u16>(geometry.pool_bitmap_blocks).into(),
            ring_free_tail: narrow::<u16>(slots - 1).into(),
            pool_xids: narrow::<u32>(arrays.pool_xids).into(),
            pool_slots: narrow::<u32>(arrays.pool_slots).into(),
            ring_free_next: narrow::<u32>(arrays.ring_free_next).into(),
        };
        let mut object = vec![0; to_usize(geometry.spaceman_blocks()) * size.bytes()];
        let at = put(&mut object, 0, &head);
        let version = SpacemanVersionRaw {
            version: 1.into(),
            struct_size: SPACEMAN_ARRAYS.into(),
            ..SpacemanVersionRaw::new_zeroed()
        };
        put(&mut object, at, &version);
        self.put_arrays(&mut object);
        store_checksum(&mut object);
        object
    }

    fn put_arrays(&self, object: &mut [u8]) {
        let (geometry, arrays) = (self.geometry, self.geometry.spaceman_arrays());
        put_ring(object, geometry, &arrays, XID);
        let listed = if geometry.cabs > 0 {
            geometry.cabs
        } else {
            geometry.cibs
        };
        for index in 0..listed {
            let place = if geometry.cabs > 0 {
                self.cab(index)
            } else {
                self.cib(index)
            };
            put(object, to_usize(arrays.main + 8 * index), &U64::from(place));
        }
    }
}

/// Returns a CIB or CAB for the chunks or blocks numbered `inside`, without its entries.
pub(in crate::apfs) fn info_block(
    size: BlockSize,
    kind: u32,
    (place, xid): (Paddr, Xid),
    index: u64,
    inside: &Range<u64>,
) -> Vec<u8> {
    let mut block = vec![0; size.bytes()];
    put(&mut block, 0, &info_head(kind, (place, xid), index, inside));
    block
}

fn info_head(
    kind: u32,
    (place, xid): (Paddr, Xid),
    index: u64,
    inside: &Range<u64>,
) -> ChunkInfoRaw {
    let object = ObjectRaw::new(Oid(place.0), xid, kind | storage::PHYSICAL, 0);
    // The number of CIBs of the largest container fits.
    ChunkInfoRaw {
        object,
        index: narrow::<u32>(index).into(),
        count: narrow::<u32>(inside.end - inside.start).into(),
    }
}

/// Writes the ring arrays into the space manager: the first slots are used, by the pool's bitmaps
/// in order.
pub(in crate::apfs) fn put_ring(
    object: &mut [u8],
    geometry: &Geometry,
    arrays: &SpacemanArrays,
    xid: Xid,
) {
    let (used, slots) = (geometry.pool_bitmap_blocks, geometry.ring_blocks());
    for bitmap in 0..used {
        put(
            object,
            to_usize(arrays.pool_xids + 8 * bitmap),
            &U64::from(xid),
        );
        put(
            object,
            to_usize(arrays.pool_slots + 2 * bitmap),
            &U16::new(narrow(bitmap)),
        );
    }
    for slot in 0..slots {
        let free = slot >= used && slot + 1 < slots;
        let next = if free {
            narrow::<u16>(slot + 1)
        } else {
            NO_SLOT
        };
        put(
            object,
            to_usize(arrays.ring_free_next + 2 * slot),
            &U16::new(next),
        );
    }
}
