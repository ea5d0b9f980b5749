//! Accounting of stored data that belongs to no part of a disk: it may be removed if nothing can
//! refer to it.

use std::ops::Range;
use std::sync::Arc;

use crate::container::Orphan;
use crate::container::sparsebundle::Bundle;
use crate::decision::{Alternative, Undecided};
use crate::device::BlockDevice;
use crate::error::Place;
use crate::open::geometry::{self, Depth};
use crate::open::{self, Image, Layer, OpenOptions, unstored};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// Result of the accounting of orphans.
#[derive(Debug)]
pub enum OrphanAccount {
    /// All volumes are sound, and every place of the disk without storage is free in them: nothing
    /// refers to the orphans.
    Accounted,
    /// A volume is not sound, or uses places of the disk without storage. The orphans may be the
    /// data of these places.
    Unresolved {
        /// The reason, a clause.
        why: String,
        /// True if all volumes are sound.
        is_sound: bool,
        /// Ranges of the disk that are used and not stored.
        places: Vec<Range<u64>>,
    },
    /// The contents of the disk are not known, so that they tell nothing about the orphans.
    Unknown(String),
}

impl OrphanAccount {
    /// Returns the reason why the orphans must be kept; `None` if they may be removed.
    pub(crate) fn objection(&self) -> Option<&str> {
        match self {
            Self::Accounted => None,
            Self::Unresolved { why, .. } | Self::Unknown(why) => Some(why),
        }
    }

    /// Returns true if the volumes confirm the geometry of the disk.
    pub fn is_geometry_confirmed(&self) -> bool {
        match self {
            Self::Accounted => true,
            Self::Unresolved { is_sound, .. } => *is_sound,
            Self::Unknown(_) => false,
        }
    }
}

/// Decides whether the orphans of an image with this disk may be removed. All volumes are checked.
pub(crate) fn account(
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<OrphanAccount> {
    let disk = &geometry::recovered(disk)?;
    let unresolved = |why: String| OrphanAccount::Unresolved {
        why,
        is_sound: false,
        places: Vec::new(),
    };
    let (map, volumes) = match open::find_contents(disk) {
        Ok(found) => found,
        Err(error) if error.io_kind().is_some() => return Err(error),
        Err(error) => return Ok(unresolved(error.message().to_owned())),
    };
    if volumes.is_empty() {
        return Ok(OrphanAccount::Unknown(
            "the disk has no known volume".into(),
        ));
    }
    let found = match geometry::of_disk(disk, options, Depth::Full, progress) {
        Ok(found) => found,
        Err(error) if error.kind() == Kind::WrongKey => {
            return Ok(OrphanAccount::Unknown(error.message().to_owned()));
        }
        Err(error) => return Err(error),
    };
    let unstored = unstored::find(disk, map.as_ref(), &volumes, progress)?;
    if let Some(first) = found.against().next() {
        return Ok(OrphanAccount::Unresolved {
            why: first.to_string(),
            is_sound: false,
            places: unstored.places,
        });
    }
    if let Some(first) = unstored.places.first() {
        let why = format!(
            "bytes {} to {} of the disk are in use but not stored",
            first.start, first.end
        );
        return Ok(OrphanAccount::Unresolved {
            why,
            is_sound: true,
            places: unstored.places,
        });
    }
    Ok(match unstored.unknown {
        None => OrphanAccount::Accounted,
        Some(why) => OrphanAccount::Unresolved {
            why,
            is_sound: true,
            places: Vec::new(),
        },
    })
}

/// Returns the question about orphans that `stored` names: they are kept because of `why`, unless one
/// of the alternatives is chosen.
pub(crate) fn undecided(
    layer: &'static str,
    stored: &str,
    why: &str,
    restore: Option<Alternative>,
) -> Error {
    let remove = Alternative {
        assume: "orphans=remove".into(),
        evidence: "they are left from an interrupted write".into(),
    };
    let what = format!("{stored}, and {why}: the index may be damaged");
    let alternatives = restore.into_iter().chain([remove]).collect();
    Undecided { what, alternatives }.into_error(layer)
}

/// Decides whether the orphans of an open image may be removed.
pub(crate) fn account_image(
    image: &Image,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<OrphanAccount> {
    account_layers(image.layers(), image.disk(), options, progress)
}

fn account_layers(
    layers: &[Layer],
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<OrphanAccount> {
    let mut bundles = layers.iter().filter_map(Layer::bundle);
    if bundles.any(|bundle| !bundle.do_lists_agree()) {
        return Ok(OrphanAccount::Unresolved {
            why: "the property lists do not agree".into(),
            is_sound: false,
            places: Vec::new(),
        });
    }
    account(disk, options, progress)
}

/// Fails with [`Kind::Undecided`] if orphans may be the data of places that are in use: volumes may
/// then be at other places than the index says.
pub(crate) fn refuse_orphans(
    image: &Image,
    layer: &'static str,
    progress: &dyn Progress,
) -> Result<()> {
    refuse_orphans_below(image.layers(), image.disk(), layer, progress)
}

/// Does the same as [`refuse_orphans`] for an image of these layers.
pub(crate) fn refuse_orphans_below(
    layers: &[Layer],
    disk: &Arc<dyn BlockDevice>,
    layer: &'static str,
    progress: &dyn Progress,
) -> Result<()> {
    check_found(layers, disk, &of_layers(layers, progress)?, layer, progress)?;
    let is_overlaid = layers.iter().any(|layer| layer.overlay().is_some());
    match layers.iter().find_map(Layer::bundle) {
        Some(bundle) if !is_overlaid => check_names(bundle, disk, layer, progress),
        _ => Ok(()),
    }
}

/// Fails with [`Kind::Undecided`] if a bundle has files with data that are not called as bands are, and
/// lacks bands that are in use on its `disk`.
pub(crate) fn check_names(
    bundle: &Bundle,
    disk: &Arc<dyn BlockDevice>,
    layer: &'static str,
    progress: &dyn Progress,
) -> Result<()> {
    if bundle.is_between() {
        return Ok(());
    }
    let found = bundle.misnamed(progress)?;
    let Some(first) = found.first() else {
        return Ok(());
    };
    let Place::Name(name) = &first.place else {
        return Ok(());
    };
    match account(disk, &OpenOptions::default(), progress)? {
        OrphanAccount::Unresolved { why, places, .. } if !places.is_empty() => Err(Undecided {
            what: format!(
                "{name} is not the name of a band, and {why}: rename the file if it is the missing \
                 band, or move it out of the bundle"
            ),
            alternatives: Vec::new(),
        }
        .into_error(layer)),
        _ => Ok(()),
    }
}

/// Does the same as [`check_layers`], with the orphans of the image.
pub(crate) fn check_found(
    layers: &[Layer],
    disk: &Arc<dyn BlockDevice>,
    found: &[Orphan],
    layer: &'static str,
    progress: &dyn Progress,
) -> Result<()> {
    let Some(first) = found.first() else {
        return Ok(());
    };
    let account = account_layers(layers, disk, &OpenOptions::default(), progress)?;
    let Some(why) = account.objection() else {
        return Ok(());
    };
    let bytes: u64 = found.iter().map(|orphan| orphan.len).sum();
    let stored = format!(
        "{bytes} stored bytes do not belong to any part of the disk ({})",
        first.what
    );
    Err(undecided(layer, &stored, why, None))
}

/// Returns the reason if what reads as zeros in this image may be stored data that it does not find.
pub fn doubt(image: &Image, progress: &dyn Progress) -> Result<Option<String>> {
    match refuse_orphans(image, "image", progress) {
        Ok(()) => {}
        Err(error) if error.kind() == Kind::Undecided => {
            return Ok(Some(error.message().to_owned()));
        }
        Err(error) => return Err(error),
    }
    // A writer has passed the gate, which compares this too.
    let Some(asif) = image.asif().filter(|_| image.overlays().next().is_none()) else {
        return Ok(None);
    };
    let hidden = unstored::find_unwritten(asif, image.volumes(), u64::MAX)?;
    Ok(hidden.first().map(unstored::describe_unwritten))
}

/// Finds the orphans of an open image; none in a layer over it.
pub(crate) fn of_image(image: &Image, progress: &dyn Progress) -> Result<Vec<Orphan>> {
    of_layers(image.layers(), progress)
}

fn of_layers(layers: &[Layer], progress: &dyn Progress) -> Result<Vec<Orphan>> {
    if layers.iter().any(|layer| layer.overlay().is_some()) {
        return Ok(Vec::new());
    }
    if let Some(image) = layers.iter().find_map(Layer::sparse_image) {
        return image.orphans();
    }
    if let Some(image) = layers.iter().find_map(Layer::asif) {
        return image.orphans();
    }
    match layers.iter().find_map(Layer::bundle) {
        Some(bundle) if !bundle.is_between() => bundle.orphans(progress),
        _ => Ok(Vec::new()),
    }
}
