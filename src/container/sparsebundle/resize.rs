//! Another size for the disk. Source: docs/formats/sparsebundle.md §9.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::bands::Bands;
use super::slot::BandState;
use super::{BANDS, BandIndex, Bundle, LAYER, MAPPED, check_len, plist};
use crate::Result;
use crate::store::Put;

impl Bundle {
    /// Grows or cuts the disk, durably. If it fails before the plists tell the new size the bundle
    /// is as it was; a failure afterwards leaves files past the end, which the next growth removes.
    pub(super) fn resize(&self, len: u64) -> Result<()> {
        self.bands.check_changeable()?;
        check_len(LAYER, len)?;
        let _one_at_a_time = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.bands.len();
        if len > now {
            // Growth trusts no leftovers: they would become part of the disk.
            self.bands.remove_beyond(now)?;
            self.write_size(len)?;
            self.bands.grow(len);
        } else if len < now {
            let before = self.bands.shut_out(len);
            if let Err(error) = self.write_size(len) {
                self.bands.grow(before);
                return Err(error);
            }
            self.bands.remove_beyond(len)?;
        }
        Ok(())
    }

    /// Tells the size in both plists, the copy first, each durable before the next step.
    fn write_size(&self, size: u64) -> Result<()> {
        let bands = &self.bands;
        let info = plist::Info {
            size,
            band_size: bands.band_size,
            version: bands.version,
        };
        let xml = info.to_xml();
        for name in [plist::BACKUP, plist::INFO] {
            let put = bands
                .store
                .put(name, xml.as_bytes(), Put::Replace)
                .and_then(|_| bands.store.sync());
            put.map_err(|error| bands.lose(error))?;
        }
        Ok(())
    }
}

impl Bands {
    /// Takes a new length that the plists already tell.
    pub(super) fn grow(&self, len: u64) {
        self.len.store(len, Ordering::SeqCst);
    }

    /// Shuts requests past `len` out and waits for those on their way. Returns the length before.
    pub(super) fn shut_out(&self, len: u64) -> u64 {
        let before = self.len.swap(len, Ordering::SeqCst);
        let first = len / self.band_size;
        for slot in self.cache.all() {
            if slot.index.0 >= first {
                drop(slot.exclusive());
            }
        }
        before
    }

    /// Removes what lies past the end of a disk of `len` bytes, durably: bands, and the tail of the
    /// last one's file.
    pub(super) fn remove_beyond(&self, len: u64) -> Result<()> {
        let count = self.count(len);
        let mut beyond = BTreeSet::new();
        for folder in [BANDS, MAPPED] {
            self.store.list(folder, &mut |entry| {
                beyond.extend(
                    BandIndex::from_name(folder, entry.name).filter(|index| index.0 >= count),
                );
                Ok(())
            })?;
        }
        for index in &beyond {
            let slot = self.slot(*index)?;
            self.remove(*index, &mut slot.exclusive())?;
        }
        let cut = match count.checked_sub(1).map(BandIndex) {
            Some(last) => self.cut_band(last, self.most(last, len))?,
            None => false,
        };
        if cut || !beyond.is_empty() {
            self.sync_names_now()?;
        }
        Ok(())
    }

    /// Cuts the file of a band to `most` bytes and the cipher block they end in, durably. `false`:
    /// it was no longer than that.
    fn cut_band(&self, index: BandIndex, most: u64) -> Result<bool> {
        let slot = self.slot(index)?;
        drop(self.opened(&slot)?);
        let mut state = slot.exclusive();
        let BandState::StoredBands(band) = &mut *state else {
            return Ok(false);
        };
        if band.len <= most {
            return Ok(false);
        }
        let stored = most.next_multiple_of(self.grain());
        let longer = band.len > stored;
        if longer {
            self.apply_map(index, band)?;
            band.cut(stored)?;
        }
        if !self.clear_beyond(index, band, most)? && !longer {
            return Ok(false);
        }
        band.file.flush().map_err(|error| self.lose(error))?;
        Ok(true)
    }
}
