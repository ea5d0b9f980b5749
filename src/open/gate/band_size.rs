//! The band size of a bundle, compared with the lengths of its files.

use std::path::Path;
use std::sync::Arc;

use super::compare_lists::{self, ListDecision, query_lists};
use super::geometry::{Depth, repairable};
use crate::container::sparsebundle;
use crate::decision::Undecided;
use crate::open::OpenOptions;
use crate::progress::Silent;
use crate::store::Store;
use crate::{Error, Kind, Result};

/// Compares the band size of a bundle with the lengths of its files. All are listed only for
/// [`Depth::Full`], or if those of the first bands suggest another one.
pub(in crate::open) fn compare_band_size(
    path: &Path,
    store: &Arc<dyn Store>,
    options: &OpenOptions<'_>,
    depth: Depth,
) -> Result<()> {
    let Some(geometry) = compare_lists::agreed(&**store, false) else {
        return Ok(());
    };
    let other = |lens: &[u64]| sparsebundle::other_band_size(geometry.band_size, lens);
    if depth == Depth::Quick {
        let first = sparsebundle::first_band_lens(&**store)?;
        if other(&first).is_none() && first.iter().all(|len| *len <= geometry.band_size) {
            return Ok(());
        }
    }
    let lens = sparsebundle::band_lens(&**store, &Silent)?;
    let lens: Vec<u64> = lens.into_iter().map(|(_, len)| len).collect();
    let Some(other) = other(&lens) else {
        return Ok(());
    };
    // The contents may still agree with the lists alone.
    match query_lists(path, store, options, |question| question.decide_agreed())? {
        ListDecision::Geometry {
            geometry: found, ..
        } if found == geometry => Ok(()),
        _ => Err(repairable(format!(
            "the band size is {}, and the contents agree with the length of bands, {other} bytes: \
             run `bandsaw repair` first",
            geometry.band_size
        ))),
    }
}

/// Returns the damage of a bundle with whose band size no change passes the gate.
pub(in crate::open) fn wrong_band_size(
    path: &Path,
    store: &Arc<dyn Store>,
    options: &OpenOptions<'_>,
    depth: Depth,
) -> Result<Option<Error>> {
    match compare_band_size(path, store, options, depth) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == Kind::Undecided => {
            let mut what = error.message().to_owned();
            for (number, one) in Undecided::of(&error).iter().enumerate() {
                what += if number == 0 { "; " } else { ", " };
                what += &format!("{} ({})", one.assume, one.evidence);
            }
            Ok(Some(
                Error::new(Kind::Corrupt, sparsebundle::LAYER, what).named("Info.plist"),
            ))
        }
        // Without a key nothing decides.
        Err(error) if error.kind() == Kind::WrongKey => Ok(None),
        Err(error) => Err(error),
    }
}
