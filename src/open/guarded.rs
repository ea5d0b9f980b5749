//! The disk of a sparse bundle that is open for changes. A change of its length removes the files
//! past its end, so these are accounted for first.

use std::ops::Range;
use std::sync::Arc;

use super::OpenOptions;
use super::gate::check_leftovers;
use crate::Result;
use crate::container::sparsebundle::Bundle;
use crate::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::progress::Silent;

/// A sparse bundle whose length changes only after the check of the files past its end.
#[derive(Debug)]
pub(super) struct GuardedBundle(pub(super) Arc<Bundle>);

impl BlockDevice for GuardedBundle {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.0.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.0.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.0.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        if len != self.0.info().len {
            let disk: Arc<dyn BlockDevice> = self.0.clone();
            check_leftovers(&self.0, &disk, &OpenOptions::default(), &Silent)?;
        }
        self.0.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.0.file_range(range)
    }
}
