//! The contents of a file as a read-only device over its extents.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Extent, ExtentKind, FileRange, Info};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result, read_only};

use super::LAYER;

/// The storage of a run of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunStorage {
    /// From this byte of the device on.
    Recorded(u64),
    /// Blocks that were never written.
    Allocated,
    /// No blocks.
    Unallocated,
}

/// A run of a file's bytes.
#[derive(Debug, Clone, Copy)]
struct StoredRun {
    /// Offset in the file, in bytes.
    start: u64,
    /// In bytes, at least 1.
    len: u64,
    storage: RunStorage,
}

/// The contents of a file.
#[derive(Debug, Clone)]
pub(super) struct UdfContents {
    device: Arc<dyn BlockDevice>,
    /// In ascending order without gaps.
    runs: Vec<StoredRun>,
    len: u64,
}

impl UdfContents {
    /// Returns a file of `len` bytes without runs.
    pub(super) fn new(device: Arc<dyn BlockDevice>, len: u64) -> Self {
        Self {
            device,
            runs: Vec::new(),
            len,
        }
    }

    /// Returns the length of all runs in bytes.
    pub(super) fn stored_len(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.start + run.len)
    }

    /// Returns the number of runs.
    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Appends a run; one that continues the last on the device is joined with it.
    pub(super) fn push(&mut self, len: u64, storage: RunStorage) {
        if len == 0 {
            return;
        }
        let start = self.stored_len();
        if let Some(last) = self.runs.last_mut() {
            let continues = match (last.storage, storage) {
                (RunStorage::Recorded(before), RunStorage::Recorded(at)) => {
                    before.checked_add(last.len) == Some(at)
                }
                (before, now) => before == now,
            };
            if continues {
                last.len += len;
                return;
            }
        }
        self.runs.push(StoredRun {
            start,
            len,
            storage,
        });
    }

    /// Returns the storage of the byte at `offset`, and the length of the rest of its run, at most
    /// `length`.
    pub(super) fn locate(&self, offset: u64, length: u64) -> Result<(RunStorage, u64)> {
        let after = self.runs.partition_point(|run| run.start <= offset);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        let Some(run) = run.filter(|run| offset - run.start < run.len) else {
            let message = format!(
                "the extents of a file hold {} of its {} bytes",
                self.stored_len(),
                self.len
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        };
        let within = offset - run.start;
        let storage = match run.storage {
            RunStorage::Recorded(at) => RunStorage::Recorded(at + within),
            other => other,
        };
        Ok((storage, length.min(run.len - within)))
    }

    /// Fails if a part of the contents has no extent, or is past the end of the volume.
    pub(super) fn check_places(&self) -> Result<()> {
        if let Some(last) = self.len.checked_sub(1) {
            self.locate(last, 1)?;
        }
        let within = self.runs.iter().take_while(|run| run.start < self.len);
        for run in within {
            if let RunStorage::Recorded(at) = run.storage {
                let len = run.len.min(self.len - run.start);
                if at + len > self.device.info().len {
                    return Err(self.past_the_end(at..at + len));
                }
            }
        }
        Ok(())
    }

    fn past_the_end(&self, place: Range<u64>) -> Error {
        let message = format!(
            "bytes {} to {} of the volume hold a file, but the volume ends at {}: it may be truncated",
            place.start,
            place.end,
            self.device.info().len
        );
        Error::corrupt(LAYER, place.start, message)
    }

    /// Returns an error of the volume: a place past its end is the fault of the file.
    fn explain(&self, error: Error, at: u64, len: u64) -> Error {
        match error.kind() {
            Kind::OutOfRange => self.past_the_end(at..at.saturating_add(len)),
            _ => error,
        }
    }
}

impl BlockDevice for UdfContents {
    fn info(&self) -> Info {
        Info::read_only(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (storage, len) = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(len));
            match storage {
                RunStorage::Recorded(at) => self
                    .device
                    .read_at(at, now)
                    .map_err(|error| self.explain(error, at, len))?,
                RunStorage::Allocated | RunStorage::Unallocated => now.fill(0),
            }
            (offset, rest) = (offset + len, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let (storage, len) = self.locate(range.start, range.end - range.start)?;
        let kind = match storage {
            RunStorage::Recorded(at) => {
                return self
                    .device
                    .extent_at(at..at + len)
                    .map_err(|error| self.explain(error, at, len));
            }
            RunStorage::Allocated => ExtentKind::Zero,
            RunStorage::Unallocated => ExtentKind::Hole,
        };
        Ok(Extent { kind, len })
    }

    read_only!("file");

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        match self.locate(range.start, range.end - range.start)? {
            (RunStorage::Recorded(at), len) => self
                .device
                .file_range(at..at + len)
                .map_err(|error| self.explain(error, at, len)),
            _ => Ok(None),
        }
    }
}
