//! Reads and writes of the disk through the bands of the file.
//!
//! A request is split at band boundaries. Each piece holds only its band's lock: shared while the
//! band stays in its slot, exclusive to assign or free the slot.

use std::ops::{Bound, Range};

use super::layout::{BandIndex, Label, Slot};
use super::{LAYER, SECTOR, SparseImage};
use crate::container::FileMapping;
use crate::device::{AfterDiscard, Extent, ExtentKind, FileRange, is_zero, regions};
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// The file grows in steps of this many bytes; a flush truncates the unused tail.
const GROWTH: u64 = 16 << 20;

/// Storage of a piece of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MappedRun {
    /// Stored in this range of the file.
    Stored(Range<u64>),
    /// Not stored: zeros.
    Hole,
}

/// The part of a request within one band.
#[derive(Debug, Clone)]
struct BandPart {
    band: BandIndex,
    /// Disk offset.
    start: u64,
    /// Byte range within the band.
    within: Range<u64>,
}

impl BandPart {
    fn len(&self) -> u64 {
        self.within.end - self.within.start
    }

    fn unit(&self) -> u64 {
        u64::from(self.band.0)
    }
}

impl SparseImage {
    /// Returns the first piece of `range`, which must not be empty.
    fn piece(&self, range: &Range<u64>) -> BandPart {
        let within = range.start % self.band_size;
        let end = self.band_size.min(within + (range.end - range.start));
        BandPart {
            band: self.band_at(range.start),
            start: range.start,
            within: within..end,
        }
    }

    /// Returns the band at byte `offset` of the disk. The band count of a disk always fits.
    fn band_at(&self, offset: u64) -> BandIndex {
        BandIndex(narrow(offset / self.band_size))
    }

    /// Returns the storage of `piece`. The caller must hold its band, so that it is not moved.
    /// Checks the length again, because it may have changed since the request began.
    fn locate(&self, piece: &BandPart) -> Result<MappedRun> {
        let table = self.table();
        if piece.start + piece.len() > table.len {
            return Err(Error::out_of_range(
                LAYER,
                piece.start,
                piece.len(),
                table.len,
            ));
        }
        Ok(match table.bands.get(&piece.band) {
            Some(slot) => MappedRun::Stored(table.slot_range(*slot, piece.within.clone())),
            None => MappedRun::Hole,
        })
    }

    /// Fails if the file ends within the band, because it was truncated.
    fn check_stored(&self, piece: &BandPart, place: &Range<u64>) -> Result<()> {
        let file_len = self.file.info().len;
        if place.end > file_len {
            let lost = format!(
                "the file is truncated: it ends at byte {file_len}, within band {}",
                piece.band.0
            );
            return Err(Error::corrupt(LAYER, place.start, lost));
        }
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let piece = self.piece(&(at..end));
            let (part, tail) = rest.split_at_mut(to_usize(piece.len()));
            let _held = self.units.shared(piece.unit());
            match self.locate(&piece)? {
                MappedRun::Hole => part.fill(0),
                MappedRun::Stored(place) => {
                    self.check_stored(&piece, &place)?;
                    self.file.read_at(place.start, part)?;
                }
            }
            (at, rest) = (at + piece.len(), tail);
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let (mut at, mut rest) = (offset, buf);
        while at < end {
            let piece = self.piece(&(at..end));
            let (part, tail) = rest.split_at(to_usize(piece.len()));
            if !self.write_in_place(&piece, part)? {
                self.write_first(&piece, part)?;
            }
            (at, rest) = (at + piece.len(), tail);
        }
        Ok(())
    }

    /// Writes a piece of a stored band; returns false if the band is not stored.
    fn write_in_place(&self, piece: &BandPart, bytes: &[u8]) -> Result<bool> {
        let _held = self.units.shared(piece.unit());
        let MappedRun::Stored(place) = self.locate(piece)? else {
            return Ok(false);
        };
        self.file.write_at(place.start, bytes)?;
        Ok(true)
    }

    /// Writes a piece of a band that was not stored before.
    fn write_first(&self, piece: &BandPart, bytes: &[u8]) -> Result<()> {
        let _alone = self.units.exclusive(piece.unit());
        if let MappedRun::Stored(place) = self.locate(piece)? {
            return self.file.write_at(place.start, bytes);
        }
        if is_zero(bytes) {
            return Ok(());
        }
        let discarded = self.table().discarded.get(&piece.band).copied();
        match discarded {
            Some(slot) => self.reuse_slot(piece, slot, bytes),
            None => self.add(piece, bytes),
        }
    }

    /// Restores a discarded band whose slot still has its label. First zeros every sector that
    /// `bytes` does not cover completely, so that no sector is a mix of data before and after the
    /// discard.
    fn reuse_slot(&self, piece: &BandPart, slot: Slot, bytes: &[u8]) -> Result<()> {
        let place = self.table().slot_offset(slot);
        regions::blank(
            &*self.file,
            place..place + piece.within.start.next_multiple_of(SECTOR),
        )?;
        regions::blank(
            &*self.file,
            place + piece.within.end / SECTOR * SECTOR..place + self.band_size,
        )?;
        let written = self.file.write_at(place + piece.within.start, bytes);
        let mut table = self.table_mut();
        table.discarded.remove(&piece.band);
        table.bands.insert(piece.band, slot);
        written
    }

    /// Assigns a slot at the end to a band. The label is set only after the data is written; a
    /// flush waits for that.
    fn add(&self, piece: &BandPart, bytes: &[u8]) -> Result<()> {
        let slot = self.reserve(piece)?;
        let place = self.table().slot_offset(slot);
        let written = self
            .blank_around(piece, place)
            .map(|()| self.file.write_at(place + piece.within.start, bytes));
        let mut table = self.table_mut();
        table.pending.remove(&slot);
        match written {
            // A failed write leaves undefined data in its range, as on any disk, and zeros around
            // it.
            Ok(written) => {
                table.slots[slot.0 as usize] = Label::of(piece.band);
                table.bands.insert(piece.band, slot);
                written
            }
            Err(error) => {
                table.spare.insert(slot);
                Err(error)
            }
        }
    }

    /// Makes a new slot read as zeros except for the range of `piece`.
    fn blank_around(&self, piece: &BandPart, place: u64) -> Result<()> {
        regions::blank(&*self.file, place..place + piece.within.start)?;
        regions::blank(
            &*self.file,
            place + piece.within.end..place + self.band_size,
        )
    }

    /// Allocates the next slot and extends the file to include it.
    fn reserve(&self, piece: &BandPart) -> Result<Slot> {
        let _tail = self.tail.lock();
        let next = self.table().next_slot()?;
        self.extend_to(next.end)?;
        let mut table = self.table_mut();
        if piece.start + piece.len() > table.len {
            return Err(Error::out_of_range(
                LAYER,
                piece.start,
                piece.len(),
                table.len,
            ));
        }
        table.push(&next, Label::NONE);
        table.pending.insert(next.slot, piece.band);
        Ok(next.slot)
    }

    /// Extends the file to at least `end` bytes. The caller must hold the tail lock.
    pub(super) fn extend_to(&self, end: u64) -> Result<()> {
        let now = self.file.info().len;
        if end <= now {
            return Ok(());
        }
        let ahead = end.max(now.saturating_add(GROWTH));
        match self.file.set_len(ahead, AfterDiscard::Any) {
            Err(_) if ahead > end => self.file.set_len(end, AfterDiscard::Any),
            grown => grown,
        }
    }

    pub(super) fn drop_range(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        let mut at = range.start;
        while let Some(piece) = self.next_stored(at..range.end) {
            at = piece.start + piece.len();
            let to_the_end = piece.within.end == self.band_size || at == self.table().len;
            if piece.within.start == 0 && to_the_end {
                self.discard_band(piece.band)?;
            } else {
                self.drop_part(&piece, leave)?;
            }
        }
        Ok(())
    }

    /// Returns the first piece of `range` whose band is stored.
    fn next_stored(&self, range: Range<u64>) -> Option<BandPart> {
        if range.is_empty() {
            return None;
        }
        let next = {
            let table = self.table();
            table
                .bands
                .range(self.band_at(range.start)..)
                .next()
                .map(|(band, _)| table.start_of(*band))?
        };
        (next < range.end).then(|| self.piece(&(next.max(range.start)..range.end)))
    }

    /// Removes a whole band. Its space is reused only after no label on disk refers to it.
    pub(super) fn drop_band(&self, band: BandIndex) {
        let _alone = self.units.exclusive(u64::from(band.0));
        self.unlist(band);
    }

    /// Removes a whole band and discards its storage immediately, so that a rewrite before the next
    /// flush need not clear old data.
    fn discard_band(&self, band: BandIndex) -> Result<()> {
        let _alone = self.units.exclusive(u64::from(band.0));
        let Some(slot) = self.unlist(band) else {
            return Ok(());
        };
        let place = self.table().slot_offset(slot);
        let end = self.file.info().len.min(place + self.band_size); // another program may have truncated it
        if place < end {
            self.file.discard(place..end, AfterDiscard::Any)
        } else {
            Ok(())
        }
    }

    /// Removes a band from the index. The caller must hold its exclusive lock.
    fn unlist(&self, band: BandIndex) -> Option<Slot> {
        let mut table = self.table_mut();
        let slot = table.bands.remove(&band)?;
        table.discarded.insert(band, slot);
        Some(slot)
    }

    fn drop_part(&self, piece: &BandPart, leave: AfterDiscard) -> Result<()> {
        let _held = self.units.shared(piece.unit());
        match self.locate(piece)? {
            MappedRun::Stored(place) => self.file.discard(place, leave),
            MappedRun::Hole => Ok(()),
        }
    }

    /// Returns the file offset of the start of `range`, which must not be empty, and the length of
    /// the run.
    pub(crate) fn place_at(&self, range: Range<u64>) -> Result<FileMapping> {
        let piece = self.piece(&range);
        let _held = self.units.shared(piece.unit());
        Ok(match self.locate(&piece)? {
            MappedRun::Hole => FileMapping {
                at: None,
                len: self.hole_at(piece.band, &range),
            },
            MappedRun::Stored(place) => FileMapping {
                at: Some(place.start),
                len: piece.len(),
            },
        })
    }

    pub(super) fn extent(&self, range: Range<u64>) -> Result<Extent> {
        let piece = self.piece(&range);
        let _held = self.units.shared(piece.unit());
        match self.locate(&piece)? {
            MappedRun::Hole => Ok(Extent {
                kind: ExtentKind::Hole,
                len: self.hole_at(piece.band, &range),
            }),
            MappedRun::Stored(place) if place.end > self.file.info().len => {
                Ok(Extent {
                    kind: ExtentKind::Data,
                    len: piece.len(),
                }) // the read reports the damage
            }
            MappedRun::Stored(place) => {
                let below = self.file.extent_at(place)?;
                let kind = if below.kind == ExtentKind::Data {
                    ExtentKind::Data
                } else {
                    ExtentKind::Zero
                };
                Ok(Extent { kind, ..below })
            }
        }
    }

    /// Returns the length of the hole at the start of `range`, in `band`.
    fn hole_at(&self, band: BandIndex, range: &Range<u64>) -> u64 {
        let after = (Bound::Excluded(band), Bound::Unbounded);
        let table = self.table();
        let next = table
            .bands
            .range(after)
            .next()
            .map(|(next, _)| table.start_of(*next));
        next.map_or(range.end, |next| next.min(range.end)) - range.start
    }

    pub(super) fn file_range_of_band(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        if range.is_empty() {
            return Ok(None);
        }
        let piece = self.piece(&range);
        let held = self.units.pinned(piece.unit());
        match self.locate(&piece)? {
            MappedRun::Stored(place) if place.end <= self.file.info().len => Ok(self
                .file
                .file_range(place)?
                .map(|file_range| file_range.holding(held))),
            _ => Ok(None),
        }
    }
}
