//! Decision about stored data that belongs to no part of the disk of a sparse image or ASIF.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::layers::{LayerRepair, starts_with_hole, unit_kind};
use crate::container::asif::Asif;
use crate::container::sparsebundle::{self, BundleGeometry};
use crate::container::sparseimage::SparseImage;
use crate::container::{Format, Orphan, Orphans};
use crate::decision::{Alternative, OrphanChoice, Undecided};
use crate::device::{Access, BlockDevice};
use crate::error::Place;
use crate::open::geometry::{self, Depth, Fact};
use crate::open::{self, OpenOptions, StoredImage, compare_lists, unstored};
use crate::ops::orphans::{OrphanAccount, account, undecided};
use crate::size::counted;
use crate::store::{Open, Staged};
use crate::{Error, Kind, Result};

/// Maximum number of places of the disk that are tried for an orphan.
const MAX_TRIED: usize = 16;

/// An orphan that could be the storage of a band or chunk without any.
struct Restoration {
    /// File offset of the orphan.
    place: u64,
    /// Number of the band or chunk.
    unit: u64,
    /// A clause.
    evidence: String,
}

impl LayerRepair<'_> {
    /// Decides what becomes of the orphans of an image, and performs a restoration, which it adds to
    /// `steps`. Fails with [`Kind::Undecided`] if they may be the data of a place without storage.
    pub(super) fn decide_orphans(
        &mut self,
        format: Format,
        layer: &'static str,
        steps: &mut Vec<String>,
    ) -> Result<Orphans> {
        let (disk, found) = self.opened(self.staged, format)?;
        if found.is_empty() {
            return Ok(Orphans::Remove);
        }
        if self.chosen.assume.orphans == Some(OrphanChoice::Remove) {
            return Ok(Orphans::Remove);
        }
        let bytes: u64 = found.iter().map(|orphan| orphan.len).sum();
        let first = &found[0].what;
        let stored = match found.len() {
            1 => format!("{bytes} stored bytes do not belong to any part of the disk ({first})"),
            more => format!(
                "{bytes} stored bytes do not belong to any part of the disk ({first}, and {} more)",
                more - 1
            ),
        };
        // Without its beginning, the disk may have no map and no volume that tell of other places.
        let starts_with_hole = starts_with_hole(&*disk)?;
        let why = match account(&disk, self.options, self.progress)? {
            OrphanAccount::Accounted => return Ok(Orphans::Remove),
            OrphanAccount::Unknown(why) => {
                if starts_with_hole
                    && let Some(found) =
                        self.restoration(format, &found, std::slice::from_ref(&(0..1)))?
                {
                    steps.push(self.restore(format, &found)?);
                    return Ok(Orphans::Keep);
                }
                let kept = Error::new(
                    Kind::Corrupt,
                    layer,
                    format!("{stored}; kept, because {why}"),
                );
                self.done.refused.push(kept);
                return Ok(Orphans::Keep);
            }
            OrphanAccount::Unresolved {
                why,
                is_sound,
                mut places,
            } => {
                if starts_with_hole {
                    places.push(0..1);
                }
                let restoration = self.restoration(format, &found, &places)?;
                let is_chosen = self.chosen.assume.orphans == Some(OrphanChoice::Restore);
                match restoration {
                    // The volumes are sound with it, and not without it.
                    Some(restoration) if is_chosen || !is_sound => {
                        steps.push(self.restore(format, &restoration)?);
                        return Ok(Orphans::Keep);
                    }
                    Some(restoration) => {
                        let restore = Alternative {
                            assume: "orphans=restore".into(),
                            evidence: restoration.evidence,
                        };
                        return Err(undecided(layer, &stored, &why, Some(restore)));
                    }
                    None => why,
                }
            }
        };
        Err(undecided(layer, &stored, &why, None))
    }

    /// Decides what becomes of data in blocks of an ASIF image that are marked as unwritten, although a
    /// volume uses them. Returns the steps. Fails with [`Kind::Undecided`] if nothing
    /// decides.
    pub(super) fn decide_unwritten(&self) -> Result<Vec<String>> {
        let (image, disk) = self.asif(self.staged)?;
        let mut places = image.unwritten_data(u64::MAX)?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let is_sound = |disk: &Arc<dyn BlockDevice>| {
            let found = geometry::of_disk(disk, self.options, Depth::Full, self.progress)?;
            Ok::<bool, Error>(found.has_sound_volume() && !found.is_contradicted())
        };
        let is_sound_without = is_sound(&disk)?;
        if is_sound_without {
            let (_, volumes) = open::find_contents(&disk)?;
            places = unstored::find_unwritten(&image, &volumes, u64::MAX)?;
        }
        let Some(first) = places.first() else {
            return Ok(Vec::new());
        };
        let restore = |store: &Staged| {
            let (plain, _) = self.plain(store, Open::Write, self.options)?;
            Asif::open(plain)?.restore_unwritten(&places)
        };
        let tried = Staged::new(Arc::new(self.staged.clone()), self.chosen.temporary.clone());
        restore(&tried)?;
        let is_sound_with = is_sound(&self.asif(&tried)?.1)?;
        let bytes: u64 = places.iter().map(|range| range.end - range.start).sum();
        match self.chosen.assume.orphans {
            Some(OrphanChoice::Remove) if is_sound_without => {
                let (plain, _) = self.plain(self.staged, Open::Write, self.options)?;
                Asif::open(plain)?.clear_unwritten(&places)?;
                let step = format!("{bytes} bytes in unwritten blocks are removed");
                return Ok(vec![step]);
            }
            Some(OrphanChoice::Restore) => {}
            _ if is_sound_without => {
                let restore = Alternative {
                    assume: "orphans=restore".into(),
                    evidence: "with the data restored to these blocks all volumes are undamaged"
                        .into(),
                };
                let remove = Alternative {
                    assume: "orphans=remove".into(),
                    evidence: "the data is left from an interrupted write".into(),
                };
                return Err(Undecided {
                    what: unstored::describe_unwritten(first),
                    alternatives: is_sound_with
                        .then_some(restore)
                        .into_iter()
                        .chain([remove])
                        .collect(),
                }
                .into_error("ASIF"));
            }
            // The volumes are sound with the data, and not without it.
            _ if is_sound_with => {}
            _ => return Ok(Vec::new()),
        }
        restore(self.staged)?;
        Ok(vec![format!(
            "{bytes} bytes of the disk that were marked as unwritten are marked as written"
        )])
    }

    /// Opens the ASIF image in a staged file read-only, and returns its disk as well.
    fn asif(&self, store: &Staged) -> Result<(Arc<Asif>, Arc<dyn BlockDevice>)> {
        let reading = OpenOptions {
            access: Access::ReadOnly,
            ..*self.options
        };
        let (plain, is_encrypted) = self.plain(store, Open::Read, &reading)?;
        let image = Asif::open(plain)?;
        let image = Arc::new(if is_encrypted {
            image.encrypted()
        } else {
            image
        });
        let disk: Arc<dyn BlockDevice> = image.clone();
        Ok((image, disk))
    }

    /// Fails with [`Kind::Undecided`] if data past the end of the disk of a bundle, or of one of its
    /// bands, may be data of its volumes.
    pub(super) fn check_leftovers(
        &self,
        geometry: BundleGeometry,
        layer: &'static str,
    ) -> Result<()> {
        let lens = sparsebundle::band_lens(self.staged, self.progress)?;
        let assume = &self.chosen.assume;
        let misplaced = compare_lists::misplaced(geometry, &lens);
        let what = misplaced.iter().find_map(|fact| match fact {
            Fact::BandsPastEnd(files) => {
                let files = counted(*files as u64, "file is", "files are");
                Some(format!("{files} past the end of the disk"))
            }
            Fact::LongBands(_) if assume.band_size.is_none() => Some(fact.to_string()),
            _ => None,
        });
        let Some(what) = what else { return Ok(()) };
        if assume.size.is_some() || assume.orphans == Some(OrphanChoice::Remove) {
            return Ok(());
        }
        let stored = StoredImage::Folder(Arc::new(self.staged.clone()));
        let reading = OpenOptions {
            access: Access::ReadOnly,
            ..*self.options
        };
        let disk = open::disk_of(&self.target.path, stored, &reading)?;
        let account = account(&disk, self.options, self.progress)?;
        let is_long = misplaced
            .iter()
            .any(|fact| matches!(fact, Fact::LongBands(_)));
        match account.objection() {
            Some(why) => Err(undecided(layer, &what, why, None)),
            // Free maps of file systems that are not checked confirm no band size.
            None if is_long => {
                let found = geometry::of_disk(&disk, self.options, Depth::Full, self.progress)?;
                match found.has_sound_volume() {
                    true => Ok(()),
                    false => Err(undecided(layer, &what, "no volume was checked", None)),
                }
            }
            None => Ok(()),
        }
    }

    /// Opens the disk in a staged file read-only. Returns its orphans as well.
    pub(super) fn opened(
        &self,
        store: &Staged,
        format: Format,
    ) -> Result<(Arc<dyn BlockDevice>, Vec<Orphan>)> {
        let reading = OpenOptions {
            access: Access::ReadOnly,
            ..*self.options
        };
        let (plain, is_encrypted) = self.plain(store, Open::Read, &reading)?;
        if format.has_bands() {
            let image = SparseImage::open(plain)?;
            let orphans = image.orphans()?;
            return Ok((Arc::new(image), orphans));
        }
        let mut image = Asif::open(plain)?;
        if is_encrypted {
            image = image.encrypted();
        }
        let orphans = image.orphans()?;
        Ok((Arc::new(image), orphans))
    }

    pub(super) fn plain(
        &self,
        store: &Staged,
        mode: Open,
        options: &OpenOptions<'_>,
    ) -> Result<(Arc<dyn BlockDevice>, bool)> {
        let stored = super::stored(self.target, Arc::new(store.clone()), mode)?;
        let StoredImage::File(file) = stored else {
            return Err(Error::unsupported(super::LAYER, "not a file"));
        };
        let plain = open::plain_of(file.clone(), options)?;
        let is_encrypted = !Arc::ptr_eq(&plain, &file);
        Ok((plain, is_encrypted))
    }

    /// Finds the band or chunk to which stored data without an owner belongs: if there is only one
    /// such piece of data, and only one missing band with which every volume is in order.
    fn restoration(
        &self,
        format: Format,
        orphans: &[Orphan],
        places: &[std::ops::Range<u64>],
    ) -> Result<Option<Restoration>> {
        let [orphan] = orphans else { return Ok(None) };
        let Place::Offset(place) = orphan.place else {
            return Ok(None);
        };
        let size = self.unit_size(format)?;
        let units: BTreeSet<u64> = places
            .iter()
            .flat_map(|range| {
                let last = range.end.saturating_sub(1).max(range.start) / size;
                (range.start / size..=last).take(MAX_TRIED + 1)
            })
            .take(MAX_TRIED + 1)
            .collect();
        if orphan.len != size || units.len() > MAX_TRIED {
            return Ok(None);
        }
        let mut fitting = None;
        for unit in units {
            let tried = Staged::new(Arc::new(self.staged.clone()), self.chosen.temporary.clone());
            let is_partial = match self.restore_in(&tried, format, place, unit) {
                Ok(is_partial) => is_partial,
                Err(error) if error.io_kind().is_some() => return Err(error),
                Err(_) => continue,
            };
            let (disk, _) = self.opened(&tried, format)?;
            let found = account(&disk, self.options, self.progress)?;
            // An older bitmap would hide blocks that are in use.
            if !found.is_geometry_confirmed()
                || (is_partial && !matches!(found, OrphanAccount::Accounted))
            {
                continue;
            }
            if fitting.is_some() {
                return Ok(None);
            }
            let kind = unit_kind(format).words().0;
            let evidence = format!(
                "restored as {kind} {unit}, which is in use but not stored, it leaves all volumes \
                 undamaged"
            );
            fitting = Some(Restoration {
                place,
                unit,
                evidence,
            });
        }
        Ok(fitting)
    }

    fn unit_size(&self, format: Format) -> Result<u64> {
        let reading = OpenOptions {
            access: Access::ReadOnly,
            ..*self.options
        };
        let (plain, _) = self.plain(self.staged, Open::Read, &reading)?;
        Ok(if format.has_bands() {
            SparseImage::open(plain)?.band_size()
        } else {
            Asif::open(plain)?.usage().chunk_size
        })
    }

    fn restore(&self, format: Format, found: &Restoration) -> Result<String> {
        self.restore_in(self.staged, format, found.place, found.unit)?;
        Ok(format!(
            "the data at byte {} is {} {} again",
            found.place,
            unit_kind(format).words().0,
            found.unit
        ))
    }

    /// Returns true if only a part of the unit was written before.
    fn restore_in(&self, store: &Staged, format: Format, place: u64, unit: u64) -> Result<bool> {
        let (plain, _) = self.plain(store, Open::Write, self.options)?;
        if format.has_bands() {
            SparseImage::open(plain)?.restore_band(place, unit)?;
            Ok(false)
        } else {
            Asif::open(plain)?.restore_chunk(place, unit)
        }
    }
}
