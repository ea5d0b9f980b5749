//! Contents of streams: written, made longer and shorter. What a checkpoint knows is never written
//! in place.

use std::ops::Range;

use super::extents::{StreamIds, StreamRun};
use super::volume::Volume;
use crate::Result;
use crate::crypt::Xts;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::fs::apfs::layout::{DEFAULT_CRYPTO_ID, DataStreamRaw};

/// Bytes of zeros written in one go.
const ZEROS: usize = 64 << 10;
/// Bytes of contents copied in one go.
pub(super) const PIECE: u64 = 1 << 20;

/// What is said of a stream where its owner's record is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) ids: StreamIds,
    pub(super) raw: DataStreamRaw,
    /// Bytes of holes.
    pub(super) holes: u64,
    /// True if it may have holes.
    pub(super) sparse: bool,
}

impl Extent {
    /// So many bytes are holes no longer.
    fn fill(&mut self, holes: u64) {
        self.holes = self.holes.saturating_sub(holes);
    }
}

impl Volume {
    /// A stream without bytes.
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

    /// Returns whether `range`, whole blocks of a stream, can be written in place: all of it was
    /// taken since the last commit.
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

    /// Writes `bytes` at `offset` of a stream that is that long, `old` being its contents so far.
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
        // The blocks at the ends keep what they have besides.
        let len = old.info().len;
        let (before, after) = (
            (offset - range.start) as usize,
            (range.end.min(len).saturating_sub(end)) as usize,
        );
        let mut whole = old.read_vec(range.start, before)?;
        whole.extend_from_slice(bytes);
        whole.extend(old.read_vec(end.min(len), after)?);
        whole.resize((range.end - range.start) as usize, 0);
        stream.fill(self.cut(stream.ids.stream, &range)?);
        let runs = self.allocate(stream.ids, range.start, range.end - range.start)?;
        self.write_runs(&runs, range.start, &whole)
    }

    /// Writes over a part of blocks of a stream, `old` being what it has there.
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
        // The units of the cipher at the ends keep what they have besides; behind the end of the
        // stream there are zeros.
        let (start, until) = (offset - offset % UNIT, end.next_multiple_of(UNIT));
        let mut whole = old.read_vec(start, (offset - start) as usize)?;
        whole.extend_from_slice(bytes);
        whole.extend(old.read_vec(end.min(len), (until.min(len).saturating_sub(end)) as usize)?);
        whole.resize((until - start) as usize, 0);
        self.write_runs(runs, start, &whole)
    }

    /// Writes to blocks of a stream, of an encrypted volume in whole units of its cipher.
    fn write_runs(&self, runs: &[StreamRun], offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        for run in runs {
            let (from, to) = (run.start.max(offset), run.end().min(end));
            let Some(place) = run.place.filter(|_| from < to) else {
                continue;
            };
            let within = from - run.start;
            let bytes = &bytes[(from - offset) as usize..(to - offset) as usize];
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

    /// Makes a stream `len` bytes long. What is new reads as zeros if `zeros`; otherwise it may be
    /// anything.
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
            self.write_stream(stream, old, had, &vec![0; tail as usize])?;
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
            return self.place(stream.ids, StreamRun::hole(range.start, len));
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
                    &vec![0; (run.end() - start).min(ZEROS as u64) as usize],
                )?;
            }
        }
        Ok(())
    }

    /// Makes `range` of a stream zero; whole blocks of it become holes.
    pub(super) fn zero_stream(
        &mut self,
        stream: &mut Extent,
        old: &dyn BlockDevice,
        range: &Range<u64>,
    ) -> Result<()> {
        let block = self.block();
        let whole = range.start.next_multiple_of(block)..range.end - range.end % block;
        // The last block is whole if nothing but the end of the stream follows in it.
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
        self.place(stream.ids, StreamRun::hole(whole.start, len))
    }

    fn write_zeros(
        &mut self,
        stream: &mut Extent,
        old: &dyn BlockDevice,
        range: &Range<u64>,
    ) -> Result<()> {
        // Pieces end where blocks do, so that no block is moved twice.
        let mut at = range.start;
        while at < range.end {
            let end = (at + PIECE - at % PIECE).min(range.end);
            self.write_stream(stream, old, at, &vec![0; (end - at) as usize])?;
            at = end;
        }
        Ok(())
    }
}
