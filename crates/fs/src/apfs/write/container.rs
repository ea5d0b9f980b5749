//! Operations on a whole container, independent of its volumes: its length, and the release of its
//! free queues. Volumes are not opened, so their keys are not needed, and their blocks stay in
//! place.

use std::ops::Range;
use std::sync::Arc;

use super::LAYER;
use super::checkpoint::Rings;
use super::ephemeral::Ephemeral;
use super::preconditions;
use super::space::{FixedBlocks, SMALL, Space};
use super::tree::OidCounter;
use crate::apfs::container::Container;
use crate::apfs::geometry::{BYTES_PER_VOLUME, Geometry, MAX_CONTAINER_LEN, MIN_CONTAINER_LEN};
use crate::apfs::layout::{ContainerRaw, Oid, Xid};
use crate::apfs::store::Store;
use crate::apfs::writer::WriteGuard;
use crate::{ResizeVolume, SizeLimits};
use bandsaw_core::device::failed::FailureFlag;
use bandsaw_core::progress::Progress;
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Kind, Result};

/// Number of checkpoints before the last one whose blocks are kept while there is free space.
pub(super) const KEPT_CHECKPOINTS: u64 = 4;

/// Minimum number of queued blocks that are worth releasing: more than a few checkpoints take
/// themselves.
pub(super) const WORTH_RELEASING: u64 = 256;
/// Number of blocks that remain free in a container of minimum length, so that its volumes can
/// still be changed.
const ROOM: u64 = 256;
/// Maximum number of checkpoints for a shrink: the space manager's pool may have to be moved twice.
const MAX_STEPS: usize = 4;

/// A container opened for operations on the whole of it; none of its volumes is open for changes.
#[derive(Debug)]
pub struct ContainerMut {
    state: Mutex<ContainerState>,
    _alone: Arc<WriteGuard>,
}

#[derive(Debug)]
struct ContainerState {
    store: Store,
    raw: ContainerRaw,
    ephemeral: Ephemeral,
    space: Space,
    next_oid: OidCounter,
    failed: FailureFlag,
}

/// Returns the runs of blocks that [`ContainerMut::release_queued`] would free; none if the
/// container cannot be modified.
pub(in crate::apfs) fn queued(container: &Container) -> Result<Vec<Range<u64>>> {
    let ephemeral = Ephemeral::read(container)?;
    match preconditions::check_container(container, &ephemeral) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::Conflict) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    }
    let queue = Space::open(
        &container.store,
        container.spaceman()?,
        &ephemeral.queue_nodes,
    )?
    .main_queue;
    Ok(if queue.blocks() < WORTH_RELEASING {
        Vec::new()
    } else {
        queue.iter().collect()
    })
}

impl ContainerMut {
    /// Opens the container. Nothing is written until an operation is called.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`], with the reason, for a container with unknown features;
    /// [`Kind::Corrupt`] or [`Kind::Conflict`] for one that was not cleanly unmounted, or of which
    /// a volume is open for changes.
    pub fn open(container: &Arc<Container>) -> Result<Self> {
        let alone = container.writer.acquire()?;
        container.store.device.info().check_writable(LAYER)?;
        preconditions::check_newest(container)?;
        // Allocation is only safe with a correct free map.
        container.trusted_free_map()?;
        let ephemeral = Ephemeral::read(container)?;
        preconditions::check_container(container, &ephemeral)?;
        let store = container.store.clone();
        let space = Space::open(&store, container.spaceman()?, &ephemeral.queue_nodes)?;
        let raw = container.superblock;
        let next_oid = OidCounter::new(raw.next_oid.get());
        let state = ContainerState {
            store,
            raw,
            ephemeral,
            space,
            next_oid,
            failed: FailureFlag::default(),
        };
        Ok(Self {
            state: Mutex::new(state),
            _alone: alone,
        })
    }

    /// Frees the blocks that only older checkpoints need, by writing newer checkpoints without
    /// changes, if there are enough of them. A trim calls this first.
    pub fn release_queued(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.space.main_queue.blocks() < WORTH_RELEASING {
            return Ok(());
        }
        for _ in 0..=KEPT_CHECKPOINTS {
            state.transact(KEPT_CHECKPOINTS, |_| Ok(()))?;
        }
        state.write_anchor()
    }
}

impl ResizeVolume for ContainerMut {
    fn limits(&self) -> Result<SizeLimits> {
        self.state.lock().limits()
    }

    fn resize(&self, len: u64, progress: &dyn Progress) -> Result<()> {
        self.state.lock().resize(len, progress)
    }
}

impl ContainerState {
    fn geometry(&self, blocks: u64) -> Result<Geometry> {
        Geometry::new(
            self.store.block_size.of(blocks).unwrap_or(u64::MAX),
            self.store.block_size,
        )
    }

    /// Returns the number of blocks of pool and ring in a container of `blocks` blocks.
    fn own_blocks(&self, blocks: u64) -> Result<u64> {
        let geometry = self.geometry(blocks)?;
        Ok(geometry.pool_blocks + geometry.ring_blocks())
    }

    fn limits(&mut self) -> Result<SizeLimits> {
        let bytes = |blocks| self.store.block_size.of(blocks).unwrap_or(u64::MAX);
        let least = self.space.kept().and_then(|kept| self.least(kept))?;
        Ok(SizeLimits {
            min: bytes(least),
            current: bytes(self.store.blocks),
            max: MAX_CONTAINER_LEN,
        })
    }

    /// Returns the number of blocks to which the container can be shrunk: the end of its blocks,
    /// plus space for all pools that the shrink creates.
    fn least(&self, kept: FixedBlocks) -> Result<u64> {
        let size = self.store.block_size;
        let slots = self
            .raw
            .volume_oids
            .iter()
            .rposition(|oid| oid.get() != 0)
            .map_or(0, |last| last as u64 + 1);
        let least = size
            .blocks_for(MIN_CONTAINER_LEN)
            .max(size.blocks_for((slots.max(1) - 1) * BYTES_PER_VOLUME + 1));
        let end = kept.end.max(kept.blocks).max(least);
        let way = end.max(self.space.own_end()).min(self.store.blocks);
        // The pool is longer in a longer container, and an intermediate pool may be needed for the
        // move.
        let own = 2 * self.own_blocks(end)? + self.own_blocks(way + 2 * self.own_blocks(way)?)?;
        // The first blocks are not used for the pool, except in a small container.
        let end = if self.store.blocks < SMALL {
            end
        } else {
            end.max(Oid::FIRST_USER.0)
        };
        Ok((end + own + ROOM).min(self.store.blocks))
    }

    fn resize(&mut self, len: u64, progress: &dyn Progress) -> Result<()> {
        self.store.device.info().check(LAYER, 0, len)?;
        let to = Geometry::new(len, self.store.block_size)?;
        if to.blocks > self.store.blocks {
            self.transact(KEPT_CHECKPOINTS, |state| {
                state.set_size(&to, to.blocks, progress)
            })?;
        } else if to.blocks < self.store.blocks {
            self.shrink(&to, progress)?;
        }
        self.write_anchor()
    }

    /// Shrinks the container to a length behind the last used block. If the pool of the space
    /// manager is past the new end, it is moved first; its old blocks are free one checkpoint
    /// later.
    fn shrink(&mut self, to: &Geometry, progress: &dyn Progress) -> Result<()> {
        let kept = self.space.kept()?;
        let least = self.least(kept)?;
        if least > to.blocks {
            let message = format!(
                "cannot shrink the container to {} blocks: blocks up to {} are in use and cannot \
                 move; the minimum is {least} blocks",
                to.blocks, kept.end
            );
            return Err(Error::limit(LAYER, message));
        }
        for _ in 0..MAX_STEPS {
            if self.space.own_end() <= to.blocks {
                return self.transact(0, |state| state.set_size(to, to.blocks, progress));
            }
            self.transact(0, |state| state.make_way(to.blocks, progress))?;
        }
        Err(Error::limit(
            LAYER,
            "cannot shrink the container: no room for its space manager before the new end",
        ))
    }

    /// Moves the pool before block `end`, or as near to it as there is free space.
    fn make_way(&mut self, end: u64, progress: &dyn Progress) -> Result<()> {
        let own_end = self.space.own_end();
        let near = self.geometry(own_end)?;
        match self.set_size(&near, end, progress) {
            Err(error) if error.kind() == Kind::Limit => {}
            done => return done,
        }
        let blocks = own_end + 2 * self.own_blocks(own_end)?;
        let beside = self.geometry((blocks + self.own_blocks(blocks)?).min(self.store.blocks))?;
        self.set_size(&beside, beside.blocks, progress)
    }

    /// Changes the container to the sizes of `to`, effective with the next checkpoint.
    fn set_size(&mut self, to: &Geometry, ceiling: u64, progress: &dyn Progress) -> Result<()> {
        self.space.resize(to, ceiling, progress)?;
        self.store.blocks = to.blocks;
        self.raw.block_count = to.blocks.into();
        self.raw.max_volumes = to.max_volumes.into();
        self.raw.ephemeral_info[0] = to.ephemeral_info.into();
        Ok(())
    }

    /// Writes a checkpoint with this change. Blocks that only checkpoints before the last `kept`
    /// need are freed.
    fn transact(&mut self, kept: u64, change: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.failed.check(LAYER)?;
        let done = self.write_checkpoint(kept, change);
        self.failed.record(done)
    }

    fn write_checkpoint(
        &mut self,
        kept: u64,
        change: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let xid = Xid(self.raw.next_xid.get());
        self.space
            .begin(xid, xid.0.saturating_sub(1), xid.0.saturating_sub(kept))?;
        change(self)?;
        let Self {
            store,
            raw,
            ephemeral,
            space,
            next_oid,
            ..
        } = self;
        write_whole(store, raw, ephemeral, space, next_oid)
    }

    /// Updates the superblock in block 0.
    fn write_anchor(&mut self) -> Result<()> {
        let written = Rings {
            store: &self.store,
            raw: &mut self.raw,
        }
        .write_anchor();
        self.failed.record(written)
    }
}

/// Writes the checkpoint of a transaction that was begun in `space`, without changes of any volume.
pub(super) fn write_whole(
    store: &Store,
    raw: &mut ContainerRaw,
    ephemeral: &Ephemeral,
    space: &mut Space,
    next_oid: &OidCounter,
) -> Result<()> {
    let xid = Xid(raw.next_xid.get());
    for (place, bytes) in space.write_bitmaps()? {
        store.device.write_at(store.offset(place), &bytes)?;
    }
    let objects = ephemeral.of_next(space, next_oid, xid)?;
    raw.next_oid = next_oid.next().into();
    Rings { store, raw }.write(xid, &objects)
}
