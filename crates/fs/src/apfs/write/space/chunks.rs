//! Chunks of the container: their bitmaps, and the CIBs that describe them, read on demand.

use std::ops::Range;

use zerocopy::FromBytes;

use super::{LAYER, Space, corrupt};
use crate::apfs::layout::{
    CHUNK_COUNT_MASK, ChunkInfoRaw, ChunkRaw, Paddr, blocks_per_chunk, chunks_per_cib, object_type,
};
use crate::bitmap::{clear_bits, count_clear, run_at, set_bits};
use bandsaw_core::Result;
use bandsaw_core::size::to_usize;

/// A CIB.
#[derive(Debug)]
pub(super) struct ChunkInfoBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) changed: bool,
}

/// The bitmap of a chunk.
#[derive(Debug)]
pub(super) struct ChunkBitmap {
    pub(super) used: Vec<u8>,
    /// Bitmap of the blocks that were allocated since the last commit.
    pub(super) fresh: Vec<u8>,
    pub(super) blocks: u64,
    pub(super) free: u64,
    pub(super) changed: bool,
}

impl Space {
    pub(super) fn per_chunk(&self) -> u64 {
        blocks_per_chunk(self.store.block_size).into()
    }

    /// Returns the first free run that begins within `range`, at most `most` blocks of it.
    pub(super) fn find(&mut self, range: Range<u64>, most: u64) -> Result<Option<Range<u64>>> {
        let mut at = range.start;
        while at < range.end {
            let chunk = at / self.per_chunk();
            let first = chunk * self.per_chunk();
            if self.chunk(chunk)?.1 == 0 {
                at = first + self.per_chunk();
                continue;
            }
            let bits = self.bits(chunk)?;
            let (used, until) = run_at(&bits.used, to_usize(at - first), to_usize(bits.blocks));
            let until = first + until as u64;
            if !used {
                return Ok(Some(at..until.min(at.saturating_add(most))));
            }
            at = until;
        }
        Ok(None)
    }

    pub(super) fn occupy(&mut self, run: Range<u64>) -> Result<()> {
        self.each_chunk(run, |bits, range| {
            bits.free -= range.len() as u64;
            set_bits(&mut bits.used, range.clone());
            set_bits(&mut bits.fresh, range);
        })
    }

    pub(super) fn release(&mut self, run: Range<u64>) -> Result<()> {
        self.each_chunk(run, |bits, range| {
            bits.free += range.len() as u64;
            clear_bits(&mut bits.used, range.clone());
            clear_bits(&mut bits.fresh, range);
        })
    }

    /// Changes the bits of a run, chunk by chunk, and updates the number of free blocks.
    pub(super) fn each_chunk(
        &mut self,
        run: Range<u64>,
        mut change: impl FnMut(&mut ChunkBitmap, Range<usize>),
    ) -> Result<()> {
        let mut free = self.free;
        self.each_chunk_quietly(run, |bits, range| {
            let before = bits.free;
            change(bits, range);
            bits.changed = true;
            free = free + bits.free - before;
        })?;
        self.free = free;
        Ok(())
    }

    pub(super) fn each_chunk_quietly(
        &mut self,
        run: Range<u64>,
        mut change: impl FnMut(&mut ChunkBitmap, Range<usize>),
    ) -> Result<()> {
        if run.end > self.store.blocks {
            return Err(corrupt(format!(
                "blocks up to {} reach past the end of the container",
                run.end
            )));
        }
        let mut at = run.start;
        while at < run.end {
            let chunk = at / self.per_chunk();
            let first = chunk * self.per_chunk();
            let end = run.end.min(first + self.per_chunk());
            change(
                self.bits(chunk)?,
                to_usize(at - first)..to_usize(end - first),
            );
            at = end;
        }
        Ok(())
    }

    pub(super) fn info(&mut self, cib: u64) -> Result<&mut ChunkInfoBlock> {
        if !self.infos.contains_key(&cib) {
            let place = self
                .cibs
                .get(to_usize(cib))
                .copied()
                .ok_or_else(|| corrupt("has too few chunk records"))?;
            let bytes = self
                .store
                .object(LAYER, Paddr(place), object_type::CHUNK_INFO)?
                .into_vec();
            self.infos.insert(
                cib,
                ChunkInfoBlock {
                    bytes,
                    changed: false,
                },
            );
        }
        self.infos
            .get_mut(&cib)
            .ok_or_else(|| corrupt("has too few chunk records"))
    }

    /// Returns the record of a chunk, and the current number of its free blocks.
    pub(super) fn chunk(&mut self, chunk: u64) -> Result<(ChunkRaw, u64)> {
        let per_cib = u64::from(chunks_per_cib(self.store.block_size));
        let info = self.info(chunk / per_cib)?;
        let at = chunk_at(chunk % per_cib);
        let raw = info
            .bytes
            .get(at..)
            .and_then(|rest| ChunkRaw::read_from_prefix(rest).ok());
        let (raw, _) = raw.ok_or_else(|| corrupt(format!("has no record of chunk {chunk}")))?;
        let recorded = u64::from(raw.free.get() & CHUNK_COUNT_MASK);
        Ok((
            raw,
            self.bits.get(&chunk).map_or(recorded, |bits| bits.free),
        ))
    }

    pub(super) fn bits(&mut self, chunk: u64) -> Result<&mut ChunkBitmap> {
        if !self.bits.contains_key(&chunk) {
            let (raw, free) = self.chunk(chunk)?;
            let blocks = u64::from(raw.blocks.get() & CHUNK_COUNT_MASK);
            let size = self.store.block_size.bytes();
            let used = match raw.bitmap.get() {
                0 => vec![0; size],
                place => self.store.read(LAYER, Paddr(place), 1)?.into_vec(),
            };
            if blocks > self.per_chunk() || count_clear(&used, to_usize(blocks)) as u64 != free {
                return Err(corrupt(format!(
                    "the record of chunk {chunk} has {free} free blocks, but its bitmap has \
                     another number"
                )));
            }
            self.bits.insert(
                chunk,
                ChunkBitmap {
                    used,
                    fresh: vec![0; size],
                    blocks,
                    free,
                    changed: false,
                },
            );
        }
        self.bits
            .get_mut(&chunk)
            .ok_or_else(|| corrupt("has too few chunk records"))
    }
}

pub(super) fn chunk_at(place: u64) -> usize {
    size_of::<ChunkInfoRaw>() + to_usize(place) * size_of::<ChunkRaw>() // at most a block's
}
