//! Contents of streams: write, extend, truncate. Blocks of a checkpoint are never overwritten in
//! place.

use std::ops::Range;

use super::extents::{StreamIds, StreamRun};
use super::volume::Volume;
use crate::apfs::layout::{DEFAULT_CRYPTO_ID, DataStreamRaw};
use bandsaw_core::Result;
use bandsaw_core::crypt::Xts;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;

/// Number of zeros per write, in bytes.
const ZEROS: usize = 64 << 10;
/// Number of bytes copied per step.
pub(super) const PIECE: u64 = 1 << 20;

/// The properties of a stream in its owner's record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) ids: StreamIds,
    pub(super) raw: DataStreamRaw,
    /// Length of its holes in bytes.
    pub(super) holes: u64,
    /// True if it may have holes.
    pub(super) sparse: bool,
}

impl Extent {
    /// Subtracts bytes that are no longer holes.
    fn fill(&mut self, holes: u64) {
        self.holes = self.holes.saturating_sub(holes);
    }
}

impl Volume {
    /// Returns an empty stream.
    pub(super) fn new_stream(&self) -> DataStreamRaw {
        let crypto_id = if self.read.cipher.is_some() {
            DEFAULT_CRYPTO_ID
        } else {
            0
        };
        DataStreamRaw {
            default_crypto_id: crypto_id.into(),
            ..DataStreamRaw::default()
        }
    }

    /// Returns the runs of `range`, whole blocks of a stream, if all of it was allocated since the
    /// last commit, so that it can be written in place.
    pub(super) fn in_place(
        &mut self,
        ids: StreamIds,
        range: &Range<u64>,
    ) -> Result<Option<Vec<StreamRun>>> {
        let (block, mut at) = (self.block(), range.start);
        let runs = self.runs(ids.stream, range)?;
        for run in &runs {
            let fresh = match run.blocks(block) {
                Some(blocks) if !run.unwritten => {
                    let first = blocks.start + at.saturating_sub(run.start) / block;
                    let end = blocks.start + (range.end.min(run.end()) - run.start) / block;
                    self.space.is_fresh(first..end)?
                }
                _ => false,
            };
            if run.start > at || !fresh {
                return Ok(None);
            }
            at = run.end();
        }
        Ok((at >= range.end).then_some(runs))
    }

    /// Writes `bytes` at `offset`, within the length of a stream; `old` are its current contents.
    pub(super) fn write_stream(
        &mut self,
        stream: &mut Extent,
        old: &dyn BlockDevice,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let block = self.block();
        let end = offset + bytes.len() as u64;
        let range = offset - offset % block..end.next_multiple_of(block);
        if let Some(runs) = self.in_place(stream.ids, &range)? {
            return self.write_over(&runs, old, offset, bytes);
        }
        // The blocks at both ends keep their other bytes.
        let len = old.info().len;
        let (before, after) = (
            to_usize(offset - range.start),
            to_usize(range.end.min(len).saturating_sub(end)),
        );
        let mut whole = old.read_vec(range.start, before)?;
        whole.extend_from_slice(bytes);
        whole.extend(old.read_vec(end.min(len), after)?);
        whole.resize(to_usize(range.end - range.start), 0);
        stream.fill(self.cut(stream.ids.stream, &range)?);
        let runs = self.allocate(stream.ids, range.start, range.end - range.start)?;
        self.write_runs(&runs, range.start, &whole)
    }

    /// Overwrites a part of the blocks of a stream in place; `old` are its current contents.
    fn write_over(
        &self,
        runs: &[StreamRun],
        old: &dyn BlockDevice,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        const UNIT: u64 = Xts::UNIT as u64;
        let (len, end) = (old.info().len, offset + bytes.len() as u64);
        if self.read.cipher.is_none() || offset.is_multiple_of(UNIT) && end.is_multiple_of(UNIT) {
            return self.write_runs(runs, offset, bytes);
        }
        // The cipher units at both ends keep their other bytes; past the end of the stream they are
        // padded with zeros.
        let (start, until) = (offset - offset % UNIT, end.next_multiple_of(UNIT));
        let mut whole = old.read_vec(start, to_usize(offset - start))?;
        whole.extend_from_slice(bytes);
        whole.extend(old.read_vec(end.min(len), to_usize(until.min(len).saturating_sub(end)))?);
        whole.resize(to_usize(until - start), 0);
        self.write_runs(runs, start, &whole)
    }

    /// Writes to blocks of a stream; on an encrypted volume, whole units of the cipher.
    fn write_runs(&self, runs: &[StreamRun], offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        for run in runs {
            let (from, to) = (run.start.max(offset), run.end().min(end));
            let Some(place) = run.place.filter(|_| from < to) else {
                continue;
            };
            let within = from - run.start;
            let bytes = &bytes[to_usize(from - offset)..to_usize(to - offset)];
            let at = self.store.offset(place) + within;
            match (&self.read.cipher, run.crypto_id) {
                (Some(cipher), Some(first)) => {
                    let mut sealed = bytes.to_vec();
                    cipher.encrypt_units(first, within / Xts::UNIT as u64, &mut sealed);
                    self.store.device.write_at(at, &sealed)?;
                }
                _ => self.store.device.write_at(at, bytes)?,
            }
        }
        Ok(())
    }

    /// Sets the length of a stream to `len` bytes. Added bytes read as zeros if `zeros`; otherwise
    /// they are unspecified.
    pub(super) fn resize_stream(
        &mut self,
        stream: &mut Extent,
        old: &dyn BlockDevice,
        len: u64,
        zeros: bool,
    ) -> Result<()> {
        let block = self.block();
        let (had, now) = (stream.raw.size.get(), len.next_multiple_of(block));
        let allocated = stream.raw.allocated.get();
        if now < allocated {
            stream.fill(self.cut(stream.ids.stream, &(now..allocated))?);
        }
        if len > had && zeros && !had.is_multiple_of(block) {
            let tail = had.next_multiple_of(block).min(len) - had;
            self.write_stream(stream, old, had, &vec![0; to_usize(tail)])?;
        }
        if now > allocated {
            self.grow(stream, allocated..now, zeros)?;
        }
        stream.raw.size = len.into();
        stream.raw.allocated = now.into();
        stream.raw.bytes_written = stream.raw.bytes_written.get().max(len).into();
        Ok(())
    }

    fn grow(&mut self, stream: &mut Extent, range: Range<u64>, zeros: bool) -> Result<()> {
        let len = range.end - range.start;
        if zeros && stream.sparse {
            stream.holes += len;
            return self.insert_run(stream.ids, StreamRun::hole(range.start, len));
        }
        let runs = self.allocate(stream.ids, range.start, len)?;
        if !zeros {
            return Ok(());
        }
        for run in runs {
            for start in (run.start..run.end()).step_by(ZEROS) {
                self.write_runs(
                    &[run],
                    start,
                    &vec![0; to_usize((run.end() - start).min(ZEROS as u64))],
                )?;
            }
        }
        Ok(())
    }

    /// Zeros `range` of a stream; whole blocks of it become holes.
    pub(super) fn zero_stream(
        &mut self,
        stream: &mut Extent,
        old: &dyn BlockDevice,
        range: &Range<u64>,
    ) -> Result<()> {
        let block = self.block();
        let whole = range.start.next_multiple_of(block)..range.end - range.end % block;
        // The last block of the stream is treated as whole.
        let whole = if range.end == stream.raw.size.get() {
            whole.start..range.end.next_multiple_of(block)
        } else {
            whole
        };
        if !stream.sparse || whole.start >= whole.end {
            return self.write_zeros(stream, old, range);
        }
        self.write_zeros(stream, old, &(range.start..whole.start))?;
        self.write_zeros(stream, old, &(whole.end.min(range.end)..range.end))?;
        let len = whole.end - whole.start;
        stream.fill(self.cut(stream.ids.stream, &whole)?);
        stream.holes += len;
        self.insert_run(stream.ids, StreamRun::hole(whole.start, len))
    }

    fn write_zeros(
        &mut self,
        stream: &mut Extent,
        old: &dyn BlockDevice,
        range: &Range<u64>,
    ) -> Result<()> {
        // Pieces end at block boundaries, so that no block is moved twice.
        let mut at = range.start;
        while at < range.end {
            let end = (at + PIECE - at % PIECE).min(range.end);
            self.write_stream(stream, old, at, &vec![0; to_usize(end - at)])?;
            at = end;
        }
        Ok(())
    }
}
