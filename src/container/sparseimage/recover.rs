//! Tidying up what an interrupted change left, before the first change of a new session.
//!
//! Nothing here is needed to read an image right: see [`load`](super::load).

use std::collections::{BTreeMap, BTreeSet};

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::LAYER;
use super::layout::{BandIndex, Label, slot_at};
use super::load::{Loaded, Twins};
use crate::device::{BlockDevice, regions};
use crate::{Error, Result};

/// Removes twins from the index of a writable image. Gaps that this leaves in the index are filled
/// by the next [`commit`](super::commit). Data behind the last band stay until a band is written
/// over them: mostly an interrupted write left them, but they may be a band whose label was
/// damaged.
pub(super) fn recover(file: &dyn BlockDevice, loaded: &mut Loaded) -> Result<()> {
    let (file_len, end) = (file.info().len, loaded.table.end());
    if file_len < end {
        let lost = format!(
            "the file ends at byte {file_len}, its last band at {end}; it can only be read"
        );
        return Err(Error::corrupt(LAYER, file_len, lost));
    }
    if !loaded.twins.is_empty() {
        separate(file, loaded)?;
    }
    loaded.table.leftover_end = file_len;
    Ok(())
}

/// Keeps the earliest slot of each band, with what the latest one holds, which is the one that
/// counts.
///
/// A band that stands in three slots is twice among the twins. If it is zeros in one, it is in all
/// later ones, and then becomes zeros in all of them before the first label goes: whichever labels
/// are left by a crash, the band is the same.
fn separate(file: &dyn BlockDevice, Loaded { table, twins }: &mut Loaded) -> Result<()> {
    let zeros: BTreeSet<BandIndex> = twins
        .iter()
        .filter(|twins| !twins.equal)
        .map(|twins| twins.band)
        .collect();
    for Twins { earlier, .. } in twins.iter().filter(|twins| zeros.contains(&twins.band)) {
        let place = table.place(*earlier);
        regions::blank(file, place..place + table.band_size)?;
    }
    file.flush()?;
    let mut kept = BTreeMap::new();
    for Twins {
        band,
        earlier,
        later,
        ..
    } in twins.drain(..)
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
