//! The disk in a bundle as a device: a request goes to its bands, or while their size is being
//! changed to those of two sizes.

use std::ops::Range;

use super::{BETWEEN, Bundle, LAYER};
use crate::device::{BlockDevice, Extent, Info, Leave, Lent};
use crate::store::Guard;
use crate::{Error, Result};

impl Bundle {
    /// Returns whether the cipher blocks of some band would have other numbers if they were counted
    /// over the whole disk.
    pub(crate) fn has_other_numbering(&self) -> bool {
        let bands = [
            Some(&self.bands),
            self.front.as_ref().map(|front| &front.bands),
        ];
        bands
            .into_iter()
            .flatten()
            .any(|bands| bands.cipher.is_some() && bands.count(bands.len()) > 1)
    }

    /// Reads bytes with cipher blocks counted over the whole disk, as development versions before
    /// the first release wrote them. `false`: none of these bytes are cipher text that reads
    /// otherwise so.
    pub(crate) fn read_in_other_numbering(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        self.read_at(offset, buf)?;
        let range = offset..offset + buf.len() as u64;
        match &self.front {
            None => self.bands.read_numbered_over_disk(range, buf),
            Some(front) => front.read_numbered_over_disk(&self.bands, range, buf),
        }
    }
}

impl BlockDevice for Bundle {
    fn info(&self) -> Info {
        self.bands.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match &self.front {
            None => self.bands.read_at(offset, buf),
            Some(front) => front.read_at(&self.bands, offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        match &self.front {
            None => self.bands.write_at(offset, buf),
            Some(front) => front.write_at(&self.bands, offset, buf),
        }
    }

    fn discard(&self, range: Range<u64>, leave: Leave) -> Result<()> {
        match &self.front {
            None => self.bands.discard(range, leave),
            Some(front) => front.discard(&self.bands, range, leave),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        match &self.front {
            None => self.bands.extent_at(range),
            Some(front) => front.extent_at(&self.bands, range),
        }
    }

    fn flush(&self) -> Result<()> {
        // Before anything of ours comes to lie over what another machine has written since.
        self.locks
            .iter()
            .try_for_each(Guard::keep)
            .map_err(|error| self.bands.lose(error))?;
        match &self.front {
            None => self.bands.flush(),
            Some(front) => front.flush(&self.bands),
        }
    }

    /// `len` must be a whole number of sectors. Durable when it returns.
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) while the bands are of two sizes.
    fn set_len(&self, len: u64, _leave: Leave) -> Result<()> {
        if self.is_between() {
            return Err(Error::unsupported(LAYER, BETWEEN));
        }
        self.resize(len)
    }

    fn lend(&self, range: Range<u64>) -> Result<Option<Lent>> {
        match &self.front {
            None => self.bands.lend(range),
            Some(front) => front.lend(&self.bands, range),
        }
    }
}
