//! Discarding: removes bands, punches holes in bands, and discards blocks that a map hides. Source:
//! docs/formats/sparsebundle.md §7, §9.

use std::ops::Range;

use super::super::plist::Version;
use super::super::{BandIndex, LAYER};
use super::slot::{Band, BandState};
use super::{BandPart, Bands};
use crate::Result;
use crate::device::{AfterDiscard, BlockDeviceExt, ExtentKind};

impl Bands {
    pub(in super::super) fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        self.info().check_range(LAYER, &range)?;
        self.pieces(range)
            .try_for_each(|piece| self.discard_piece(&piece, leave))
    }

    fn discard_piece(&self, piece: &BandPart, leave: AfterDiscard) -> Result<()> {
        let slot = self.slot(piece.index)?;
        {
            let state = self.opened(&slot)?;
            self.check_not_cut(piece)?;
            let BandState::StoredBands(band) = &*state else {
                return Ok(());
            };
            if band.incomplete > 0 && piece.within.end > band.len && leave == AfterDiscard::Zeros {
                return Err(self.truncated(slot.index(), band));
            }
            let range = piece.within.start..piece.within.end.min(band.stored());
            if range.is_empty() {
                return Ok(());
            }
            let whole = range.start == 0 && range.end == band.stored() && !self.has_more(band);
            if !whole && band.band_bitmap.is_none() {
                let done = self.discard_stored(slot.index(), band, range, leave);
                self.changed(&slot);
                return done;
            }
            if !whole && leave == AfterDiscard::Any {
                return Ok(()); // to settle the map may cost a write
            }
        }
        let mut state = slot.exclusive();
        self.check_not_cut(piece)?;
        let BandState::StoredBands(band) = &mut *state else {
            return Ok(());
        };
        // The band may have grown since the last check.
        let end = piece.within.end.min(band.stored());
        if piece.within.start == 0 && end == band.stored() && !self.has_more(band) {
            return self.remove(slot.index(), &mut state);
        }
        if piece.within.start >= end {
            return Ok(());
        }
        self.apply_map(slot.index(), band)?;
        let done = self.discard_stored(slot.index(), band, piece.within.start..end, leave);
        self.changed(&slot);
        done
    }

    /// Returns true if the band's file is longer than a band, or ends with an incomplete cipher block.
    /// The meaning of the excess is not known, so such a file is kept.
    fn has_more(&self, band: &Band) -> bool {
        band.incomplete > 0 || (band.len == self.band_size && band.file.info().len > self.band_size)
    }

    /// Removes a band, with any contents.
    pub(in super::super) fn remove_band(&self, index: BandIndex) -> Result<()> {
        let slot = self.slot(index)?;
        self.remove(index, &mut slot.exclusive())
    }

    /// Removes a band, unless the disk has been truncated before it.
    pub(in super::super) fn remove_band_of_disk(&self, index: BandIndex) -> Result<()> {
        let slot = self.slot(index)?;
        let mut state = slot.exclusive();
        if self.most(index, self.len()) == 0 {
            return Ok(());
        }
        self.remove(index, &mut state)
    }

    /// Removes a band's files; `state` is the band's.
    pub(super) fn remove(&self, index: BandIndex, state: &mut BandState) -> Result<()> {
        self.store.remove(&self.name(index))?;
        *state = BandState::Missing;
        self.names_changed();
        if self.version == Version::Two {
            // The band first: without its map it would expose the blocks that the map hides.
            self.sync_names_now()?;
            self.store.remove(&index.mapped_name())?;
            self.names_changed();
        }
        Ok(())
    }

    /// Zeros the blocks that a map of a version 2 bundle hides, then removes the map, so that it
    /// cannot hide later writes. Called before the first change of the band. Source:
    /// docs/formats/sparsebundle.md §7.
    pub(super) fn apply_map(&self, index: BandIndex, band: &mut Band) -> Result<()> {
        let Some(band_bitmap) = &band.band_bitmap else {
            return Ok(());
        };
        let mut at = 0;
        while at < band.len {
            let (unmapped, len) = band_bitmap.run_at(at);
            let end = at.saturating_add(len).min(band.len);
            if unmapped {
                self.discard_stored(index, band, at..end, AfterDiscard::Zeros)?;
            }
            at = end;
        }
        band.file.flush().map_err(|error| self.lose(error))?;
        self.store.remove(&index.mapped_name())?;
        self.sync_names_now()?;
        band.band_bitmap = None;
        Ok(())
    }

    /// Returns the allocated bytes of `range` of the disk, which is within one band. Counts only
    /// whole blocks of the host.
    pub(in super::super) fn allocated_in(&self, range: Range<u64>) -> Result<u64> {
        let Some(piece) = self.pieces(range).next() else {
            return Ok(0);
        };
        let slot = self.slot(piece.index)?;
        let state = self.opened(&slot)?;
        let BandState::StoredBands(band) = &*state else {
            return Ok(0);
        };
        let grain = band.file.info().discard.max(1);
        let len = band.file.info().len;
        let end = if piece.within.end >= len {
            len
        } else {
            piece.within.end / grain * grain
        };
        let whole = piece.within.start.next_multiple_of(grain)..end;
        if whole.is_empty() {
            return Ok(0);
        }
        let mut allocated = 0;
        for extent in band.file.extents(whole) {
            let (range, kind) = extent?;
            allocated += if kind == ExtentKind::Data {
                range.end - range.start
            } else {
                0
            };
        }
        Ok(allocated)
    }
}
