//! Leftovers of an interrupted change.
//!
//! Not needed to read an image correctly: see [`load`](super::load).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use super::layout::{BandIndex, Label, Slot};
use super::load::{Loaded, is_zero_band};
use super::{LAYER, SparseImage};
use crate::device::{BlockDevice, regions};
use crate::{Error, Result};

/// Prepares a writable image for changes. Writes nothing.
///
/// Data in a slot without a label, and past the last band, is usually left by an interrupted write,
/// but it may be a band with a damaged label. It stays in place; past the last band, until a new
/// band overwrites it.
pub(super) fn recover(file: &dyn BlockDevice, loaded: &mut Loaded) -> Result<()> {
    let (file_len, end) = (file.info().len, loaded.table.end());
    if file_len < end {
        let lost = format!(
            "the file is truncated: it ends at byte {file_len}, its last band at {end}; the image \
             is read-only"
        );
        return Err(Error::corrupt(LAYER, file_len, lost));
    }
    if !regions::is_zero(file, end..file_len)? {
        loaded.table.leftover_end = file_len;
    }
    Ok(())
}

/// Leaves each band one slot in the index. Returns the other slots, which still have its label in
/// the file, in ascending order.
///
/// If all copies are equal, the earliest slot stays. Otherwise the latest is zeros, which are valid
/// after an interrupted discard; but a wrong label looks the same, so earlier data becomes an
/// orphan.
pub(super) fn separate(
    file: &dyn BlockDevice,
    Loaded { table, duplicates }: &mut Loaded,
) -> Result<Vec<Slot>> {
    let mut slots: BTreeMap<BandIndex, (BTreeSet<Slot>, bool)> = BTreeMap::new();
    for duplicate in duplicates.drain(..) {
        let (slots, equal) = slots
            .entry(duplicate.band)
            .or_insert((BTreeSet::new(), true));
        slots.extend([duplicate.earlier, duplicate.later]);
        *equal &= duplicate.equal;
    }
    let mut superseded = Vec::new();
    for (band, (mut slots, equal)) in slots {
        let kept = if equal {
            slots.pop_first()
        } else {
            slots.pop_last()
        };
        table.bands.extend(kept.map(|kept| (band, kept)));
        for slot in slots {
            table.slots[slot.0 as usize] = Label::NONE;
            if equal || is_zero_band(file, table, slot)? {
                table.spare.insert(slot);
            } else {
                table.orphans.insert(slot);
            }
            superseded.push(slot);
        }
    }
    superseded.sort_unstable();
    Ok(superseded)
}

impl SparseImage {
    /// Removes the labels of superseded slots from the file, durably, before the first change.
    /// Whichever labels are left after a crash, the contents of the bands are the same.
    pub(super) fn remove_superseded_labels(&self) -> Result<()> {
        if self.is_settled.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut superseded = self.superseded.lock();
        if !superseded.is_empty() {
            let labels: Vec<_> = superseded.iter().map(|slot| (*slot, Label::NONE)).collect();
            let written = self.write_labels(&labels).and_then(|()| self.file.flush());
            self.failed.record(written)?;
            superseded.clear();
        }
        self.is_settled.store(true, Ordering::Release);
        Ok(())
    }
}
