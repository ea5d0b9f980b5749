//! Growing and shrinking of forks: blocks, extents, and overflow records (§4).

use zerocopy::IntoBytes;

use super::block_counts::{blocks_of, bytes_of};
use super::reserved::ForkId;
use super::volume::Volume;
use crate::hfsplus::extents::Owner;
use crate::hfsplus::layout::{Cnid, EXTENTS_PER_RECORD, Extent, ExtentsRaw, ForkRaw, fork_type};
use crate::hfsplus::overflow;
use bandsaw_core::{Error, Result};

/// Maximum number of blocks that one operation allocates or frees: their bits of the bitmap fit in
/// any journal.
pub(super) const MAX_BLOCKS: u32 = 1 << 17;
/// Maximum number of extents that one operation frees.
pub(super) const MAX_PIECES: usize = 64;

/// A fork with all its extents.
#[derive(Debug, Clone)]
pub(super) struct ForkMap {
    pub(super) id: Cnid,
    pub(super) kind: u8,
    pub(super) raw: ForkRaw,
    pub(super) extents: Vec<Extent>,
}

impl ForkMap {
    /// Returns the identification of the fork.
    pub(super) fn owner(&self) -> ForkId {
        (self.id, self.kind)
    }

    /// Appends blocks.
    pub(super) fn push(&mut self, extent: Extent) {
        self.raw.total_blocks += extent.count;
        match self.extents.last_mut() {
            Some(last) if last.end() == u64::from(extent.start.0) => last.count += extent.count,
            _ => self.extents.push(extent),
        }
    }

    /// Removes at most `blocks` blocks from the end, all from one extent.
    fn pop(&mut self, blocks: u32) -> Option<Extent> {
        let last = self.extents.last_mut()?;
        let count = last.count.min(blocks);
        last.count -= count;
        let cut = Extent {
            start: crate::hfsplus::layout::AllocBlock(last.start.0 + last.count),
            count,
        };
        if last.count == 0 {
            self.extents.pop();
        }
        self.raw.total_blocks -= count;
        Some(cut)
    }

    /// Returns the extents as they are recorded: those in the fork itself, and those of each
    /// further record with its start block.
    pub(super) fn records(&self) -> (ExtentsRaw, Vec<(u32, ExtentsRaw)>) {
        let record = |extents: &[Extent]| {
            let mut raw = ExtentsRaw::default();
            raw.iter_mut()
                .zip(extents)
                .for_each(|(raw, extent)| *raw = (*extent).into());
            raw
        };
        let (first, rest) = self
            .extents
            .split_at(self.extents.len().min(EXTENTS_PER_RECORD));
        let mut start: u32 = first.iter().map(|extent| extent.count).sum();
        let more = rest.chunks(EXTENTS_PER_RECORD).map(|chunk| {
            let at = start;
            start += chunk.iter().map(|extent| extent.count).sum::<u32>();
            (at, record(chunk))
        });
        let more = more.collect();
        (record(first), more)
    }
}

impl Volume {
    /// Returns a fork of the catalog or the header with all its extents.
    pub(super) fn fork_map(&self, raw: &ForkRaw, id: Cnid, kind: u8) -> Result<ForkMap> {
        let owner = match (kind, id) {
            (_, id) if id < Cnid::FIRST_USER => Owner::Special("special file"),
            (fork_type::RESOURCE, id) => Owner::Resource(id),
            (_, id) => Owner::Data(id),
        };
        let extents = self.read.space.collect(raw, &owner, &mut |block| {
            self.read.overflow.get(id, kind, block)
        })?;
        Ok(ForkMap {
            id,
            kind,
            raw: *raw,
            extents,
        })
    }

    /// Stores the extents of `fork` in its record and in the extents tree, which contains those of
    /// `before`.
    pub(super) fn store_fork(&mut self, fork: &mut ForkMap, before: &ForkRaw) -> Result<()> {
        let (first, wanted) = fork.records();
        fork.raw.extents = first;
        let inline: u64 = before
            .extents
            .iter()
            .map(|extent| u64::from(extent.block_count.get()))
            .sum();
        let there = if inline < before.total_blocks.get().into() {
            self.read.overflow.all(fork.id, fork.kind)?
        } else {
            Vec::new()
        };
        if there.is_empty() && wanted.is_empty() {
            return Ok(());
        }
        let Some(tree) = self.read.overflow.tree_mut() else {
            return Err(Error::limit(
                "hfs+ space",
                "the file is too fragmented: the volume has no extents tree",
            ));
        };
        let find = |records: &[(u32, ExtentsRaw)], start| {
            records.binary_search_by_key(&start, |(at, _)| *at).ok()
        };
        for (start, _) in there
            .iter()
            .filter(|(start, _)| find(&wanted, *start).is_none())
        {
            tree.remove(overflow::key(fork.id, fork.kind, *start).as_bytes())?;
        }
        for (start, extents) in &wanted {
            let key = overflow::key(fork.id, fork.kind, *start);
            match find(&there, *start).map(|place| &there[place].1) {
                Some(old) if old == extents => {}
                Some(_) => tree.replace(key.as_bytes(), extents.as_bytes())?,
                None => tree.insert(key.as_bytes(), extents.as_bytes())?,
            }
        }
        Ok(())
    }

    /// Changes the length of a fork to `len` bytes, as far as one operation allows; returns true if
    /// that is complete. New bytes are zero if `zeros`. The caller has to store the fork.
    pub(super) fn resize_fork(
        &mut self,
        fork: &mut ForkMap,
        len: u64,
        zeros: bool,
    ) -> Result<bool> {
        let block_size = self.read.header.block_size;
        let (old, wanted) = (fork.raw.logical_size.get(), blocks_of(len, block_size)?);
        let have = fork.raw.total_blocks.get();
        if zeros {
            self.zero_tail(fork, old, len)?;
        }
        if wanted >= have {
            let more = (wanted - have).min(MAX_BLOCKS);
            for extent in self.allocate_behind(fork, more)? {
                if zeros {
                    let (offset, len) = bytes_of(extent, block_size);
                    self.zero(offset, len)?;
                }
                fork.push(extent);
            }
            let capacity = u64::from(fork.raw.total_blocks.get()) * u64::from(block_size);
            fork.raw.logical_size = len.min(capacity).into();
            return Ok(len <= capacity);
        }
        self.bitmap.give_up(fork.owner());
        let (mut left, mut pieces) = ((have - wanted).min(MAX_BLOCKS), 0);
        while left > 0 && pieces < MAX_PIECES {
            let Some(cut) = fork.pop(left) else { break };
            left -= cut.count;
            pieces += 1;
            self.free_extent(cut)?;
        }
        let capacity = u64::from(fork.raw.total_blocks.get()) * u64::from(block_size);
        // A fork that is being truncated is never longer than before.
        fork.raw.logical_size = if fork.raw.total_blocks.get() == wanted {
            len
        } else {
            capacity.min(old)
        }
        .into();
        Ok(fork.raw.total_blocks.get() == wanted)
    }

    /// Zeros the bytes between the end of a fork and the end of its last block, up to `len`.
    fn zero_tail(&self, fork: &ForkMap, old: u64, len: u64) -> Result<()> {
        let capacity =
            u64::from(fork.raw.total_blocks.get()) * u64::from(self.read.header.block_size);
        let end = capacity.min(len);
        if end <= old {
            return Ok(());
        }
        let device = crate::hfsplus::extents::ForkSpace {
            device: self.device.clone(),
            ..self.read.space.clone()
        };
        let file = device.device_over(&fork.extents, capacity);
        let (mut at, zeros) = (
            old,
            vec![
                0;
                usize::try_from(end - old)
                    .unwrap_or(usize::MAX)
                    .min(64 << 10)
            ],
        );
        while at < end {
            let now = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(zeros.len());
            file.overwrite(at, &zeros[..now])?;
            at += now as u64;
        }
        Ok(())
    }
}
