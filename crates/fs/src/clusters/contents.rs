//! The contents of a file as a read-only device over its clusters.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result, read_only};

use super::{ClusterSpace, FIRST, Run};

/// The contents of a file.
#[derive(Debug, Clone)]
pub(crate) struct ClusterContents {
    device: Arc<dyn BlockDevice>,
    layer: &'static str,
    start: u64,
    cluster_size: u64,
    /// In logical order, without gaps.
    runs: Box<[Run]>,
    len: u64,
    /// Bytes that are stored; those after them read as zeros.
    valid: u64,
}

impl ClusterContents {
    /// Returns a file of `len` bytes, of which `valid`, at most `len`, are stored in `runs`.
    pub(crate) fn new(space: &ClusterSpace, runs: Box<[Run]>, len: u64, valid: u64) -> Self {
        Self {
            device: space.device.clone(),
            layer: space.layer,
            start: space.start,
            cluster_size: space.cluster_size,
            runs,
            len,
            valid,
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of bytes that are stored.
    pub(crate) fn valid(&self) -> u64 {
        self.valid
    }

    /// Returns the clusters in logical order.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Changes the number of bytes that are stored, to at most the length.
    pub(crate) fn set_valid(&mut self, valid: u64) {
        self.valid = valid;
    }

    /// Writes `buf` at `offset`, within the bytes that are stored.
    pub(crate) fn overwrite(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at(to_usize(place.end - place.start));
            self.device.write_at(place.start, now)?;
            (offset, rest) = (offset + now.len() as u64, later);
        }
        Ok(())
    }

    /// Fills a range within the bytes that are stored with zeros.
    pub(crate) fn zero(&self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let place = self.locate(at, range.end - at)?;
            at += place.end - place.start;
            self.device.discard(place, AfterDiscard::Zeros)?;
        }
        Ok(())
    }

    fn unplaced(&self, offset: u64) -> Error {
        let message = "no cluster is recorded for this part of the file";
        Error::new(Kind::OutOfRange, self.layer, message).at(offset)
    }

    /// Returns the stored place of the bytes from `offset` on, at most `length`. `offset` is below
    /// the length of what is stored.
    fn locate(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        let after = self
            .runs
            .partition_point(|run| u64::from(run.logical) * self.cluster_size <= offset);
        let run = after
            .checked_sub(1)
            .and_then(|at| self.runs.get(at))
            .ok_or_else(|| self.unplaced(offset))?;
        let within = offset - u64::from(run.logical) * self.cluster_size;
        let run_len = u64::from(run.count) * self.cluster_size;
        let start = self.start + (u64::from(run.first) - FIRST) * self.cluster_size + within;
        let most = run_len.saturating_sub(within);
        let most = most.min(self.valid.saturating_sub(offset));
        if most == 0 {
            return Err(self.unplaced(offset));
        }
        Ok(start..start + length.min(most))
    }
}

impl BlockDevice for ClusterContents {
    fn info(&self) -> Info {
        Info::read_only(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(self.layer, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            if offset >= self.valid {
                rest.fill(0);
                break;
            }
            let place = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(place.end - place.start));
            self.device.read_at(place.start, now)?;
            (offset, rest) = (offset + now.len() as u64, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(self.layer, &range)?;
        if range.start >= self.valid {
            return Ok(Extent {
                kind: ExtentKind::Zero,
                len: range.end - range.start,
            });
        }
        self.device
            .extent_at(self.locate(range.start, range.end - range.start)?)
    }

    read_only!("clusters");

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(self.layer, &range)?;
        if range.is_empty() || range.start >= self.valid {
            return Ok(None);
        }
        self.device
            .file_range(self.locate(range.start, range.end - range.start)?)
    }
}
