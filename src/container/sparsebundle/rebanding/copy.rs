//! Copying of the stored data of a range from old bands into new ones.

use std::ops::Range;

use super::super::bands::Bands;
use crate::Result;
use crate::device::ExtentKind;
use crate::parallel;
use crate::progress::Progress;
use crate::size::to_usize;

/// Bytes copied at a time by each thread; small enough to stay in the CPU cache between read and
/// write.
const PIECE: u64 = 256 << 10;
const MAX_THREADS: usize = 4;

/// A copy of stored data.
pub(super) struct BandCopy<'a> {
    pub(super) old: &'a Bands,
    pub(super) new: &'a Bands,
    pub(super) progress: &'a dyn Progress,
}

/// The state of one thread: its buffer, and the number of bytes that it copied.
struct Copied(Vec<u8>, u64);

impl BandCopy<'_> {
    /// Copies a range of the disk, several new bands in parallel; returns the number of copied bytes.
    pub(super) fn copy(&self, range: Range<u64>) -> Result<u64> {
        let to = self.new.band_size();
        let count = (range.end - range.start).div_ceil(to);
        let bands = (0..count).map(|number| {
            let start = range.start + number * to;
            start..start.saturating_add(to).min(range.end)
        });
        let threads = parallel::cores(MAX_THREADS).min(to_usize(count));
        let begin = || Copied(vec![0; to_usize(PIECE)], 0);
        let copied = parallel::each(threads, bands, begin, |state, band, _| {
            self.copy_band(band, state)
        })?;
        Ok(copied.iter().map(|state| state.1).sum())
    }

    /// Copies the stored data of a range within one new band.
    fn copy_band(
        &self,
        Range { start: mut at, end }: Range<u64>,
        state: &mut Copied,
    ) -> Result<()> {
        while at < end {
            self.progress.check()?;
            // One query per run: some hosts walk all pages of a file to find the end of an extent.
            let extent = self.old.extent_at(at..end)?;
            match extent.kind {
                ExtentKind::Data => self.copy_run(at..at + extent.len, state)?,
                ExtentKind::Zero => self.progress.advance(extent.len),
                ExtentKind::Hole => {}
            }
            at += extent.len;
        }
        Ok(())
    }

    fn copy_run(&self, run: Range<u64>, Copied(buf, copied): &mut Copied) -> Result<()> {
        let mut at = run.start;
        while at < run.end {
            self.progress.check()?;
            let piece = (run.end - at).min(PIECE);
            let bytes = &mut buf[..to_usize(piece)];
            self.old.read_at(at, bytes)?;
            self.new.write_at(at, bytes)?;
            *copied += piece;
            self.progress.advance(piece);
            at += piece;
        }
        Ok(())
    }
}
