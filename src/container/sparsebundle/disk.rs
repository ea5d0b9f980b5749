//! The disk of a bundle as a block device. During a change of the band size, requests are split
//! between old and new bands.

use std::ops::Range;

use super::{BETWEEN, Bundle, LAYER};
use crate::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::store::Guard;
use crate::{Error, Result};

impl BlockDevice for Bundle {
    fn info(&self) -> Info {
        self.bands.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match &self.migrating_bands {
            None => self.bands.read_at(offset, buf),
            Some(migrating_bands) => migrating_bands.read_at(&self.bands, offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        match &self.migrating_bands {
            None => self.bands.write_at(offset, buf),
            Some(migrating_bands) => migrating_bands.write_at(&self.bands, offset, buf),
        }
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        match &self.migrating_bands {
            None => self.bands.discard(range, leave),
            Some(migrating_bands) => migrating_bands.discard(&self.bands, range, leave),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        match &self.migrating_bands {
            None => self.bands.extent_at(range),
            Some(migrating_bands) => migrating_bands.extent_at(&self.bands, range),
        }
    }

    fn flush(&self) -> Result<()> {
        // Checks the locks first, so as not to overwrite changes of another machine.
        self.locks
            .iter()
            .try_for_each(Guard::revalidate)
            .map_err(|error| self.bands.lose(error))?;
        match &self.migrating_bands {
            None => self.bands.flush(),
            Some(migrating_bands) => migrating_bands.flush(&self.bands),
        }
    }

    /// `len` must be a multiple of 512 bytes. The new length is durable on return.
    ///
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) while the bands are of two sizes.
    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        if self.is_between() {
            return Err(Error::unsupported(LAYER, BETWEEN));
        }
        self.resize(len)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        match &self.migrating_bands {
            None => self.bands.file_range(range),
            Some(migrating_bands) => migrating_bands.file_range(&self.bands, range),
        }
    }
}
