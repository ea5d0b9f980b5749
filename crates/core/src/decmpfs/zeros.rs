//! Contents that consist of zeros and are not stored.

use std::ops::Range;

use super::LAYER;
use crate::Result;
use crate::device::{BlockDevice, Extent, ExtentKind, FileRange, Info, read_only};

#[derive(Debug)]
pub(super) struct Zeros {
    pub(super) len: u64,
}

impl BlockDevice for Zeros {
    fn info(&self) -> Info {
        Info::read_only(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        buf.fill(0);
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        Ok(Extent {
            kind: ExtentKind::Zero,
            len: range.end - range.start,
        })
    }

    read_only!(LAYER);

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}
