//! Blocks taken and given back: the bitmaps of the space manager, changed in memory until a commit
//! (§14).
//!
//! What was taken since the last commit is fresh: no checkpoint knows it, so it may be written in
//! place and given back at once. Everything else that is given back waits in a free queue until no
//! checkpoint that matters uses it.

mod chunks;
mod resize;
mod write_bitmaps;

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U64};

use self::chunks::{Bits, Info, chunk_at};
pub(super) use self::resize::Kept;
use super::LAYER;
use super::queue::Queue;
use crate::fs::apfs::layout::{
    BlockSize, ChunkInfoRaw, Oid, Paddr, SpacemanRaw, Xid, cibs_per_cab, space_device,
};
use crate::fs::apfs::store::Store;
use crate::fs::bitmap::{clear_bits, run_at};
use crate::{Error, Kind, Result};

/// A container of fewer blocks is a small one: 128 MiB.
pub(super) const SMALL: u64 = 1 << 15;

/// The space of a container.
#[derive(Debug)]
pub(super) struct Space {
    store: Store,
    /// All bytes of the space manager.
    manager: Vec<u8>,
    head: SpacemanRaw,
    /// Addresses of CIBs, and of CABs with their contents where there are any.
    cibs: Vec<u64>,
    cabs: Vec<u64>,
    /// CIBs that were read.
    infos: BTreeMap<u64, Info>,
    bits: BTreeMap<u64, Bits>,
    free: u64,
    /// What the pool has used, all its bits.
    pool: Vec<u8>,
    pool_changed: bool,
    pub(super) pool_queue: Queue,
    pub(super) main_queue: Queue,
    /// Where the search for blocks goes on: for contents, for metadata.
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

/// What blocks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Contents = 0,
    Metadata = 1,
}

/// A block and what is to be written there.
pub(super) type Block = (Paddr, Vec<u8>);

impl Space {
    /// The space that a space manager describes, whose counts were checked by the free map.
    /// `objects`: the checkpoint's nodes of free queues.
    pub(super) fn open(
        store: &Store,
        manager: Vec<u8>,
        objects: &[(Oid, Vec<u8>)],
    ) -> Result<Self> {
        let (head, _) =
            SpacemanRaw::read_from_prefix(&manager).map_err(|_| corrupt("is cut short"))?;
        let main = &head.devices[space_device::MAIN];
        let list = |at: u32, count: u32| -> Result<Vec<u64>> {
            let bytes = manager.get(at as usize..).unwrap_or_default();
            let list = <[U64]>::ref_from_prefix_with_elems(bytes, count as usize);
            list.map(|(list, _)| list.iter().map(|at| at.get()).collect())
                .map_err(|_| corrupt("lists more than it holds"))
        };
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
                    .map_err(|_| corrupt("is cut short"))?;
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
                    "has the pool's bitmap {bitmap} in slot {slot} of {}",
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
            .ok_or_else(|| corrupt("is cut short"))
    }

    fn set_array16(&mut self, offset: u32, index: u32, value: u16) -> Result<()> {
        let at = offset as usize + 2 * index as usize;
        let place = self
            .manager
            .get_mut(at..at + 2)
            .ok_or_else(|| corrupt("is cut short"))?;
        place.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// The size of blocks.
    pub(super) fn block_size(&self) -> BlockSize {
        self.store.block_size
    }

    /// Free blocks.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Begins transaction `xid`: what was given up by those before `pool` and `main` may be used
    /// again.
    pub(super) fn begin(&mut self, xid: Xid, pool: u64, main: u64) -> Result<()> {
        self.xid = xid;
        // Metadata stays together at the front; what was given up there is used again. The numbers
        // of the first blocks are reserved, and as numbers of objects used only where there are few
        // others.
        self.next[Use::Metadata as usize] = if self.store.blocks < SMALL {
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
            clear_bits(&mut self.pool, start as usize..(run.end - base) as usize);
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

    /// What follows can be undone.
    pub(super) fn mark(&mut self) {
        self.rollback.clear();
    }

    /// As it was at the last mark.
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

    /// Takes up to `most` blocks side by side, at least one. [`Kind::Limit`] if none is free.
    pub(super) fn take(&mut self, most: u64, purpose: Use) -> Result<Range<u64>> {
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

    /// Takes these blocks if they are free, as many as follow each other from the first on, at most
    /// `most`.
    pub(super) fn take_at(&mut self, first: u64, most: u64) -> Result<Option<Range<u64>>> {
        if first >= self.store.blocks {
            return Ok(None);
        }
        match self.find(first..self.store.blocks.min(first + 1), most)? {
            Some(found) => {
                self.occupy(found.clone())?;
                self.rollback.push(Step::Took(found.clone()));
                self.next[Use::Contents as usize] = found.end;
                Ok(Some(found))
            }
            None => Ok(None),
        }
    }

    /// Returns whether all of these blocks were taken since the last commit.
    pub(super) fn is_fresh(&mut self, run: Range<u64>) -> Result<bool> {
        let mut all = true;
        self.each_chunk_quietly(run, |bits, range| {
            all &= matches!(run_at(&bits.fresh, range.start, range.end), (true, end) if end == range.end);
        })?;
        Ok(all)
    }

    /// Gives blocks back.
    pub(super) fn give(&mut self, run: Range<u64>) -> Result<()> {
        let mut at = run.start;
        while at < run.end {
            let chunk = at / self.per_chunk();
            let first = chunk * self.per_chunk();
            let bits = self.bits(chunk)?;
            let end = (run.end - first).min(bits.blocks);
            if end <= at - first {
                return Err(corrupt(format!("block {at} is not in the container")));
            }
            let (used, _) = run_at(&bits.used, (at - first) as usize, end as usize);
            if !used {
                return Err(corrupt(format!("block {at} is given back and was free")));
            }
            let (fresh, until) = run_at(&bits.fresh, (at - first) as usize, end as usize);
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

    /// The roots of its queues.
    pub(super) fn queue_roots(&self) -> [Oid; 2] {
        [space_device::QUEUE_POOL, space_device::QUEUE_MAIN]
            .map(|queue| self.head.queues[queue].tree_oid.into())
    }

    /// Runs that the queue of the device can hold in the nodes that it may have, where all of this,
    /// and the queue of the pool, take at most `blocks` of a checkpoint.
    pub(super) fn queue_room(&self, blocks: u64) -> usize {
        let limit = |queue: usize| u64::from(self.head.queues[queue].node_limit.get());
        let manager = self.store.block_size.blocks_for(self.manager.len() as u64);
        let nodes = blocks.saturating_sub(manager + limit(space_device::QUEUE_POOL));
        let nodes = nodes.min(limit(space_device::QUEUE_MAIN)).max(1) as usize;
        // All but the root and the nodes above the leaves, each about two thirds full of runs with
        // lengths.
        (nodes.saturating_sub(nodes / 64 + 1)).max(1) * 100
    }
}

fn full() -> Error {
    Error::new(Kind::Limit, LAYER, "the container is full")
}

fn corrupt(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, "apfs space manager", message)
}
