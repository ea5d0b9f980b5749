//! Where a partition can end, and making it end there, whatever kind of map it is in.

use std::ops::Range;

use super::{Scheme, apm, gpt, mbr};
use crate::Result;
use crate::device::BlockDevice;

/// A partition that is to end somewhere else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resizable<'a> {
    /// The disk with the map.
    pub(crate) disk: &'a dyn BlockDevice,
    /// What kind of map it is.
    pub(crate) scheme: Scheme,
    /// The partition's number.
    pub(crate) number: u32,
}

impl Resizable<'_> {
    /// Brings a map in order that an interrupted resize has left with one whole copy.
    pub(crate) fn mend(&self) -> Result<()> {
        match self.scheme {
            Scheme::Gpt => gpt::repair(self.disk).map(drop),
            Scheme::Apm | Scheme::Mbr => Ok(()),
        }
    }

    /// Where it can end on a disk of `disk_len` bytes.
    pub(crate) fn last_end(&self, disk_len: u64) -> Result<u64> {
        match self.scheme {
            Scheme::Gpt => gpt::last_end(self.disk, disk_len),
            Scheme::Apm => apm::last_end(self.disk, self.number, disk_len),
            Scheme::Mbr => mbr::last_end(self.disk, self.number, disk_len),
        }
    }

    /// Bytes of the shortest disk on which it ends at `end`, as the last.
    pub(crate) fn disk_len_for(&self, end: u64) -> Result<u64> {
        match self.scheme {
            Scheme::Gpt => gpt::disk_len_for(self.disk, end),
            Scheme::Apm => apm::disk_len_for(self.disk, self.number, end),
            Scheme::Mbr => Ok(end.next_multiple_of(self.disk.info().block.into())),
        }
    }

    /// Lets it have these bytes, on a disk that is going to have `disk_len`, and has them at least.
    /// A crash leaves a map that tells of the old or the new end, or one that [`mend`](Self::mend)
    /// and doing this again complete.
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
