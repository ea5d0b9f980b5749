//! Tidying up what an interrupted change left, before the first change of a new session.
//!
//! Nothing here is needed to read an image right: see [`load`](super::load).

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::LAYER;
use super::layout::{Label, slot_at};
use super::load::{Loaded, Twins};
use crate::device::{BlockDevice, Leave, regions};
use crate::{Error, Result};

/// Makes the index of a writable image one without twins, and cuts off what stands after the last band. Gaps that this
/// leaves in the index are filled by the next [`commit`](super::commit).
pub(super) fn recover(file: &dyn BlockDevice, loaded: &mut Loaded) -> Result<()> {
    let (file_len, end) = (file.info().len, loaded.table.end());
    if file_len < end {
        let lost = format!("the file ends at byte {file_len}, its last band at {end}; it can only be read");
        return Err(Error::corrupt(LAYER, file_len, lost));
    }
    if !loaded.twins.is_empty() {
        separate(file, loaded)?;
    }
    let end = loaded.table.end();
    if file_len > end { file.set_len(end, Leave::Any) } else { Ok(()) }
}

/// Keeps the earlier of two twins, with what the later one holds, which is the one that counts.
fn separate(file: &dyn BlockDevice, Loaded { table, twins }: &mut Loaded) -> Result<()> {
    for Twins { earlier, equal, .. } in &*twins {
        if !equal {
            let place = table.place(*earlier);
            regions::blank(file, place..place + table.band_size)?; // the later one is zeros
        }
    }
    file.flush()?;
    for Twins { band, earlier, later, .. } in twins.drain(..) {
        let (node, within) = later.in_node();
        file.write_at(table.nodes[node] + slot_at(node, within), U32::ZERO.as_bytes())?;
        table.slots[later.0 as usize] = Label::NONE;
        table.spare.insert(later);
        let known = if table.is_visible(band) { &mut table.bands } else { &mut table.gone };
        known.insert(band, earlier);
    }
    file.flush()?;
    Ok(())
}
