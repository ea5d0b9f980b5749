//! Where bytes of the disk are in the file, and how they get there.
//!
//! A request is cut at the borders of bands. Each piece holds its band's lock alone: shared while
//! the band stays where it is, exclusively to give it a slot or to take it away.

use std::ops::{Bound, Range};
use std::sync::PoisonError;

use super::layout::{BandIndex, Label, Slot};
use super::{LAYER, SECTOR, SparseImage};
use crate::container::Placed;
use crate::device::{AfterDiscard, Extent, ExtentKind, FileRange, is_zero, regions};
use crate::{Error, Result};

/// The file grows in steps of this many bytes; a flush cuts off what was not used.
const GROWTH: u64 = 16 << 20;

/// Where a piece of a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MappedRun {
    /// Here in the file.
    Stored(Range<u64>),
    /// Nowhere: zeros.
    Hole,
}

/// The part of a request that falls into one band.
#[derive(Debug, Clone)]
struct BandPart {
    band: BandIndex,
    /// On the disk.
    start: u64,
    /// In the band.
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
    /// The first piece of `range`, which is not empty.
    fn piece(&self, range: &Range<u64>) -> BandPart {
        let within = range.start % self.band_size;
        let end = self.band_size.min(within + (range.end - range.start));
        BandPart {
            band: self.band_at(range.start),
            start: range.start,
            within: within..end,
        }
    }

    /// The band of a byte of the disk. No disk has more bands than can be numbered.
    fn band_at(&self, offset: u64) -> BandIndex {
        BandIndex((offset / self.band_size) as u32)
    }

    /// Where `piece` is. The caller holds its band, so that it stays there; the length is checked
    /// again, because it may have changed since the request was let in.
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
            Some(slot) => MappedRun::Stored(table.place_of(*slot, piece.within.clone())),
            None => MappedRun::Hole,
        })
    }

    /// The file ends within the band: it was cut off by somebody.
    fn check_stored(&self, piece: &BandPart, place: &Range<u64>) -> Result<()> {
        let file_len = self.file.info().len;
        if place.end > file_len {
            let lost = format!(
                "the file ends at byte {file_len}, within band {}",
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
            let (part, tail) = rest.split_at_mut(piece.len() as usize);
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
            let (part, tail) = rest.split_at(piece.len() as usize);
            if !self.write_in_place(&piece, part)? {
                self.write_first(&piece, part)?;
            }
            (at, rest) = (at + piece.len(), tail);
        }
        Ok(())
    }

    /// Writes a piece of a band that is stored. `false`: it is not.
    fn write_in_place(&self, piece: &BandPart, bytes: &[u8]) -> Result<bool> {
        let _held = self.units.shared(piece.unit());
        let MappedRun::Stored(place) = self.locate(piece)? else {
            return Ok(false);
        };
        self.file.write_at(place.start, bytes)?;
        Ok(true)
    }

    /// Writes a piece of a band that is not stored, as far as was known a moment ago.
    fn write_first(&self, piece: &BandPart, bytes: &[u8]) -> Result<()> {
        let _alone = self.units.exclusive(piece.unit());
        if let MappedRun::Stored(place) = self.locate(piece)? {
            return self.file.write_at(place.start, bytes);
        }
        if is_zero(bytes) {
            return Ok(());
        }
        let gone = self.table().gone.get(&piece.band).copied();
        match gone {
            Some(slot) => self.revive(piece, slot, bytes),
            None => self.add(piece, bytes),
        }
    }

    /// Takes a discarded band back whose slot is still labelled with it. Every sector of which
    /// `bytes` are not all becomes zeros first: none may be seen that is half as before the discard
    /// and half as after.
    fn revive(&self, piece: &BandPart, slot: Slot, bytes: &[u8]) -> Result<()> {
        let place = self.table().place(slot);
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
        table.gone.remove(&piece.band);
        table.bands.insert(piece.band, slot);
        written
    }

    /// Gives a band a slot at the end. The label is told only when the place holds what it should:
    /// a flush waits for that.
    fn add(&self, piece: &BandPart, bytes: &[u8]) -> Result<()> {
        let slot = self.reserve(piece)?;
        let place = self.table().place(slot);
        let written = self
            .blank_around(piece, place)
            .map(|()| self.file.write_at(place + piece.within.start, bytes));
        let mut table = self.table_mut();
        table.pending.remove(&slot);
        match written {
            // A failed write leaves anything in its range, as on every disk, and zeros around it.
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

    /// Makes a new place read as zeros except where `piece` is to be written.
    fn blank_around(&self, piece: &BandPart, place: u64) -> Result<()> {
        regions::blank(&*self.file, place..place + piece.within.start)?;
        regions::blank(
            &*self.file,
            place + piece.within.end..place + self.band_size,
        )
    }

    /// Hands out the next slot, its place within the file.
    fn reserve(&self, piece: &BandPart) -> Result<Slot> {
        let _tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Makes the file reach `end`. The caller holds the tail.
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

    /// The first piece of `range` whose band is stored.
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

    /// Takes a whole band away. Its place stays as it is until no label tells of it.
    pub(super) fn drop_band(&self, band: BandIndex) {
        let _alone = self.units.exclusive(u64::from(band.0));
        self.unlist(band);
    }

    /// The same, and gives its storage back at once: whoever writes it again before the next flush
    /// need not take away what was there.
    fn discard_band(&self, band: BandIndex) -> Result<()> {
        let _alone = self.units.exclusive(u64::from(band.0));
        let Some(slot) = self.unlist(band) else {
            return Ok(());
        };
        let place = self.table().place(slot);
        let end = self.file.info().len.min(place + self.band_size); // somebody may have cut it off
        if place < end {
            self.file.discard(place..end, AfterDiscard::Any)
        } else {
            Ok(())
        }
    }

    /// The caller holds the band alone.
    fn unlist(&self, band: BandIndex) -> Option<Slot> {
        let mut table = self.table_mut();
        let slot = table.bands.remove(&band)?;
        table.gone.insert(band, slot);
        Some(slot)
    }

    fn drop_part(&self, piece: &BandPart, leave: AfterDiscard) -> Result<()> {
        let _held = self.units.shared(piece.unit());
        match self.locate(piece)? {
            MappedRun::Stored(place) => self.file.discard(place, leave),
            MappedRun::Hole => Ok(()),
        }
    }

    /// Where in the file the front of `range`, which is not empty, is stored.
    pub fn place_at(&self, range: Range<u64>) -> Result<Placed> {
        let piece = self.piece(&range);
        let _held = self.units.shared(piece.unit());
        Ok(match self.locate(&piece)? {
            MappedRun::Hole => Placed {
                at: None,
                len: self.hole_at(piece.band, &range),
            },
            MappedRun::Stored(place) => Placed {
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
                }) // reading it tells what is wrong
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

    /// Returns how far the hole at the start of `range`, in `band`, reaches.
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
            MappedRun::Stored(place) if place.end <= self.file.info().len => {
                Ok(self.file.file_range(place)?.map(|lent| lent.holding(held)))
            }
            _ => Ok(None),
        }
    }
}
