//! The contents of the disk, decoded chunk by chunk from the data fork.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::LAYER;
use super::checksums::RangeChecksums;
use super::chunks::{Chunk, ChunkIndex, Chunks};
use super::layout::RunKind;
use super::set::Fork;
use crate::device::{self, ChunkCache};
use crate::size::to_usize;
use crate::{Error, Result};

/// Size of the cache of decoded chunks in bytes: enough for a few readers and for read-ahead.
pub(super) const CACHE: usize = 32 << 20;
/// Length above which compressed chunks are decoded one at a time, and never ahead, in bytes; those
/// of macOS have at most 1 MiB.
pub(super) const LONG_CHUNK: u64 = 4 << 20;
/// Maximum size of the buffer for compressed bytes that a thread reuses.
const KEPT_ROOM: usize = 2 << 20;

/// The state needed to decode chunks, shared with the read-ahead.
#[derive(Debug)]
pub(super) struct ChunkReader {
    pub(super) fork: Fork,
    pub(super) chunks: Chunks,
    pub(super) cache: ChunkCache<ChunkIndex>,
    pub(super) sums: RangeChecksums,
    /// Length of the disk in bytes.
    pub(super) len: u64,
}

impl ChunkReader {
    pub(super) fn new(fork: Fork, chunks: Chunks, len: u64) -> Self {
        Self {
            fork,
            chunks,
            cache: ChunkCache::new(CACHE),
            sums: RangeChecksums::default(),
            len,
        }
    }

    /// Splits `range`, which is within the disk, into runs, each in one chunk or in none.
    pub(super) fn runs(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Option<(ChunkIndex, &Chunk)>)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (end, found) = match self.chunks.at(at) {
                Ok((index, chunk)) => (chunk.end(), Some((index, chunk))),
                Err(gap) => (gap.map_or(range.end, |gap| at.saturating_add(gap)), None),
            };
            let run = at..end.min(range.end);
            at = run.end;
            Some((run, found))
        })
    }

    /// Returns the plain bytes of a compressed chunk, through the cache.
    pub(super) fn decoded(&self, index: ChunkIndex, chunk: &Chunk) -> Result<Arc<Vec<u8>>> {
        self.cache.get(index, || {
            let turn = self.lock_for_large_chunk(chunk);
            if turn.is_some() {
                self.cache.clear();
            }
            let mut plain = device::zeros(to_usize(chunk.len))?;
            self.decode(chunk, &mut plain)?;
            Ok(Arc::new(plain))
        })
    }

    /// Waits for the right to decode a long chunk. Called before its memory is allocated, and held
    /// until it is decoded.
    pub(super) fn lock_for_large_chunk(&self, chunk: &Chunk) -> Option<MutexGuard<'_, ()>> {
        (chunk.len > LONG_CHUNK).then(|| self.cache.lock_for_large_chunk())
    }

    /// Decodes a chunk into `out`, which has the length of the chunk.
    pub(super) fn decode(&self, chunk: &Chunk, out: &mut [u8]) -> Result<()> {
        match chunk.kind {
            RunKind::Zero | RunKind::Ignore => out.fill(0),
            RunKind::Raw => self.fork.read_at(chunk.offset, out)?,
            RunKind::Packed(codec) => {
                // Compressed data is not much longer than its contents, whatever the table claims.
                let most = chunk.len + chunk.len / 8 + (64 << 10);
                let stored = to_usize(chunk.stored.min(most));
                with_room(stored, |packed| {
                    self.fork.read_at(chunk.offset, packed)?;
                    codec.decode(packed, out).map_err(|error| {
                        // The place within the chunk would be a third offset.
                        let message = format!(
                            "cannot decompress the chunk at byte {} of the disk: {}: {}",
                            chunk.start,
                            error.layer(),
                            error.message()
                        );
                        let (file, at) = self.fork.part_and_offset(chunk.offset);
                        // Of kind limit if there is no memory to decode it.
                        let error = Error::new(error.kind(), LAYER, message).at(at);
                        file.into_iter().fold(error, Error::in_file)
                    })
                })?;
            }
        }
        if matches!(chunk.kind, RunKind::Raw | RunKind::Packed(_)) {
            self.sums.add(chunk, chunk.start, out);
        }
        Ok(())
    }
}

/// Calls `work` with a buffer of `len` bytes that the thread reuses, to avoid allocating and
/// clearing it.
fn with_room<R>(len: usize, work: impl FnOnce(&mut [u8]) -> Result<R>) -> Result<R> {
    thread_local! {
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    if len > KEPT_ROOM {
        return work(&mut device::zeros(len)?);
    }
    ROOM.with_borrow_mut(|room| {
        if room.len() < len {
            *room = device::zeros(len)?;
        }
        work(&mut room[..len])
    })
}
