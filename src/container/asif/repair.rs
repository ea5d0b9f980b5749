//! Repair of unambiguous damage: data stored past the end of the disk, and an unreferenced tail of
//! the file. The contents of the disk do not change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Asif, LAYER, check};
use crate::container::Beyond;
use crate::device::{BlockDevice, regions};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// Returns one sentence for each step that [`repair`] would take on the image in `file`. Fails if
/// data of the disk is lost or in doubt.
pub fn plan(file: &Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<String>> {
    let mut problems = Problems::default();
    let image = check(file, &mut problems, progress)?;
    if problems.count(Severity::Damage) > 0 {
        let lost =
            "bytes of the disk are lost or in doubt, which nothing in the image can give back";
        return Err(Error::new(Kind::Corrupt, LAYER, lost));
    }
    let mut steps = Vec::new();
    let beyond = problems.count(Severity::Warning);
    if beyond > 0 {
        steps.push(format!(
            "{beyond} chunks past the end of the disk are given up"
        ));
    }
    let end = image.usage().chunks * image.geometry.chunk_bytes();
    if file.info().len > end {
        steps.push(format!(
            "the file is cut to {end} bytes, where its last chunk ends"
        ));
    }
    Ok(steps)
}

/// Finds data past the last chunk that the index names. The cause is an interrupted write, or a
/// lost entry of a table.
pub fn data_beyond(file: &Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Option<Beyond>> {
    let mut problems = Problems::default();
    let image = check(file, &mut problems, progress)?;
    let end = image.usage().chunks * image.geometry.chunk_bytes();
    let file_len = file.info().len;
    if file_len <= end || regions::is_zero(&**file, end..file_len)? {
        return Ok(None);
    }
    Ok(Some(Beyond {
        len: image.info().len,
        is_tail: problems.worst() <= Some(Severity::Note),
    }))
}

/// Repairs the image in `file`, durably. Returns one sentence for each step.
pub fn repair(file: &Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<String>> {
    let steps = plan(file, progress)?;
    if !steps.is_empty() {
        Asif::open(file.clone())?.give_up_beyond()?;
    }
    Ok(steps)
}

impl Asif {
    /// Frees all chunks past the end of the disk except the metadata, and truncates the unused tail
    /// of the file.
    fn give_up_beyond(&self) -> Result<()> {
        self.check_changeable()?;
        let _one_at_a_time = self.one_at_a_time()?;
        self.begin_locked()?;
        self.space.drop_leftover();
        let len = self.len.load(Ordering::SeqCst);
        let end = self.geometry.max_sectors * u64::from(self.geometry.block);
        self.failed
            .note(self.clear(len, end).and_then(|()| self.commit(Vec::new())))
    }
}
