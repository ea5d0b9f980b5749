//! Free queues: blocks that the current state no longer uses, but older checkpoints still need
//! (§14).

use std::collections::BTreeMap;
use std::ops::Range;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

use super::LAYER;
use crate::apfs::btree::{Node, Sizes};
use crate::apfs::build::node::TreeKind;
use crate::apfs::build::tree::{TreePlace, Writer};
use crate::apfs::layout::{BlockSize, FreeQueueKeyRaw, MAX_LEVELS, Oid, Paddr, Xid, object_type};
use crate::build::output::Output;
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::{Error, Kind, Result};

const SIZES: Sizes = Sizes {
    key: size_of::<FreeQueueKeyRaw>(),
    value: size_of::<U64>(),
};

/// A free queue: runs of blocks by the transaction that freed them.
#[derive(Debug, Default)]
pub(super) struct Queue {
    runs: BTreeMap<(u64, u64), u64>,
    blocks: u64,
}

impl Queue {
    /// Reads the queue whose tree has this root; `objects` are the nodes of such trees in a
    /// checkpoint. All runs must be within `blocks`.
    pub(super) fn read(root: Oid, objects: &[(Oid, Vec<u8>)], blocks: u64) -> Result<Self> {
        let mut queue = Self::default();
        if root.is_some() {
            queue.collect(root, objects, blocks, MAX_LEVELS)?;
        }
        Ok(queue)
    }

    fn collect(
        &mut self,
        oid: Oid,
        objects: &[(Oid, Vec<u8>)],
        blocks: u64,
        levels: u16,
    ) -> Result<()> {
        let corrupt = |message: String| {
            Error::new(Kind::Corrupt, LAYER, message).named(format!("free queue node {oid:#x}"))
        };
        let Some((_, bytes)) = objects.iter().find(|(found, _)| *found == oid) else {
            return Err(corrupt("no checkpoint map lists it".into()));
        };
        let node = Node::parse(oid, Paddr(0), bytes.clone().into_boxed_slice(), Some(SIZES))
            .map_err(corrupt)?;
        if node.level >= levels {
            return Err(corrupt(format!(
                "has level {}, expected less than {levels}",
                node.level
            )));
        }
        for (key, value) in (0..node.count).filter_map(|index| node.record(index)) {
            let value = U64::read_from_prefix(value)
                .ok()
                .map(|(value, _)| value.get());
            if node.level > 0 {
                let child = value.ok_or_else(|| corrupt("has an entry without a node".into()))?;
                self.collect(Oid(child), objects, blocks, node.level)?;
                continue;
            }
            let (key, _) = FreeQueueKeyRaw::read_from_prefix(key)
                .map_err(|_| corrupt("has a truncated key".into()))?;
            let (start, count) = (key.paddr.get(), value.unwrap_or(1));
            if count == 0 || start.checked_add(count).is_none_or(|end| end > blocks) {
                return Err(corrupt(format!(
                    "has {count} blocks from {start}, past the end of the container ({blocks})"
                )));
            }
            if self.runs.insert((key.xid.get(), start), count).is_some() {
                return Err(corrupt(format!("has block {start} twice")));
            }
            self.blocks = self.blocks.saturating_add(count);
        }
        Ok(())
    }

    /// Adds blocks that `xid` has freed.
    pub(super) fn add(&mut self, xid: Xid, blocks: Range<u64>) {
        let (mut start, mut count) = (blocks.start, blocks.end - blocks.start);
        self.blocks += count;
        let before = self
            .runs
            .range(..(xid.0, start))
            .next_back()
            .map(|(key, count)| (*key, *count));
        if let Some(((found, first), len)) = before
            && found == xid.0
            && first + len == start
        {
            self.runs.remove(&(found, first));
            (start, count) = (first, len + count);
        }
        if let Some(len) = self.runs.remove(&(xid.0, start + count)) {
            count += len;
        }
        self.runs.insert((xid.0, start), count);
    }

    /// Reverts the last `add` of `xid`.
    pub(super) fn take_back(&mut self, xid: Xid, blocks: Range<u64>) {
        let found = self
            .runs
            .range(..=(xid.0, blocks.start))
            .next_back()
            .map(|(key, count)| (*key, *count));
        let Some(((found, first), len)) =
            found.filter(|&((found, first), len)| found == xid.0 && first + len >= blocks.end)
        else {
            return;
        };
        self.runs.remove(&(found, first));
        self.blocks -= blocks.end - blocks.start;
        if first < blocks.start {
            self.runs.insert((found, first), blocks.start - first);
        }
        if first + len > blocks.end {
            self.runs
                .insert((found, blocks.end), first + len - blocks.end);
        }
    }

    /// Removes and returns the blocks that transactions before `xid` freed, which nothing needs any
    /// more.
    pub(super) fn drain_before(&mut self, xid: u64) -> Vec<Range<u64>> {
        let later = self.runs.split_off(&(xid, 0));
        let drained = std::mem::replace(&mut self.runs, later);
        let runs: Vec<_> = drained
            .into_iter()
            .map(|((_, start), count)| start..start + count)
            .collect();
        self.blocks -= runs.iter().map(|run| run.end - run.start).sum::<u64>();
        runs
    }

    /// Iterates over the runs, ordered by transaction.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.runs
            .iter()
            .map(|((_, start), count)| *start..start + count)
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the oldest transaction with blocks in the queue, 0 if it is empty.
    pub(super) fn oldest(&self) -> u64 {
        self.runs.keys().next().map_or(0, |(xid, _)| *xid)
    }

    /// Returns the nodes of its tree, the root last. A run of one block has no value.
    pub(super) fn nodes(
        &self,
        size: BlockSize,
        root: Oid,
        first: Oid,
        xid: Xid,
    ) -> Result<Vec<(Oid, Vec<u8>)>> {
        let kind = TreeKind::free_queue(size);
        let most = (self.runs.len() / kind.capacity(true).max(1) + 2) * 2 * size.bytes();
        let memory = Memory::zeros(most);
        let mut writer = Writer::new(
            kind,
            TreePlace {
                base: Paddr(0),
                oids: Some((root, first)),
                xid,
            },
            Output::new(&memory, 0),
        );
        for (&(xid, start), &count) in &self.runs {
            let key = FreeQueueKeyRaw {
                xid: xid.into(),
                paddr: start.into(),
            };
            let count = count.to_le_bytes();
            writer.add(
                key.as_bytes(),
                if count == 1_u64.to_le_bytes() {
                    &[]
                } else {
                    &count
                },
            )?;
        }
        let (_, nodes) = writer.finish()?;
        (0..nodes)
            .map(|node| {
                let oid = if node + 1 == nodes {
                    root
                } else {
                    Oid(first.0 + node)
                };
                Ok((
                    oid,
                    memory.read_vec(node * u64::from(size.get()), size.bytes())?,
                ))
            })
            .collect()
    }
}

/// Returns true if an ephemeral object is a node of a free queue.
pub(super) fn is_node(kind: u32, subtype: u32) -> bool {
    matches!(
        kind & object_type::MASK,
        object_type::BTREE_ROOT | object_type::BTREE_NODE
    ) && subtype == object_type::FREE_QUEUE
}
