//! Change of the band size of a sparse bundle, in place, without a second copy of the disk.
//! `bandsaw reband`.

use std::path::Path;
use std::sync::Arc;

use super::orphans;
use crate::Result;
use crate::container::sparsebundle::{Bundle, Rebanded, band_size_for_macos};
use crate::device::{Access, BlockDevice};
use crate::open::{OpenOptions, open_bundle};
use crate::progress::Progress;

const LAYER: &str = "reband";

/// Changes the band size of the bundle at `path` to `band_size` bytes, or resumes an interrupted
/// change, for which no size is needed.
///
/// It can be interrupted at any time, even by a crash: the bundle can then still be opened here,
/// with all its data, and the same call resumes. No other process may use it meanwhile. Errors are
/// those of [`Bundle::reband`](crate::container::sparsebundle::Bundle::reband),
/// [`Kind::Unsupported`](crate::Kind::Unsupported) if the image is not a sparse bundle, and
/// [`Kind::Undecided`](crate::Kind::Undecided) if a file in `bands/` with another name may be a band that
/// is missing.
pub fn reband(
    path: &Path,
    band_size: Option<u64>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Rebanded> {
    reband_to(path, band_size, false, options, progress)
}

/// Changes the band size like [`reband`]. If `round` is true, uses the supported size nearest to
/// `band_size`.
pub fn reband_to(
    path: &Path,
    band_size: Option<u64>,
    round: bool,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Rebanded> {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..*options
    };
    let band_size = band_size.map(|size| band_size_for_macos(size, round));
    let band_size = band_size.transpose().map_err(|error| error.in_file(path))?;
    let check = |bundle: &Bundle, disk: &Arc<dyn BlockDevice>| {
        orphans::check_names(bundle, disk, LAYER, progress)
    };
    let done = open_bundle(path, &options, progress, check).and_then(|(bundle, warnings)| {
        // The lists are written again, so these warnings are gone afterwards.
        let mut before = bundle.warnings().to_vec();
        before.extend(warnings);
        let mut done = bundle.reband(band_size, progress)?;
        before.retain(|warning| !done.warnings.contains(warning));
        done.warnings.splice(0..0, before);
        Ok(done)
    });
    done.map_err(|error| error.in_file(path))
}
