//! Relocation of blocks past the new end of a volume that shrinks (§13).
//!
//! Each operation copies blocks of one fork to free blocks and stores the new extents in its
//! record. The copy becomes durable before the commit that makes it valid, and the old blocks are
//! unused afterwards.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::LAYER;
use super::block_counts::bytes_of;
use super::forks::{ForkMap, MAX_BLOCKS};
use super::recover;
use super::space::TreeName;
use super::volume::Volume;
use crate::hfsplus::attributes::{AttributeData, key as attribute_key};
use crate::hfsplus::catalog::Object;
use crate::hfsplus::layout::{
    AllocBlock, Cnid, EXTENTS_PER_RECORD, Extent, ExtentsAttributeRaw, ForkAttributeRaw, ForkRaw,
    attribute_type, extents_of, fork_type, volume_attributes,
};
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};

/// Maximum number of bytes that one operation copies, and bytes copied at a time.
const MAX_BYTES: u64 = 16 << 20;
const PIECE: u64 = 1 << 20;
/// Number of objects searched for at a time.
const BATCH: usize = 1024;

impl Volume {
    /// Moves all used blocks from `end` on to lower ones. The ceiling of the bitmap is already set
    /// to `end`.
    pub(super) fn make_way(&mut self, end: u32, progress: &dyn Progress) -> Result<()> {
        let bad = self.read.overflow.all(Cnid::BAD_BLOCKS, fork_type::DATA)?;
        if bad
            .iter()
            .flat_map(|(_, extents)| extents_of(extents))
            .any(|extent| extent.end() > end.into())
        {
            return Err(Error::unsupported(
                LAYER,
                "cannot shrink: bad blocks are past the new end",
            ));
        }
        progress.stage(
            "move",
            u64::from(self.bitmap.used_in(end..self.read.header.total_blocks)?),
        );
        self.move_journal(end)?;
        for which in [TreeName::Overflow, TreeName::Catalog, TreeName::Attributes] {
            self.move_tree(which, end, progress)?;
        }
        self.move_bitmap(end, progress)?;
        self.repeat(progress, |volume| volume.pull_startup_file(end))?;
        self.move_attributes(end, progress)?;
        self.move_files(end, progress)
    }

    /// Repeats an operation until it returns that nothing is left.
    fn repeat(
        &mut self,
        progress: &dyn Progress,
        mut relocate: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        loop {
            progress.check()?;
            if self.change(|volume| relocate(volume))? {
                return Ok(());
            }
        }
    }

    /// Replaces a journal past the end by a new one. In between the volume has none, which is a
    /// valid state too.
    fn move_journal(&mut self, end: u32) -> Result<()> {
        if !self.read.header.has(volume_attributes::JOURNALED) {
            return Ok(());
        }
        let places = recover::places(&*self.device, &self.read.header)?;
        if places.iter().all(|place| place.end() <= end.into()) {
            return Ok(());
        }
        let block_size = u64::from(self.read.header.block_size);
        let size = places
            .iter()
            .map(|place| u64::from(place.count) * block_size)
            .max()
            .unwrap_or(0);
        // Check first that there is enough space.
        self.place_journal(size)?;
        self.disable_journal()?;
        self.enable_journal(Some(size))
    }

    /// Moves the first blocks of `fork` that are at or past `end`, in multiples of `grain`; returns
    /// false if there are none.
    fn relocate(&mut self, fork: &mut ForkMap, end: u32, grain: u32) -> Result<bool> {
        let Some(place) = fork
            .extents
            .iter()
            .position(|extent| extent.end() > end.into())
        else {
            return Ok(false);
        };
        let extent = fork.extents[place];
        let block_size = self.read.header.block_size;
        let stay = end.saturating_sub(extent.start.0);
        let stay = stay - stay % grain;
        let most = (u32::try_from(MAX_BYTES / u64::from(block_size)).unwrap_or(MAX_BLOCKS))
            .clamp(grain, MAX_BLOCKS);
        let count = (extent.count - stay).min(most - most % grain);
        let from = Extent {
            start: AllocBlock(extent.start.0 + stay),
            count,
        };
        let pieces = self.allocate(count, grain, None)?;
        self.copy(from, &pieces)?;
        self.free_extent(from)?;

        let rest = Extent {
            start: AllocBlock(from.start.0 + count),
            count: extent.count - stay - count,
        };
        let before = Extent {
            count: stay,
            ..extent
        };
        let parts = std::iter::once(before)
            .chain(pieces)
            .chain(std::iter::once(rest))
            .filter(|part| part.count > 0);
        fork.extents
            .splice(place..=place, parts.collect::<Vec<_>>());
        fork.extents.dedup_by(|next, last| {
            let follows = last.end() == u64::from(next.start.0);
            if follows {
                last.count += next.count;
            }
            follows
        });
        Ok(true)
    }

    /// Copies blocks with all pending changes.
    fn copy(&self, from: Extent, to: &[Extent]) -> Result<()> {
        let block_size = self.read.header.block_size;
        let (mut source, _) = bytes_of(from, block_size);
        for piece in to {
            let (start, len) = bytes_of(*piece, block_size);
            let mut done = 0;
            while done < len {
                let bytes = self
                    .buffer
                    .read_vec(source, to_usize(PIECE.min(len - done)))?;
                self.device.write_at(start + done, &bytes)?;
                (source, done) = (source + bytes.len() as u64, done + bytes.len() as u64);
            }
        }
        Ok(())
    }

    fn move_tree(&mut self, which: TreeName, end: u32, progress: &dyn Progress) -> Result<()> {
        loop {
            progress.check()?;
            let before = self.tree(which).map(|tree| tree.file().clone());
            let pulled = self.change(|volume| volume.pull_tree(which, end));
            if let (Err(_), Some(before)) = (&pulled, before) {
                self.tree(which)
                    .into_iter()
                    .for_each(|tree| tree.move_to(before.clone()));
            }
            if pulled? {
                return Ok(());
            }
        }
    }

    fn move_bitmap(&mut self, end: u32, progress: &dyn Progress) -> Result<()> {
        loop {
            progress.check()?;
            let (before, total) = (self.bitmap.file().clone(), self.read.header.total_blocks);
            let pulled = self.change(|volume| volume.pull_bitmap(end));
            if pulled.is_err() {
                self.bitmap.go_over(before, total);
                self.bitmap.set_ceiling(end);
            }
            if pulled? {
                return Ok(());
            }
        }
    }

    fn pull_tree(&mut self, which: TreeName, end: u32) -> Result<bool> {
        let Some(node_size) = self.tree(which).map(|tree| u32::from(tree.node_size())) else {
            return Ok(true);
        };
        let raw = *self.tree_fork(which);
        let mut fork = self.fork_map(&raw, which.id(), fork_type::DATA)?;
        if !self.relocate(
            &mut fork,
            end,
            (node_size / self.read.header.block_size).max(1),
        )? {
            return Ok(true);
        }
        if which == TreeName::Overflow && fork.extents.len() > EXTENTS_PER_RECORD {
            return Err(Error::limit(
                LAYER,
                "cannot shrink: the extents tree would be too fragmented (limit 8 extents)",
            ));
        }
        self.store_fork(&mut fork, &raw)?;
        *self.tree_fork(which) = fork.raw;
        let file = self
            .read
            .space
            .device_over(&fork.extents, fork.raw.logical_size.get());
        self.tree(which)
            .into_iter()
            .for_each(|tree| tree.move_to(file.clone()));
        Ok(false)
    }

    fn pull_bitmap(&mut self, end: u32) -> Result<bool> {
        let raw = self.read.header.raw.allocation_file;
        let mut fork = self.fork_map(&raw, Cnid::ALLOCATION, fork_type::DATA)?;
        let Some(extent) = fork
            .extents
            .iter()
            .copied()
            .find(|extent| extent.end() > end.into())
        else {
            return Ok(true);
        };
        // The bitmap may contain its own bits. Changes of bits during the move are therefore made
        // in the copy.
        let stay = end.saturating_sub(extent.start.0);
        let most = u32::try_from(MAX_BYTES / u64::from(self.read.header.block_size))
            .unwrap_or(1)
            .max(1);
        let from = Extent {
            start: AllocBlock(extent.start.0 + stay),
            count: (extent.count - stay).min(most),
        };
        let mut moved = ForkMap {
            extents: vec![from],
            ..fork.clone()
        };
        let pieces = self.allocate(from.count, 1, None)?;
        self.copy(from, &pieces)?;
        moved.extents.clear();
        for extent in std::mem::take(&mut fork.extents) {
            if extent.start.0 + stay != from.start.0 || extent.end() <= end.into() {
                moved.extents.push(extent);
                continue;
            }
            let rest = Extent {
                start: AllocBlock(from.start.0 + from.count),
                count: extent.count - stay - from.count,
            };
            let parts = std::iter::once(Extent {
                count: stay,
                ..extent
            })
            .chain(pieces.iter().copied())
            .chain([rest]);
            moved.extents.extend(parts.filter(|part| part.count > 0));
        }
        self.store_fork(&mut moved, &raw)?;
        self.header().allocation_file = moved.raw;
        let file = self
            .read
            .space
            .device_over(&moved.extents, moved.raw.logical_size.get());
        let total = self.read.header.total_blocks;
        self.bitmap.go_over(file, total);
        self.bitmap.set_ceiling(end);
        self.free_extent(from)?;
        Ok(false)
    }

    fn pull_startup_file(&mut self, end: u32) -> Result<bool> {
        let raw = self.read.header.raw.startup_file;
        let mut fork = self.fork_map(&raw, Cnid::STARTUP, fork_type::DATA)?;
        let moved = self.relocate(&mut fork, end, 1)?;
        if moved {
            self.store_fork(&mut fork, &raw)?;
            self.header().startup_file = fork.raw;
        }
        Ok(!moved)
    }

    fn move_attributes(&mut self, end: u32, progress: &dyn Progress) -> Result<()> {
        let mut after: Option<(Cnid, Vec<U16>)> = None;
        loop {
            let found = self.read.attributes.reaching(after.as_ref(), end, BATCH)?;
            let Some(last) = found.last().cloned() else {
                return Ok(());
            };
            for (id, name) in found {
                self.repeat(progress, |volume| volume.pull_attribute(id, &name, end))?;
            }
            after = Some(last);
        }
    }

    fn pull_attribute(&mut self, id: Cnid, name: &[U16], end: u32) -> Result<bool> {
        let records = self.read.attributes.records(id, name)?;
        let Some((_, AttributeData::Fork(raw))) = records.first().copied() else {
            return Ok(true);
        };
        let all = records.iter().flat_map(|(_, stored)| match stored {
            AttributeData::Fork(fork) => extents_of(&fork.extents).collect::<Vec<_>>(),
            AttributeData::Extents(extents) => extents_of(extents).collect(),
            AttributeData::Inline => Vec::new(),
        });
        let mut fork = ForkMap {
            id,
            kind: 0,
            raw,
            extents: all.collect(),
        };
        if !self.relocate(&mut fork, end, 1)? {
            return Ok(true);
        }
        let (first, more) = fork.records();
        let fork = ForkRaw {
            extents: first,
            ..raw
        };
        let Some(tree) = self.read.attributes.tree_mut() else {
            return Ok(true);
        };
        let head = ForkAttributeRaw {
            record_type: attribute_type::FORK.into(),
            reserved: 0.into(),
            fork,
        };
        tree.replace(&attribute_key(id, name, 0), head.as_bytes())?;
        for (start, _) in records.iter().skip(1) {
            tree.remove(&attribute_key(id, name, *start))?;
        }
        for (start, extents) in more {
            let record = ExtentsAttributeRaw {
                record_type: attribute_type::EXTENTS.into(),
                reserved: 0.into(),
                extents,
            };
            tree.insert(&attribute_key(id, name, start), record.as_bytes())?;
        }
        Ok(false)
    }

    fn move_files(&mut self, end: u32, progress: &dyn Progress) -> Result<()> {
        let mut after: Option<(Cnid, Vec<U16>)> = None;
        loop {
            let found = self.read.catalog.files_after(after.as_ref(), BATCH)?;
            let Some((last, _)) = found.last().cloned() else {
                return Ok(());
            };
            for ((parent, name), forks) in found {
                let mut reaches = false;
                for (fork, id, kind) in forks {
                    reaches |= self
                        .fork_map(&fork, id, kind)?
                        .extents
                        .iter()
                        .any(|extent| extent.end() > end.into());
                }
                if reaches {
                    self.repeat(progress, |volume| {
                        volume.pull_file(parent, &name, end, progress)
                    })?;
                }
            }
            progress.check()?;
            after = Some(last);
        }
    }

    fn pull_file(
        &mut self,
        parent: Cnid,
        name: &[U16],
        end: u32,
        progress: &dyn Progress,
    ) -> Result<bool> {
        let Some(Object::File(mut file)) = self.read.catalog.get(parent, name)? else {
            return Ok(true);
        };
        let id = Cnid(file.file_id.get());
        for kind in [fork_type::DATA, fork_type::RESOURCE] {
            let raw = if kind == fork_type::DATA {
                file.data_fork
            } else {
                file.resource_fork
            };
            let mut fork = self.fork_map(&raw, id, kind)?;
            if !self.relocate(&mut fork, end, 1)? {
                continue;
            }
            self.store_fork(&mut fork, &raw)?;
            match kind {
                fork_type::DATA => file.data_fork = fork.raw,
                _ => file.resource_fork = fork.raw,
            }
            self.put(parent, name, &Object::File(file))?;
            progress.advance(u64::from(fork.raw.total_blocks.get()));
            return Ok(false);
        }
        Ok(true)
    }
}
