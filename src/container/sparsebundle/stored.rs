//! List of the stored bands and their sizes, and discarding them. Whole bands are removed without
//! opening them, so the time depends only on their number.

use std::ops::Range;

use super::band_rules::check_name;
use super::plist::{BACKUP, INFO};
use super::{BANDS, BandIndex, Bundle, read_plist};
use crate::container::Orphan;
use crate::device::{AfterDiscard, BlockDevice};
use crate::error::Place;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// A band that has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBand {
    /// Disk offset of the band divided by the band size.
    pub index: u64,
    /// Length of the file in bytes.
    pub len: u64,
    /// Allocated bytes of the file.
    pub allocated: u64,
    /// Seconds of Unix time of the last change of the file, if the store records it.
    pub changed: Option<u64>,
}

/// A file in `bands/` that is not a band of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayFile {
    /// Its name in the bundle.
    pub name: String,
    /// Length of the file in bytes.
    pub len: u64,
    /// Allocated bytes of the file.
    pub allocated: u64,
}

/// All files in `bands/`.
#[derive(Debug, Clone, Default)]
pub struct StoredBands {
    /// The bands, in disk order.
    pub bands: Vec<StoredBand>,
    /// Files that are not bands of the disk: past its end, or with another name. `repair` removes
    /// those that are certainly unused.
    pub stray: Vec<StrayFile>,
}

impl StoredBands {
    /// Returns the bands that overlap `range` of the disk, for a band size of `band_size` bytes.
    pub(crate) fn in_range(&self, band_size: u64, range: &Range<u64>) -> &[StoredBand] {
        let from = self
            .bands
            .partition_point(|band| band.index < range.start / band_size);
        let to = self
            .bands
            .partition_point(|band| band.index < range.end.div_ceil(band_size));
        self.bands.get(from..to).unwrap_or_default()
    }

    /// Returns the same as [`Bundle::orphans`].
    pub fn orphans(&self) -> Vec<Orphan> {
        let past_end = self.stray.iter().filter_map(|file| {
            let index = BandIndex::from_name(BANDS, &file.name)?;
            Some((index, file.len))
        });
        orphans(past_end.collect())
    }
}

impl Bundle {
    /// Lists all band files with their sizes. [`Kind::Conflict`] if a change
    /// of the band size was interrupted.
    pub fn stored(&self, progress: &dyn Progress) -> Result<StoredBands> {
        self.check_one_size()?;
        let (mut stored, count) = (StoredBands::default(), self.band_count());
        progress.stage("list", 0);
        self.bands.store().list(BANDS, &mut |entry| {
            progress.check()?;
            progress.advance(1);
            let index = BandIndex::from_name(BANDS, entry.name).filter(|index| index.0 < count);
            if index.is_none()
                && check_name(entry.name).is_none()
                && BandIndex::from_name(BANDS, entry.name).is_none()
            {
                return Ok(()); // the Finder left it
            }
            let Some(meta) = entry.meta()? else {
                return Ok(());
            };
            match index {
                Some(BandIndex(index)) => stored.bands.push(StoredBand {
                    index,
                    len: meta.len,
                    allocated: meta.allocated,
                    changed: meta.changed,
                }),
                None => stored.stray.push(StrayFile {
                    name: entry.name.to_owned(),
                    len: meta.len,
                    allocated: meta.allocated,
                }),
            }
            Ok(())
        })?;
        stored.bands.sort_unstable_by_key(|band| band.index);
        stored
            .stray
            .sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(stored)
    }

    /// Lists the band files past the end of the disk, with any contents.
    pub fn orphans(&self, progress: &dyn Progress) -> Result<Vec<Orphan>> {
        self.check_one_size()?;
        let (mut found, count) = (Vec::new(), self.band_count());
        self.bands.store().list(BANDS, &mut |entry| {
            progress.check()?;
            if let Some(index) = BandIndex::from_name(BANDS, entry.name)
                && index.0 >= count
                && let Some(meta) = entry.meta()?
            {
                found.push((index, meta.len));
            }
            Ok(())
        })?;
        Ok(orphans(found))
    }

    /// Finds the files in `bands/` with other names than those of bands, although they hold data: one of
    /// them may be a band. They are never read, and never removed.
    pub(crate) fn misnamed(&self, progress: &dyn Progress) -> Result<Vec<Orphan>> {
        let mut found = Vec::new();
        self.bands.store().list(BANDS, &mut |entry| {
            progress.check()?;
            if BandIndex::from_name(BANDS, entry.name).is_none()
                && check_name(entry.name).is_some()
                && let Some(meta) = entry.meta()?.filter(|meta| meta.len > 0)
            {
                found.push(Orphan {
                    what: "file that has no name of a band".to_owned(),
                    place: Place::Name(entry.name.to_owned()),
                    len: meta.len,
                    is_past_end: false,
                });
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns true unless the property lists differ, or one of them cannot be read. A missing copy
    /// is no difference.
    pub(crate) fn do_lists_agree(&self) -> bool {
        let store = self.bands.store();
        let backup = match read_plist(store, BACKUP).map_err(Error::from) {
            Err(error) if error.kind() == Kind::NotFound => return true,
            backup => backup,
        };
        matches!((read_plist(store, INFO), backup), (Ok(info), Ok(backup)) if info == backup)
    }

    /// Returns the part of `range` that is in `band`, in disk offsets, and whether it is the whole
    /// band.
    pub(crate) fn part_in(&self, band: &StoredBand, range: &Range<u64>) -> (Range<u64>, bool) {
        let (start, len) = (
            band.index.saturating_mul(self.band_size()),
            self.bands.len(),
        );
        let end = start.saturating_add(self.band_size()).min(len);
        let part = range.start.max(start)..range.end.min(end);
        // A file longer than a band is kept for manual inspection: the meaning of the excess is not
        // known.
        let is_whole = part == (start..end)
            && band.len <= self.band_size()
            && band.len.is_multiple_of(self.bands.grain());
        (part, is_whole)
    }

    /// Returns the allocated bytes of `range` of the disk, which is within one band. Counts only
    /// whole blocks of the host.
    pub(crate) fn allocated_in(&self, range: Range<u64>) -> Result<u64> {
        self.bands.allocated_in(range)
    }

    /// Removes the file of `band` without opening it. The band then reads as zeros.
    pub(crate) fn drop_band(&self, band: &StoredBand) -> Result<()> {
        self.bands.check_changeable()?;
        self.bands.remove_band_of_disk(BandIndex(band.index))
    }

    /// Deallocates `range` of the disk; `stored` lists the stored bands. Holes are punched in
    /// partly covered bands only if `can_punch` is true. Durable after the next flush.
    pub fn free_range(
        &self,
        stored: &StoredBands,
        range: &Range<u64>,
        can_punch: bool,
    ) -> Result<()> {
        for band in stored.in_range(self.band_size(), range) {
            match self.part_in(band, range) {
                (_, true) => self.drop_band(band)?,
                (part, false) if can_punch && !part.is_empty() => {
                    self.discard(part, AfterDiscard::Any)?
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns bands past the end of the disk with the lengths of their files, in disk order.
fn orphans(mut bands: Vec<(BandIndex, u64)>) -> Vec<Orphan> {
    bands.sort_unstable_by_key(|(index, _)| index.0);
    let orphan = |(index, len): (BandIndex, u64)| Orphan {
        what: "band past the end of the disk".to_owned(),
        place: Place::Name(index.name()),
        len,
        is_past_end: true,
    };
    bands.into_iter().map(orphan).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::container::sparsebundle::BundleOptions;
    use crate::device::BlockDeviceExt;
    use crate::progress::Silent;
    use crate::store::{MemoryStore, Open, Put, Store};

    const BAND: u64 = 1 << 20;

    #[test]
    fn whole_bands_go_and_parts_are_punched() {
        let store = MemoryStore::default();
        let options = BundleOptions {
            len: 5 * BAND + 512,
            band_size: Some(BAND),
        };
        let bundle = Bundle::create(Arc::new(store.clone()), &options).unwrap();
        for index in [0, 1, 3, 5] {
            bundle.write_at(index * BAND, &[7; 512]).unwrap();
        }
        bundle.write_at(BAND - 512, &[7; 512]).unwrap();
        bundle.flush().unwrap();
        store.put("bands/9", b"stray", Put::Replace).unwrap();
        store
            .put("bands/.DS_Store", b"Finder", Put::Replace)
            .unwrap();
        let stored = bundle.stored(&Silent).unwrap();
        assert_eq!(
            stored
                .bands
                .iter()
                .map(|band| band.index)
                .collect::<Vec<_>>(),
            [0, 1, 3, 5]
        );
        assert_eq!(
            stored
                .stray
                .iter()
                .map(|file| file.name.as_str())
                .collect::<Vec<_>>(),
            ["bands/9"]
        );
        let orphans = stored.orphans();
        assert_eq!(orphans.len(), 1, "{orphans:?}");
        assert_eq!(orphans[0].len, 5);
        assert_eq!(
            format!("{orphans:?}"),
            format!("{:?}", bundle.orphans(&Silent).unwrap())
        );
        let range = BAND / 2..5 * BAND + 512;
        assert_eq!(stored.in_range(BAND, &range).len(), 4);
        bundle.free_range(&stored, &range, true).unwrap();
        bundle.flush().unwrap();
        let left = bundle.stored(&Silent).unwrap().bands;
        assert_eq!(left.iter().map(|band| band.index).collect::<Vec<_>>(), [0]);
        assert_eq!(bundle.read_vec(0, 512).unwrap(), [7; 512]);
        assert!(
            bundle
                .read_vec(BAND - 512, 1024)
                .unwrap()
                .iter()
                .all(|byte| *byte == 0)
        );
    }

    #[test]
    fn a_band_that_is_too_long_is_not_taken_for_a_whole_one() {
        let store = MemoryStore::default();
        let bundle = Bundle::create(
            Arc::new(store.clone()),
            &BundleOptions {
                len: BAND,
                band_size: Some(BAND),
            },
        )
        .unwrap();
        let file = store.open("bands/0", Open::Create).unwrap().unwrap();
        file.set_len(BAND + 1, AfterDiscard::Zeros).unwrap();
        let stored = bundle.stored(&Silent).unwrap();
        bundle.free_range(&stored, &(0..BAND), false).unwrap();
        assert!(store.stat("bands/0").unwrap().is_some());
    }
}
