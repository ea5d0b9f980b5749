//! The space manager's part of a commit: bitmaps, CIBs, the pool that holds them, and the space
//! manager itself.

use std::collections::BTreeMap;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::{Block, LAYER, Space, chunk_at, corrupt};
use crate::apfs::build::node::put;
use crate::apfs::layout::{
    CHUNK_COUNT_MASK, ChunkInfoRaw, NO_SLOT, ObjectRaw, Oid, Paddr, Xid, chunks_per_cib,
    cibs_per_cab, object_type, space_device, store_checksum,
};
use crate::bitmap::{run_at, set_bits};
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Reason, Result};

/// Number of chunk bitmaps that stay in memory after a commit.
const KEPT: usize = 64;

impl Space {
    fn pool_take(&mut self) -> Result<Paddr> {
        let blocks = to_usize(self.head.pool_blocks.get());
        let (used, until) = run_at(&self.pool, 0, blocks);
        let at = if used { until } else { 0 };
        if at >= blocks {
            let message = "the pool of the space manager is full";
            return Err(Error::limit(LAYER, message).because(Reason::VolumeFull));
        }
        set_bits(&mut self.pool, at..at + 1);
        self.pool_changed = true;
        Ok(Paddr(self.head.pool_base.get() + at as u64))
    }

    fn pool_give(&mut self, place: u64) {
        if place != 0 {
            self.pool_queue.add(self.xid, place..place + 1);
        }
    }

    /// Returns all bitmaps, CIBs and CABs to be written, and marks them as committed.
    pub(in crate::apfs::write) fn write_bitmaps(&mut self) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        let per_cib = u64::from(chunks_per_cib(self.store.block_size));
        let changed: Vec<u64> = self
            .bits
            .iter()
            .filter(|(_, bits)| bits.changed)
            .map(|(chunk, _)| *chunk)
            .collect();
        for chunk in changed {
            let (mut raw, free) = self.chunk(chunk)?;
            let place = self.pool_take()?;
            self.pool_give(raw.bitmap.get());
            raw.xid = self.xid.into();
            // The other bits are hints; a chunk has at most 2^19 blocks.
            raw.free = (raw.free.get() & !CHUNK_COUNT_MASK | narrow::<u32>(free)).into();
            raw.bitmap = place.into();
            let bits = self.bits(chunk)?;
            bits.changed = false;
            bits.fresh.fill(0);
            blocks.push((place, bits.used.clone()));
            let info = self.info(chunk / per_cib)?;
            put(&mut info.bytes, chunk_at(chunk % per_cib), &raw);
            info.changed = true;
        }
        self.write_chunk_infos(&mut blocks)?;
        if self.pool_changed {
            self.write_pool(&mut blocks)?;
        }
        if self.bits.len() > KEPT {
            self.bits.clear();
        }
        self.rollback.clear();
        Ok(blocks)
    }

    fn write_chunk_infos(&mut self, blocks: &mut Vec<Block>) -> Result<()> {
        let changed: Vec<u64> = self
            .infos
            .iter()
            .filter(|(_, info)| info.changed)
            .map(|(cib, _)| *cib)
            .collect();
        let per_cab = u64::from(cibs_per_cab(self.store.block_size));
        let mut cabs = BTreeMap::new();
        for cib in changed {
            let place = self.pool_take()?;
            let old = std::mem::replace(&mut self.cibs[to_usize(cib)], place.0);
            self.pool_give(old);
            let xid = self.xid;
            let info = self.info(cib)?;
            info.changed = false;
            renumber(&mut info.bytes, place, xid);
            blocks.push((place, info.bytes.clone()));
            cabs.entry(cib / per_cab)
                .or_insert_with(Vec::new)
                .push((cib, place));
        }
        let addresses = self.head.devices[space_device::MAIN].addresses.get() as usize;
        if self.cabs.is_empty() {
            for (cib, place) in cabs.into_values().flatten() {
                put(
                    &mut self.manager,
                    addresses + 8 * to_usize(cib),
                    &U64::from(place),
                );
            }
            return Ok(());
        }
        for (cab, changed) in cabs {
            let old = self.cabs[to_usize(cab)];
            let mut bytes = self
                .store
                .object(LAYER, Paddr(old), object_type::CHUNK_INFO_ADDRESSES)?
                .into_vec();
            for (cib, place) in changed {
                put(
                    &mut bytes,
                    size_of::<ChunkInfoRaw>() + 8 * to_usize(cib % per_cab),
                    &U64::from(place),
                );
            }
            let place = self.pool_take()?;
            self.pool_give(old);
            renumber(&mut bytes, place, self.xid);
            self.cabs[to_usize(cab)] = place.0;
            put(
                &mut self.manager,
                addresses + 8 * to_usize(cab),
                &U64::from(place),
            );
            blocks.push((place, bytes));
        }
        Ok(())
    }

    /// Moves the pool's bitmaps to the next slots of their ring, so that the old ones remain valid
    /// after a crash.
    fn write_pool(&mut self, blocks: &mut Vec<Block>) -> Result<()> {
        self.pool_changed = false;
        let (slots, next, xids) = (
            self.head.pool_slots.get(),
            self.head.ring_free_next.get(),
            self.head.pool_xids.get(),
        );
        let size = self.store.block_size.bytes();
        for bitmap in 0..self.head.pool_bitmap_blocks.get() {
            let (old, new) = (self.array16(slots, bitmap)?, self.head.ring_free_head.get());
            if u32::from(new) >= self.head.ring_blocks.get() {
                return Err(corrupt("the ring of the pool's bitmaps has no free slot"));
            }
            let tail = self.head.ring_free_tail.get();
            self.head.ring_free_head = self.array16(next, new.into())?.into();
            self.set_array16(next, new.into(), NO_SLOT)?;
            self.set_array16(next, tail.into(), old)?;
            self.set_array16(next, old.into(), NO_SLOT)?;
            self.head.ring_free_tail = old.into();
            self.set_array16(slots, bitmap, new)?;
            put(
                &mut self.manager,
                xids as usize + 8 * bitmap as usize,
                &U64::from(self.xid),
            );
            let place = Paddr(self.head.ring_base.get() + u64::from(new));
            let at = bitmap as usize * size;
            blocks.push((place, self.pool[at..at + size].to_vec()));
        }
        Ok(())
    }

    /// Returns the space manager with the roots of its free queues.
    pub(in crate::apfs::write) fn manager(&mut self, [pool, main]: [Oid; 2]) -> Vec<u8> {
        for (index, queue, root) in [
            (space_device::QUEUE_POOL, &self.pool_queue, pool),
            (space_device::QUEUE_MAIN, &self.main_queue, main),
        ] {
            let raw = &mut self.head.queues[index];
            raw.blocks = queue.blocks().into();
            raw.oldest_xid = queue.oldest().into();
            raw.tree_oid = root.into();
        }
        self.head.devices[space_device::MAIN].free = self.free.into();
        self.head.object.xid = self.xid.into();
        let head = self.head;
        put(&mut self.manager, 0, &head);
        store_checksum(&mut self.manager);
        self.manager.clone()
    }
}

/// Sets address and transaction of a physical object, and updates its checksum.
fn renumber(bytes: &mut [u8], place: Paddr, xid: Xid) {
    if let Ok((head, _)) = ObjectRaw::mut_from_prefix(bytes) {
        (head.oid, head.xid) = (place.into(), xid.into());
    }
    store_checksum(bytes);
}
