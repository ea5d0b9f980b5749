//! Access to the bytes of a band's file, plain or encrypted. Source: docs/formats/sparsebundle.md
//! §4.
//!
//! In an encrypted bundle a missing band, and the range past the end of a band's file, read as
//! plain zeros. Every block inside the file is cipher text, so a gap has to be filled with
//! encrypted zeros when the file grows. Block numbers start at 0 in every band.
//!
//! A file that ends within a cipher block was truncated: that block and the rest of the band can be
//! neither read nor written. What is before it stays usable.

use std::ops::Range;

use super::super::{BandIndex, LAYER};
use super::BLOCK;
use super::slot::{Band, BandState, Slot};
use super::{BandPart, Bands};
use crate::crypt::CipherTextWindow;
use crate::device::{AfterDiscard, is_zero};
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// Describes a band whose file ends within the cipher block at byte `at`, of which it holds only `found` of
/// `grain` bytes.
pub(in super::super) fn truncated(at: u64, found: u64, grain: u64) -> String {
    format!(
        "byte {at}: truncated within a cipher block, of which {found} of {grain} bytes are left; the data \
         from there to the end of the band is lost"
    )
}

impl Bands {
    /// Returns the unit of the length of a band file, in bytes: the cipher block size, or 1 if the
    /// bundle is not encrypted.
    pub(in super::super) fn grain(&self) -> u64 {
        self.cipher.as_ref().map_or(1, |blocks| blocks.block())
    }

    /// Returns the maximum length of a band's file on a disk of `len` bytes: the last cipher block
    /// may extend past the end.
    pub(super) fn max_stored(&self, index: BandIndex, len: u64) -> u64 {
        self.most(index, len).next_multiple_of(self.grain())
    }

    /// Returns the used length of a band's file of `len` bytes: macOS reads no more than the band
    /// size and ignores the rest. The second number is the length of an incomplete cipher block
    /// after it, in bytes.
    pub(in super::super) fn split_stored(&self, len: u64) -> (u64, u64) {
        let len = len.min(self.band_size);
        let rest = len % self.grain();
        (len - rest, rest)
    }

    /// Returns the error for an access past the whole cipher blocks of a truncated band.
    pub(super) fn truncated(&self, index: BandIndex, band: &Band) -> Error {
        let message = truncated(band.len, band.incomplete, self.grain());
        Error::new(Kind::Corrupt, LAYER, message).named(self.name(index))
    }

    /// Reads bytes at `at` of the band, which must be within its file.
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

    /// Writes bytes at `at` of the band, which must be within its file.
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

    /// Discards a part of the band's file: punches whole cipher blocks, or writes encrypted zeros.
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

    /// Grows the file of a band to the end of `piece`, fills gaps, and writes, all under the
    /// exclusive lock. Returns false if the file is long enough by now or the band must be opened
    /// again; the caller then retries.
    pub(super) fn write_past_end(
        &self,
        slot: &Slot,
        piece: &BandPart,
        bytes: &[u8],
    ) -> Result<bool> {
        let mut state = slot.exclusive();
        self.check_not_cut(piece)?;
        if matches!(*state, BandState::Missing) {
            let band = Band::new(self.create_file(slot.index())?, 0, 0, None);
            let done = self.grow_and_write(slot.index(), &band, piece, bytes);
            if let Ok(len) = done {
                *state = BandState::StoredBands(Band::new(band.file, len, len, None));
            } else {
                // Best effort: the caller needs the first error, and an empty band is harmless.
                let _ = self.store.remove(&self.name(slot.index()));
            }
            self.changed(slot);
            return done.map(|_| true);
        }
        let BandState::StoredBands(band) = &mut *state else {
            return Ok(false);
        };
        self.apply_map(slot.index(), band)?;
        if piece.within.end <= band.len {
            return Ok(false);
        }
        let done = self.grow_and_write(slot.index(), band, piece, bytes);
        if let Ok(len) = done {
            band.len = len;
            band.fill(len);
        } else {
            // Best effort: the band's length is unchanged, so a longer tail is not read.
            let _ = band.file.set_len(band.len, AfterDiscard::Any);
        }
        self.changed(slot);
        done.map(|_| true)
    }

    /// Grows the file and writes `bytes`. Returns the new length; `band.len` is unchanged.
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
            .min(self.max_stored(index, self.len()));
        band.file.set_len(len, AfterDiscard::Zeros)?;
        // Only the blocks around those of the piece need zeros: the rest of the piece's own blocks
        // reads as zeros by the rule for blank blocks.
        let (start, window) = (self.start(index), self.window(index, band));
        let written =
            (within.start / block * block).max(band.len)..within.end.next_multiple_of(block);
        blocks.write_zeros(window, start + band.len..start + written.start)?;
        blocks.write(window, start + within.start, bytes)?;
        blocks.write_zeros(window, start + written.end..start + len)?;
        Ok(len)
    }

    /// Zeros the part of the last cipher block past the end of the disk, which a growth would
    /// expose. Returns false if it was zeros already.
    pub(super) fn clear_beyond(&self, index: BandIndex, band: &Band, most: u64) -> Result<bool> {
        let Some(blocks) = &self.cipher else {
            return Ok(false);
        };
        let end = most.next_multiple_of(blocks.block()).min(band.len);
        if most >= end {
            return Ok(false);
        }
        let mut beyond = vec![0; to_usize(end - most)];
        self.read_stored(index, band, most, &mut beyond)?;
        if is_zero(&beyond) {
            return Ok(false);
        }
        self.discard_stored(index, band, most..end, AfterDiscard::Zeros)?;
        Ok(true)
    }

    /// Returns the disk offset of a band, in bytes.
    fn start(&self, index: BandIndex) -> u64 {
        index.0 * self.band_size
    }

    fn window<'a>(&self, index: BandIndex, band: &'a Band) -> CipherTextWindow<'a> {
        CipherTextWindow {
            file: &*band.file,
            at: 0,
            start: self.start(index),
        }
    }
}
