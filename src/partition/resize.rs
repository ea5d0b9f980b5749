//! Moving the end of a partition, for all kinds of map.

use std::ops::Range;

use super::{Scheme, apm, gpt, mbr};
use crate::Result;
use crate::device::BlockDevice;

/// A partition whose end is to be moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resizable<'a> {
    /// The disk that contains the map.
    pub(crate) disk: &'a dyn BlockDevice,
    /// Kind of the map.
    pub(crate) scheme: Scheme,
    /// Partition number.
    pub(crate) number: u32,
}

impl Resizable<'_> {
    /// Repairs a map in which an interrupted resize has left only one valid copy.
    pub(crate) fn repair(&self) -> Result<()> {
        match self.scheme {
            Scheme::Gpt => gpt::repair(self.disk).map(drop),
            Scheme::Apm | Scheme::Mbr => Ok(()),
        }
    }

    /// Returns the maximum end on a disk of `disk_len` bytes, as a byte offset.
    pub(crate) fn last_end(&self, disk_len: u64) -> Result<u64> {
        match self.scheme {
            Scheme::Gpt => gpt::last_end(self.disk, disk_len),
            Scheme::Apm => apm::last_end(self.disk, self.number, disk_len),
            Scheme::Mbr => mbr::last_end(self.disk, self.number, disk_len),
        }
    }

    /// Returns the minimum length in bytes of a disk on which the partition ends at `end`, as the
    /// last one.
    pub(crate) fn disk_len_for(&self, end: u64) -> Result<u64> {
        match self.scheme {
            Scheme::Gpt => gpt::disk_len_for(self.disk, end),
            Scheme::Apm => apm::disk_len_for(self.disk, self.number, end),
            Scheme::Mbr => Ok(end.next_multiple_of(self.disk.info().block.into())),
        }
    }

    /// Sets the byte range of the partition, on a disk that will have `disk_len` bytes and has at
    /// least as many now. After a crash, the map contains the old or the new end, or is completed
    /// by [`repair`](Self::repair) and repeating this.
    pub(crate) fn put(&self, disk_len: u64, range: Range<u64>) -> Result<()> {
        let Self { disk, number, .. } = *self;
        match self.scheme {
            Scheme::Gpt => gpt::change(
                disk,
                disk_len,
                &[gpt::Change {
                    number,
                    range: Some(range),
                    type_guid: None,
                }],
            ),
            Scheme::Apm => apm::change(disk, disk_len, number, &range),
            Scheme::Mbr => mbr::change(disk, number, &range),
        }
    }
}
