//! Resizing of a volume (§13): adding blocks at the end, or removing them once they are unused.

use zerocopy::{FromBytes, IntoBytes};

use super::LAYER;
use super::mounting::MIN_JOURNAL;
use super::volume::Volume;
use crate::SizeLimits;
use crate::hfsplus::layout::{
    AllocBlock, Cnid, Extent, HEADER_OFFSET, VolumeHeaderRaw, fork_type, reserved_blocks,
    volume_attributes,
};
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::progress::Progress;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Kind, Result};

/// Minimum length of a volume after shrinking, in bytes.
const LEAST: u64 = 512 << 10;
/// Granularity of proposed lengths, in bytes.
const GRAIN: u64 = 4096;
/// Bytes of the bitmap read at a time.
const PIECE: u64 = 32 << 10;

impl Volume {
    /// Returns the minimum and maximum length of the volume.
    pub(super) fn limits(&self) -> SizeLimits {
        let header = &self.read.header;
        let block_size = u64::from(header.block_size);
        let current = u64::from(header.total_blocks) * block_size;
        let used = u64::from(header.total_blocks - header.free_blocks.min(header.total_blocks));
        // Space for a transient journal, and for the records of files that become more fragmented.
        let room = (4 * MIN_JOURNAL).div_ceil(block_size) + used / 64 + 16;
        let min = ((used + room) * block_size)
            .max(LEAST)
            .next_multiple_of(GRAIN.max(block_size));
        SizeLimits {
            min: min.min(current),
            current,
            max: u64::from(u32::MAX) * block_size,
        }
    }

    /// Resizes the volume to `len` bytes of its device.
    pub(super) fn resize(&mut self, len: u64, progress: &dyn Progress) -> Result<()> {
        self.device.info().check(LAYER, 0, len)?;
        let block_size = u64::from(self.read.header.block_size);
        let total = u32::try_from(len / block_size).map_err(|_| {
            let message = format!(
                "the volume is too large: with blocks of {block_size} bytes the maximum is {} bytes",
                self.limits().max
            );
            Error::limit(LAYER, message)
        })?;
        self.unmount()?;
        match total.cmp(&self.read.header.total_blocks) {
            std::cmp::Ordering::Greater => self.grow(total, len),
            std::cmp::Ordering::Less => self.shrink(total, len, progress),
            std::cmp::Ordering::Equal => Ok(()),
        }?;
        self.put_alternate(len - HEADER_OFFSET)
    }

    fn grow(&mut self, total: u32, len: u64) -> Result<()> {
        let (before, clean) = (self.read.header.total_blocks, self.read.header.raw);
        self.clear_past_the_end(total)?;
        let map = self.bitmap.file().clone();
        let grown = self.change(|volume| {
            volume.extend(total)?;
            volume.announce(&clean, len)
        });
        if grown.is_err() {
            self.withdraw(len);
            // The header was already rolled back.
            self.read.space.total_blocks = before;
            self.bitmap.go_over(map, before);
        }
        grown?;
        self.commit()?;
        self.device.flush()?;
        self.remove_alternate(before)?;
        self.unmount()
    }

    /// Clears existing bits of blocks that do not exist yet. They have no meaning, so an
    /// interruption is harmless.
    fn clear_past_the_end(&mut self, total: u32) -> Result<()> {
        let map = self.bitmap.file().clone();
        let end = u64::from(total).div_ceil(8).min(map.len());
        let mut at = u64::from(self.read.header.total_blocks) / 8;
        while at < end {
            let piece = map.read_vec(at, to_usize(PIECE.min(end - at)))?;
            let own = if at * 8 < self.read.header.total_blocks.into() {
                self.read.header.total_blocks % 8
            } else {
                0
            };
            let mut cleared = vec![0; piece.len()];
            cleared[0] = piece[0] & !(0xFF_u8.checked_shr(own).unwrap_or(0));
            if cleared != piece {
                self.change(|volume| volume.bitmap.file().overwrite(at, &cleared))?;
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Adds the blocks from the old end to the new one, as one operation.
    fn extend(&mut self, total: u32) -> Result<()> {
        let (before, block_size) = (self.read.header.total_blocks, self.read.header.block_size);
        let (added, (_, tail)) = (total - before, reserved_blocks(block_size));
        let old_tail = Extent {
            start: AllocBlock(before - tail.min(before)),
            count: tail.min(before),
        };
        let reserved = self.bitmap.used_in(old_tail.start.0..before)?;

        let raw = self.read.header.raw.allocation_file;
        let mut fork = self.fork_map(&raw, Cnid::ALLOCATION, fork_type::DATA)?;
        let needed = narrow::<u32>(u64::from(total).div_ceil(8).div_ceil(block_size.into())); // at most 2^20
        let more = needed.saturating_sub(raw.total_blocks.get());
        // Place the bitmap in the new blocks, where it does not obstruct files; a full volume has
        // no others.
        let in_new = added >= more + tail;
        let pieces = match more {
            0 => Vec::new(),
            _ if in_new => vec![Extent {
                start: AllocBlock(before),
                count: more,
            }],
            _ => self.allocate(more, 1, None)?,
        };
        self.set_total(total);
        self.header().count_freed(added);
        for piece in &pieces {
            self.zero(
                piece.start.offset(block_size),
                u64::from(piece.count) * u64::from(block_size),
            )?;
            fork.push(*piece);
        }
        if more > 0 {
            fork.raw.logical_size =
                (u64::from(fork.raw.total_blocks.get()) * u64::from(block_size)).into();
            self.store_fork(&mut fork, &raw)?;
            self.header().allocation_file = fork.raw;
        }
        let file = self
            .read
            .space
            .device_over(&fork.extents, fork.raw.logical_size.get());
        self.bitmap.go_over(file, total);
        if in_new {
            for piece in &pieces {
                self.bitmap.mark(*piece, true)?;
                self.header().count_used(piece.count);
            }
        }
        self.bitmap.set(old_tail, false)?;
        self.header().count_freed(reserved);
        self.bitmap.mark(
            Extent {
                start: AllocBlock(total - tail),
                count: tail,
            },
            true,
        )?;
        self.header().count_used(tail);
        Ok(())
    }

    fn shrink(&mut self, total: u32, len: u64, progress: &dyn Progress) -> Result<()> {
        let before = self.read.header.total_blocks;
        let (head, tail) = reserved_blocks(self.read.header.block_size);
        let clean = self.read.header.raw;
        let end = total.saturating_sub(tail);
        let used = self.bitmap.used_in(end..before)?;
        let free = end.saturating_sub(self.bitmap.used_in(0..end)?);
        if len < LEAST || end <= head || used.saturating_sub(tail) > free {
            let message = format!(
                "{len} bytes are too few for the contents of the volume: {used} used blocks have \
                 to move, {free} are free; the minimum is about {} bytes",
                self.limits().min
            );
            return Err(Error::limit(LAYER, message));
        }
        self.bitmap.set_ceiling(end);
        let shrunk = self
            .make_way(end, progress)
            .and_then(|()| self.cut(total, end, &clean, len));
        self.bitmap.set_ceiling(self.read.header.total_blocks);
        if shrunk.is_err() {
            // Moved files remain at their new places; the volume stays consistent.
            self.unmount()?;
        }
        shrunk
    }

    /// Removes the blocks from `total` on, which are unused. Blocks from `end` on are not allocated
    /// any more.
    fn cut(&mut self, total: u32, end: u32, clean: &VolumeHeaderRaw, len: u64) -> Result<()> {
        self.commit()?;
        let (before, (head, tail)) = (
            self.read.header.total_blocks,
            reserved_blocks(self.read.header.block_size),
        );
        let old_tail = Extent {
            start: AllocBlock(before - tail),
            count: tail,
        };
        let left = self.bitmap.used_in(end..old_tail.start.0.max(end))?;
        if left > 0 {
            let message = format!(
                "{left} blocks past the new end are marked as used, but nothing uses them; repair \
                 the volume first"
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        let map = self.bitmap.file().clone();
        let cut = self.change(|volume| {
            let gone = before - total - volume.bitmap.used_in(total..before)?;
            volume.bitmap.set(old_tail, false)?;
            let kept = old_tail.start.0.max(end)..total;
            if !kept.is_empty() {
                // The difference is so small that the tails overlap: these blocks belonged to the
                // old one.
                volume.header().count_freed(kept.end - kept.start);
            }
            volume.bitmap.mark(
                Extent {
                    start: AllocBlock(end),
                    count: tail,
                },
                true,
            )?;
            let free = volume
                .header()
                .free_blocks
                .get()
                .saturating_sub(gone + tail);
            volume.header().free_blocks = free.into();
            volume.set_total(total);
            volume.bound_clumps();
            volume.bitmap.go_over(map.clone(), total);
            if volume.header().next_allocation.get() >= end {
                volume.header().next_allocation = head.into();
            }
            volume.announce(clean, len)
        });
        if cut.is_err() {
            self.withdraw(len);
            self.read.space.total_blocks = before;
            self.bitmap.go_over(map, before);
        }
        cut?;
        self.unmount()
    }

    /// Limits the clump sizes of the volume's own files to a quarter of the volume, as Apple's
    /// checker requires.
    fn bound_clumps(&mut self) {
        let most =
            u64::from(self.read.header.total_blocks / 4) * u64::from(self.read.header.block_size);
        let raw = self.header();
        for fork in [
            &mut raw.extents_file,
            &mut raw.catalog_file,
            &mut raw.allocation_file,
            &mut raw.attributes_file,
        ] {
            let clump = u64::from(fork.clump_size.get()).min(most);
            fork.clump_size = narrow::<u32>(clump).into(); // not more than it was
        }
    }

    fn set_total(&mut self, total: u32) {
        self.header().total_blocks = total.into();
        self.read.header.total_blocks = total;
        self.read.space.total_blocks = total;
    }

    /// Writes the alternate header of a volume that will have `len` bytes, before the volume header
    /// is changed: after a crash, either size has its alternate at its end. The state of the volume is
    /// that in `clean`.
    fn announce(&self, clean: &VolumeHeaderRaw, len: u64) -> Result<()> {
        let raw = VolumeHeaderRaw {
            attributes: clean.attributes,
            last_mounted_version: clean.last_mounted_version,
            journal_info_block: clean.journal_info_block,
            write_count: clean.write_count,
            ..self.read.header.raw
        };
        self.device.write_at(len - HEADER_OFFSET, raw.as_bytes())?;
        self.device.flush()
    }

    /// Removes an announced alternate header.
    fn withdraw(&self, len: u64) {
        let zeros = [0; size_of::<VolumeHeaderRaw>()];
        // Harmless if it stays: the volume header counts.
        let _ = self.device.write_at(len - HEADER_OFFSET, &zeros);
    }

    /// Writes the header of a clean volume to the place of the alternate.
    fn put_alternate(&self, at: u64) -> Result<()> {
        debug_assert!(self.read.header.has(volume_attributes::UNMOUNTED));
        self.device.write_at(at, self.read.header.raw.as_bytes())?;
        self.device.flush()
    }

    /// Removes the alternate header of the volume with `total` blocks, which is in free space now:
    /// recovery programs would find it.
    fn remove_alternate(&self, total: u32) -> Result<()> {
        let block_size = self.read.header.block_size;
        let first = AllocBlock(total)
            .offset(block_size)
            .saturating_sub(HEADER_OFFSET);
        let last = (first + HEADER_OFFSET + u64::from(block_size))
            .min(self.device.info().len.saturating_sub(2 * HEADER_OFFSET));
        for at in (first..last).step_by(size_of::<VolumeHeaderRaw>()) {
            let bytes = self.device.read_vec(at, size_of::<VolumeHeaderRaw>())?;
            let Ok(found) = VolumeHeaderRaw::read_from_bytes(&bytes) else {
                continue;
            };
            let own = &self.read.header.raw;
            if (found.signature, found.version, found.identifier)
                == (own.signature, own.version, own.identifier)
                && found.total_blocks.get() == total
            {
                self.device.write_at(at, &vec![0; bytes.len()])?;
            }
        }
        Ok(())
    }
}
