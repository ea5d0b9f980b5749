//! Resizing: changes the size in the header; bands stay in place.

use super::layout::BandIndex;
use super::{SECTOR, SparseImage};
use crate::Result;
use crate::device::regions;
use crate::size::narrow;

impl SparseImage {
    /// Sets the length of the disk to `len` bytes and removes bands past its end. The caller must
    /// serialize calls.
    pub(super) fn resize(&self, len: u64) -> Result<()> {
        let now = self.table().len;
        if len < now {
            self.shrink(len)
        } else if len > now {
            self.grow(now, len)
        } else {
            Ok(())
        }
    }

    /// Shrinks the disk. The size is written first: after a crash the disk is shorter, and bands
    /// past its end are ignored.
    fn shrink(&self, len: u64) -> Result<()> {
        self.table_mut().len = len;
        self.drop_beyond(len);
        self.failed.record(self.write_size(len / SECTOR))?;
        self.failed
            .record(self.blank_end().and_then(|()| self.commit()))
    }

    /// Grows the disk. First removes, durably, the data past its end, which would become visible.
    fn grow(&self, now: u64, len: u64) -> Result<()> {
        debug_assert!(now < len);
        self.drop_leftovers();
        self.failed
            .record(self.blank_end().and_then(|()| self.commit()))?;
        self.failed.record(self.write_size(len / SECTOR))?;
        self.table_mut().len = len;
        Ok(())
    }

    /// Removes the bands stored past the end of the disk; durable after the next flush.
    pub(super) fn drop_leftovers(&self) {
        let beyond: Vec<BandIndex> = self.table().beyond().map(|(band, _)| band).collect();
        beyond.into_iter().for_each(|band| self.drop_band(band));
    }

    /// Removes the bands past the end of the disk that are all zeros; durable after the next flush.
    pub(super) fn drop_zeros_beyond(&self) -> Result<()> {
        let beyond: Vec<_> = self.table().beyond().collect();
        for (band, slot) in beyond {
            let place = self.table().slot_offset(slot);
            if regions::is_zero(&*self.file, place..place + self.band_size)? {
                self.drop_band(band);
            }
        }
        Ok(())
    }

    /// Removes the bands past `len` and waits for earlier requests to them.
    fn drop_beyond(&self, len: u64) {
        let cut: Vec<BandIndex> = {
            let table = self.table();
            let known = table
                .bands
                .keys()
                .chain(table.discarded.keys())
                .chain(table.pending.values());
            known
                .filter(|band| u64::from(band.0) >= len / self.band_size)
                .copied()
                .collect()
        };
        for band in cut {
            if self.table().is_visible(band) {
                drop(self.units.exclusive(u64::from(band.0))); // a part of it stays
            } else {
                self.drop_band(band);
            }
        }
    }

    /// Zeros the part of the last band past the end of the disk.
    fn blank_end(&self) -> Result<()> {
        let table = self.table();
        let within = table.len % self.band_size;
        let last = BandIndex(narrow(table.len / self.band_size));
        let Some(slot) = table.bands.get(&last).filter(|_| within > 0).copied() else {
            return Ok(());
        };
        let place = table.slot_range(slot, within..self.band_size);
        drop(table);
        regions::blank(&*self.file, place)
    }
}
