//! Resize of a container (§6): its chunks, their CIBs, and the pool that holds these.
//!
//! If the number of chunks stays the same, only the record of the last one changes. Otherwise the
//! size of the pool changes, and it is moved to free blocks with all of its contents: nothing that
//! a checkpoint refers to is overwritten.

use std::ops::Range;

use zerocopy::little_endian::U64;

use super::{ChunkBitmap, LAYER, SMALL, Space, chunk_at, corrupt};
use crate::apfs::build::node::put;
use crate::apfs::build::space::{info_block, put_ring};
use crate::apfs::geometry::{Geometry, SpacemanArrays};
use crate::apfs::layout::{
    CHUNK_COUNT_MASK, ChunkRaw, Oid, Paddr, SPACEMAN_ARRAYS, SpacemanRaw, chunks_per_cib,
    cibs_per_cab, object_type, space_device, store_checksum,
};
use crate::apfs::write::queue::Queue;
use crate::bitmap::{clear_bits, count_clear, run_at, set_bits};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Reason, Result};

/// Number of bytes of CIBs per write.
const PIECE: usize = 1 << 20;

/// Numbers of blocks of the container before and after.
#[derive(Debug, Clone, Copy)]
struct BlockCounts {
    from: u64,
    to: u64,
}

/// The blocks used by anything but the space manager.
#[derive(Debug, Clone, Copy)]
pub(in crate::apfs::write) struct FixedBlocks {
    /// Block after the last of these.
    pub(in crate::apfs::write) end: u64,
    /// Number of these blocks.
    pub(in crate::apfs::write) blocks: u64,
}

impl Space {
    /// Returns the blocks of the pool, and those of the ring of its bitmaps.
    fn own(&self) -> [Range<u64>; 2] {
        let run = |base: u64, blocks: u64| base..base.saturating_add(blocks);
        [
            run(self.head.pool_base.get(), self.head.pool_blocks.get()),
            run(
                self.head.ring_base.get(),
                self.head.ring_blocks.get().into(),
            ),
        ]
    }

    /// Returns the block after the last one that the space manager itself uses.
    pub(in crate::apfs::write) fn own_end(&self) -> u64 {
        self.own().into_iter().map(|run| run.end).max().unwrap_or(0)
    }

    /// Returns the blocks that stay in place: all but the space manager's own and those in the free
    /// queue.
    pub(in crate::apfs::write) fn kept(&mut self) -> Result<FixedBlocks> {
        let movable: Vec<_> = self
            .own()
            .into_iter()
            .chain(self.main_queue.iter())
            .collect();
        let apart: u64 = movable
            .iter()
            .map(|run| run.end.saturating_sub(run.start))
            .sum();
        let blocks = self
            .store
            .blocks
            .saturating_sub(self.free)
            .saturating_sub(apart);
        let span = BlockCounts {
            from: self.store.blocks,
            to: self.store.blocks,
        };
        for chunk in (0..self.store.blocks.div_ceil(self.per_chunk())).rev() {
            let (raw, free, len) = self.future(chunk, span)?;
            if free == len {
                continue;
            }
            let first = chunk * self.per_chunk();
            let mut bits = self.used_bits(chunk, &raw)?;
            for run in movable
                .iter()
                .filter(|run| run.start < first + len && run.end > first)
            {
                clear_bits(
                    &mut bits,
                    to_usize(run.start.max(first) - first)
                        ..to_usize(run.end.min(first + len) - first),
                );
            }
            if let Some(byte) = bits.iter().rposition(|byte| *byte != 0) {
                let end = first + byte as u64 * 8 + 8 - u64::from(bits[byte].leading_zeros());
                return Ok(FixedBlocks { end, blocks });
            }
            self.forget_info(chunk);
        }
        Ok(FixedBlocks { end: 0, blocks })
    }

    /// Changes the container to the sizes of `to`. The pool and its ring are moved below block
    /// `ceiling` if necessary; blocks past the new end must be free. Bitmaps and CIBs are written
    /// to free blocks, everything else with the next commit.
    ///
    /// [`Kind::Limit`](bandsaw_core::Kind), with nothing written, if there is no space for the pool.
    pub(in crate::apfs::write) fn resize(
        &mut self,
        to: &Geometry,
        ceiling: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let span = BlockCounts {
            from: self.store.blocks,
            to: to.blocks,
        };
        let chunks = span.from.div_ceil(self.per_chunk());
        let stays = chunks == to.chunks
            && self.head.pool_blocks.get() == to.pool_blocks
            && self.own_end() <= ceiling;
        let place = if stays {
            None
        } else {
            Some(self.place(to, span, ceiling)?)
        };
        self.stretch(span);
        match place {
            Some(place) => self.rebuild(to, span, place, progress)?,
            None => {
                let last = to.chunks.saturating_sub(1);
                let (raw, _, _) = self.future(last, span)?;
                let (xid, per_cib) = (self.xid, u64::from(chunks_per_cib(self.store.block_size)));
                let info = self.info(last / per_cib)?;
                put(
                    &mut info.bytes,
                    chunk_at(last % per_cib),
                    &ChunkRaw {
                        xid: xid.into(),
                        ..raw
                    },
                );
                info.changed = true;
            }
        }
        self.store.blocks = to.blocks;
        let main = &mut self.head.devices[space_device::MAIN];
        (main.blocks, main.chunks) = (to.blocks.into(), to.chunks.into());
        // No truncation: the numbers of the largest container fit.
        (main.cibs, main.cabs) = (narrow::<u32>(to.cibs).into(), narrow::<u32>(to.cabs).into());
        self.head.queues[space_device::QUEUE_POOL].node_limit = to.pool_queue_limit.into();
        self.head.queues[space_device::QUEUE_MAIN].node_limit = to.main_queue_limit.into();
        if to.blocks < span.from
            && let Some(zones) = self
                .manager
                .get_mut(size_of::<SpacemanRaw>() + 8..SPACEMAN_ARRAYS as usize)
        {
            // These hints for the allocator may refer to blocks past the end.
            if self.head.pool_xids.get() >= SPACEMAN_ARRAYS {
                zones.fill(0);
            }
        }
        Ok(())
    }

    /// Returns the new first blocks of the ring, if it moves, and of the pool.
    fn place(
        &mut self,
        to: &Geometry,
        span: BlockCounts,
        ceiling: u64,
    ) -> Result<(Option<u64>, u64)> {
        let [pool, ring] = self.own();
        // A shorter pool needs a new ring: bits past the pool's end must be clear in every slot,
        // used or not.
        let shorter = to.pool_blocks < pool.end - pool.start;
        let moves = shorter
            || u64::from(self.head.ring_blocks.get()) != to.ring_blocks()
            || ring.end > ceiling;
        let ring_blocks = if moves { to.ring_blocks() } else { 0 };
        let blocks = ring_blocks + to.pool_blocks;
        // The first block numbers are reserved as object numbers, and are used only in small
        // containers.
        let found = match self.find_run(blocks, span, Oid::FIRST_USER.0..ceiling)? {
            None if ceiling < SMALL => self.find_run(blocks, span, 0..ceiling)?,
            found => found,
        };
        let Some(start) = found else {
            let message = format!(
                "not enough room: the space manager needs {blocks} contiguous free blocks below \
                 block {ceiling}"
            );
            return Err(Error::limit(LAYER, message).because(Reason::VolumeFull));
        };
        Ok((moves.then_some(start), start + ring_blocks))
    }

    /// Returns the first free run of `wanted` blocks within `range`.
    fn find_run(
        &mut self,
        wanted: u64,
        span: BlockCounts,
        Range {
            mut start,
            end: ceiling,
        }: Range<u64>,
    ) -> Result<Option<u64>> {
        for chunk in start / self.per_chunk()..ceiling.div_ceil(self.per_chunk()) {
            let first = chunk * self.per_chunk();
            let (raw, free, len) = self.future(chunk, span)?;
            if free == 0 {
                start = first + len;
            } else if free < len {
                let bits = self.used_bits(chunk, &raw)?;
                let mut at = 0;
                while at < to_usize(len) {
                    let (used, until) = run_at(&bits, at, to_usize(len));
                    let end = first + until as u64;
                    if used {
                        start = start.max(end);
                    } else if end.min(ceiling).saturating_sub(start) >= wanted {
                        return Ok(Some(start));
                    }
                    at = until;
                }
            } else if (first + len).min(ceiling).saturating_sub(start) >= wanted {
                return Ok(Some(start));
            }
            self.forget_info(chunk);
        }
        Ok(None)
    }

    /// Drops all cached CIBs but changed ones and that of this chunk, to limit memory use.
    fn forget_info(&mut self, chunk: u64) {
        let cib = chunk / u64::from(chunks_per_cib(self.store.block_size));
        self.infos
            .retain(|other, info| info.changed || *other == cib);
    }

    /// Returns the new record of a chunk, its number of free blocks and its number of blocks.
    fn future(&mut self, chunk: u64, span: BlockCounts) -> Result<(ChunkRaw, u64, u64)> {
        let first = chunk * self.per_chunk();
        let len = |blocks: u64| blocks.saturating_sub(first).min(self.per_chunk());
        // A shrunk container contains the blocks past its new end until it is truncated.
        let (was, is) = (len(span.from), len(span.to));
        let mut raw = ChunkRaw {
            first: first.into(),
            ..ChunkRaw::default()
        };
        let (mut recorded, mut flags) = (0, 0);
        if was > 0 {
            (raw, recorded) = self.chunk(chunk)?;
            flags = raw.blocks.get() & !CHUNK_COUNT_MASK;
        }
        let free = match self.bits.get(&chunk) {
            Some(bits) if bits.blocks == is => bits.free,
            _ => (recorded + is).saturating_sub(was),
        };
        // No truncation: a chunk has at most 2^19 blocks.
        raw.blocks = (flags | narrow::<u32>(is)).into();
        raw.free = (raw.free.get() & !CHUNK_COUNT_MASK | narrow::<u32>(free)).into();
        Ok((raw, free, is))
    }

    /// Returns the bitmap of a chunk without adding it to those in memory.
    fn used_bits(&self, chunk: u64, raw: &ChunkRaw) -> Result<Vec<u8>> {
        match (self.bits.get(&chunk), raw.bitmap.get()) {
            (Some(bits), _) => Ok(bits.used.clone()),
            (None, 0) => Ok(vec![0; self.store.block_size.bytes()]),
            (None, place) => Ok(self.store.read(LAYER, Paddr(place), 1)?.into_vec()),
        }
    }

    /// Updates the lengths of the chunks in memory, and the number of free blocks of the container.
    fn stretch(&mut self, span: BlockCounts) {
        let per_chunk = self.per_chunk();
        self.bits.retain(|chunk, _| chunk * per_chunk < span.to);
        for (chunk, bits) in &mut self.bits {
            let is = (span.to - chunk * per_chunk).min(per_chunk);
            bits.free = (bits.free + is).saturating_sub(bits.blocks);
            bits.blocks = is;
        }
        self.free = (self.free + span.to).saturating_sub(span.from);
    }

    /// Loads the bitmap of a chunk, which may be a new one.
    fn load(&mut self, chunk: u64, span: BlockCounts) -> Result<()> {
        if self.bits.contains_key(&chunk) {
            return Ok(());
        }
        let (raw, free, blocks) = self.future(chunk, span)?;
        let used = self.used_bits(chunk, &raw)?;
        if count_clear(&used, to_usize(blocks)) as u64 != free {
            return Err(corrupt(format!(
                "the record of chunk {chunk} has {free} free blocks, but its bitmap has another \
                 number"
            )));
        }
        let fresh = vec![0; used.len()];
        self.bits.insert(
            chunk,
            ChunkBitmap {
                used,
                fresh,
                blocks,
                free,
                changed: false,
            },
        );
        Ok(())
    }

    /// Writes everything in the pool to a new pool.
    fn rebuild(
        &mut self,
        to: &Geometry,
        span: BlockCounts,
        place: (Option<u64>, u64),
        progress: &dyn Progress,
    ) -> Result<()> {
        let (ring, pool) = place;
        let arrays = self.arrays(to)?;
        let run = ring.unwrap_or(pool)..pool + to.pool_blocks;
        for chunk in run.start / self.per_chunk()..run.end.div_ceil(self.per_chunk()) {
            self.load(chunk, span)?;
        }
        self.store.blocks = span.from.max(span.to);
        self.occupy(run)?;
        let [old_pool, old_ring] = self.own();
        let used = self.write_infos(to, span, pool, progress)?;
        self.bits.clear();
        self.infos.clear();
        self.rollback.clear();

        self.pool = vec![0; to_usize(to.pool_bitmap_blocks) * self.store.block_size.bytes()];
        set_bits(&mut self.pool, 0..to_usize(used));
        self.pool_queue = Queue::default();
        self.main_queue.add(self.xid, old_pool);
        self.head.pool_blocks = to.pool_blocks.into();
        self.head.pool_base = pool.into();
        self.lay_out(to, &arrays, ring.is_some());
        if let Some(ring) = ring {
            self.main_queue.add(self.xid, old_ring);
            self.head.pool_bitmap_blocks = narrow::<u32>(to.pool_bitmap_blocks).into();
            self.head.ring_blocks = narrow::<u32>(to.ring_blocks()).into();
            self.head.ring_base = ring.into();
            // No truncation: the largest ring has 2^14 slots.
            self.head.ring_free_head = narrow::<u16>(to.pool_bitmap_blocks).into();
            self.head.ring_free_tail = narrow::<u16>(to.ring_blocks() - 1).into();
            let mut slots = self.pool.clone();
            slots.resize(
                to_usize(to.ring_blocks()) * self.store.block_size.bytes(),
                0,
            );
            self.store
                .device
                .write_at(self.store.offset(Paddr(ring)), &slots)?;
            self.pool_changed = false;
        } else {
            self.pool_changed = true;
        }
        Ok(())
    }

    /// Writes bitmaps and CIBs of all chunks into the pool that begins at `pool`, CIBs first.
    /// Returns the number of its used blocks.
    fn write_infos(
        &mut self,
        to: &Geometry,
        span: BlockCounts,
        pool: u64,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let (size, xid) = (self.store.block_size, self.xid);
        let (per_cib, per_cab) = (
            u64::from(chunks_per_cib(size)),
            u64::from(cibs_per_cab(size)),
        );
        let cib_at = |cib: u64| Paddr(pool + cib);
        let mut next = to.cibs + to.cabs;
        let mut blocks = Vec::new();
        for cib in 0..to.cibs {
            progress.check()?;
            let chunks = cib * per_cib..((cib + 1) * per_cib).min(to.chunks);
            let mut block = info_block(
                size,
                object_type::CHUNK_INFO,
                (cib_at(cib), xid),
                cib,
                &chunks,
            );
            for chunk in chunks {
                let (mut raw, free, len) = self.future(chunk, span)?;
                raw.xid = xid.into();
                if free < len {
                    let bits = self.used_bits(chunk, &raw)?;
                    raw.bitmap = (pool + next).into();
                    self.store
                        .device
                        .write_at(self.store.offset(Paddr(pool + next)), &bits)?;
                    next += 1;
                } else {
                    raw.bitmap = 0.into();
                }
                put(&mut block, chunk_at(chunk % per_cib), &raw);
            }
            store_checksum(&mut block);
            blocks.extend_from_slice(&block);
            if blocks.len() >= PIECE || cib + 1 == to.cibs {
                let first = cib + 1 - blocks.len() as u64 / u64::from(size.get());
                self.store
                    .device
                    .write_at(self.store.offset(cib_at(first)), &blocks)?;
                blocks.clear();
            }
            self.infos.remove(&cib);
        }
        self.cibs = (0..to.cibs).map(|cib| cib_at(cib).0).collect();
        self.cabs = (0..to.cabs).map(|cab| cib_at(to.cibs + cab).0).collect();
        for (cab, place) in (0..).zip(&self.cabs) {
            let cibs = cab * per_cab..((cab + 1) * per_cab).min(to.cibs);
            let mut block = info_block(
                size,
                object_type::CHUNK_INFO_ADDRESSES,
                (Paddr(*place), xid),
                cab,
                &cibs,
            );
            for cib in cibs {
                put(
                    &mut block,
                    chunk_at(0) + 8 * to_usize(cib % per_cab),
                    &U64::from(cib_at(cib)),
                );
            }
            store_checksum(&mut block);
            self.store
                .device
                .write_at(self.store.offset(Paddr(*place)), &block)?;
        }
        Ok(next)
    }

    /// Returns the new offsets of the space manager's arrays.
    fn arrays(&self, to: &Geometry) -> Result<SpacemanArrays> {
        let head = &self.head;
        let first = head.pool_xids.get();
        let others = [
            head.pool_slots,
            head.ring_free_next,
            head.devices[space_device::MAIN].addresses,
        ];
        let least = if first < SPACEMAN_ARRAYS {
            narrow::<u32>(size_of::<SpacemanRaw>())
        } else {
            SPACEMAN_ARRAYS
        };
        if first < least
            || first as usize > self.manager.len()
            || others.iter().any(|other| other.get() < first)
        {
            return Err(Error::unsupported(
                LAYER,
                "cannot resize: unknown order of the space manager's arrays",
            ));
        }
        Ok(to.spaceman_arrays_from(first))
    }

    /// Rebuilds the space manager with new offsets of its arrays.
    fn lay_out(&mut self, to: &Geometry, arrays: &SpacemanArrays, new_ring: bool) {
        let size = self.store.block_size;
        let head = &mut self.head;
        let old = std::mem::replace(
            &mut self.manager,
            vec![0; to_usize(size.blocks_for(arrays.tier_2)) * size.bytes()],
        );
        let kept = head.pool_xids.get() as usize;
        self.manager[..kept].copy_from_slice(&old[..kept]);
        if new_ring {
            put_ring(&mut self.manager, to, arrays, self.xid);
        } else {
            for (from, at, len) in [
                (head.pool_xids, arrays.pool_xids, 8 * to.pool_bitmap_blocks),
                (
                    head.pool_slots,
                    arrays.pool_slots,
                    2 * to.pool_bitmap_blocks,
                ),
                (
                    head.ring_free_next,
                    arrays.ring_free_next,
                    2 * to.ring_blocks(),
                ),
            ] {
                let bytes = old.get(from.get() as usize..).unwrap_or_default();
                let bytes = &bytes[..bytes.len().min(to_usize(len))];
                put(&mut self.manager, to_usize(at), bytes);
            }
        }
        let listed = if self.cabs.is_empty() {
            &self.cibs
        } else {
            &self.cabs
        };
        for (index, place) in listed.iter().enumerate() {
            put(
                &mut self.manager,
                to_usize(arrays.main) + 8 * index,
                &U64::from(*place),
            );
        }
        // No truncation: the space manager has some blocks only.
        head.pool_xids = narrow::<u32>(arrays.pool_xids).into();
        head.pool_slots = narrow::<u32>(arrays.pool_slots).into();
        head.ring_free_next = narrow::<u32>(arrays.ring_free_next).into();
        head.devices[space_device::MAIN].addresses = narrow::<u32>(arrays.main).into();
        head.devices[space_device::TIER_2].addresses = narrow::<u32>(arrays.tier_2).into();
    }
}
