//! UDSP, the sparse image (`.sparseimage`): one file of bands in the order of their first writes,
//! with an index.
//!
//! * [`layout`]: the on-disk structures of the index.
//! * [`table`]: the index in memory; [`load`] loads and validates it.
//! * [`bands`]: reads and writes of the disk.
//! * [`commit`]: flush; moving the last bands into gaps and truncating the file, safe against power
//!   failures.
//! * [`check`](mod@check): consistency check.
//! * [`resize`]: growing and shrinking. [`leftovers`]: cleanup after an interrupted change.
//!
//! Not recorded is which parts of a band were written: the format has no room for it.

mod bands;
mod check;
mod commit;
mod layout;
mod leftovers;
mod load;
mod repair;
mod resize;
mod table;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zerocopy::IntoBytes;

use self::layout::{
    BandIndex, HeaderPrefix, Label, MAX_BANDS_OF_DISK, MAX_SECTORS_PER_BAND, NODE, Slot,
};
use self::table::{MAX_SLOTS, Table};
use super::{BandSizes, Orphan, SECTOR, check_len};
use crate::device::units::UnitLocks;
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, FileRange, Info, failed::FailureFlag, regions,
};
use crate::error::Place;
use crate::problem::Findings;
use crate::size::narrow;
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, Result};

pub use self::check::check;
pub use self::repair::repair;

const LAYER: &str = "sparse image";

/// A disk in a sparse image file.
#[derive(Debug)]
pub struct SparseImage {
    file: Arc<dyn BlockDevice>,
    access: Access,
    band_size: u64,
    /// Never held during I/O.
    table: RwLock<Table>,
    /// Locks of the bands: shared to read and write in place, exclusive to allocate, move or remove
    /// a band.
    units: Arc<UnitLocks>,
    /// Held to change the length of the file and to allocate slots.
    tail: Mutex<()>,
    /// Serializes flushes and changes of the size: a second flush must not return before the first
    /// is done.
    flushing: Mutex<()>,
    /// Slots whose labels in the file an interrupted change has left; removed before the first
    /// change.
    superseded: Mutex<Vec<Slot>>,
    /// True if none are left.
    is_settled: AtomicBool,
    failed: FailureFlag,
}

/// Parameters of a new image.
#[derive(Debug, Clone, Copy)]
pub struct SparseImageOptions {
    /// Length of the disk in bytes, a multiple of 512, not zero.
    pub len: u64,
    /// Band size in bytes, a multiple of 512 up to 8 GiB. `None`: [`default_band_size`].
    pub band_size: Option<u64>,
}

/// Space usage of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Band size in bytes.
    pub band_size: u64,
    /// Number of stored bands.
    pub bands: u64,
    /// Number of slots of discarded bands that are not reused yet.
    pub unused: u64,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Number of index nodes; the first holds 1008 bands, every other 1010.
    pub nodes: u64,
}

/// Returns one mebibyte, as Apple does, or more for a disk that would have more bands than one
/// image can store.
pub fn default_band_size(len: u64) -> u64 {
    let most = u64::from(MAX_SECTORS_PER_BAND) * SECTOR;
    len.div_ceil(MAX_SLOTS as u64)
        .checked_next_power_of_two()
        .unwrap_or(most)
        .clamp(1 << 20, most)
}

/// Returns true if `start` begins a sparse image.
pub fn probe(start: &[u8]) -> bool {
    start.starts_with(&layout::MAGIC)
}

impl SparseImage {
    /// Initializes `file`, which must be empty, as a blank image.
    pub fn create(file: Arc<dyn BlockDevice>, options: &SparseImageOptions) -> Result<Self> {
        let band_size = options
            .band_size
            .unwrap_or_else(|| default_band_size(options.len));
        let sectors_per_band = check_geometry(band_size, options.len)?;
        if file.info().len != 0 {
            let taken = format!(
                "the file holds {} bytes already, expected an empty one",
                file.info().len
            );
            return Err(Error::conflict(LAYER, taken));
        }
        file.set_len(NODE, AfterDiscard::Zeros)?;
        file.write_at(
            0,
            HeaderPrefix::blank(sectors_per_band, options.len / SECTOR).as_bytes(),
        )?;
        file.flush()?;
        Ok(Self::over(file, Table::blank(band_size, options.len)))
    }

    /// Opens the image in `file`; read-only if the file is. Leftovers of an interrupted change are
    /// removed by the first change or flush. [Orphans](Self::orphans) stay until they are removed.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut loaded = load::load(&*file, &mut Findings::Open)?;
        load::find_orphans(&*file, &mut loaded.table)?;
        let superseded = leftovers::separate(&*file, &mut loaded)?;
        if file.info().access == Access::ReadWrite {
            leftovers::recover(&*file, &mut loaded)?;
        }
        let mut image = Self::over(file, loaded.table);
        image.is_settled = superseded.is_empty().into();
        image.superseded = Mutex::new(superseded);
        Ok(image)
    }

    fn over(file: Arc<dyn BlockDevice>, table: Table) -> Self {
        Self {
            access: file.info().access,
            file,
            band_size: table.band_size,
            table: RwLock::new(table),
            units: Arc::default(),
            tail: Mutex::default(),
            flushing: Mutex::default(),
            superseded: Mutex::default(),
            is_settled: true.into(),
            failed: FailureFlag::default(),
        }
    }

    /// Returns the band size in bytes.
    pub fn band_size(&self) -> u64 {
        self.band_size
    }

    /// Returns the space usage.
    pub fn usage(&self) -> Usage {
        let table = self.table();
        let beyond = table.beyond().count();
        Usage {
            band_size: self.band_size,
            bands: (table.bands.len() - beyond) as u64,
            unused: (table.discarded.len() + table.spare.len()) as u64,
            file_len: self.file.info().len,
            nodes: table.nodes.len() as u64,
        }
    }

    /// Finds the stored data that belongs to no band of the disk: in slots without a label, in
    /// bands past the end of the disk, and after the last band.
    pub fn orphans(&self) -> Result<Vec<Orphan>> {
        // Copied: the table must not be locked during the reads below.
        let (mut slots, end) = {
            let table = self.table();
            let unlabeled = table.orphans.iter().map(|slot| (*slot, None));
            let beyond = table.beyond().map(|(band, slot)| (slot, Some(band)));
            let slots: Vec<_> = unlabeled.chain(beyond).collect();
            (slots, table.end())
        };
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        let mut orphans = Vec::new();
        for (slot, band) in slots {
            let place = self.table().slot_offset(slot);
            if regions::is_zero(&*self.file, place..place + self.band_size)? {
                continue;
            }
            let what = match band {
                Some(band) => format!("band {} is past the end of the disk", band.0),
                None => format!("slot {} belongs to no band", slot.0),
            };
            orphans.push(Orphan {
                what,
                place: Place::Offset(place),
                len: self.band_size,
                is_past_end: band.is_some(),
            });
        }
        let file_len = self.file.info().len;
        if file_len > end && !regions::is_zero(&*self.file, end..file_len)? {
            orphans.push(Orphan {
                what: "data after the last band".to_owned(),
                place: Place::Offset(end),
                len: file_len - end,
                is_past_end: false,
            });
        }
        Ok(orphans)
    }

    /// Removes all [orphans](Self::orphans). Durable after the next flush.
    pub fn remove_orphans(&self) -> Result<()> {
        self.check_changeable()?;
        self.drop_leftovers();
        let mut table = self.table_mut();
        let orphans = std::mem::take(&mut table.orphans);
        table.spare.extend(orphans);
        table.leftover_end = 0;
        Ok(())
    }

    /// Makes the orphan at byte `place` of the file the band `number`, which must not be stored.
    /// Durable on return. [`Kind::Invalid`](crate::Kind) if no slot without a label is at that place.
    pub(crate) fn restore_band(&self, place: u64, number: u64) -> Result<()> {
        self.check_changeable()?;
        let invalid = || Error::invalid(LAYER, format!("invalid offset {place} of a band"));
        let band = u32::try_from(number)
            .map(BandIndex)
            .map_err(|_| invalid())?;
        // Both: a flush may move bands into gaps, and a first write would take the slot that is next.
        let _one_at_a_time = self.flushing.lock();
        let _tail = self.tail.lock();
        {
            let mut table = self.table_mut();
            if table.bands.contains_key(&band) || !table.is_visible(band) {
                return Err(invalid());
            }
            let unlabeled = table.orphans.iter().copied();
            let inside = unlabeled
                .into_iter()
                .find(|slot| table.slot_offset(*slot) == place);
            let next = table.next_slot()?;
            let slot = match inside {
                Some(slot) => {
                    table.orphans.remove(&slot);
                    table.slots[slot.0 as usize] = Label::of(band);
                    slot
                }
                // After the last band: the file has a band there that the index does not list.
                None if next.node.is_none()
                    && next.end.checked_sub(self.band_size) == Some(place) =>
                {
                    table.push(&next, Label::of(band));
                    next.slot
                }
                None => return Err(invalid()),
            };
            table.bands.insert(band, slot);
            if table.end() >= table.leftover_end {
                table.leftover_end = 0;
            }
        }
        self.failed.record(self.write_restored(band))
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read()
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write()
    }

    fn check_changeable(&self) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.failed.check(LAYER)?;
        self.remove_superseded_labels()
    }
}

pub(crate) fn band_sizes() -> BandSizes {
    BandSizes {
        least: SECTOR,
        most: u64::from(MAX_SECTORS_PER_BAND) * SECTOR,
        unit: SECTOR,
    }
}

/// Returns the number of sectors in a band. Fails for sizes that the format does not support.
fn check_geometry(band_size: u64, len: u64) -> Result<u32> {
    let sectors = band_size / SECTOR;
    band_sizes().check(LAYER, band_size)?;
    check_len(LAYER, len)?;
    if len.div_ceil(band_size) > MAX_BANDS_OF_DISK {
        let limit = format!("disk of {len} bytes has too many bands of {band_size} bytes");
        return Err(Error::limit(LAYER, limit));
    }
    Ok(narrow(sectors))
}

impl BlockDevice for SparseImage {
    fn info(&self) -> Info {
        let below = self.file.info();
        let len = self.table().len;
        Info {
            len,
            block: narrow::<u32>(SECTOR),
            write: below.write,
            discard: self.band_size,
            access: self.access,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.read(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.check_changeable()?;
        self.write(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        self.check_changeable()?;
        self.drop_range(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        self.extent(range)
    }

    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let _one_at_a_time = self.flushing.lock();
        self.failed.check(LAYER)?;
        self.remove_superseded_labels()?;
        self.failed.record(self.commit())
    }

    /// `len` must be a multiple of 512, not zero. The change is durable on return.
    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        check_geometry(self.band_size, len)?;
        let _one_at_a_time = self.flushing.lock();
        self.failed.check(LAYER)?;
        self.resize(len)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        self.file_range_of_band(range)
    }
}
