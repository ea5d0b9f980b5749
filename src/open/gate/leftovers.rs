//! Data stored past the end of a disk, which an operation would remove or make part of the disk.

use std::sync::Arc;

use super::geometry::{self, Depth, Fact};
use super::{compare_lists, unstored};
use crate::Result;
use crate::container::Orphan;
use crate::container::sparsebundle::{self, Bundle, BundleGeometry};
use crate::decision::{Alternative, Undecided};
use crate::device::BlockDevice;
use crate::open::{OpenOptions, contents};
use crate::progress::{Progress, Silent};
use crate::size::counted;

/// Refuses an operation on the bands of `bundle` that would remove files past the end of the disk, or
/// that depends on the band size while the lengths of files suggest another one, unless a map or
/// volume has the length of the disk, everything on it is in order and nothing in use lacks storage.
/// Lists the bands, once for an open bundle.
///
/// [`Kind::Undecided`] otherwise.
pub(crate) fn check_leftovers(
    bundle: &Bundle,
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    if bundle.are_leftovers_resolved() {
        return Ok(());
    }
    let Some(lens) = bundle.band_lens(progress)? else {
        return Ok(());
    };
    let size = disk.info().len;
    let geometry = BundleGeometry {
        size,
        band_size: bundle.band_size(),
        version: bundle.version(),
    };
    let longer = longer_bands(geometry, &lens);
    let leftovers: Vec<Fact> = compare_lists::misplaced(geometry, &lens)
        .into_iter()
        .filter(|fact| matches!(fact, Fact::BandsPastEnd(_)))
        .collect();
    if leftovers.is_empty() && longer.is_none() {
        bundle.resolve_leftovers();
        return Ok(());
    }
    let mut found = geometry::of_disk(disk, options, Depth::Full, progress)?;
    leftovers.into_iter().for_each(|fact| found.add(fact));
    let is_confirmed = longer.is_none() || found.has_sound_volume();
    if is_confirmed && found.is_consistent_but_for_leftovers() && is_all_stored(disk, progress)? {
        bundle.resolve_leftovers();
        return Ok(());
    }
    if let Some(longer) = longer {
        let alternative = |band_size, evidence: &str| Alternative {
            assume: format!("band-size={band_size}"),
            evidence: evidence.to_owned(),
        };
        return Err(Undecided {
            what: format!(
                "the band size is {}, but there are bands of {longer} bytes",
                geometry.band_size
            ),
            alternatives: vec![
                alternative(longer, "the length of bands"),
                alternative(geometry.band_size, "the lists record it"),
            ],
        }
        .into_error(sparsebundle::LAYER));
    }
    Err(Undecided {
        what: format!(
            "bands are stored past the end of the disk of {size} bytes, and nothing decides \
             whether they belong to it"
        ),
        alternatives: vec![Alternative {
            assume: format!("size={size}"),
            evidence: found.description(),
        }],
    }
    .into_error(sparsebundle::LAYER))
}

/// Refuses to shorten the disk of `bundle` to `len` bytes if that would remove what a file stores past
/// the end of its band: its meaning is not known, and shortening keeps no undo data.
///
/// [`Kind::Undecided`](crate::Kind::Undecided) then.
pub(crate) fn check_excess(bundle: &Bundle, len: u64, progress: &dyn Progress) -> Result<()> {
    if len >= bundle.info().len {
        return Ok(());
    }
    let band_size = bundle.band_size();
    // The last band that stays is truncated, and those after it are removed.
    let first = len.saturating_sub(1) / band_size;
    let lens = bundle.band_lens(progress)?.unwrap_or_default();
    let longer = lens
        .into_iter()
        .find(|(index, len)| *index >= first && *len > band_size);
    match longer {
        None => Ok(()),
        Some((index, len)) => Err(Undecided {
            what: format!(
                "{} has {} past the end of its band, which a shorter disk would remove without undo \
                 data: run `bandsaw repair` first",
                sparsebundle::band_name(index),
                counted(len - band_size, "byte", "bytes")
            ),
            alternatives: Vec::new(),
        }
        .into_error(sparsebundle::LAYER)),
    }
}

/// Refuses to grow a disk in a file that stores `orphans` past its end, which are removed first, unless a
/// map or volume has the length of the disk, or a whole map that of the disk before it grew, everything
/// on it is in order and all that is in use is stored. [`Kind::Undecided`] otherwise.
pub(crate) fn check_past_end(
    disk: &Arc<dyn BlockDevice>,
    orphans: &[Orphan],
    layer: &'static str,
) -> Result<()> {
    let Some(first) = orphans.iter().find(|orphan| orphan.is_past_end) else {
        return Ok(());
    };
    let found = geometry::of_disk(disk, &OpenOptions::default(), Depth::Full, &Silent)?;
    let is_confirmed = found.is_consistent() || found.is_consistent_but_for_growth();
    if is_confirmed && is_all_stored(disk, &Silent)? {
        return Ok(());
    }
    Err(Undecided {
        what: format!(
            "{}, and nothing decides whether it belongs to it",
            first.what
        ),
        alternatives: vec![Alternative {
            assume: "orphans=remove".into(),
            evidence: found.description(),
        }],
    }
    .into_error(layer))
}

/// Returns true if every place of `disk` that its volumes use is stored: what is stored past its end is no
/// part of it then.
fn is_all_stored(disk: &Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<bool> {
    let disk = &geometry::recovered(disk)?;
    let (map, volumes) = contents::find(disk)?;
    let found = unstored::find(disk, map.as_ref(), &volumes, progress)?;
    Ok(found.places.is_empty())
}

/// Returns a band size that the lengths of the files support better than the lists.
fn longer_bands(geometry: BundleGeometry, lens: &[(u64, u64)]) -> Option<u64> {
    sparsebundle::band_size_by_lengths(geometry.band_size, lens.iter().map(|(_, len)| *len))
}
