//! The bytes of a band's file: as they are, or cipher text. Source: docs/formats/sparsebundle.md
//! §4.
//!
//! In an encrypted bundle a missing band and what lies past the end of a band's file are plain
//! zeros; every block inside the file is cipher text, so a gap has to be filled with encrypted
//! zeros when the file grows. Block numbers start at 0 in every band.

use std::ops::Range;

use super::BandIndex;
use super::bands::{BandPart, Bands};
use super::slot::{BLOCK, Band, BandState, Slot};
use crate::Result;
use crate::crypt::Window;
use crate::device::{AfterDiscard, is_zero};

impl Bands {
    /// What the file of a band is a whole number of: a cipher block, 1 in a bundle that is not
    /// encrypted.
    pub(super) fn grain(&self) -> u64 {
        self.cipher.as_ref().map_or(1, |blocks| blocks.block())
    }

    /// Returns how long the file of a band may be on a disk of `len` bytes: the last cipher block
    /// may reach past the end.
    pub(super) fn most_stored(&self, index: BandIndex, len: u64) -> u64 {
        self.most(index, len).next_multiple_of(self.grain())
    }

    /// Returns how many bytes of a band's file of `len` bytes count: macOS reads no more than the
    /// band size and ignores the rest. Refuses a length that cannot be one.
    pub(super) fn check_stored(&self, len: u64) -> Result<u64, String> {
        let len = len.min(self.band_size);
        if !len.is_multiple_of(self.grain()) {
            return Err(format!(
                "expected whole cipher blocks of {} bytes, found {len} bytes",
                self.grain()
            ));
        }
        Ok(len)
    }

    /// Reads bytes at `at` of the band, which are in its file.
    pub(super) fn read_stored(
        &self,
        index: BandIndex,
        band: &Band,
        at: u64,
        out: &mut [u8],
    ) -> Result<()> {
        match &self.cipher {
            None => band.file.read_at(at, out),
            Some(blocks) => blocks.read(self.window(index, band), self.start(index) + at, out),
        }
    }

    /// Writes bytes at `at` of the band, where its file has room.
    pub(super) fn write_stored(
        &self,
        index: BandIndex,
        band: &Band,
        at: u64,
        bytes: &[u8],
    ) -> Result<()> {
        match &self.cipher {
            None => band.file.write_at(at, bytes),
            Some(blocks) => blocks.write(self.window(index, band), self.start(index) + at, bytes),
        }
    }

    /// Discards a part of the band's file: whole cipher blocks are punched, zeros are encrypted.
    pub(super) fn discard_stored(
        &self,
        index: BandIndex,
        band: &Band,
        within: Range<u64>,
        leave: AfterDiscard,
    ) -> Result<()> {
        let Some(blocks) = &self.cipher else {
            return band.file.discard(within, leave);
        };
        let start = self.start(index);
        match leave {
            AfterDiscard::Zeros => blocks.write_zeros(
                self.window(index, band),
                start + within.start..start + within.end,
            ),
            AfterDiscard::Any => {
                let whole = within.start.next_multiple_of(blocks.block())
                    ..within.end / blocks.block() * blocks.block();
                if whole.start < whole.end {
                    band.file.discard(whole, AfterDiscard::Any)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Grows the file of a band for `piece` and writes it, gaps filled, in one step while the band
    /// is locked. `false`: there is room by now, or somebody has to look again.
    pub(super) fn write_past_end(
        &self,
        slot: &Slot,
        piece: &BandPart,
        bytes: &[u8],
    ) -> Result<bool> {
        let mut state = slot.exclusive();
        self.check_not_cut(piece)?;
        if matches!(*state, BandState::Missing) {
            let band = Band::new(self.create_file(slot.index)?, 0, 0, None);
            let done = self.grow_and_write(slot.index, &band, piece, bytes);
            if let Ok(len) = done {
                *state = BandState::StoredBands(Band::new(band.file, len, len, None));
            } else {
                // Best effort: that there is no room is what the caller must hear of, and an empty
                // band means nothing.
                let _ = self.store.remove(&self.name(slot.index));
            }
            self.changed(slot);
            return done.map(|_| true);
        }
        let BandState::StoredBands(band) = &mut *state else {
            return Ok(false);
        };
        self.apply_map(slot.index, band)?;
        if piece.within.end <= band.len {
            return Ok(false);
        }
        let done = self.grow_and_write(slot.index, band, piece, bytes);
        if let Ok(len) = done {
            band.len = len;
            band.fill(len);
        } else {
            // What stays of it is not read: the band ends where it did.
            let _ = band.file.set_len(band.len, AfterDiscard::Any);
        }
        self.changed(slot);
        done.map(|_| true)
    }

    /// The new length of the file. `band` still has the old one.
    fn grow_and_write(
        &self,
        index: BandIndex,
        band: &Band,
        piece: &BandPart,
        bytes: &[u8],
    ) -> Result<u64> {
        let Some(blocks) = &self.cipher else {
            return Ok(band.len);
        };
        let (within, block) = (&piece.within, blocks.block());
        let len = within
            .end
            .next_multiple_of(block.max(BLOCK))
            .min(self.most_stored(index, self.len()));
        band.file.set_len(len, AfterDiscard::Zeros)?;
        // Around the blocks of the piece: what these hold beside it is zeros already, by the rule
        // for blank blocks.
        let (start, window) = (self.start(index), self.window(index, band));
        let written =
            (within.start / block * block).max(band.len)..within.end.next_multiple_of(block);
        blocks.write_zeros(window, start + band.len..start + written.start)?;
        blocks.write(window, start + within.start, bytes)?;
        blocks.write_zeros(window, start + written.end..start + len)?;
        Ok(len)
    }

    /// Makes what the last cipher block holds past the end of the disk zeros, for a growth to show.
    /// `false`: it is.
    pub(super) fn clear_beyond(&self, index: BandIndex, band: &Band, most: u64) -> Result<bool> {
        let Some(blocks) = &self.cipher else {
            return Ok(false);
        };
        let end = most.next_multiple_of(blocks.block()).min(band.len);
        if most >= end {
            return Ok(false);
        }
        let mut beyond = vec![0; (end - most) as usize];
        self.read_stored(index, band, most, &mut beyond)?;
        if is_zero(&beyond) {
            return Ok(false);
        }
        self.discard_stored(index, band, most..end, AfterDiscard::Zeros)?;
        Ok(true)
    }

    /// Where the band begins on the disk.
    fn start(&self, index: BandIndex) -> u64 {
        index.0 * self.band_size
    }

    fn window<'a>(&self, index: BandIndex, band: &'a Band) -> Window<'a> {
        let start = self.start(index);
        Window {
            file: &*band.file,
            at: 0,
            plain: start,
            numbered_from: start,
        }
    }

    /// Reads those bytes of `range` over `buf`, which has all of them as they are, that would be
    /// others if block numbers went on from band to band. `false`: there are none.
    pub(super) fn read_numbered_over_disk(
        &self,
        range: Range<u64>,
        buf: &mut [u8],
    ) -> Result<bool> {
        let Some(blocks) = &self.cipher else {
            return Ok(false);
        };
        let (mut rest, mut differs) = (buf, false);
        for piece in self.pieces(range) {
            let out;
            (out, rest) = rest.split_at_mut((piece.within.end - piece.within.start) as usize);
            let slot = self.slot(piece.index)?;
            let state = self.opened(&slot)?;
            let BandState::StoredBands(band) = &*state else {
                continue;
            };
            let start = self.start(piece.index);
            // Past the last number nothing was ever written.
            let has_number = (start + piece.within.end).div_ceil(blocks.block()) <= 1 << 32;
            if start > 0 && has_number && piece.within.end <= band.stored() {
                let window = Window {
                    numbered_from: 0,
                    ..self.window(piece.index, band)
                };
                blocks.read(window, start + piece.within.start, out)?;
                differs = true;
            }
        }
        Ok(differs)
    }
}
