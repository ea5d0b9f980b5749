//! Repair of unambiguous damage: leftovers of an interrupted change, and a file that is too long or
//! too short. The contents of the disk do not change.

use std::sync::Arc;

use super::{LAYER, SparseImage, load};
use crate::container::Orphans;
use crate::device::{AfterDiscard, BlockDevice, regions};
use crate::problem::{Findings, Problems, Severity};
use crate::progress::Silent;
use crate::size::counted;
use crate::{Error, Kind, Result};

/// Repairs the image in `file`, durably. Returns one sentence for each step. Fails, without a
/// change, if data of the disk is lost.
pub fn repair(file: &Arc<dyn BlockDevice>, orphans: Orphans) -> Result<Vec<String>> {
    let mut problems = Problems::default();
    let mut loaded = load::load(&**file, &mut Findings::Check(&mut problems, &Silent))?;
    load::find_orphans(&**file, &mut loaded.table)?;
    let table = &loaded.table;
    let (len, end) = (file.info().len, table.end());
    if len < table.needed() || problems.count(Severity::Damage) > 0 {
        let lost = "data of the disk is lost or in doubt, and the image has no second copy of it";
        return Err(Error::new(Kind::Corrupt, LAYER, lost));
    }
    let removes = orphans == Orphans::Remove;
    let mut steps = Vec::new();
    if len < end {
        steps.push(format!(
            "the file is extended with zeros to {end} bytes, the end of its last band"
        ));
    } else if len > end && (removes || regions::is_zero(&**file, end..len)?) {
        steps.push(format!(
            "the file is truncated to {end} bytes, the end of its last band"
        ));
    }
    if !loaded.duplicates.is_empty() {
        let bands = counted(
            loaded.duplicates.len() as u64,
            "band stored in two slots is",
            "bands stored in two slots are",
        );
        steps.push(format!("{bands} kept in one"));
    }
    let unlabeled = table.spare.len() + if removes { table.orphans.len() } else { 0 };
    let mut beyond = 0;
    for (_, slot) in table.beyond() {
        beyond += usize::from(removes || load::is_zero_band(&**file, table, slot)?);
    }
    if unlabeled + beyond > 0 {
        let slots = counted(
            (unlabeled + beyond) as u64,
            "slot without a band is",
            "slots without a band are",
        );
        steps.push(format!("{slots} filled with the last bands"));
    }
    if steps.is_empty() {
        return Ok(steps);
    }
    if len < end {
        file.set_len(end, AfterDiscard::Zeros)?;
        file.flush()?;
    }
    let image = SparseImage::open(file.clone())?;
    match orphans {
        Orphans::Remove => image.remove_orphans()?,
        Orphans::Keep => image.drop_zeros_beyond()?,
    }
    image.flush()?;
    Ok(steps)
}
