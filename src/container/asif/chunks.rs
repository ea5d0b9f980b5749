//! Reads and writes of the disk through the chunks of the file.
//!
//! A request is split at chunk boundaries. Each piece holds only its chunk's lock: shared for
//! reads, and for writes to blocks that are all marked as written; exclusive to mark blocks, and to
//! allocate or free the chunk.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::layout::{ChunkEntry, DiskChunk, FileChunk};
use super::mask::{BlockState, Mask};
use super::{Asif, LAYER};
use crate::device::{AfterDiscard, FileRange, is_zero, regions};
use crate::size::{narrow, to_usize};
use crate::sync::MutexGuard;
use crate::{Error, Result};

/// State of a chunk of the disk.
pub(super) enum ChunkSource {
    Uninit,
    Unmapped,
    Full(FileChunk),
    Partial(FileChunk, Arc<Mask>),
}

/// The part of a request within one chunk.
#[derive(Debug, Clone)]
pub(super) struct ChunkPart {
    pub(super) chunk: DiskChunk,
    /// Byte range within the chunk.
    pub(super) within: Range<u64>,
}

impl ChunkPart {
    pub(super) fn len(&self) -> u64 {
        self.within.end - self.within.start
    }
}

impl Asif {
    /// Returns the first piece of `range`, which must not be empty.
    pub(super) fn piece(&self, range: &Range<u64>) -> ChunkPart {
        let bytes = self.geometry.chunk_bytes();
        let within = range.start % bytes;
        ChunkPart {
            chunk: self.geometry.chunk_at(range.start),
            within: within..bytes.min(within + (range.end - range.start)),
        }
    }

    /// Fails if a piece is past the end: the length may have changed since the request began.
    pub(super) fn check_piece(&self, piece: &ChunkPart) -> Result<()> {
        let (start, len) = (
            self.geometry.start(piece.chunk) + piece.within.start,
            self.len.load(Ordering::SeqCst),
        );
        if start + piece.len() > len {
            return Err(Error::out_of_range(LAYER, start, piece.len(), len));
        }
        Ok(())
    }

    /// Returns the state of a chunk. The caller must hold its lock.
    pub(super) fn find(&self, chunk: DiskChunk) -> Result<ChunkSource> {
        Ok(match self.tables.entry(chunk)? {
            ChunkEntry::Uninit => ChunkSource::Uninit,
            ChunkEntry::Unmapped => ChunkSource::Unmapped,
            ChunkEntry::Full(place) => ChunkSource::Full(place),
            ChunkEntry::Partial(place) => ChunkSource::Partial(place, self.tables.mask(chunk)?),
        })
    }

    /// Returns the blocks that `within` overlaps.
    pub(super) fn blocks(&self, within: &Range<u64>) -> Range<u32> {
        let block = u64::from(self.geometry.block);
        narrow::<u32>(within.start / block)..narrow::<u32>(within.end.div_ceil(block))
    }

    /// Returns the first run of `within` whose blocks have the same state.
    pub(super) fn run(&self, mask: &Mask, within: &Range<u64>) -> (BlockState, Range<u64>) {
        let blocks = self.blocks(within);
        let first = blocks.start;
        let (state, count) = mask.run(blocks);
        let end = u64::from(first + count) * u64::from(self.geometry.block);
        (state, within.start..end.min(within.end))
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let piece = self.piece(&(at..end));
            let (part, tail) = rest.split_at_mut(to_usize(piece.len()));
            // Shared is enough: the place of a chunk is freed or reused only under the exclusive lock.
            let _held = self.units.shared(piece.chunk.0);
            self.check_piece(&piece)?;
            self.read_piece(&piece, part)?;
            (at, rest) = (at + piece.len(), tail);
        }
        Ok(())
    }

    /// Reads a piece of a chunk, which may be past the end of the disk. The caller must hold its
    /// lock.
    fn read_piece(&self, piece: &ChunkPart, buf: &mut [u8]) -> Result<()> {
        match self.find(piece.chunk)? {
            ChunkSource::Uninit | ChunkSource::Unmapped => buf.fill(0),
            ChunkSource::Full(place) => self.read_stored(place, &piece.within, buf)?,
            ChunkSource::Partial(place, mask) => {
                let (mut within, mut rest) = (piece.within.clone(), buf);
                while !within.is_empty() {
                    let (state, run) = self.run(&mask, &within);
                    let (part, tail) = rest.split_at_mut(to_usize(run.end - run.start));
                    match state {
                        BlockState::Written => self.read_stored(place, &run, part)?,
                        BlockState::Uninit | BlockState::Unmapped => part.fill(0),
                    }
                    (within.start, rest) = (run.end, tail);
                }
            }
        }
        Ok(())
    }

    fn read_stored(&self, place: FileChunk, within: &Range<u64>, buf: &mut [u8]) -> Result<()> {
        let at = self.geometry.in_file(place, within.clone());
        let file_len = self.file.info().len;
        if at.end > file_len {
            let lost = format!(
                "the file is truncated: it ends at byte {file_len}, within chunk {}",
                place.0
            );
            return Err(Error::corrupt(LAYER, at.start, lost));
        }
        self.file.read_at(at.start, buf)
    }

    /// Reads a part of a chunk of metadata.
    pub(super) fn read_chunk(&self, chunk: DiskChunk, start: u64, buf: &mut [u8]) -> Result<()> {
        let _held = self.units.shared(chunk.0);
        self.read_piece(
            &ChunkPart {
                chunk,
                within: start..start + buf.len() as u64,
            },
            buf,
        )
    }

    pub(super) fn write(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let piece = self.piece(&(at..end));
            let (part, tail) = rest.split_at(to_usize(piece.len()));
            if !self.write_in_place(&piece, part)? {
                self.write_first(&piece, part)?;
            }
            (at, rest) = (at + piece.len(), tail);
        }
        Ok(())
    }

    /// Writes a piece if all its blocks are marked as written; otherwise returns false.
    fn write_in_place(&self, piece: &ChunkPart, bytes: &[u8]) -> Result<bool> {
        // Shared is enough: neither the entry nor the mask of the chunk changes.
        let _held = self.units.shared(piece.chunk.0);
        self.check_piece(piece)?;
        let place = match self.find(piece.chunk)? {
            ChunkSource::Full(place) if self.tables.has_filled_mask(piece.chunk) => place,
            ChunkSource::Partial(place, mask)
                if mask.is(self.blocks(&piece.within), BlockState::Written) =>
            {
                place
            }
            _ => return Ok(false),
        };
        self.file.write_at(
            self.geometry.in_file(place, piece.within.clone()).start,
            bytes,
        )?;
        Ok(true)
    }

    /// Writes a piece of which some blocks were not marked as written before, or the first one of a
    /// session in a full chunk.
    fn write_first(&self, piece: &ChunkPart, bytes: &[u8]) -> Result<()> {
        // Exclusive: two first writes would each allocate a place, or change a copy of the same mask.
        let _alone = self.units.exclusive(piece.chunk.0);
        let _noted = self.make(piece.chunk);
        self.check_piece(piece)?;
        let shows_below = self.layer.is_overlaid;
        match self.find(piece.chunk)? {
            ChunkSource::Full(place) => {
                self.tables.fill_mask(piece.chunk)?;
                self.file.write_at(
                    self.geometry.in_file(place, piece.within.clone()).start,
                    bytes,
                )
            }
            ChunkSource::Partial(place, mask) => {
                self.write_blocks(piece, place, (*mask).clone(), bytes)
            }
            // Without data the blocks read as zeros already, unless a lower layer is visible in them.
            ChunkSource::Uninit if !shows_below && is_zero(bytes) => Ok(()),
            ChunkSource::Unmapped if is_zero(bytes) => Ok(()),
            ChunkSource::Uninit if piece.len() < self.geometry.chunk_bytes() => {
                self.add(piece, |place| {
                    let mask = Mask::all(self.geometry.mask_bytes(), BlockState::Uninit);
                    self.write_blocks(piece, place, mask, bytes)
                })
            }
            ChunkSource::Uninit | ChunkSource::Unmapped => {
                self.add(piece, |place| self.write_whole(piece, place, bytes))
            }
        }
    }

    /// Allocates a chunk of the file for `piece`; `fill` writes it and updates the tables.
    fn add(&self, piece: &ChunkPart, fill: impl FnOnce(FileChunk) -> Result<()>) -> Result<()> {
        debug_assert!(piece.len() <= self.geometry.chunk_bytes());
        let place = self.space.allocate()?;
        fill(place).inspect_err(|_| self.space.free_chunk(place))
    }

    /// Writes some blocks of a chunk and marks them as written. The rest of a block that was not
    /// marked before is filled with zeros.
    fn write_blocks(
        &self,
        piece: &ChunkPart,
        place: FileChunk,
        mut mask: Mask,
        bytes: &[u8],
    ) -> Result<()> {
        let (block, blocks) = (u64::from(self.geometry.block), self.blocks(&piece.within));
        let whole = u64::from(blocks.start) * block..u64::from(blocks.end) * block;
        let counts = |number: u32| mask.is(number..number + 1, BlockState::Written);
        let pads = [
            (whole.start..piece.within.start, counts(blocks.start)),
            (piece.within.end..whole.end, counts(blocks.end - 1)),
        ];
        for (pad, _) in pads
            .into_iter()
            .filter(|(pad, counts)| !pad.is_empty() && !counts)
        {
            let at = self.geometry.in_file(place, pad);
            self.file
                .write_at(at.start, &vec![0; to_usize(at.end - at.start)])?;
        }
        self.file.write_at(
            self.geometry.in_file(place, piece.within.clone()).start,
            bytes,
        )?;
        // Marked after the write: a block whose write failed stays unwritten.
        mask.set(blocks, BlockState::Written);
        match self.tables.entry(piece.chunk)? {
            _ if mask.is_full() => self.tables.set_full(piece.chunk, place, mask, &self.space),
            ChunkEntry::Partial(_) => {
                self.tables.set_mask(piece.chunk, mask);
                Ok(())
            }
            _ => self.tables.set(
                piece.chunk,
                ChunkEntry::Partial(place),
                Some(mask),
                &self.space,
            ),
        }
    }

    /// Writes a whole chunk, with zeros around `bytes`. Also used for a discarded chunk: on disk it
    /// may still be partly written at another place, and one mask must not apply to two places.
    fn write_whole(&self, piece: &ChunkPart, place: FileChunk, bytes: &[u8]) -> Result<()> {
        for around in [
            0..piece.within.start,
            piece.within.end..self.geometry.chunk_bytes(),
        ] {
            regions::blank(&*self.file, self.geometry.in_file(place, around))?;
        }
        self.file.write_at(
            self.geometry.in_file(place, piece.within.clone()).start,
            bytes,
        )?;
        self.tables.leave_mask(piece.chunk);
        self.tables
            .set(piece.chunk, ChunkEntry::Full(place), None, &self.space)
    }

    /// Registers the first write of a chunk, so that a truncation of the disk waits for it.
    fn make(&self, chunk: DiskChunk) -> FirstWrite<'_> {
        self.first_writes().push(chunk);
        FirstWrite { image: self, chunk }
    }

    pub(super) fn first_writes(&self) -> MutexGuard<'_, Vec<DiskChunk>> {
        self.first_writes.lock()
    }

    pub(super) fn drop_range(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let piece = self.piece(&(at..range.end));
            let next = at + piece.len();
            let to_the_end = piece.within.end == self.geometry.chunk_bytes()
                || next == self.len.load(Ordering::SeqCst);
            let is_whole = piece.within.start == 0 && to_the_end;
            let must_state_zeros = self.layer.is_overlaid && leave == AfterDiscard::Zeros;
            at = match self.without_data(&piece, range.end)? {
                Some((_, count)) if !must_state_zeros => {
                    self.geometry.start(DiskChunk(piece.chunk.0 + count))
                }
                Some((ChunkEntry::Unmapped, _)) => next,
                _ if is_whole => self
                    .drop_chunk(piece.chunk, must_state_zeros)
                    .map(|()| next)?,
                _ => self
                    .drop_part(&piece, leave, must_state_zeros)
                    .map(|()| next)?,
            };
        }
        Ok(())
    }

    /// Returns the number of chunks from that of `piece` up to byte `end` that have the same entry
    /// without data. `None` if the first has data. The count may be too small.
    pub(super) fn without_data(
        &self,
        piece: &ChunkPart,
        end: u64,
    ) -> Result<Option<(ChunkEntry, u64)>> {
        match self.tables.entry(piece.chunk)? {
            entry @ (ChunkEntry::Uninit | ChunkEntry::Unmapped) => {
                let end = DiskChunk(end.div_ceil(self.geometry.chunk_bytes()));
                Ok(Some((
                    entry,
                    self.tables.run_without_data(piece.chunk, end)?,
                )))
            }
            ChunkEntry::Full(_) | ChunkEntry::Partial(_) => Ok(None),
        }
    }

    /// Discards a whole chunk. Its space is reused only after no table on disk refers to it.
    fn drop_chunk(&self, chunk: DiskChunk, must_state_zeros: bool) -> Result<()> {
        // Exclusive: a reader of the chunk could read its place after another chunk has reused it.
        let _alone = self.units.exclusive(chunk.0);
        let _noted = self.make(chunk);
        self.check_piece(&ChunkPart {
            chunk,
            within: 0..1,
        })?;
        let entry = self.tables.entry(chunk)?;
        if entry.chunk().is_some() || (must_state_zeros && entry == ChunkEntry::Uninit) {
            self.tables
                .set(chunk, ChunkEntry::Unmapped, None, &self.space)?;
            entry
                .chunk()
                .into_iter()
                .for_each(|place| self.space.release(place));
        }
        Ok(())
    }

    /// Discards the data in a part of a chunk, leaving zeros or anything. If `must_state_zeros`,
    /// blocks through which a lower layer is visible become explicit zeros.
    fn drop_part(
        &self,
        piece: &ChunkPart,
        leave: AfterDiscard,
        must_state_zeros: bool,
    ) -> Result<()> {
        if must_state_zeros {
            let _alone = self.units.exclusive(piece.chunk.0);
            let _noted = self.make(piece.chunk);
            self.check_piece(piece)?;
            self.hide_blocks(piece)?;
        }
        // Shared is enough from here: only the contents of blocks change. Whatever the blocks have become
        // since the exclusive lock was released, they are looked up again.
        let _held = self.units.shared(piece.chunk.0);
        self.check_piece(piece)?;
        match self.find(piece.chunk)? {
            ChunkSource::Uninit | ChunkSource::Unmapped => Ok(()),
            ChunkSource::Full(place) => self
                .file
                .discard(self.geometry.in_file(place, piece.within.clone()), leave),
            ChunkSource::Partial(place, mask) => {
                let mut within = piece.within.clone();
                while !within.is_empty() {
                    let (state, run) = self.run(&mask, &within);
                    within.start = run.end;
                    if state == BlockState::Written {
                        self.file
                            .discard(self.geometry.in_file(place, run), leave)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Makes the whole blocks of `piece` that were never written explicit zeros. The caller must
    /// hold the exclusive lock of its chunk.
    pub(super) fn hide_blocks(&self, piece: &ChunkPart) -> Result<()> {
        let block = u64::from(self.geometry.block);
        let blocks = narrow::<u32>(piece.within.start.div_ceil(block))
            ..narrow::<u32>(piece.within.end / block);
        let (place, mut mask) = match self.find(piece.chunk)? {
            ChunkSource::Uninit => (
                None,
                Mask::all(self.geometry.mask_bytes(), BlockState::Uninit),
            ),
            ChunkSource::Partial(place, mask) => (Some(place), (*mask).clone()),
            ChunkSource::Unmapped | ChunkSource::Full(_) => return Ok(()),
        };
        let before = mask.clone();
        let mut at = blocks.start;
        while at < blocks.end {
            let (state, count) = mask.run(at..blocks.end);
            if state == BlockState::Uninit {
                mask.set(at..at + count, BlockState::Unmapped);
            }
            at += count;
        }
        match place {
            _ if mask == before => Ok(()),
            Some(_) => {
                self.tables.set_mask(piece.chunk, mask);
                Ok(())
            }
            None => self.add(piece, |place| {
                self.tables.set(
                    piece.chunk,
                    ChunkEntry::Partial(place),
                    Some(mask),
                    &self.space,
                )
            }),
        }
    }

    pub(super) fn file_range_of_chunk(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        if range.is_empty() {
            return Ok(None);
        }
        let piece = self.piece(&range);
        // The caller reads the file directly: the chunk must keep its place for as long.
        let held = self.units.pinned(piece.chunk.0);
        self.check_piece(&piece)?;
        let (place, within) = match self.find(piece.chunk)? {
            ChunkSource::Full(place) => (place, piece.within),
            ChunkSource::Partial(place, mask) => match self.run(&mask, &piece.within) {
                (BlockState::Written, run) => (place, run),
                _ => return Ok(None),
            },
            ChunkSource::Uninit | ChunkSource::Unmapped => return Ok(None),
        };
        let at = self.geometry.in_file(place, within);
        if at.end > self.file.info().len {
            return Ok(None);
        }
        Ok(self
            .file
            .file_range(at)?
            .map(|file_range| file_range.holding(held)))
    }
}

/// The first write of a chunk, in progress until this is dropped.
struct FirstWrite<'a> {
    image: &'a Asif,
    chunk: DiskChunk,
}

impl Drop for FirstWrite<'_> {
    fn drop(&mut self) {
        let mut first_writes = self.image.first_writes();
        if let Some(index) = first_writes.iter().position(|chunk| *chunk == self.chunk) {
            first_writes.swap_remove(index);
        }
    }
}
