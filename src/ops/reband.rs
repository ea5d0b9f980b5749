//! Another size for the bands of a sparse bundle, in place: no second copy of the disk. `bandsaw
//! reband`.

use std::path::Path;

use crate::Result;
use crate::container::sparsebundle::Rebanded;
use crate::device::Access;
use crate::open::{OpenOptions, open_bundle};
use crate::progress::Progress;

/// Gives the bundle at `path` bands of `band_size` bytes, or goes on with what was interrupted,
/// which needs no size.
///
/// It can be stopped at any moment, by whatever means: the bundle opens here with all that is in
/// it, and is gone on with by calling this again. Nobody else may use it meanwhile. Errors are
/// those of [`Bundle::reband`](crate::container::sparsebundle::Bundle::reband), and
/// [`Kind::Unsupported`](crate::Kind::Unsupported) for what is no sparse bundle.
pub fn reband(
    path: &Path,
    band_size: Option<u64>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Rebanded> {
    reband_to(path, band_size, false, options, progress)
}

/// The same with the possible size that is nearest to `band_size`, if `round` says so.
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
    let done = open_bundle(path, &options).and_then(|bundle| {
        let rounded = band_size.map(|size| {
            if round {
                bundle.nearest_band_size(size)
            } else {
                size
            }
        });
        bundle.reband(rounded, progress)
    });
    done.map_err(|error| error.in_file(path))
}
