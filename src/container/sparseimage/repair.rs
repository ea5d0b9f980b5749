//! Repair of unambiguous damage: leftovers of an interrupted change, and a file that is too long or
//! too short. The contents of the disk do not change.

use std::sync::Arc;

use super::{LAYER, SparseImage, load};
use crate::container::Beyond;
use crate::device::{AfterDiscard, BlockDevice, regions};
use crate::problem::{Findings, Problems, Severity};
use crate::progress::Silent;
use crate::{Error, Kind, Result};

/// Returns one sentence for each step that [`repair`] would take on the image in `file`. Fails if
/// data of the disk is lost.
pub fn plan(file: &Arc<dyn BlockDevice>) -> Result<Vec<String>> {
    let mut problems = Problems::default();
    let loaded = load::load(&**file, &mut Findings::Check(&mut problems, &Silent))?;
    let table = &loaded.table;
    let (len, end) = (file.info().len, table.end());
    if len < table.needed() || problems.count(Severity::Damage) > 0 {
        let lost =
            "bytes of the disk are lost or in doubt, which nothing in the image can give back";
        return Err(Error::new(Kind::Corrupt, LAYER, lost));
    }
    let mut steps = Vec::new();
    if len != end {
        let what = if len > end {
            "cut to"
        } else {
            "extended by zeros to"
        };
        steps.push(format!(
            "the file is {what} {end} bytes, where its last band ends"
        ));
    }
    if !loaded.twins.is_empty() {
        steps.push(format!(
            "{} bands that stand in two places are left in one",
            loaded.twins.len()
        ));
    }
    let unused = table.spare.len() + table.beyond().count();
    if unused > 0 {
        steps.push(format!(
            "{unused} places without a band of the disk are filled with the last bands"
        ));
    }
    Ok(steps)
}

/// Finds data past the last band, and in bands past the end of the disk. The cause is an
/// interrupted resize, or a wrong disk size or label.
pub fn data_beyond(file: &dyn BlockDevice) -> Result<Option<Beyond>> {
    let mut problems = Problems::default();
    let table = load::load(file, &mut Findings::Check(&mut problems, &Silent))?.table;
    let (len, end) = (file.info().len, table.end());
    let is_tail = problems.worst() <= Some(Severity::Note);
    if len > end && !regions::is_zero(file, end..len)? {
        return Ok(Some(Beyond {
            len: table.len,
            is_tail,
        }));
    }
    for (_, slot) in table.beyond() {
        if !load::is_zero_band(file, &table, slot)? {
            return Ok(Some(Beyond {
                len: table.len,
                is_tail: false,
            }));
        }
    }
    Ok(None)
}

/// Repairs the image in `file`, durably, and removes bands past the end of the disk. Returns one
/// sentence for each step.
pub fn repair(file: &Arc<dyn BlockDevice>) -> Result<Vec<String>> {
    let steps = plan(file)?;
    if steps.is_empty() {
        return Ok(steps);
    }
    let end = load::load(&**file, &mut Findings::Open)?.table.end();
    if file.info().len < end {
        file.set_len(end, AfterDiscard::Zeros)?;
        file.flush()?;
    }
    let image = SparseImage::open(file.clone())?;
    image.drop_leftovers();
    image.table_mut().leftover_end = 0;
    image.flush()?;
    Ok(steps)
}
