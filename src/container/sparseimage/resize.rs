//! Growing and shrinking: the size in the header changes, bands stay where they are.

use super::layout::BandIndex;
use super::{SECTOR, SparseImage};
use crate::Result;
use crate::device::regions;

impl SparseImage {
    /// Gives the disk `len` bytes. The caller lets one in at a time. Bands past the end of the disk
    /// are removed.
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

    /// The size first: whoever opens the image midway sees a shorter disk with bands past its end,
    /// which count for nothing.
    fn shrink(&self, len: u64) -> Result<()> {
        self.table_mut().len = len;
        self.drop_beyond(len);
        self.failed.note(self.write_size(len / SECTOR))?;
        self.failed
            .note(self.blank_end().and_then(|()| self.commit()))
    }

    /// What the file holds past the end of the disk would come back: it goes first, durably.
    fn grow(&self, now: u64, len: u64) -> Result<()> {
        debug_assert!(now < len);
        self.drop_leftovers();
        self.failed
            .note(self.blank_end().and_then(|()| self.commit()))?;
        self.failed.note(self.write_size(len / SECTOR))?;
        self.table_mut().len = len;
        Ok(())
    }

    /// Removes the bands that are stored past the end of the disk; the next flush makes that
    /// durable.
    pub(super) fn drop_leftovers(&self) {
        let beyond: Vec<BandIndex> = self.table().beyond().map(|(band, _)| band).collect();
        beyond.into_iter().for_each(|band| self.drop_band(band));
    }

    /// Takes the bands past `len` away and waits for the requests that were let in before.
    fn drop_beyond(&self, len: u64) {
        let cut: Vec<BandIndex> = {
            let table = self.table();
            let known = table
                .bands
                .keys()
                .chain(table.gone.keys())
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

    /// Makes zeros of what the last band holds past the end of the disk.
    fn blank_end(&self) -> Result<()> {
        let table = self.table();
        let within = table.len % self.band_size;
        let last = BandIndex((table.len / self.band_size) as u32);
        let Some(slot) = table.bands.get(&last).filter(|_| within > 0).copied() else {
            return Ok(());
        };
        let place = table.place_of(slot, within..self.band_size);
        drop(table);
        regions::blank(&*self.file, place)
    }
}
