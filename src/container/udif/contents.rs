//! Where the bytes of the disk come from: chunks of the data fork, decoded one by one.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::LAYER;
use super::cache::ChunkCache;
use super::chunks::{Chunk, ChunkIndex, Chunks};
use super::layout::RunKind;
use super::set::Fork;
use crate::{Error, Result};

/// Decoded chunks that are kept: those that a few readers are in, and what is decoded ahead of one
/// that goes through the disk.
pub(super) const CACHE: usize = 32 << 20;
/// Longer compressed chunks are decoded one at a time, and never ahead; those of macOS have 1 MiB
/// at most.
pub(super) const LONG_CHUNK: u64 = 4 << 20;
/// Room for compressed bytes that a thread keeps for the next chunk.
const KEPT_ROOM: usize = 2 << 20;

/// What decoding needs, ahead of a reader too.
#[derive(Debug)]
pub(super) struct ChunkReader {
    pub(super) fork: Fork,
    pub(super) chunks: Chunks,
    pub(super) cache: ChunkCache,
    /// Bytes of the disk.
    pub(super) len: u64,
}

impl ChunkReader {
    pub(super) fn new(fork: Fork, chunks: Chunks, len: u64) -> Self {
        Self {
            fork,
            chunks,
            cache: ChunkCache::new(CACHE),
            len,
        }
    }

    /// The runs of `range`, which is within the disk: each lies in one chunk, or in none.
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

    /// A compressed chunk's plain bytes, through the cache.
    pub(super) fn decoded(&self, index: ChunkIndex, chunk: &Chunk) -> Result<Arc<Vec<u8>>> {
        self.cache.get(index, || {
            let turn = self.turn(chunk);
            if turn.is_some() {
                self.cache.forget();
            }
            let mut plain = vec![0; chunk.len as usize];
            self.decode(chunk, &mut plain)?;
            Ok(Arc::new(plain))
        })
    }

    /// Taken before room is made for a chunk, and held until it is decoded.
    pub(super) fn turn(&self, chunk: &Chunk) -> Option<MutexGuard<'_, ()>> {
        (chunk.len > LONG_CHUNK).then(|| self.cache.turn())
    }

    /// Fills `out`, as long as the chunk, with its plain bytes.
    pub(super) fn decode(&self, chunk: &Chunk, out: &mut [u8]) -> Result<()> {
        match chunk.kind {
            RunKind::Zero | RunKind::Ignore => out.fill(0),
            RunKind::Raw => self.fork.read_at(chunk.offset, out)?,
            RunKind::Packed(codec) => {
                // No stream is much longer than what comes out of it, whatever the table says.
                let most = chunk.len + chunk.len / 8 + (64 << 10);
                let stored = chunk.stored.min(most) as usize;
                with_room(stored, |packed| {
                    self.fork.read_at(chunk.offset, packed)?;
                    codec.decode(packed, out).map_err(|error| {
                        let message = format!(
                            "the chunk of byte {} of the disk does not decode",
                            chunk.start
                        );
                        let (file, at) = self.fork.place(chunk.offset);
                        let error = Error::corrupt(LAYER, at, message).caused_by(error);
                        file.into_iter().fold(error, Error::in_file)
                    })
                })?;
            }
        }
        Ok(())
    }
}

/// Lends `len` bytes of a thread's own, which it need not ask for and clear each time.
fn with_room<R>(len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    thread_local! {
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    if len > KEPT_ROOM {
        return work(&mut vec![0; len]);
    }
    ROOM.with_borrow_mut(|room| {
        if room.len() < len {
            room.resize(len, 0);
        }
        work(&mut room[..len])
    })
}
