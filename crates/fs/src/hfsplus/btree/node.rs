//! Nodes, checked when they are read, and the cache of recently read nodes (§6.1).

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use crate::btree_node::{checked_descriptor, record_offset};
use crate::hfsplus::layout::{FIRST_RECORD, NodeDescriptorRaw};
use bandsaw_core::size::narrow;
use bandsaw_core::sync::Mutex;

/// Minimum number of cached nodes of a tree, regardless of the memory limit.
pub(in crate::hfsplus) const MIN_CACHED: usize = 16;
/// Number of cached nodes of a tree before its memory limit is set.
const FIRST_CACHED: usize = 64;

/// A node whose record offsets are known to be ascending and within the node.
#[derive(Debug)]
pub(in crate::hfsplus) struct Node {
    pub(in crate::hfsplus) number: u32,
    /// Next node of the same level, 0 for none.
    pub(in crate::hfsplus) next: u32,
    /// Previous node of the same level, 0 for none.
    pub(in crate::hfsplus) previous: u32,
    pub(in crate::hfsplus) kind: i8,
    pub(in crate::hfsplus) height: u8,
    /// Number of records.
    pub(in crate::hfsplus) records: u16,
    /// True if its records were checked before it was changed.
    pub(super) is_checked: bool,
    bytes: Box<[u8]>,
}

impl Node {
    /// Parses a node; the error describes the defect.
    pub(in crate::hfsplus) fn parse(number: u32, bytes: Box<[u8]>) -> Result<Self, String> {
        let head = checked_descriptor(&bytes)?;
        Ok(Self {
            number,
            next: head.forward_link.get(),
            previous: head.backward_link.get(),
            kind: head.kind,
            height: head.height,
            records: head.record_count.get(),
            is_checked: false,
            bytes,
        })
    }

    /// Returns the offset of record `index`; that of the record after the last is the start of the
    /// free space.
    #[inline]
    fn offset(&self, index: u16) -> Option<usize> {
        record_offset(&self.bytes, index)
    }

    /// Returns the node's bytes with the records in `range` replaced by `record`, and the number of
    /// bytes used; `None` if they do not fit.
    pub(super) fn with(&self, range: &Range<usize>, record: &[u8]) -> Option<(Box<[u8]>, usize)> {
        let (size, count) = (self.bytes.len(), usize::from(self.records));
        let offset = |index: usize| self.offset(u16::try_from(index).ok()?);
        let (start, end, free) = (offset(range.start)?, offset(range.end)?, offset(count)?);
        let length = record.len().next_multiple_of(2);
        let now = count.checked_sub(range.len())? + 1;
        let (moved, new_free) = (start + length, free - (end - start) + length);
        let used = new_free + 2 * (now + 1);
        if used > size {
            return None;
        }
        let mut bytes = vec![0; size];
        let first = usize::from(FIRST_RECORD);
        bytes[..start].copy_from_slice(&self.bytes[..start]);
        bytes[start..start + record.len()].copy_from_slice(record);
        bytes[moved..new_free].copy_from_slice(&self.bytes[end..free]);
        let before = (0..=range.start).map(offset);
        let after = (range.end..=count).map(|index| Some(offset(index)? - end + moved));
        for (place, offset) in bytes.rchunks_exact_mut(2).zip(before.chain(after)) {
            place.copy_from_slice(&narrow::<u16>(offset?).to_be_bytes()); // within a node of at most 32768 bytes
        }
        let (head, _) = NodeDescriptorRaw::mut_from_prefix(&mut bytes[..first]).ok()?;
        head.record_count = narrow::<u16>(now).into(); // a node has room for less
        Some((bytes.into_boxed_slice(), used))
    }

    /// Returns all records, concatenated, and the end of each of them.
    pub(super) fn body(&self) -> (&[u8], impl Iterator<Item = usize> + '_) {
        let first = usize::from(FIRST_RECORD);
        let end = self.offset(self.records).unwrap_or(first);
        let ends = (1..=self.records).map(move |index| self.offset(index).unwrap_or(first) - first);
        (self.bytes.get(first..end).unwrap_or_default(), ends)
    }

    /// Returns a record, `None` past the last.
    #[inline]
    pub(in crate::hfsplus) fn record(&self, index: u16) -> Option<&[u8]> {
        if index >= self.records {
            return None;
        }
        self.bytes.get(self.offset(index)?..self.offset(index + 1)?)
    }
}

/// Cache of recently read nodes. The slot is a function of the node number, so a lookup holds a
/// lock only briefly, and no lock is held while a node is read.
#[derive(Debug)]
pub(super) struct NodeCache {
    slots: Box<[Mutex<Option<Arc<Node>>>]>,
}

impl NodeCache {
    /// Creates a cache for a tree whose memory limit is not set yet.
    pub(super) fn new() -> Self {
        Self::of_slots(FIRST_CACHED)
    }

    /// Creates a cache of at most `bytes`, for a tree of at most `nodes` nodes.
    pub(super) fn of_bytes(bytes: usize, node_size: u16, nodes: usize) -> Self {
        Self::of_slots((bytes / usize::from(node_size)).min(nodes).max(MIN_CACHED))
    }

    /// Returns the number of cached nodes.
    pub(super) fn len(&self) -> usize {
        let taken = |slot: &&Mutex<Option<Arc<Node>>>| slot.lock().is_some();
        self.slots.iter().filter(taken).count()
    }

    fn of_slots(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Mutex::default()).collect(),
        }
    }

    fn slot(&self, number: u32) -> bandsaw_core::sync::MutexGuard<'_, Option<Arc<Node>>> {
        self.slots[number as usize % self.slots.len()].lock()
    }

    pub(super) fn get(&self, number: u32) -> Option<Arc<Node>> {
        self.slot(number)
            .as_ref()
            .filter(|node| node.number == number)
            .cloned()
    }

    pub(super) fn put(&self, node: &Arc<Node>) {
        *self.slot(node.number) = Some(node.clone());
    }

    pub(super) fn invalidate(&self, number: u32) {
        let mut slot = self.slot(number);
        if slot.as_ref().is_some_and(|node| node.number == number) {
            *slot = None;
        }
    }
}
