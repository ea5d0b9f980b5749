//! Allocation of blocks: the bitmaps of the space manager, changed in memory until a commit (§14).
//!
//! Blocks allocated since the last commit are fresh: no checkpoint refers to them, so they may be
//! written in place and freed immediately. All other freed blocks stay in a free queue until no
//! checkpoint that is kept uses them.

mod chunks;
mod resize;
mod write_bitmaps;

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U64};

use self::chunks::{ChunkBitmap, ChunkInfoBlock, chunk_at};
pub(super) use self::resize::FixedBlocks;
use super::LAYER;
use super::queue::Queue;
use crate::apfs::layout::{
    BlockSize, ChunkInfoRaw, Oid, Paddr, SpacemanRaw, Xid, cibs_per_cab, space_device,
};
use crate::apfs::store::Store;
use crate::bitmap::{clear_bits, run_at};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Reason, Result};

/// Containers with fewer blocks (128 MiB) are small.
pub(super) const SMALL: u64 = 1 << 15;

/// The allocation state of a container.
#[derive(Debug)]
pub(super) struct Space {
    store: Store,
    /// The space manager in full.
    manager: Vec<u8>,
    head: SpacemanRaw,
    /// Addresses of CIBs, and of CABs with their contents if there are any.
    cibs: Vec<u64>,
    cabs: Vec<u64>,
    /// CIBs that have been read.
    infos: BTreeMap<u64, ChunkInfoBlock>,
    bits: BTreeMap<u64, ChunkBitmap>,
    free: u64,
    /// Bitmap of the pool.
    pool: Vec<u8>,
    pool_changed: bool,
    pub(super) pool_queue: Queue,
    pub(super) main_queue: Queue,
    /// Blocks at which the next search begins: for contents, for metadata.
    next: [u64; 2],
    rollback: Vec<Step>,
    xid: Xid,
}

#[derive(Debug)]
enum Step {
    Took(Range<u64>),
    GaveFresh(Range<u64>),
    Queued(Range<u64>),
}

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllocationUse {
    Contents = 0,
    Metadata = 1,
}

/// A block and its new contents.
pub(super) type Block = (Paddr, Vec<u8>);

impl Space {
    /// Opens the allocation state of a space manager, whose counts were checked by the free map.
    /// `objects` are the nodes of free queues in the checkpoint.
    pub(super) fn open(
        store: &Store,
        manager: Vec<u8>,
        objects: &[(Oid, Vec<u8>)],
    ) -> Result<Self> {
        let (head, _) =
            SpacemanRaw::read_from_prefix(&manager).map_err(|_| corrupt("is truncated"))?;
        let main = &head.devices[space_device::MAIN];
        let list = |at: u32, count: u32| -> Result<Vec<u64>> {
            let bytes = manager.get(at as usize..).unwrap_or_default();
            let list = <[U64]>::ref_from_prefix_with_elems(bytes, count as usize);
            list.map(|(list, _)| list.iter().map(|at| at.get()).collect())
                .map_err(|_| corrupt("has more entries than fit"))
        };
        // Written with each commit.
        list(head.pool_xids.get(), head.pool_bitmap_blocks.get())?;
        let (mut cibs, mut cabs) = (Vec::new(), Vec::new());
        if main.cabs.get() == 0 {
            cibs = list(main.addresses.get(), main.cibs.get())?;
        } else {
            cabs = list(main.addresses.get(), main.cabs.get())?;
            for cab in &cabs {
                let block = store.read(LAYER, Paddr(*cab), 1)?;
                let addresses = &block[size_of::<ChunkInfoRaw>()..];
                let here = (main.cibs.get() as usize - cibs.len())
                    .min(cibs_per_cab(store.block_size) as usize);
                let (addresses, _) = <[U64]>::ref_from_prefix_with_elems(addresses, here)
                    .map_err(|_| corrupt("is truncated"))?;
                cibs.extend(addresses.iter().map(|at| at.get()));
            }
        }
        let root = |queue: usize| Oid::from(head.queues[queue].tree_oid);
        let pool_queue = Queue::read(root(space_device::QUEUE_POOL), objects, store.blocks)?;
        let main_queue = Queue::read(root(space_device::QUEUE_MAIN), objects, store.blocks)?;
        let mut space = Self {
            store: store.clone(),
            free: main.free.get(),
            manager,
            head,
            cibs,
            cabs,
            infos: BTreeMap::new(),
            bits: BTreeMap::new(),
            pool: Vec::new(),
            pool_changed: false,
            pool_queue,
            main_queue,
            next: [0; 2],
            rollback: Vec::new(),
            xid: Xid(0),
        };
        space.pool = space.read_pool()?;
        Ok(space)
    }

    fn read_pool(&self) -> Result<Vec<u8>> {
        let (head, mut pool) = (&self.head, Vec::new());
        let pool_blocks = head.pool_blocks.get();
        let bitmaps = head.pool_bitmap_blocks.get();
        if u64::from(bitmaps) != pool_blocks.div_ceil(self.per_chunk())
            || head.ring_blocks.get() <= bitmaps
        {
            return Err(corrupt(format!(
                "has {bitmaps} bitmaps for a pool of {pool_blocks} blocks"
            )));
        }
        for bitmap in 0..bitmaps {
            let slot = self.array16(self.head.pool_slots.get(), bitmap)?;
            if u32::from(slot) >= head.ring_blocks.get() {
                return Err(corrupt(format!(
                    "records slot {slot} for bitmap {bitmap} of the pool, but the ring has {} slots",
                    head.ring_blocks
                )));
            }
            pool.extend_from_slice(&self.store.read(
                LAYER,
                Paddr(head.ring_base.get() + u64::from(slot)),
                1,
            )?);
        }
        Ok(pool)
    }

    fn array16(&self, offset: u32, index: u32) -> Result<u16> {
        let at = offset as usize + 2 * index as usize;
        let found = self
            .manager
            .get(at..)
            .and_then(|rest| U16::read_from_prefix(rest).ok());
        found
            .map(|(value, _)| value.get())
            .ok_or_else(|| corrupt("is truncated"))
    }

    fn set_array16(&mut self, offset: u32, index: u32, value: u16) -> Result<()> {
        let at = offset as usize + 2 * index as usize;
        let place = self
            .manager
            .get_mut(at..at + 2)
            .ok_or_else(|| corrupt("is truncated"))?;
        place.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    pub(super) fn block_size(&self) -> BlockSize {
        self.store.block_size
    }

    /// Returns the number of free blocks.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Begins transaction `xid`: blocks of the pool freed by transactions before `pool`, and others
    /// freed by transactions before `main`, become available.
    pub(super) fn begin(&mut self, xid: Xid, pool: u64, main: u64) -> Result<()> {
        self.xid = xid;
        // Metadata is kept together at the front by reusing freed blocks there. The first block
        // numbers are reserved as object numbers, and are used only in small containers.
        self.next[AllocationUse::Metadata as usize] = if self.store.blocks < SMALL {
            0
        } else {
            Oid::FIRST_USER.0
        };
        for run in self.pool_queue.drain_before(pool) {
            let base = self.head.pool_base.get();
            let inside = run
                .start
                .checked_sub(base)
                .filter(|_| run.end <= base + self.head.pool_blocks.get());
            let Some(start) = inside else {
                return Err(corrupt(
                    "a block in the pool's free queue is not in the pool",
                ));
            };
            clear_bits(&mut self.pool, to_usize(start)..to_usize(run.end - base));
            self.pool_changed = true;
        }
        for run in self.main_queue.drain_before(main) {
            self.each_chunk(run, |bits, range| {
                clear_bits(&mut bits.used, range.clone());
                bits.free += range.len() as u64;
            })?;
        }
        Ok(())
    }

    /// Sets the point to which changes can be reverted.
    pub(super) fn mark(&mut self) {
        self.rollback.clear();
    }

    /// Reverts all changes since the last mark.
    pub(super) fn rollback(&mut self) -> Result<()> {
        for step in std::mem::take(&mut self.rollback).into_iter().rev() {
            match step {
                Step::Took(run) => self.release(run)?,
                Step::GaveFresh(run) => self.occupy(run)?,
                Step::Queued(run) => self.main_queue.take_back(self.xid, run),
            }
        }
        Ok(())
    }

    /// Allocates up to `most` contiguous blocks, at least one; [`Kind::Limit`] if none is free.
    pub(super) fn allocate(&mut self, most: u64, purpose: AllocationUse) -> Result<Range<u64>> {
        let start = self.next[purpose as usize];
        let found = match self.find(start..self.store.blocks, most)? {
            Some(found) => found,
            None => self.find(0..start, most)?.ok_or_else(full)?,
        };
        self.occupy(found.clone())?;
        self.rollback.push(Step::Took(found.clone()));
        self.next[purpose as usize] = found.end;
        Ok(found)
    }

    /// Allocates the run of free blocks that begins at `first`, at most `most` blocks; `None` if
    /// `first` is not free.
    pub(super) fn allocate_at(&mut self, first: u64, most: u64) -> Result<Option<Range<u64>>> {
        if first >= self.store.blocks {
            return Ok(None);
        }
        match self.find(first..self.store.blocks.min(first + 1), most)? {
            Some(found) => {
                self.occupy(found.clone())?;
                self.rollback.push(Step::Took(found.clone()));
                self.next[AllocationUse::Contents as usize] = found.end;
                Ok(Some(found))
            }
            None => Ok(None),
        }
    }

    /// Returns true if all of these blocks were allocated since the last commit.
    pub(super) fn is_fresh(&mut self, run: Range<u64>) -> Result<bool> {
        let mut all = true;
        self.each_chunk_quietly(run, |bits, range| {
            all &= matches!(run_at(&bits.fresh, range.start, range.end), (true, end) if end == range.end);
        })?;
        Ok(all)
    }

    /// Frees blocks.
    pub(super) fn free_run(&mut self, run: Range<u64>) -> Result<()> {
        let mut at = run.start;
        while at < run.end {
            let chunk = at / self.per_chunk();
            let first = chunk * self.per_chunk();
            let bits = self.bits(chunk)?;
            let end = (run.end - first).min(bits.blocks);
            if end <= at - first {
                return Err(corrupt(format!("block {at} is not in the container")));
            }
            let (used, _) = run_at(&bits.used, to_usize(at - first), to_usize(end));
            if !used {
                return Err(corrupt(format!(
                    "block {at} would be freed, but is marked as free already"
                )));
            }
            let (fresh, until) = run_at(&bits.fresh, to_usize(at - first), to_usize(end));
            let part = at..first + until as u64;
            at = part.end;
            if fresh {
                self.release(part.clone())?;
                self.rollback.push(Step::GaveFresh(part));
            } else {
                self.main_queue.add(self.xid, part.clone());
                self.rollback.push(Step::Queued(part));
            }
        }
        Ok(())
    }

    /// Returns the roots of its free queues.
    pub(super) fn queue_roots(&self) -> [Oid; 2] {
        [space_device::QUEUE_POOL, space_device::QUEUE_MAIN]
            .map(|queue| self.head.queues[queue].tree_oid.into())
    }

    /// Returns the number of runs that the main queue can hold: its nodes are limited by its own
    /// limit, and by `blocks`, the most that space manager and queues may take in a checkpoint.
    pub(super) fn queue_room(&self, blocks: u64) -> usize {
        let limit = |queue: usize| u64::from(self.head.queues[queue].node_limit.get());
        let manager = self.store.block_size.blocks_for(self.manager.len() as u64);
        let nodes = blocks.saturating_sub(manager + limit(space_device::QUEUE_POOL));
        let nodes = to_usize(nodes.min(limit(space_device::QUEUE_MAIN)).max(1));
        // Without the root and the other index nodes; each leaf is about two thirds full of runs
        // with lengths.
        (nodes.saturating_sub(nodes / 64 + 1)).max(1) * 100
    }
}

fn full() -> Error {
    Error::limit(LAYER, "the container is full").because(Reason::VolumeFull)
}

fn corrupt(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, "apfs space manager", message)
}
