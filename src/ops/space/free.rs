//! Space that no volume of a disk uses, as far as the volumes can be trusted.

use std::ops::Range;
use std::sync::Arc;

use crate::fs::{FreeMap, FreeMapExt};
use crate::open::key_cache::CachedKeys;
use crate::open::{Image, Keys, Volume};
use crate::partition::Map;
use crate::progress::Progress;
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "free space";

/// Opens the free map of a volume.
type OpenMap = fn(&Volume) -> Result<Option<Arc<dyn FreeMap>>>;

/// A volume with its free map.
#[derive(Debug)]
pub struct FreeVolume {
    /// The volume.
    pub volume: Volume,
    /// The free map, or the reason why it cannot be trusted.
    pub map: Result<Arc<dyn FreeMap>>,
}

/// The free space of all volumes of a disk.
#[derive(Debug)]
pub struct FreeSpace {
    /// The volumes, in the order of the disk.
    pub volumes: Vec<FreeVolume>,
}

impl FreeSpace {
    /// Opens the free maps of all volumes and checks each quickly: the volume was cleanly
    /// unmounted, its journal is empty, and its own structures are marked as used. Space outside of
    /// volumes counts as used.
    pub fn of(image: &Image) -> Self {
        Self::with(image, Volume::trusted_free_map)
    }

    /// Opens the free maps in the state after a trim, which frees more space first. For estimates.
    pub fn projected_free(image: &Image) -> Self {
        Self::with(image, Volume::projected_free_map)
    }

    fn with(image: &Image, map: OpenMap) -> Self {
        let mut volumes: Vec<_> = image
            .volumes()
            .iter()
            .map(|volume| FreeVolume::of(volume, image.partitions(), map))
            .collect();
        volumes.sort_by_key(|found| found.volume.range.start);
        Self { volumes }
    }

    /// Marks the free maps of foreign file systems as not to be used.
    pub(crate) fn without_foreign(mut self) -> Self {
        for found in &mut self.volumes {
            if found.volume.format.is_foreign() {
                found.map = Err(Error::unsupported(
                    LAYER,
                    "free space of foreign file systems is discarded by `bandsaw trim` and \
                     `compact` only",
                ));
            }
        }
        self
    }

    /// Marks the free maps of these volumes as not to be used.
    pub(crate) fn without(mut self, unconfirmed: &UnconfirmedVolumes) -> Self {
        for found in &mut self.volumes {
            let place = found.volume.place();
            if found.map.is_ok()
                && let Some(error) = unconfirmed.error_of(&place)
            {
                found.map = Err(error.in_file(place));
            }
        }
        self
    }

    /// Returns the free runs of all trusted volumes, in disk order. An error ends the runs of its
    /// volume.
    pub fn runs(&self) -> impl Iterator<Item = Result<Range<u64>>> + '_ {
        self.volumes.iter().flat_map(FreeVolume::runs)
    }

    /// Returns true if no volume of the disk has a free map of a supported format.
    pub fn is_unknown(&self) -> bool {
        self.volumes.iter().all(|found| {
            found
                .map
                .as_ref()
                .is_err_and(|error| error.kind() == Kind::Unsupported)
        })
    }
}

impl FreeVolume {
    fn of(volume: &Volume, map: Option<&Map>, open: OpenMap) -> Self {
        let map = check_alone(volume, map)
            .and_then(|()| open(volume))
            .and_then(|found| {
                found.ok_or_else(|| {
                    Error::unsupported(
                        LAYER,
                        format!("unsupported: free space of {}", volume.format),
                    )
                })
            });
        Self {
            volume: volume.clone(),
            map: map.map_err(|error| error.in_file(volume.place())),
        }
    }

    /// Returns the free runs as disk offsets; none if the map cannot be trusted.
    pub fn runs(&self) -> impl Iterator<Item = Result<Range<u64>>> + '_ {
        let Range { start, end } = self.volume.range.clone();
        let runs = self
            .map
            .as_ref()
            .ok()
            .map(|map| map.free_runs(0..end - start));
        runs.into_iter()
            .flatten()
            .map(move |run| run.map(|run| start + run.start..start + run.end))
    }
}

/// The volumes of an image whose free maps are not used, because nothing confirms them.
#[derive(Debug, Default)]
pub(crate) struct UnconfirmedVolumes(Vec<UnconfirmedPlace>);

#[derive(Debug)]
struct UnconfirmedPlace {
    place: String,
    kind: Kind,
    reason: Option<Reason>,
    why: String,
}

impl UnconfirmedVolumes {
    /// Tries `keys` on all encrypted volumes of `image`, and finds the APFS containers in which a
    /// volume stays locked.
    pub(crate) fn locked(image: &Image, keys: Option<&dyn Keys>) -> Self {
        let found = image.volumes().iter().filter_map(|volume| {
            let error = volume.find_locked(keys)?;
            Some(UnconfirmedPlace::new(volume, &error))
        });
        Self(found.collect())
    }

    /// Finds the volumes that are locked, and checks all others: those that are damaged are added.
    pub(crate) fn checked(
        image: &Image,
        keys: Option<&dyn Keys>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let keys = keys.map(CachedKeys::new);
        let keys = keys.as_ref().map(|keys| keys as &dyn Keys);
        let confirm = |volume: &Volume| volume.confirm_free_map(keys, progress);
        Self::locked(image, keys).and(image, &confirm)
    }

    /// Adds the volumes that `confirm` refuses.
    pub(crate) fn and(
        mut self,
        image: &Image,
        confirm: &dyn Fn(&Volume) -> Result<()>,
    ) -> Result<Self> {
        for volume in image.volumes() {
            if self.error_of(&volume.place()).is_some() {
                continue;
            }
            match confirm(volume) {
                Ok(()) => {}
                Err(error) if error.kind() == Kind::Cancelled || error.io_kind().is_some() => {
                    return Err(error);
                }
                Err(error) => self.0.push(UnconfirmedPlace::new(volume, &error)),
            }
        }
        Ok(self)
    }

    fn error_of(&self, place: &str) -> Option<Error> {
        let found = self.0.iter().find(|locked| locked.place == place)?;
        let error = Error::new(found.kind, LAYER, found.why.clone());
        Some(match found.reason {
            Some(reason) => error.because(reason),
            None => error,
        })
    }
}

impl UnconfirmedPlace {
    fn new(volume: &Volume, error: &Error) -> Self {
        Self {
            place: volume.place(),
            kind: error.kind(),
            reason: error.reason(),
            why: error.message().to_owned(),
        }
    }
}

/// Refuses a volume that overlaps another partition: space that is free in one may be used by the
/// other.
fn check_alone(volume: &Volume, map: Option<&Map>) -> Result<()> {
    let partitions = map.map(|map| map.partitions.as_slice()).unwrap_or_default();
    let others = partitions.iter().filter(|other| {
        volume
            .partition
            .is_some_and(|number| number != other.number)
    });
    match others
        .into_iter()
        .find(|other| other.range.start < volume.range.end && volume.range.start < other.range.end)
    {
        None => Ok(()),
        Some(other) => Err(Error::new(
            Kind::Corrupt,
            LAYER,
            format!("overlaps partition {}", other.number),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Format;
    use crate::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
    use crate::ops::format::NewFormat;
    use crate::partition;
    use crate::progress::Silent;

    #[test]
    fn a_volume_that_overlaps_another_partition_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let volume = NewVolume {
            layout: Layout::Gptspud,
            name: "Docs".into(),
            format: NewFormat::HfsPlus,
            block_size: None,
            source: Source::Empty,
        };
        let options = CreateOptions {
            format: Format::Udrw,
            len: Some(8 << 20),
            volume: Some(volume),
            ..CreateOptions::default()
        };
        let image = create(&folder.path().join("a.dmg"), options, &Silent)
            .unwrap()
            .image;
        let volume = &image.volumes()[0];
        let mut map = partition::probe(&**image.disk()).unwrap().unwrap();
        assert!(
            FreeVolume::of(volume, Some(&map), Volume::trusted_free_map)
                .map
                .is_ok()
        );
        let mut other = map.partitions[0].clone();
        (other.number, other.range) = (7, volume.range.end - 512..volume.range.end + 512);
        map.partitions.push(other);
        let found = FreeVolume::of(volume, Some(&map), Volume::trusted_free_map);
        assert!(
            found
                .map
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("overlaps partition 7")
        );
        assert_eq!(found.runs().count(), 0);
    }
}
