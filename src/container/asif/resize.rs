//! Resizing: changes the number of blocks in the header. Tables need no change, as they can cover
//! any disk.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::chunks::ChunkPart;
use super::layout::{ChunkEntry, DiskChunk};
use super::mask::BlockState;
use super::{Asif, LAYER, blocks_of};
use crate::device::AfterDiscard;
use crate::size::narrow;
use crate::{Error, Result};

impl Asif {
    /// Sets the length of the disk to `len` bytes. New bytes in `hidden` become explicit zeros, the
    /// others are holes. The caller must serialize calls.
    pub(super) fn resize(&self, len: u64, hidden: Range<u64>) -> Result<()> {
        let blocks = blocks_of(self.geometry.block, len)?;
        let now = self.len.load(Ordering::SeqCst);
        if len == now {
            return Ok(());
        }
        let room = self.room();
        if len > room {
            let limit = format!(
                "disk of {len} bytes is too large: at most {room} leave room for the \
                         metadata"
            );
            return Err(Error::limit(LAYER, limit));
        }
        self.begin_locked()?;
        let resized = if len < now {
            self.shrink(len, now, blocks)
        } else {
            self.grow(now..len, blocks, hidden)
        };
        self.failed.record(resized)
    }

    /// Returns the maximum length of the disk in bytes.
    fn room(&self) -> u64 {
        let max = self.geometry.max_sectors * u64::from(self.geometry.block);
        self.described()
            .chunks
            .iter()
            .map(|chunk| self.geometry.start(*chunk))
            .min()
            .unwrap_or(max)
    }

    /// Shrinks the disk. The size is written first: after a crash the disk is shorter, and chunks
    /// past its end are ignored.
    fn shrink(&self, len: u64, now: u64, blocks: u64) -> Result<()> {
        self.len.store(len, Ordering::SeqCst);
        self.wait_for_requests(len);
        self.write_size(blocks)?;
        self.clear(len, now)?;
        self.commit(Vec::new())
    }

    /// Grows the disk. First removes the data past its end, which would become visible, and writes
    /// the explicit zeros; both are durable before the size.
    fn grow(&self, new: Range<u64>, blocks: u64, hidden: Range<u64>) -> Result<()> {
        self.clear(new.start, new.end)?;
        self.hide(hidden.start.max(new.start)..hidden.end.min(new.end))?;
        self.commit(Vec::new())?;
        self.write_size(blocks)?;
        self.len.store(new.end, Ordering::SeqCst);
        Ok(())
    }

    fn write_size(&self, blocks: u64) -> Result<()> {
        self.change_header(|raw| raw.sector_count = blocks.into())
    }

    /// Makes `range`, which is past the end of the disk and cleared, explicit zeros: from whole
    /// blocks at its start to whole chunks at its end.
    fn hide(&self, range: Range<u64>) -> Result<()> {
        let (bytes, mut at) = (self.geometry.chunk_bytes(), range.start);
        while at < range.end {
            let chunk = self.geometry.chunk_at(at);
            let alone = self.units.exclusive(chunk.0);
            if at.is_multiple_of(bytes) {
                self.tables
                    .set(chunk, ChunkEntry::Unmapped, None, &self.space)?;
            } else {
                self.hide_blocks(&ChunkPart {
                    chunk,
                    within: at % bytes..bytes,
                })?;
            }
            drop(alone);
            at = self.geometry.start(DiskChunk(chunk.0 + 1));
            if self.tables.is_full_of_changes() {
                self.commit(Vec::new())?;
            }
        }
        Ok(())
    }

    /// Waits for first writes of chunks past `len`; the new length prevents further ones. Reads and
    /// writes in place are waited for when their chunk is cleared.
    fn wait_for_requests(&self, len: u64) {
        let first = self.geometry.chunk_at(len);
        let first_writes: Vec<DiskChunk> = self
            .first_writes()
            .iter()
            .filter(|chunk| **chunk >= first)
            .copied()
            .collect();
        for chunk in first_writes {
            drop(self.units.exclusive(chunk.0));
        }
        drop(self.units.exclusive(first.0));
    }

    /// Frees the storage of the bytes from `start` to `end`, which are past the end of the disk,
    /// except the metadata.
    pub(super) fn clear(&self, start: u64, end: u64) -> Result<()> {
        let bytes = self.geometry.chunk_bytes();
        let mut chunk = self.geometry.chunk_at(start);
        if !start.is_multiple_of(bytes) {
            self.clear_rest(chunk, start % bytes)?;
            chunk.0 += 1;
        }
        let end = DiskChunk(end.div_ceil(bytes));
        while chunk < end {
            let entry = self.tables.entry(chunk)?;
            if entry == ChunkEntry::Uninit {
                chunk.0 += self.tables.run_without_data(chunk, end)?;
                continue;
            }
            if !self.described().chunks.contains(&chunk) {
                let _alone = self.units.exclusive(chunk.0);
                self.tables
                    .set(chunk, ChunkEntry::Uninit, None, &self.space)?;
                entry
                    .chunk()
                    .into_iter()
                    .for_each(|place| self.space.release(place));
            }
            chunk.0 += 1;
        }
        Ok(())
    }

    /// Clears a chunk from byte `start` of it on.
    fn clear_rest(&self, chunk: DiskChunk, start: u64) -> Result<()> {
        let _alone = self.units.exclusive(chunk.0);
        match self.tables.entry(chunk)? {
            ChunkEntry::Uninit | ChunkEntry::Unmapped => Ok(()),
            ChunkEntry::Full(place) => self.file.discard(
                self.geometry
                    .in_file(place, start..self.geometry.chunk_bytes()),
                AfterDiscard::Zeros,
            ),
            ChunkEntry::Partial(place) => {
                let mut mask = (*self.tables.mask(chunk)?).clone();
                // The length of a disk is a multiple of the block size.
                mask.set(
                    narrow::<u32>(start / u64::from(self.geometry.block))
                        ..self.geometry.blocks_per_chunk(),
                    BlockState::Uninit,
                );
                if mask.is_unused() {
                    self.tables
                        .set(chunk, ChunkEntry::Uninit, None, &self.space)?;
                    self.space.release(place);
                } else {
                    self.tables.set_mask(chunk, mask);
                }
                Ok(())
            }
        }
    }
}
