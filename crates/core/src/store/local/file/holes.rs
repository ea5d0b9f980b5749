//! Holes in files of the host: finding and punching them.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use super::LocalFile;
use crate::Result;
use crate::device::{BlockDevice, Extent, ExtentKind, ZEROS, is_zero};
use crate::platform::{self, Next};
use crate::size::to_usize;

/// Minimum granularity of holes on any host, in bytes.
const SECTOR: u64 = 512;
/// Bytes read, and written as zeros, at a time if the host cannot punch holes.
const PIECE: usize = ZEROS.len();

impl LocalFile {
    /// Punches `range`, which is not empty. `false`: not supported by the host.
    pub(super) fn punch(&self, range: &Range<u64>) -> Result<bool> {
        if self.cannot_punch.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let punched = platform::punch_hole(&self.file, range.start, range.end - range.start);
        self.changed();
        let punched = punched.map_err(|source| self.failed("punch a hole", range.start, source))?;
        if !punched {
            self.cannot_punch.store(true, Ordering::Relaxed);
        }
        Ok(punched)
    }

    /// Returns the whole blocks of the host within `range`; the last one of the file may be
    /// partial.
    pub(super) fn whole_blocks(&self, range: Range<u64>) -> Range<u64> {
        let end = if range.end == self.info().len {
            range.end
        } else {
            range.end - range.end % self.grain
        };
        range.start.next_multiple_of(self.grain)..end
    }

    /// Writes zeros over the stored bytes in `range`; holes of the host are zeros already.
    pub(super) fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let extent = self.extent_in(at..range.end)?;
            let end = at + extent.len;
            if extent.kind == ExtentKind::Data {
                self.zero_data(at..end)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Writes zeros over all in `range` that does not read as zeros: where holes are not reported, they
    /// stay.
    pub(super) fn zero_data(&self, range: Range<u64>) -> Result<()> {
        let mut stored = [0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let stored = &mut stored[..to_usize((range.end - at).min(PIECE as u64))];
            let read = self.file.read_exact_at(stored, at);
            read.map_err(|source| self.failed("read", at, source))?;
            if !is_zero(stored) {
                let written = self.file.write_all_at(&ZEROS[..stored.len()], at);
                self.changed();
                written.map_err(|source| self.failed("write zeros", at, source))?;
            }
            at += stored.len() as u64;
        }
        Ok(())
    }

    pub(super) fn extent_in(&self, range: Range<u64>) -> Result<Extent> {
        let failed = |source| self.failed("find data", range.start, source);
        let up_to = |kind, end: u64| {
            Ok(Extent {
                kind,
                len: end.min(range.end) - range.start,
            })
        };
        match platform::next_data(&self.file, range.start).map_err(failed)? {
            Next::Nowhere => return up_to(ExtentKind::Zero, range.end),
            Next::At(data) if data > range.start => return up_to(ExtentKind::Zero, data),
            // There is no hole within a sector, and on some hosts the search for the end of data is
            // slow.
            Next::At(_) if range.end <= (range.start / SECTOR + 1) * SECTOR => {
                return up_to(ExtentKind::Data, range.end);
            }
            Next::At(_) | Next::Unknown => {}
        }
        match platform::next_hole(&self.file, range.start).map_err(failed)? {
            Next::At(hole) if hole > range.start => up_to(ExtentKind::Data, hole),
            _ => up_to(ExtentKind::Data, range.end),
        }
    }
}
