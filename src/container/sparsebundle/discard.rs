//! Discarding: removes bands, punches holes in bands, and discards blocks that a map hides. Source:
//! docs/formats/sparsebundle.md §7, §9.

use std::ops::Range;

use super::bands::{BandPart, Bands};
use super::plist::Version;
use super::slot::{Band, BandState};
use super::{BandIndex, LAYER};
use crate::Result;
use crate::device::AfterDiscard;

impl Bands {
    pub(super) fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
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
            let range = piece.within.start..piece.within.end.min(band.stored());
            if range.is_empty() {
                return Ok(());
            }
            let whole = range.start == 0 && range.end == band.stored() && !self.has_more(band);
            if !whole && band.band_bitmap.is_none() {
                let done = self.discard_stored(slot.index, band, range, leave);
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
            return self.remove(slot.index, &mut state);
        }
        if piece.within.start >= end {
            return Ok(());
        }
        self.apply_map(slot.index, band)?;
        let done = self.discard_stored(slot.index, band, piece.within.start..end, leave);
        self.changed(&slot);
        done
    }

    /// Returns true if the band's file is longer than a band. The meaning of the excess is not
    /// known, so such a file is kept.
    fn has_more(&self, band: &Band) -> bool {
        band.len == self.band_size && band.file.info().len > self.band_size
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
}
