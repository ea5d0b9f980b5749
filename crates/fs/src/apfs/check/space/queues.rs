//! Free queues: blocks that are freed once older checkpoints no longer need them.

use super::{CheckedSpace, LAYER};
use crate::apfs::btree::{Key, TreeKind};
use crate::apfs::check::blocks::{BlockUsers, User};
use crate::apfs::check::checkpoint::Ephemerals;
use crate::apfs::check::report::{Report, wrong};
use crate::apfs::check::tree::{Ephemeral, TreeWalk};
use crate::apfs::layout::{FreeQueueRaw, Oid, space_device};
use bandsaw_core::Result;
use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

impl CheckedSpace<'_> {
    pub(super) fn queues(
        &mut self,
        objects: &mut Ephemerals,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<()> {
        for (queue, name) in [
            (space_device::QUEUE_POOL, "pool's queue"),
            (space_device::QUEUE_MAIN, "queue"),
        ] {
            self.queue(queue, name, objects, blocks, report)?;
        }
        if self.head.queues[2] != FreeQueueRaw::default() {
            report.warning(wrong(
                LAYER,
                "has a free queue for a second device, which only a Fusion drive has",
            ));
        }
        if self
            .head
            .queues
            .iter()
            .any(|queue| queue.pad.get() != 0 || queue.pad2.get() != 0 || queue.reserved.get() != 0)
        {
            report.warning(wrong(LAYER, "unused fields of a free queue are not 0"));
        }
        Ok(())
    }

    fn queue(
        &mut self,
        queue: usize,
        name: &str,
        objects: &mut Ephemerals,
        blocks: &mut BlockUsers,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let raw = self.head.queues[queue];
        let (pool, in_container) = (&mut self.pool, self.store.blocks);
        let (mut count, mut oldest, mut nodes) = (0_u64, 0, 0);
        let root = Oid::from(raw.tree_oid);
        if root.is_some() {
            let walk = TreeWalk {
                store: self.store,
                kind: TreeKind::FreeQueue,
                newest: self.xid,
                progress: self.progress,
            };
            let newest = self.xid.0;
            let mut source = Ephemeral {
                objects,
                xid: self.xid,
            };
            let totals = walk.run(root, &mut source, report, &mut |leaf, report| {
                let Key::Pair(xid, start) = leaf.key else {
                    return Ok(());
                };
                let recorded = U64::read_from_prefix(leaf.value)
                    .ok()
                    .map(|(count, _)| count.get());
                let len = recorded.unwrap_or(1);
                if recorded == Some(1) {
                    report.warning(leaf.wrong(format_args!(
                        "the record of block {start} has a number of blocks, expected none for a \
                         single block"
                    )));
                }
                if xid > newest || xid == 0 {
                    report.damage(leaf.wrong(format_args!(
                        "block {start} was freed by transaction {xid}, newer than {newest}"
                    )));
                }
                // Each queue has blocks of its own area only: one in the wrong queue would be freed elsewhere.
                let run = start..start.saturating_add(len);
                let inside = pool.run.contains(&start) && run.end <= pool.run.end;
                let outside =
                    run.end <= in_container && (run.end <= pool.run.start || start >= pool.run.end);
                count = count.saturating_add(len);
                oldest = if oldest == 0 { xid } else { oldest.min(xid) };
                match queue {
                    _ if len == 0 || run.end > in_container => {
                        report.damage(leaf.wrong(format_args!(
                            "{len} blocks from {start} on are not in the container"
                        )));
                    }
                    space_device::QUEUE_POOL if inside => pool.queue(run, report),
                    space_device::QUEUE_MAIN if outside => {
                        blocks.claim(
                            run,
                            User {
                                volume: 0,
                                what: "free queue, transaction",
                                id: xid,
                            },
                        );
                    }
                    _ => report.damage(leaf.wrong(format_args!(
                        "{len} blocks from block {start} on do not belong in this queue"
                    ))),
                }
                Ok(())
            })?;
            nodes = totals.map_or(0, |totals| totals.nodes);
        }
        // Wrong counts are warnings: the tree decides what is freed.
        let limit = u64::from(raw.node_limit.get());
        for (what, recorded, found, is_wrong) in [
            ("blocks", raw.blocks.get(), count, raw.blocks.get() != count),
            (
                "as its oldest transaction",
                raw.oldest_xid.get(),
                oldest,
                raw.oldest_xid.get() != oldest,
            ),
            ("nodes at most", limit, nodes, nodes > limit),
        ] {
            if is_wrong {
                report.warning(wrong(
                    LAYER,
                    format!("the {name} records {recorded} {what}, but has {found}"),
                ));
            }
        }
        Ok(())
    }
}
