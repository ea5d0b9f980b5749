//! The free blocks of a container, with those that wait in a free queue: no file has them any more.

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use crate::apfs::btree::{Key, Node, TreeKind};
use crate::apfs::checkpoint::{data_area, read_ephemeral};
use crate::apfs::container::Container;
use crate::apfs::free::ApfsFree;
use crate::apfs::layout::{Oid, Paddr, object_type};
use crate::free::FreeMap;
use bandsaw_core::Result;

/// A free map and the queued runs, in bytes.
#[derive(Debug)]
pub(super) struct FreeOrQueued {
    map: ApfsFree,
    /// Ascending; they may overlap in a damaged container.
    queued: Vec<Range<u64>>,
}

impl FreeOrQueued {
    pub(super) fn open(container: &Container) -> Result<Self> {
        let map = container.free_map()?;
        let mut queued = queued(container).unwrap_or_default();
        queued.sort_unstable_by_key(|run| (run.start, run.end));
        Ok(Self { map, queued })
    }
}

/// Returns the runs in the free queues of a container.
fn queued(container: &Container) -> Result<Vec<Range<u64>>> {
    let store = &container.store;
    let data = data_area(&container.superblock, store.blocks)?;
    let mut runs = Vec::new();
    let of_queue = |subtype: u32| subtype == object_type::FREE_QUEUE;
    for entry in &container.ephemeral {
        if !of_queue(entry.subtype.get()) {
            continue;
        }
        let bytes = read_ephemeral(store, &data, entry)?.into_boxed_slice();
        let (oid, paddr) = (Oid::from(entry.oid), Paddr::from(entry.paddr));
        let kind = TreeKind::FreeQueue;
        let Ok(node) = Node::parse(oid, paddr, bytes, kind.sizes()) else {
            continue;
        };
        let records = (0..node.count).filter_map(|index| node.record(index));
        for (key, value) in records.filter(|_| node.level == 0) {
            let Some(Key::Pair(_, start)) = kind.key(key) else {
                continue;
            };
            // A single block has no value.
            let count = U64::read_from_prefix(value).map_or(1, |(count, _)| count.get());
            let end = start.checked_add(count).filter(|&end| end <= store.blocks);
            if let Some(end) = end {
                runs.push(store.offset(Paddr(start))..store.offset(Paddr(end)));
            }
        }
    }
    Ok(runs)
}

impl FreeMap for FreeOrQueued {
    fn is_in_order(&self) -> bool {
        self.map.is_in_order()
    }

    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let free = self.map.free_from(at)?;
        let next = self.queued.partition_point(|run| run.end <= at);
        let queued = self.queued.get(next).map(|run| run.start.max(at)..run.end);
        Ok(match (free, queued) {
            (Some(free), Some(queued)) if queued.start < free.start => Some(queued),
            (Some(free), _) => Some(free),
            (None, queued) => queued,
        })
    }
}
