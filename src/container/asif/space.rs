//! Allocation of the chunks of the file. The format has no free list: used are the chunks that the
//! directory and the tables refer to. Source: docs/formats/asif.md §7.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::LAYER;
use super::layout::FileChunk;
use crate::device::{AfterDiscard, BlockDevice, regions};
use crate::size::to_usize;
use crate::sync::Mutex;
use crate::{Error, Result};

/// The file grows in steps of this many bytes; a flush truncates the unused tail.
const GROWTH: u64 = 16 << 20;
/// Maximum number of chunks in a file: 128 MiB of bits, for a pebibyte in chunks of a mebibyte.
const MAX_CHUNKS: u64 = 1 << 30;

/// Allocation bitmap with one bit for each chunk of the file.
#[derive(Debug)]
pub(super) struct ChunkBitmap {
    /// The operating system allocates memory only for the parts that are touched.
    bits: Vec<u64>,
    /// The first chunk that can be free.
    first: FileChunk,
    count: u64,
}

impl ChunkBitmap {
    /// Returns the empty bitmap of a file of `chunks` chunks; those before `first` hold header and
    /// directories.
    pub(super) fn none(first: FileChunk, chunks: u64) -> Result<Self> {
        if chunks > MAX_CHUNKS {
            let limit = format!(
                "file of {chunks} chunks is too large: at most {MAX_CHUNKS} are \
                                 supported"
            );
            return Err(Error::limit(LAYER, limit));
        }
        Ok(Self {
            bits: vec![0; to_usize(chunks.div_ceil(64))],
            first,
            count: 0,
        })
    }

    /// Marks a chunk as used. Returns false if it is already.
    pub(super) fn claim(&mut self, chunk: FileChunk) -> bool {
        let (word, bit) = ((chunk.0 / 64) as usize, 1 << (chunk.0 % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    fn free(&mut self, chunk: FileChunk) {
        let bit = 1 << (chunk.0 % 64);
        if let Some(word) = self
            .bits
            .get_mut((chunk.0 / 64) as usize)
            .filter(|word| **word & bit != 0)
        {
            *word &= !bit;
            self.count -= 1;
        }
    }

    /// Returns the number of used chunks, not counting header and directories.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the chunk after the last used one.
    pub(super) fn end(&self) -> FileChunk {
        let last = self.bits.iter().rposition(|word| *word != 0);
        let end = last.map_or(0, |word| {
            word as u64 * 64 + u64::from(64 - self.bits[word].leading_zeros())
        });
        FileChunk(end).max(self.first)
    }

    /// Returns the first chunk that can be an orphan.
    fn first_orphan(&self, shows_holes: bool) -> FileChunk {
        if shows_holes { self.first } else { self.end() }
    }

    /// Returns the first free chunk from `from` on.
    fn first_free(&self, from: FileChunk) -> FileChunk {
        let from = from.max(self.first);
        let mut word = (from.0 / 64) as usize;
        let mut seen = self.bits.get(word).copied().unwrap_or(0) | ((1 << (from.0 % 64)) - 1);
        while seen == u64::MAX {
            word += 1;
            seen = self.bits.get(word).copied().unwrap_or(0);
        }
        FileChunk(word as u64 * 64 + u64::from(seen.trailing_ones()))
    }
}

/// Allocator of the chunks of the file.
#[derive(Debug)]
pub(super) struct Space {
    file: Arc<dyn BlockDevice>,
    chunk_bytes: u64,
    book: Mutex<SpaceState>,
}

#[derive(Debug)]
struct SpaceState {
    used: ChunkBitmap,
    /// No chunk before this one is free.
    hint: FileChunk,
    /// Chunks that memory no longer refers to, but the disk still does; they must not be reused
    /// yet.
    released: Vec<FileChunk>,
    /// Free chunks with data that the allocator avoids.
    orphans: Option<OrphanChunks>,
}

/// Free chunks whose data was in the file when it was opened. It is usually left by an interrupted
/// write or by another program, but it may be a chunk whose table entry is damaged.
#[derive(Debug)]
struct OrphanChunks {
    /// No chunk before this one counts.
    from: FileChunk,
    /// One bit for each chunk of the file that is known to be none.
    cleared: Vec<u64>,
    /// The chunks found so far.
    found: BTreeSet<FileChunk>,
    /// Number of chunks of the file when it was opened.
    count: u64,
}

impl Space {
    pub(super) fn new(file: Arc<dyn BlockDevice>, chunk_bytes: u64, used: ChunkBitmap) -> Self {
        let hint = used.first;
        Self {
            file,
            chunk_bytes,
            book: Mutex::new(SpaceState {
                used,
                hint,
                released: Vec::new(),
                orphans: None,
            }),
        }
    }

    /// Preserves data in free chunks from now on. If the file `shows_holes`, this includes free
    /// chunks before the last used one.
    pub(super) fn keep_orphans(&self, shows_holes: bool) -> Result<()> {
        let mut book = self.book.lock();
        let len = self.file.info().len;
        book.orphans = Some(OrphanChunks {
            from: book.used.first_orphan(shows_holes),
            cleared: book.used.bits.clone(),
            found: BTreeSet::new(),
            count: len.div_ceil(self.chunk_bytes),
        });
        Ok(())
    }

    /// Lets free chunks with data be reused and truncated.
    pub(super) fn drop_orphans(&self) {
        let mut book = self.book.lock();
        book.orphans = None;
        book.hint = book.used.first;
    }

    /// Returns the runs of free chunks that have data, as ranges of the file; after the last used
    /// chunk only, unless the file `shows_holes`.
    pub(super) fn orphans(&self, shows_holes: bool) -> Result<Vec<Range<u64>>> {
        let book = self.book.lock();
        let tail = book.used.end().0 * self.chunk_bytes;
        let count = self.file.info().len.div_ceil(self.chunk_bytes);
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut next = book.used.first_free(book.used.first_orphan(shows_holes));
        while next.0 < count {
            let range = self.bytes(next..FileChunk(next.0 + 1));
            let is_known = book
                .orphans
                .as_ref()
                .is_some_and(|orphans| orphans.is_cleared(next));
            if !is_known && !regions::is_zero(&*self.file, range.clone())? {
                match runs.last_mut() {
                    Some(run) if run.end == range.start && run.end != tail => run.end = range.end,
                    _ => runs.push(range),
                }
            }
            next = book.used.first_free(FileChunk(next.0 + 1));
        }
        Ok(runs)
    }

    /// Claims the first free chunk before `limit` that has no data to preserve.
    fn claim_free(&self, book: &mut SpaceState, limit: FileChunk) -> Result<Option<FileChunk>> {
        let mut from = book.hint;
        loop {
            let chunk = book.used.first_free(from);
            if chunk >= limit {
                return Ok(None);
            }
            if !self.is_orphan(book, chunk)? {
                book.used.claim(chunk);
                book.hint = FileChunk(chunk.0 + 1);
                return Ok(Some(chunk));
            }
            from = FileChunk(chunk.0 + 1);
        }
    }

    /// Returns the chunk after the last one that is used or has data to preserve.
    fn kept_end(&self, book: &mut SpaceState) -> Result<FileChunk> {
        let end = book.used.end();
        let count = book.orphans.as_ref().map_or(0, |orphans| orphans.count);
        for chunk in (end.0..count).rev() {
            if self.is_orphan(book, FileChunk(chunk))? {
                return Ok(FileChunk(chunk + 1));
            }
        }
        Ok(end)
    }

    /// Returns true if a free chunk has data to preserve.
    fn is_orphan(&self, book: &mut SpaceState, chunk: FileChunk) -> Result<bool> {
        let Some(orphans) = &mut book.orphans else {
            return Ok(false);
        };
        if chunk.0 >= orphans.count || chunk < orphans.from || orphans.is_cleared(chunk) {
            return Ok(false);
        }
        if orphans.found.contains(&chunk) {
            return Ok(true);
        }
        let range = self.bytes(chunk..FileChunk(chunk.0 + 1));
        let has_data = !regions::is_zero(&*self.file, range)?;
        if has_data {
            orphans.found.insert(chunk);
        } else if let Some(word) = orphans.cleared.get_mut((chunk.0 / 64) as usize) {
            *word |= 1 << (chunk.0 % 64);
        }
        Ok(has_data)
    }

    /// Allocates a chunk and extends the file to include it. Its contents are undefined.
    pub(super) fn allocate(&self) -> Result<FileChunk> {
        let mut book = self.book.lock();
        let Some(chunk) = self.claim_free(&mut book, FileChunk(MAX_CHUNKS))? else {
            return Err(Error::limit(
                LAYER,
                format!("the file has the maximum of {MAX_CHUNKS} chunks"),
            ));
        };
        // Under the lock, because the file may have to grow.
        if let Err(error) = self.grow_to(chunk) {
            book.used.free(chunk);
            book.hint = book.hint.min(chunk);
            return Err(error);
        }
        Ok(chunk)
    }

    /// Allocates `chunk` with its contents. Returns false if it is used.
    pub(super) fn claim(&self, chunk: FileChunk) -> bool {
        let mut book = self.book.lock();
        chunk >= book.used.first && book.used.claim(chunk)
    }

    /// Allocates a free chunk before `limit`, if there is one.
    pub(super) fn allocate_before(&self, limit: FileChunk) -> Result<Option<FileChunk>> {
        self.claim_free(&mut self.book.lock(), limit)
    }

    fn grow_to(&self, chunk: FileChunk) -> Result<()> {
        let (now, end) = (self.file.info().len, (chunk.0 + 1) * self.chunk_bytes);
        if end <= now {
            return Ok(());
        }
        let ahead = end
            .max(now.saturating_add(GROWTH))
            .next_multiple_of(self.chunk_bytes);
        match self.file.set_len(ahead, AfterDiscard::Any) {
            Err(_) if ahead > end => self.file.set_len(end, AfterDiscard::Any),
            grown => grown,
        }
    }

    /// Frees an allocated chunk that was never referenced.
    pub(super) fn free_chunk(&self, chunk: FileChunk) {
        let mut book = self.book.lock();
        book.used.free(chunk);
        book.hint = book.hint.min(chunk);
    }

    /// Releases a chunk that memory no longer refers to.
    pub(super) fn release(&self, chunk: FileChunk) {
        self.book.lock().released.push(chunk);
    }

    /// Returns the chunks released so far, to be [reclaimed](Self::reclaim) when the disk no longer
    /// refers to them.
    pub(super) fn take_released(&self) -> Vec<FileChunk> {
        std::mem::take(&mut self.book.lock().released)
    }

    /// Frees chunks, discards their storage, and truncates the unused tail of the file.
    pub(super) fn reclaim(&self, mut chunks: Vec<FileChunk>) -> Result<()> {
        chunks.sort_unstable();
        let end = self.book.lock().used.end();
        for run in chunks.chunk_by(|one, next| one.0 + 1 == next.0) {
            // Before they are marked as free: they may be reused from then on.
            if let (Some(first), Some(last)) =
                (run.first(), run.last().filter(|last| last.0 + 1 < end.0))
            {
                self.file
                    .discard(self.bytes(*first..FileChunk(last.0 + 1)), AfterDiscard::Any)?;
            }
        }
        let mut book = self.book.lock();
        for chunk in chunks {
            book.used.free(chunk);
            book.hint = book.hint.min(chunk);
        }
        let end = self.kept_end(&mut book)?.0 * self.chunk_bytes;
        if self.file.info().len > end {
            self.file.set_len(end, AfterDiscard::Any)
        } else {
            Ok(())
        }
    }

    fn bytes(&self, chunks: Range<FileChunk>) -> Range<u64> {
        let len = self.file.info().len;
        (chunks.start.0 * self.chunk_bytes).min(len)..(chunks.end.0 * self.chunk_bytes).min(len)
    }

    /// Returns the number of used chunks, and the chunk after the last of them.
    pub(super) fn extent(&self) -> (u64, FileChunk) {
        let book = self.book.lock();
        (
            book.used.count() - book.released.len() as u64,
            book.used.end(),
        )
    }
}

impl OrphanChunks {
    fn is_cleared(&self, chunk: FileChunk) -> bool {
        let word = self.cleared.get((chunk.0 / 64) as usize).copied();
        word.unwrap_or(0) >> (chunk.0 % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::device::Memory;

    #[test]
    fn chunks_are_handed_out_lowest_first() {
        let file = Arc::new(Memory::zeros(0));
        let space = Space::new(
            file.clone(),
            512,
            ChunkBitmap::none(FileChunk(2), 2).unwrap(),
        );
        let chunks: Vec<_> = (0..200).map(|_| space.allocate().unwrap().0).collect();
        assert_eq!(chunks, (2..202).collect::<Vec<_>>());
        assert!(file.info().len >= 202 * 512);
        [5, 6, 130, 201]
            .into_iter()
            .for_each(|chunk| space.release(FileChunk(chunk)));
        assert_eq!(
            space.allocate().unwrap(),
            FileChunk(202),
            "what was released is not free yet"
        );
        let released = space.take_released();
        space.reclaim(released).unwrap();
        assert_eq!(
            (space.extent(), file.info().len),
            ((197, FileChunk(203)), 203 * 512)
        );
        assert_eq!(space.allocate_before(FileChunk(5)).unwrap(), None);
        let next: Vec<_> = (0..4).map(|_| space.allocate().unwrap().0).collect();
        assert_eq!(next, [5, 6, 130, 201]);
        space.free_chunk(FileChunk(6));
        assert_eq!(space.allocate().unwrap(), FileChunk(6));
    }

    #[test]
    fn a_free_end_is_cut_off() {
        let file = Arc::new(Memory::zeros(0));
        let space = Space::new(
            file.clone(),
            512,
            ChunkBitmap::none(FileChunk(1), 1).unwrap(),
        );
        assert_eq!(
            (0..10).map(|_| space.allocate().unwrap()).last(),
            Some(FileChunk(10))
        );
        (4..11).for_each(|chunk| space.release(FileChunk(chunk)));
        let released = space.take_released();
        space.reclaim(released).unwrap();
        assert_eq!(file.info().len, 4 * 512);
    }

    #[test]
    fn endless_files_are_refused() {
        assert_eq!(
            ChunkBitmap::none(FileChunk(1), 1 << 43).unwrap_err().kind(),
            Kind::Limit
        );
    }
}
