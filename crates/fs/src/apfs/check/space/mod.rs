//! The space manager: its fields, its pool, its queues, and its bitmaps against all used blocks
//! (§14).

mod bitmaps;
mod pool;
mod queues;
mod zones;

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U64};

use self::pool::Pool;
use super::blocks::{BlockUsers, User};
use super::checkpoint::Ephemerals;
use super::report::{Report, wrong};
use crate::apfs::container::Container;
use crate::apfs::free::check_head;
use crate::apfs::geometry::Geometry;
use crate::apfs::layout::{Oid, RING_VERSIONS, SpacemanDeviceRaw, SpacemanRaw, Xid, space_device};
use crate::apfs::store::Store;
use bandsaw_core::Result;
use bandsaw_core::progress::Progress;

const LAYER: &str = "apfs space manager";

/// The space manager of a checkpoint.
pub(super) struct CheckedSpace<'a> {
    store: &'a Store,
    xid: Xid,
    progress: &'a dyn Progress,
    head: SpacemanRaw,
    /// The object in full.
    bytes: Vec<u8>,
    pool: Pool,
}

impl<'a> CheckedSpace<'a> {
    /// Reads the space manager and its free queues, and claims the blocks that it uses. Returns
    /// `None` if it is invalid, which has been reported.
    pub(super) fn read(
        container: &'a Container,
        objects: &mut Ephemerals,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
        progress: &'a dyn Progress,
    ) -> Result<Option<Self>> {
        let (store, raw) = (&container.store, &container.superblock);
        // A missing object was reported by the check of the checkpoint maps.
        let Some((_, bytes)) = objects.remove(&Oid::from(raw.spaceman_oid)) else {
            return Ok(None);
        };
        let Ok((head, _)) = SpacemanRaw::read_from_prefix(&bytes) else {
            report.damage(wrong(LAYER, "is truncated"));
            return Ok(None);
        };
        if report
            .value_or_damage(check_head(&head, store.block_size, store.blocks))?
            .is_none()
        {
            return Ok(None);
        }
        check_sizes(store, &head, report);
        if let Some(message) = zones::zone_damage(&bytes, store.block_size) {
            report.warning(wrong(LAYER, message));
        }
        let pool_run = block_range(head.pool_base.get(), head.pool_blocks.get(), store.blocks);
        let ring_run = block_range(
            head.ring_base.get(),
            head.ring_blocks.get().into(),
            store.blocks,
        );
        let (Some(pool_run), Some(ring_run)) = (pool_run, ring_run) else {
            report.damage(wrong(
                LAYER,
                "its pool of blocks, or the ring of the pool's bitmaps, is not in the container",
            ));
            return Ok(None);
        };
        blocks.claim(
            pool_run.clone(),
            User::container("pool of the space manager"),
        );
        blocks.claim(ring_run, User::container("ring of pool bitmaps"));
        let xid = Xid(container.checkpoint());
        let mut space = Self {
            store,
            xid,
            progress,
            head,
            bytes,
            pool: Pool::new(pool_run),
        };
        space.queues(objects, blocks, report)?;
        Ok(Some(space))
    }

    /// Compares the bitmaps with the used blocks.
    pub(super) fn compare(mut self, blocks: BlockUsers, report: &mut Report<'_>) -> Result<()> {
        let incomplete = blocks.incomplete;
        let runs = blocks.finish(report);
        self.bitmaps(&runs, incomplete, report)?;
        self.check_pool(report)
    }

    fn main(&self) -> &SpacemanDeviceRaw {
        &self.head.devices[space_device::MAIN]
    }

    /// Returns an element of one of the arrays behind the head.
    fn array16(&self, offset: u32, index: u32) -> Option<u16> {
        let at = (offset as usize).checked_add(2 * index as usize)?;
        U16::read_from_prefix(self.bytes.get(at..)?)
            .ok()
            .map(|(value, _)| value.get())
    }

    fn array64(&self, offset: u32, index: u64) -> Option<u64> {
        let at = (offset as usize).checked_add(usize::try_from(index).ok()?.checked_mul(8)?)?;
        U64::read_from_prefix(self.bytes.get(at..)?)
            .ok()
            .map(|(value, _)| value.get())
    }
}

fn block_range(start: u64, count: u64, blocks: u64) -> Option<Range<u64>> {
    start
        .checked_add(count)
        .filter(|&end| end <= blocks && start > 0 && count > 0)
        .map(|end| start..end)
}

/// Checks the sizes that follow from the length of the container.
fn check_sizes(store: &Store, head: &SpacemanRaw, report: &mut Report<'_>) {
    let bytes = store.block_size.of(store.blocks).unwrap_or(u64::MAX);
    let Ok(geometry) = Geometry::new(bytes, store.block_size) else {
        return;
    };
    let limit = |queue: usize| u64::from(head.queues[queue].node_limit.get());
    for (what, found, expected) in [
        (
            "blocks in its pool",
            head.pool_blocks.get(),
            geometry.pool_blocks,
        ),
        (
            "blocks of the pool's bitmap",
            head.pool_bitmap_blocks.get().into(),
            geometry.pool_bitmap_blocks,
        ),
        (
            "slots for the pool's bitmaps",
            head.ring_blocks.get().into(),
            geometry.ring_blocks(),
        ),
        (
            "nodes at most in the pool's queue",
            limit(space_device::QUEUE_POOL),
            geometry.pool_queue_limit.into(),
        ),
        (
            "nodes at most in the queue",
            limit(space_device::QUEUE_MAIN),
            geometry.main_queue_limit.into(),
        ),
    ] {
        if found != expected {
            report.warning(wrong(
                LAYER,
                format!("has {found} {what}, expected {expected}"),
            ));
        }
    }
    let [main, second] = &head.devices;
    let counts = (
        second.blocks.get(),
        second.chunks.get(),
        second.cibs.get(),
        second.cabs.get(),
        second.free.get(),
    );
    let reserved =
        |device: &SpacemanDeviceRaw| (device.reserved.get(), device.reserved2.get()) != (0, 0);
    if counts != (0, 0, 0, 0, 0) || reserved(main) || reserved(second) {
        report.warning(wrong(
            LAYER,
            "records a second device, which only a Fusion drive has, or has data in unused fields",
        ));
    }
    if head.ring_multiplier.get() != RING_VERSIONS {
        report.warning(wrong(
            LAYER,
            format!(
                "has slots for {} versions, expected {RING_VERSIONS}",
                head.ring_multiplier
            ),
        ));
    }
}
