//! A device for contents in a resource fork, with random access: only the chunks that a read
//! touches are decoded.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::fork::PackedFork;
use super::table::ChunkTable;
use super::{CHUNK, LAYER, Method, chunk};
use crate::device::{Access, BlockDevice, Extent, FileRange, Info, read_only};
use crate::size::to_usize;
use crate::sync::Mutex;
use crate::{Error, Result};

/// Number of chunks decoded in parallel for a sequential reader.
const AHEAD: u64 = 8;

#[derive(Debug)]
pub(super) struct Contents {
    fork: PackedFork,
    table: ChunkTable,
    method: Method,
    len: u64,
    recent: Mutex<RecentChunks>,
}

/// The chunks decoded last, for reads of less than a chunk.
#[derive(Debug, Clone, Default)]
struct RecentChunks {
    chunks: Range<u64>,
    plain: Arc<Vec<u8>>,
    /// Offset at which the last read ended.
    stopped: Option<u64>,
}

impl Contents {
    pub(super) fn new(fork: PackedFork, table: ChunkTable, method: Method, len: u64) -> Self {
        Self {
            fork,
            table,
            method,
            len,
            recent: Mutex::default(),
        }
    }

    fn recent(&self) -> crate::sync::MutexGuard<'_, RecentChunks> {
        // Always replaced as a whole, so a panic leaves no partial state.
        self.recent.lock()
    }

    /// Returns the byte range of `chunks` in the contents.
    fn bytes(&self, chunks: &Range<u64>) -> Range<u64> {
        chunks.start * CHUNK..(chunks.end * CHUNK).min(self.len)
    }

    /// Decodes `chunks` into `plain`, which has their length, on all cores.
    fn decode(&self, chunks: Range<u64>, plain: &mut [u8]) -> Result<()> {
        let places = self.table.places(&self.fork, chunks.clone())?;
        let single = places.len() <= 1;
        let mut work = places
            .into_iter()
            .zip(plain.chunks_mut(to_usize(CHUNK)))
            .zip(chunks);
        let one = |((place, plain), number): ((Range<u64>, &mut [u8]), u64)| {
            self.decode_one(&place, plain).map_err(|error| {
                let message = format!(
                    "cannot decompress chunk {number} of {} bytes",
                    place.end - place.start
                );
                Error::corrupt(LAYER, place.start, message).caused_by(error)
            })
        };
        if single {
            return work.try_for_each(one);
        }
        // One chunk per task, to balance the load between cores.
        work.collect::<Vec<_>>()
            .into_par_iter()
            .with_max_len(1)
            .try_for_each(one)
    }

    fn decode_one(&self, place: &Range<u64>, plain: &mut [u8]) -> Result<()> {
        self.fork.with(place.clone(), |packed| {
            chunk::decode(self.method, packed, plain)
        })
    }

    /// Decodes `chunk` and, if `reads_on`, the chunks after it.
    fn load(&self, chunk: u64, reads_on: bool) -> Result<RecentChunks> {
        let end = if reads_on {
            self.table.chunks.min(chunk + AHEAD)
        } else {
            chunk + 1
        };
        let bytes = self.bytes(&(chunk..end));
        let mut plain = vec![0; to_usize(bytes.end - bytes.start)];
        self.decode(chunk..end, &mut plain)?;
        Ok(RecentChunks {
            chunks: chunk..end,
            plain: Arc::new(plain),
            stopped: None,
        })
    }
}

impl BlockDevice for Contents {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            access: Access::ReadOnly,
            ..self.fork.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let mut recent = self.recent().clone();
        let reads_on = recent.stopped == Some(offset);
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let chunk = at / CHUNK;
            // Whole chunks are decoded directly into the buffer if they are too many to keep, or at
            // the end of the contents.
            let whole = if end == self.len {
                self.table.chunks
            } else {
                end / CHUNK
            };
            let is_kept = recent.chunks.contains(&chunk);
            let is_rest = end == self.len && !is_kept;
            if at.is_multiple_of(CHUNK) && (is_rest || whole >= chunk + AHEAD) {
                let bytes = self.bytes(&(chunk..whole));
                let (now, later) = rest.split_at_mut(to_usize(bytes.end - bytes.start));
                self.decode(chunk..whole, now)?;
                (at, rest) = (bytes.end, later);
                continue;
            }
            if !is_kept {
                recent = self.load(chunk, reads_on || end > (chunk + 1) * CHUNK)?;
            }
            let bytes = self.bytes(&recent.chunks);
            let stop = end.min(bytes.end);
            let (now, later) = rest.split_at_mut(to_usize(stop - at));
            now.copy_from_slice(
                &recent.plain[to_usize(at - bytes.start)..to_usize(stop - bytes.start)],
            );
            (at, rest) = (stop, later);
        }
        *self.recent() = RecentChunks {
            stopped: Some(end),
            ..recent
        };
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    read_only!(LAYER);

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}
