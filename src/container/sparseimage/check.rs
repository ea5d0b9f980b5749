//! Consistency check of an image.

use std::sync::Arc;

use super::{LAYER, SparseImage, load};
use crate::device::{Access, BlockDevice};
use crate::problem::{Findings, Problems, Severity};
use crate::progress::Progress;
use crate::size::counted;
use crate::{Error, Reason, Result};

/// Reports every problem of the image in `file`, read-only, and returns the disk as far as it is
/// readable. Fails if the image is damaged so much that nothing else can be checked, or if it
/// cannot be read.
pub fn check(
    file: &Arc<dyn BlockDevice>,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<SparseImage> {
    progress.stage("check", 0);
    let mut findings = Findings::Check(problems, progress);
    let mut table = load::load(&**file, &mut findings)?.table;
    load::find_orphans(&**file, &mut table)?;
    let (file_len, end) = (file.info().len, table.end());
    if file_len < table.needed() {
        let lost = format!(
            "the file is truncated: it ends at byte {file_len}, its last band at \
                            {end}"
        );
        let error = Error::corrupt(LAYER, file_len, lost).because(Reason::Truncated);
        findings.report(Severity::Damage, error)?;
    } else if file_len < end {
        let lost = format!(
            "the file is truncated: it ends at byte {file_len}, its last band at {end}; no data \
             of the disk is lost"
        );
        findings.report(Severity::Warning, Error::corrupt(LAYER, file_len, lost))?;
    } else if file_len > end {
        let unused =
            counted(file_len - end, "unused byte", "unused bytes") + " after the last band";
        findings.report(Severity::Note, Error::corrupt(LAYER, end, unused))?;
    }
    Ok(SparseImage {
        access: Access::ReadOnly,
        ..SparseImage::over(file.clone(), table)
    })
}
