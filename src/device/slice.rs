//! A fixed window on a device: a partition, a volume, a structure at a known place.

use std::ops::Range;
use std::sync::Arc;

use super::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::{Error, Kind, Result};

const LAYER: &str = "slice";

/// The bytes `start..start + len` of another device, as a device. Its length is fixed.
#[derive(Debug, Clone)]
pub struct Slice {
    inner: Arc<dyn BlockDevice>,
    start: u64,
    len: u64,
}

impl Slice {
    /// A window on `inner`; `range` must lie within it.
    pub fn new(inner: Arc<dyn BlockDevice>, range: Range<u64>) -> Result<Self> {
        inner.info().check_range(LAYER, &range)?;
        Ok(Self {
            inner,
            start: range.start,
            len: range.end - range.start,
        })
    }

    /// Where the window begins in the device below.
    pub fn start(&self) -> u64 {
        self.start
    }

    fn place(&self, offset: u64, length: u64) -> Result<u64> {
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
            .read_at(self.place(offset, buf.len() as u64)?, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.inner
            .write_at(self.place(offset, buf.len() as u64)?, buf)
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
            "a window on a device has a fixed length",
        ))
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.inner.file_range(self.place_range(range)?)
    }
}
