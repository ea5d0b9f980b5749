//! The disk as a read-only device.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::chunks::{Chunk, ChunkIndex};
use super::contents::{CACHE, LONG_CHUNK};
use super::layout::RunKind;
use super::{LAYER, SECTOR, Udif};
use crate::device::{
    Access, ActiveRequest, BlockDevice, Extent, ExtentKind, FileRange, Info, read_only,
};
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Minimum length of chunks that are decoded directly into the caller's buffer if read as a whole.
/// Shorter ones are cached, because they may be read again, such as the nodes of a tree.
const DIRECT: usize = 64 << 10;

impl Udif {
    /// Returns true if all of a chunk was requested and it is neither cached nor being decoded.
    fn is_direct(&self, index: ChunkIndex, chunk: &Chunk, asked: usize) -> bool {
        let whole = asked as u64 == chunk.len && asked >= DIRECT;
        whole && matches!(chunk.kind, RunKind::Packed(_)) && !self.contents.cache.expects(index)
    }

    /// Reads the part of `chunk` from byte `from` of the disk on.
    fn read_part(&self, index: ChunkIndex, chunk: &Chunk, from: u64, out: &mut [u8]) -> Result<()> {
        let within = to_usize(from - chunk.start);
        match chunk.kind {
            RunKind::Zero | RunKind::Ignore => out.fill(0),
            RunKind::Raw => {
                let at = chunk.offset + within as u64;
                self.contents.fork.read_at(at, out)?;
                self.contents.sums.add(chunk, from, out);
            }
            RunKind::Packed(_) => {
                let plain = self.contents.decoded(index, chunk)?;
                out.copy_from_slice(&plain[within..within + out.len()]);
            }
        }
        Ok(())
    }

    /// Starts decoding the chunks after `range` on other cores if the reader is sequential.
    fn begin_ahead(&self, reader: &ActiveRequest<'_>, range: Range<u64>) {
        let chunks = &self.contents.chunks;
        let bytes = range.end - range.start;
        let Some(Ok((first, _))) = (!range.is_empty()).then(|| chunks.at(range.start)) else {
            return;
        };
        let Ok((last, chunk)) = chunks.at(range.end - 1) else {
            return;
        };
        // Lazy, because asking for the number of threads starts them. At most half of what was read already, so
        // that a small file in an image elsewhere does not cost several times its size.
        let most = |walked: u64| {
            let most = (CACHE as u64 / 2 / chunk.len).min(2 * rayon::current_num_threads() as u64);
            narrow::<u32>(most.min(walked / 2 / chunk.len))
        };
        for index in reader.passes(first.0, last.0, bytes, most) {
            let index = ChunkIndex(index);
            let is_short =
                |chunk: &Chunk| matches!(chunk.kind, RunKind::Packed(_)) && chunk.len <= LONG_CHUNK;
            if !chunks.get(index).is_some_and(is_short) || self.contents.cache.expects(index) {
                continue;
            }
            // Weak, so that a waiting task does not keep the file open.
            let (contents, ahead) = (Arc::downgrade(&self.contents), self.ahead.clone());
            rayon::spawn(move || {
                ahead.run(index.0, || {
                    let Some(contents) = contents.upgrade() else {
                        return;
                    };
                    if let Some(chunk) = contents.chunks.get(index) {
                        // Ignored: a read of the chunk fails again and reports the error.
                        drop(contents.decoded(index, chunk));
                    }
                });
            });
        }
    }
}

fn is_packed(found: Option<(ChunkIndex, &Chunk)>) -> bool {
    matches!(
        found,
        Some((
            _,
            Chunk {
                kind: RunKind::Packed(_),
                ..
            }
        ))
    )
}

impl BlockDevice for Udif {
    fn info(&self) -> Info {
        let len = self.contents.len;
        Info {
            len,
            block: narrow::<u32>(SECTOR),
            write: 1,
            discard: SECTOR,
            access: Access::ReadOnly,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        let reader = self.ahead.reader();
        self.begin_ahead(&reader, offset..end);
        let mut parts = Vec::new();
        let mut rest = buf;
        for (run, found) in self.contents.runs(offset..end) {
            let (out, after) =
                std::mem::take(&mut rest).split_at_mut(to_usize(run.end - run.start));
            rest = after;
            match found {
                None => out.fill(0),
                Some((index, chunk)) if self.is_direct(index, chunk, out.len()) => {
                    parts.push((chunk, out))
                }
                Some((index, chunk)) => self.read_part(index, chunk, run.start, out)?,
            }
        }
        let decode = |(chunk, out): (&Chunk, &mut [u8])| {
            let _turn = self.contents.lock_for_large_chunk(chunk);
            self.contents.decode(chunk, out)
        };
        match parts.len() {
            // Not worth another thread.
            0 | 1 => parts.into_iter().try_for_each(decode),
            _ => parts.into_par_iter().with_max_len(1).try_for_each(decode),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let mut extent: Option<Extent> = None;
        for (run, found) in self.contents.runs(range.clone()) {
            let kind = match found.map(|(_, chunk)| chunk.kind) {
                None | Some(RunKind::Ignore) => ExtentKind::Hole,
                Some(RunKind::Zero) => ExtentKind::Zero,
                Some(RunKind::Raw | RunKind::Packed(_)) => ExtentKind::Data,
            };
            let len = run.end - run.start;
            match &mut extent {
                // One extent per chunk, so that a reader of extent after extent decodes one chunk
                // at a time.
                None if is_packed(found) => return Ok(Extent { kind, len }),
                None => extent = Some(Extent { kind, len }),
                Some(extent) if extent.kind == kind && !is_packed(found) => extent.len += len,
                Some(_) => break,
            }
        }
        extent.ok_or_else(|| {
            Error::invalid(
                LAYER,
                "cannot report an extent: the requested range is empty",
            )
            .at(range.start)
        })
    }

    read_only!(LAYER);

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        let Some((run, Some((_, chunk)))) = self.contents.runs(range).next() else {
            return Ok(None);
        };
        // Data that bypasses this device is not summed.
        if chunk.kind != RunKind::Raw || self.contents.sums.is_recording() {
            return Ok(None);
        }
        let from = chunk.offset + (run.start - chunk.start);
        self.contents
            .fork
            .file_range(from..from + (run.end - run.start))
    }
}
