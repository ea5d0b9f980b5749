//! The projected free map of a container: the free space after a trim has released its free queues.
//! For reports; nothing is modified.

use std::ops::Range;
use std::sync::Arc;

use super::container::Container;
use super::free::ApfsFree;
use super::write;
use crate::FreeMap;
use bandsaw_core::Result;

/// A free map, and the additional runs of the free queue.
#[derive(Debug)]
struct ProjectedFree {
    map: ApfsFree,
    /// Byte ranges in the container, ascending and disjoint.
    queued: Vec<Range<u64>>,
}

impl Container {
    /// Returns the [trusted](Self::trusted_free_map) free map plus the blocks in the free queue:
    /// all that a trim of the container discards.
    pub fn projected_free_map(&self) -> Result<Arc<dyn FreeMap>> {
        let map = self.trusted_free_map()?;
        let mut queued: Vec<_> = write::queued(self)?
            .into_iter()
            .filter_map(|run| {
                Some(self.store.block_size.of(run.start)?..self.store.block_size.of(run.end)?)
            })
            .collect();
        queued.sort_by_key(|run| run.start);
        Ok(Arc::new(ProjectedFree { map, queued }))
    }
}

impl ProjectedFree {
    /// Returns the first queued range at or after `at`.
    fn queued_from(&self, at: u64) -> Option<Range<u64>> {
        let run = self
            .queued
            .get(self.queued.partition_point(|run| run.end <= at))?;
        Some(run.start.max(at)..run.end)
    }
}

impl FreeMap for ProjectedFree {
    fn is_in_order(&self) -> bool {
        self.map.is_in_order()
    }

    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let mut found: Option<Range<u64>> = None;
        loop {
            let from = found.as_ref().map_or(at, |run| run.end);
            let next = [self.map.free_from(from)?, self.queued_from(from)]
                .into_iter()
                .flatten()
                .min_by_key(|run| run.start);
            found = match (found, next) {
                (Some(run), Some(next)) if next.start == run.end => Some(run.start..next.end),
                (None, Some(next)) => Some(next),
                (found, _) => return Ok(found),
            };
        }
    }
}
