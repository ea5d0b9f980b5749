//! A fixed range of a device: a partition, a volume, or a structure at a known offset.

use std::ops::Range;
use std::sync::Arc;

use super::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::{Error, Kind, Result};

const LAYER: &str = "slice";

/// A device for the bytes `start..start + len` of another device. Its length is fixed.
#[derive(Debug, Clone)]
pub struct Slice {
    inner: Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
}

impl Slice {
    /// Returns a device for `range` of `inner`. Fails if `range` exceeds its length.
    pub fn new(inner: Arc<dyn BlockDevice>, range: Range<u64>) -> Result<Self> {
        inner.info().check_range(LAYER, &range)?;
        Ok(Self {
            inner,
            start: range.start,
            len: range.end - range.start,
        })
    }

    /// Returns the offset of the range in the underlying device, in bytes.
    pub fn start(&self) -> u64 {
        self.start
    }

    fn outer_offset(&self, offset: u64, length: u64) -> Result<u64> {
        self.info().check(LAYER, offset, length)?;
        Ok(self.start + offset)
    }

    fn place_range(&self, range: Range<u64>) -> Result<Range<u64>> {
        self.info().check_range(LAYER, &range)?;
        Ok(self.start + range.start..self.start + range.end)
    }
}

impl BlockDevice for Slice {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            ..self.inner.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner
            .read_at(self.outer_offset(offset, buf.len() as u64)?, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.inner
            .write_at(self.outer_offset(offset, buf.len() as u64)?, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.inner.discard(self.place_range(range)?, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.inner.extent_at(self.place_range(range)?)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(Error::new(
            Kind::Unsupported,
            LAYER,
            "cannot change the length of a part of a device",
        ))
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.inner.file_range(self.place_range(range)?)
    }
}
