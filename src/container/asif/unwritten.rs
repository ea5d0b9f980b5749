//! Data in blocks that a bitmap does not mark as written: an interrupted write left it, or the entry or
//! the bitmap of the chunk is damaged and hides it. The blocks read as zeros.

use std::ops::Range;
use std::sync::Arc;

use super::chunks::ChunkSource;
use super::geometry::EntryKind;
use super::layout::{ChunkEntry, DiskChunk, FileChunk};
use super::mask::{BlockState, Mask};
use super::{Asif, LAYER};
use crate::Result;
use crate::device::{AfterDiscard, BlockDevice, CowDevice, ExtentKind, is_zero};
use crate::size::to_usize;

/// Bytes read at a time.
const PIECE: u64 = 64 << 10;
/// Bytes that a chunk counts as besides its data: its mask is read, and the file is asked for holes.
const CHUNK_COST: u64 = 8 << 10;
/// Maximum number of ranges listed. The last one covers all that follow.
const MAX_RANGES: usize = 65_536;

/// Maximum number of bytes of masks that are changed in memory.
const MAX_TRIED: u64 = 64 << 20;

/// A change of a chunk, with its place in the file, its mask and the runs of unwritten blocks.
type RunsChange<'a> = dyn Fn(DiskChunk, FileChunk, &Mask, Vec<Range<u64>>) -> Result<()> + 'a;

/// A search, which ends when so many bytes were read.
struct UnwrittenSearch {
    left: u64,
    buf: Vec<u8>,
    found: Vec<Range<u64>>,
}

impl Asif {
    /// Finds the ranges of the disk that are not marked as written although the file has data for them
    /// other than zeros. Reads about `most` bytes, and then stops.
    ///
    /// None in a layer over another image, and in an encrypted file, whose unwritten blocks are noise.
    pub fn unwritten_data(&self, most: u64) -> Result<Vec<Range<u64>>> {
        let mut search = UnwrittenSearch {
            left: most,
            buf: Vec::new(),
            found: Vec::new(),
        };
        if self.layer.is_overlaid || !self.shows_holes {
            return Ok(search.found);
        }
        for (table, _) in self.tables.directory() {
            let first = DiskChunk(u64::from(table) * self.geometry.chunks_per_table());
            if self.geometry.start(first) >= self.info().len {
                break;
            }
            for chunk in self.partial_chunks(table)? {
                match search.left.checked_sub(CHUNK_COST) {
                    Some(left) => search.left = left,
                    None => return Ok(search.found),
                }
                self.search_chunk(chunk, &mut search)?;
            }
        }
        Ok(search.found)
    }

    /// Returns the partly written chunks of a table.
    fn partial_chunks(&self, table: u32) -> Result<Vec<DiskChunk>> {
        let end = self.info().len;
        let mut chunks = Vec::new();
        self.tables.each_entry(table, &mut |entry, raw| {
            if let EntryKind::Data(chunk) = self.geometry.entry_kind(table, entry)
                && let Ok(ChunkEntry::Partial(_)) = ChunkEntry::parse(raw)
                && self.geometry.start(chunk) < end
            {
                chunks.push(chunk);
            }
        })?;
        Ok(chunks)
    }

    fn search_chunk(&self, chunk: DiskChunk, search: &mut UnwrittenSearch) -> Result<()> {
        let _held = self.units.shared(chunk.0);
        let (place, mask) = match self.find(chunk) {
            Ok(ChunkSource::Partial(place, mask)) => (place, mask),
            Ok(_) => return Ok(()),
            Err(error) if error.io_kind().is_some() => return Err(error),
            // Nothing of the chunk can be read or written.
            Err(_) => return Ok(()),
        };
        self.each_unwritten(&mask, self.within_disk(chunk), &mut |run| {
            self.search_run(chunk, place, run, search)
        })
    }

    fn search_run(
        &self,
        chunk: DiskChunk,
        place: FileChunk,
        run: Range<u64>,
        search: &mut UnwrittenSearch,
    ) -> Result<()> {
        let disk = self.geometry.start(chunk) + run.start;
        let file = self.geometry.in_file(place, run);
        let end = file.end.min(self.file.info().len);
        let mut at = file.start;
        while at < end && search.left > 0 {
            let extent = self.file.extent_at(at..end)?;
            if extent.kind != ExtentKind::Data {
                at += extent.len;
                continue;
            }
            let len = extent.len.min(PIECE);
            search.buf.resize(to_usize(len), 0);
            self.file.read_at(at, &mut search.buf)?;
            search.left = search.left.saturating_sub(len);
            search.add_nonzero_blocks(disk + (at - file.start), u64::from(self.geometry.block));
            at += len;
        }
        Ok(())
    }

    /// Opens the same file with the unwritten blocks of `ranges` marked as written, in memory only.
    pub(crate) fn as_if_written(&self, ranges: &[Range<u64>]) -> Result<Self> {
        let tried = Self::open(Arc::new(CowDevice::new(self.file.clone(), MAX_TRIED)))?;
        tried.restore_unwritten(ranges)?;
        Ok(tried)
    }

    /// Marks the unwritten blocks of `ranges` as written, so that their data is that of
    /// the disk. Durable on return.
    pub fn restore_unwritten(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.change_unwritten(ranges, &|chunk, place, mask, runs| {
            let mut mask = mask.clone();
            for run in runs {
                mask.set(self.blocks(&run), BlockState::Written);
            }
            if mask.is_full() {
                return self.tables.set_full(chunk, place, mask, &self.space);
            }
            self.tables.set_mask(chunk, mask);
            Ok(())
        })
    }

    /// Overwrites what the file stores for the unwritten blocks of `ranges` with zeros.
    /// Durable on return.
    pub fn clear_unwritten(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.change_unwritten(ranges, &|_, place, _, runs| {
            let len = self.file.info().len;
            for run in runs {
                let file = self.geometry.in_file(place, run);
                let end = file.end.min(len);
                self.file
                    .discard(file.start.min(end)..end, AfterDiscard::Zeros)?;
            }
            Ok(())
        })
    }

    /// Calls `change` for each partly written chunk in `ranges` with its mask and the runs of unwritten
    /// blocks, in bytes within the chunk; then makes the changes durable.
    fn change_unwritten(&self, ranges: &[Range<u64>], change: &RunsChange<'_>) -> Result<()> {
        self.check_changeable()?;
        let _one_at_a_time = self.one_at_a_time()?;
        self.begin_locked()?;
        let change_range = |range: &Range<u64>| -> Result<()> {
            self.info().check_range(LAYER, range)?;
            let mut at = range.start;
            while at < range.end {
                let piece = self.piece(&(at..range.end));
                at += piece.len();
                let _alone = self.units.exclusive(piece.chunk.0);
                if let ChunkSource::Partial(place, mask) = self.find(piece.chunk)? {
                    let mut runs = Vec::new();
                    self.each_unwritten(&mask, piece.within, &mut |run| {
                        runs.push(run);
                        Ok(())
                    })?;
                    change(piece.chunk, place, &mask, runs)?;
                }
            }
            Ok(())
        };
        let changed = ranges
            .iter()
            .try_for_each(change_range)
            .and_then(|()| self.commit(Vec::new()));
        self.failed.record(changed)
    }

    /// Calls `each` for the runs of `within` that are not marked as written.
    fn each_unwritten(
        &self,
        mask: &Mask,
        mut within: Range<u64>,
        each: &mut dyn FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        while !within.is_empty() {
            let (state, run) = self.run(mask, &within);
            within.start = run.end;
            if state != BlockState::Written {
                each(run)?;
            }
        }
        Ok(())
    }

    /// Returns the part of a chunk that is on the disk, as a range within the chunk.
    fn within_disk(&self, chunk: DiskChunk) -> Range<u64> {
        let rest = self.info().len.saturating_sub(self.geometry.start(chunk));
        0..rest.min(self.geometry.chunk_bytes())
    }
}

impl UnwrittenSearch {
    /// Adds the blocks of `buf`, which are at byte `disk` of the disk, that are not zeros.
    fn add_nonzero_blocks(&mut self, disk: u64, block: u64) {
        let mut at = disk;
        for bytes in self.buf.chunks(to_usize(block)) {
            let range = at..at + bytes.len() as u64;
            at = range.end;
            if is_zero(bytes) {
                continue;
            }
            let is_last = self.found.len() == MAX_RANGES;
            match self.found.last_mut() {
                Some(last) if last.end == range.start || is_last => last.end = range.end,
                _ => self.found.push(range),
            }
        }
    }
}
