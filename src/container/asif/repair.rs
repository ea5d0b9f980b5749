//! Repair of unambiguous damage: an unused end of the file, and data that belongs to no chunk of the
//! disk. The contents of the disk do not change.

use std::sync::Arc;

use super::{Asif, LAYER, check};
use crate::container::Orphans;
use crate::device::{AfterDiscard, BlockDevice, regions};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::counted;
use crate::{Error, Kind, Result};

/// Repairs the image in `file`, durably. Returns one sentence for each step. Fails, without a
/// change, if data of the disk is lost or in doubt.
pub fn repair(
    file: &Arc<dyn BlockDevice>,
    orphans: Orphans,
    progress: &dyn Progress,
) -> Result<Vec<String>> {
    let mut problems = Problems::default();
    let image = check(file, &mut problems, progress)?;
    if problems.count(Severity::Damage) > 0 {
        let lost = "data of the disk is lost or in doubt, and the image has no second copy of it";
        return Err(Error::new(Kind::Corrupt, LAYER, lost));
    }
    let mut steps = Vec::new();
    let beyond = image.chunks_beyond()?.len();
    if beyond > 0 && orphans == Orphans::Remove {
        let chunks = counted(
            beyond as u64,
            "chunk past the end of the disk is",
            "chunks past the end of the disk are",
        );
        steps.push(format!("{chunks} removed"));
    }
    let inside = image.unused_data()?;
    if inside > 0 && orphans == Orphans::Remove {
        steps.push(format!(
            "{inside} bytes in unused chunks of the file are discarded"
        ));
    }
    let (len, end) = (file.info().len, image.used_end());
    if len > end && (orphans == Orphans::Remove || regions::is_zero(&**file, end..len)?) {
        steps.push(format!(
            "the file is truncated to {end} bytes, the end of its last chunk"
        ));
    }
    if steps.is_empty() {
        return Ok(steps);
    }
    let image = Asif::open(file.clone())?;
    match orphans {
        Orphans::Remove => image.remove_orphans()?,
        Orphans::Keep => {
            file.set_len(image.used_end(), AfterDiscard::Any)?;
            file.flush()?;
        }
    }
    Ok(steps)
}

impl Asif {
    /// Returns the number of bytes in unused chunks before the last used one that have data.
    fn unused_data(&self) -> Result<u64> {
        let end = self.used_end();
        let unused = self.space.orphans(self.shows_holes)?;
        let inside = unused.iter().filter(|run| run.start < end);
        Ok(inside.map(|run| run.end - run.start).sum())
    }

    /// Returns the end of the last used chunk in the file.
    fn used_end(&self) -> u64 {
        self.usage().chunks * self.geometry.chunk_bytes()
    }
}
