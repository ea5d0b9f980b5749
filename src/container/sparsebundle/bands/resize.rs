//! Resizing of the disk. Source: docs/formats/sparsebundle.md §9.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::super::{BANDS, BandIndex, Bundle, LAYER, MAPPED, plist};
use super::Bands;
use super::slot::BandState;
use crate::Result;
use crate::container::check_len;
use crate::store::{Open, Put};

impl Bundle {
    /// Grows or truncates the disk, durably. If it fails before the plists contain the new size,
    /// the bundle is unchanged; a later failure leaves files past the end, which the next growth
    /// removes.
    pub(in super::super) fn resize(&self, len: u64) -> Result<()> {
        self.bands.check_changeable()?;
        check_len(LAYER, len)?;
        let _one_at_a_time = self.resizing.lock();
        let now = self.bands.len();
        self.check_lists()?;
        if len > now {
            // Removes files past the end first: they would become part of the disk.
            self.bands.remove_beyond(now)?;
            self.write_size(len, now)?;
            self.bands.grow(len);
        } else if len < now {
            let before = self.bands.shut_out(len);
            if let Err(error) = self.write_size(len, now) {
                self.bands.grow(before);
                return Err(error);
            }
            self.bands.remove_beyond(len)?;
        }
        Ok(())
    }

    /// Fails if a plist cannot be replaced, because it is a folder, a symbolic link or a special
    /// file: to be found before the first write.
    pub(crate) fn check_lists(&self) -> Result<()> {
        for name in [plist::INFO, plist::BACKUP] {
            let list = self.bands.store.open(name, Open::Read);
            list.map_err(|error| error.named(name))?;
        }
        Ok(())
    }

    /// Writes the size to both plists, the copy first, each durable before the next step. Until both
    /// have it, the copy holds the size before too, so that lists which differ are known to be those
    /// of an interrupted change.
    fn write_size(&self, size: u64, before: u64) -> Result<()> {
        let bands = &self.bands;
        let info = plist::Info {
            size,
            band_size: bands.band_size,
            version: bands.version,
        };
        let put = |name, xml: &str| {
            bands
                .store
                .put(name, xml.as_bytes(), Put::Replace)
                .and_then(|_| bands.store.sync())
        };
        let xml = info.to_xml();
        put(plist::BACKUP, &info.to_xml_while_resizing(before))
            .and_then(|()| put(plist::INFO, &xml))
            // Both have the new size, and the additional key means nothing any more.
            .and_then(|()| put(plist::BACKUP, &xml))
            .map_err(|error| bands.lose(error))
    }
}

impl Bands {
    /// Sets the length to one that the plists already contain.
    pub(super) fn grow(&self, len: u64) {
        self.len.store(len, Ordering::SeqCst);
    }

    /// Rejects new requests past `len` and waits for those in progress. Returns the previous
    /// length.
    pub(super) fn shut_out(&self, len: u64) -> u64 {
        let before = self.len.swap(len, Ordering::SeqCst);
        let first = len / self.band_size;
        for slot in self.cache.all() {
            if slot.index().0 >= first {
                drop(slot.exclusive());
            }
        }
        before
    }

    /// Removes all bands past the end of a disk of `len` bytes and truncates the file of the last
    /// one, durably.
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

    /// Truncates the file of a band to `most` bytes, rounded up to a cipher block, durably. Returns
    /// false if it was not longer.
    fn cut_band(&self, index: BandIndex, most: u64) -> Result<bool> {
        let slot = self.slot(index)?;
        drop(self.opened(&slot)?);
        let mut state = slot.exclusive();
        let BandState::StoredBands(band) = &mut *state else {
            return Ok(false);
        };
        let end = band.len + band.incomplete;
        if end <= most {
            return Ok(false);
        }
        let stored = most.next_multiple_of(self.grain());
        let longer = end > stored;
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
