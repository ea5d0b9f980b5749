//! Cleanup of the leftovers of an interrupted change, before the first change of a new session.
//!
//! Not needed to read an image correctly: see [`load`](super::load).

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::LAYER;
use super::layout::{BandIndex, Label, slot_at};
use super::load::{DuplicateSlots, Loaded};
use crate::device::{BlockDevice, regions};
use crate::{Error, Result};

/// Removes duplicate bands from the index of a writable image. The next [`commit`](super::commit)
/// fills the gaps that this leaves in the index.
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
    if !loaded.duplicates.is_empty() {
        separate(file, loaded)?;
    }
    if !regions::is_zero(file, end..file_len)? {
        loaded.table.leftover_end = file_len;
    }
    Ok(())
}

/// Keeps the earliest slot of each band, with the contents of the latest, which is the valid one.
///
/// A band in three slots is twice in `duplicates`. If one copy is zeros, all later ones are, and then
/// all copies are zeroed before the first label is removed: whichever labels are left after a
/// crash, the contents of the band are the same.
fn separate(file: &dyn BlockDevice, Loaded { table, duplicates }: &mut Loaded) -> Result<()> {
    let zeros: BTreeSet<BandIndex> = duplicates
        .iter()
        .filter(|duplicates| !duplicates.equal)
        .map(|duplicates| duplicates.band)
        .collect();
    for DuplicateSlots { earlier, .. } in duplicates
        .iter()
        .filter(|duplicates| zeros.contains(&duplicates.band))
    {
        let place = table.place(*earlier);
        regions::blank(file, place..place + table.band_size)?;
    }
    file.flush()?;
    let mut kept = BTreeMap::new();
    for DuplicateSlots {
        band,
        earlier,
        later,
        ..
    } in duplicates.drain(..)
    {
        let (node, within) = later.in_node();
        file.write_at(
            table.nodes[node] + slot_at(node, within),
            U32::ZERO.as_bytes(),
        )?;
        table.slots[later.0 as usize] = Label::NONE;
        table.spare.insert(later);
        table
            .bands
            .insert(band, *kept.entry(band).or_insert(earlier));
    }
    file.flush()?;
    Ok(())
}
