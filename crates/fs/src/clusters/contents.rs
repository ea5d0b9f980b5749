//! The contents of a file as a read-only device over its clusters.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Extent, ExtentKind, FileRange, Info};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result, read_only};

use super::{ClusterSpace, FIRST, Run};

/// The contents of a file.
#[derive(Debug)]
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

    /// Returns the stored place of the bytes from `offset` on, at most `length`. `offset` is below
    /// the length of what is stored.
    fn locate(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        let after = self
            .runs
            .partition_point(|run| u64::from(run.logical) * self.cluster_size <= offset);
        let run = after
            .checked_sub(1)
            .and_then(|at| self.runs.get(at))
            .ok_or_else(|| {
                Error::new(
                    Kind::OutOfRange,
                    self.layer,
                    "no cluster is recorded for this part of the file",
                )
                .at(offset)
            })?;
        let within = offset - u64::from(run.logical) * self.cluster_size;
        let run_len = u64::from(run.count) * self.cluster_size;
        let start = self.start + (u64::from(run.first) - FIRST) * self.cluster_size + within;
        let most = run_len.saturating_sub(within).min(self.valid - offset);
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
            if place.is_empty() {
                return Err(Error::new(
                    Kind::OutOfRange,
                    self.layer,
                    "no cluster is recorded for this part of the file",
                )
                .at(offset));
            }
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
