//! Splitting of a compressed image into files of limited size, and joining of such files.

use std::path::{Path, PathBuf};

use super::convert::keep_signature;
use crate::container::udif::{MAX_WRITTEN_PARTS, SplitMethod, Udif, part_path};
use crate::open::{FileDraft, Image};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

const LAYER: &str = "image";

/// Options for the new files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Positions of the splits; [`SplitMethod::Whole`] joins.
    pub cut: SplitMethod,
    /// True to replace existing files.
    pub overwrite: bool,
    /// True to allow the loss of a code signature, which covers the bytes of the old file.
    pub remove_signature: bool,
}

/// Copies the chunks of `image`, which may consist of several files itself, unchanged into the
/// files of a set whose first file is `first`, or into one file. Returns the files in order.
///
/// The checksums of the stored bytes are verified first. All files are created under temporary
/// names and renamed when all are complete, the first one last: after an earlier error, or if
/// `progress` cancels, they are removed.
///
/// [`Kind::Unsupported`] if the image is not UDIF, [`Kind::ReadOnly`] for a signed one, unless its
/// signature may be removed.
pub fn segment(
    image: &Image,
    first: &Path,
    options: &SegmentOptions,
    progress: &dyn Progress,
) -> Result<Vec<PathBuf>> {
    let named = |error: Error| error.in_file(image.path());
    let udif = image.udif().ok_or_else(|| {
        let message = format!(
            "is a {}; only compressed and read-only images can be split",
            image.format().description()
        );
        named(Error::unsupported(LAYER, message))
    })?;
    if image.overlays().next().is_some() {
        let message = "cannot split a stack of layers; convert it first";
        return Err(named(Error::invalid(LAYER, message)));
    }
    keep_signature(image, options.remove_signature)?;
    let parts = udif.cut(options.cut).map_err(named)?;
    let first_is_dmg = first
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("dmg"));
    if parts.count() > 1 && !first_is_dmg {
        return Err(
            Error::invalid(LAYER, "the name of the first part must end in .dmg").in_file(first),
        );
    }
    let path = |number| {
        if number == 1 {
            first.to_owned()
        } else {
            part_path(first, number)
        }
    };
    let paths: Vec<_> = (1..=parts.count()).map(path).collect();
    check_next(first, parts.count())?;
    check_sums(udif, progress).map_err(named)?;
    progress.stage("copy", parts.data_len());
    let mut files = Vec::new();
    for (number, path) in (1..).zip(&paths) {
        let file = FileDraft::new(path, options.overwrite, image.mode_of_copy())?;
        let written = parts.write(number, &**file.file(), progress);
        written.map_err(|error| error.in_file(path))?;
        files.push(file);
    }
    progress.check()?;
    files
        .into_iter()
        .rev()
        .try_for_each(|file| file.persist().map(drop))?;
    Ok(paths)
}

/// Refuses to leave a part of another, longer set after the last part of this one: it would be
/// taken for a part of this set.
fn check_next(first: &Path, count: u32) -> Result<()> {
    let next = part_path(first, count + 1);
    if count < MAX_WRITTEN_PARTS && count > 1 && next.symlink_metadata().is_ok() {
        let message =
            format!("part of another set, but the new one has {count} parts; remove it first");
        return Err(Error::conflict(LAYER, message).in_file(next));
    }
    Ok(())
}

/// Verifies the stored checksums: otherwise the new checksums would cover damaged data.
fn check_sums(udif: &Udif, progress: &dyn Progress) -> Result<()> {
    for verdict in udif.verify_stored(progress)? {
        if verdict.agrees() == Some(false) {
            let message = format!("checksum mismatch of the {}", verdict.of);
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
    }
    Ok(())
}
