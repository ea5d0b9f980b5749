//! Decision between the property lists of a sparse bundle, based on all other evidence.
//!
//! One decision: each kind of evidence narrows the candidates that the one before has left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;

use super::geometry::{self, Depth, Evidence, Fact};
use crate::container::sparsebundle::{self, BundleGeometry, ListState, name_of};
use crate::decision::{Alternative, Assumptions, CopyChoice, Undecided};
use crate::device::BlockDevice;
use crate::open::staged_image::StagedImage;
use crate::open::{LAYER, OpenOptions, find_volumes, staged_disk};
use crate::partition::gpt;
use crate::progress::{Progress, Silent};
use crate::store::{Staged, Store};
use crate::{Error, Kind, Result};

/// Band sizes tried if that in the lists seems wrong, as powers of two, in addition to the length
/// of the longest band file.
const BAND_SIZES: std::ops::RangeInclusive<u32> = 20..=33;

/// The inputs of a decision about the lists of a bundle.
pub(crate) struct ListEvidence<'a> {
    pub(crate) path: &'a Path,
    pub(crate) store: &'a Staged,
    pub(crate) options: &'a OpenOptions<'a>,
    pub(crate) assume: &'a Assumptions,
    pub(crate) temporary: &'a Path,
    pub(crate) depth: Depth,
    pub(crate) progress: &'a dyn Progress,
}

/// A possible combination of disk size and band size.
struct Candidate {
    geometry: BundleGeometry,
    /// Number of lists with this size, and with this band size.
    lists: [usize; 2],
    evidence: Evidence,
}

/// The values that are tried, each sorted.
struct TriedValues {
    sizes: Vec<u64>,
    band_sizes: Vec<u64>,
}

impl TriedValues {
    /// Returns the choice of `--assume` that names those of these values which are in doubt.
    fn choice(&self, geometry: BundleGeometry) -> String {
        let size = format!("size={}", geometry.size);
        let band_size = format!("band-size={}", geometry.band_size);
        match (self.sizes.len() > 1, self.band_sizes.len() > 1) {
            (true, true) => format!("{size} {band_size}"),
            (false, true) => band_size,
            _ => size,
        }
    }
}

/// The values in the lists.
#[derive(Clone, Copy)]
struct Recorded<'a> {
    /// Those of each list that has some, at least one.
    geometries: &'a [BundleGeometry],
    /// True if no list contradicts them.
    agreed: bool,
}

/// Result of a decision.
pub(crate) enum ListDecision {
    /// Values that both lists have, or are to be given. `is_whole` is true if data past the end of
    /// the disk does not belong to it.
    Geometry {
        geometry: BundleGeometry,
        is_whole: bool,
    },
    /// The lists cannot be decided.
    Refused(Error),
}

/// Returns `None` for structures that cannot be used. A read error is returned: it is no evidence
/// about the image.
fn readable<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == Kind::Io => Err(error),
        found => Ok(found.ok()),
    }
}

impl ListEvidence<'_> {
    /// Decides, or fails with [`Kind::Undecided`].
    pub(crate) fn resolve(&self) -> Result<ListDecision> {
        let both = both(self.store, true)?;
        if let Some(error) = both.iter().find_map(|listed| match listed {
            ListState::Between(error) => Some(error),
            // Another version or type: the contents of the disk cannot support or contradict it.
            ListState::Refused(error) if error.kind() == Kind::Unsupported => Some(error),
            _ => None,
        }) {
            return Ok(ListDecision::Refused(Error::new(
                error.kind(),
                LAYER,
                error.to_string(),
            )));
        }
        let geometry: Vec<BundleGeometry> = both.iter().filter_map(ListState::geometry).collect();
        let Some(&first) = geometry.first() else {
            let mut errors = both.into_iter().filter_map(|listed| match listed {
                ListState::Unreadable(error) | ListState::Refused(error) => Some(error),
                _ => None,
            });
            let error = errors
                .next()
                .unwrap_or_else(|| Error::not_found(LAYER, "Info.plist"));
            return Ok(ListDecision::Refused(error));
        };
        let refused = both
            .iter()
            .any(|listed| matches!(listed, ListState::Refused(_)));
        let agreed = !refused && geometry.iter().all(|other| *other == first);
        let is_assumed = self.assume.size.is_some() || self.assume.band_size.is_some();
        if agreed && !is_assumed && self.is_quiet(first)? {
            return Ok(ListDecision::Geometry {
                geometry: first,
                is_whole: true,
            });
        }
        if geometry.iter().any(|other| other.version != first.version) {
            let what = format!(
                "{} has version {}, {} has version {}; correct one of them by hand",
                name_of(CopyChoice::Primary),
                first.version.number(),
                name_of(CopyChoice::Alternate),
                geometry[1].version.number()
            );
            return Err(Undecided {
                what,
                alternatives: Vec::new(),
            }
            .into_error(sparsebundle::LAYER));
        }
        self.decide(Recorded {
            geometries: &geometry,
            agreed,
        })
    }

    /// Returns true if nothing contradicts lists that agree: no file extends past the end of the
    /// disk, none suggests another band size, and a quick check finds the partition map in its place.
    fn is_quiet(&self, geometry: BundleGeometry) -> Result<bool> {
        let lens = sparsebundle::band_lens(self.store, self.progress)?;
        let lengths: Vec<u64> = lens.iter().map(|(_, len)| *len).collect();
        if !misplaced(geometry, &lens).is_empty()
            || sparsebundle::other_band_size(geometry.band_size, &lengths).is_some()
        {
            return Ok(false);
        }
        // Plausibility of the length, and integrity of the map.
        let looked = self.disk(geometry).and_then(|disk| {
            Ok((
                geometry::is_plausible(&*disk)?,
                gpt::are_copies_whole(&*disk)?,
            ))
        });
        match looked {
            Ok((true, Some(false))) => {}
            // The beginning of the map may be lost, and its backup be elsewhere.
            Ok((true, None)) => {
                let recorded = self.recorded_size(geometry, &lens)?;
                return Ok(recorded.is_none_or(|recorded| recorded == geometry.size));
            }
            Ok((is_plausible, _)) => return Ok(is_plausible),
            Err(error) if is_of_facts(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        // The backup may be damaged, or the band size may be wrong.
        Ok(self.whole_with_another(geometry, &lens)?.is_none())
    }

    /// Returns true if the backup of the partition map is found with another usual band size.
    pub(in crate::open) fn has_other_band_size(&self, geometry: BundleGeometry) -> Result<bool> {
        Ok(self.whole_with_another(geometry, &[])?.is_some())
    }

    /// Returns the length of the disk according to a partition map or a volume whose place the disk
    /// with these values need not have.
    pub(in crate::open) fn len_by_backup(&self, geometry: BundleGeometry) -> Result<Option<u64>> {
        let lens = sparsebundle::band_lens(self.store, self.progress)?;
        self.recorded_size(geometry, &lens)
    }

    /// Returns another band size with which both copies of the partition map are whole.
    fn whole_with_another(
        &self,
        geometry: BundleGeometry,
        lens: &[(u64, u64)],
    ) -> Result<Option<u64>> {
        for band_size in self
            .likely_sizes(lens)
            .filter(|size| *size != geometry.band_size)
        {
            if self.has_whole_map(BundleGeometry {
                band_size,
                ..geometry
            })? {
                return Ok(Some(band_size));
            }
        }
        Ok(None)
    }

    /// Decides by all evidence between the numbers in the lists, which agree, and others.
    pub(in crate::open) fn decide_agreed(&self) -> Result<ListDecision> {
        let both = both(self.store, true)?;
        let geometry: Vec<BundleGeometry> = both.iter().filter_map(ListState::geometry).collect();
        match geometry.first() {
            Some(_) => self.decide(Recorded {
                geometries: &geometry,
                agreed: true,
            }),
            None => Ok(ListDecision::Refused(Error::not_found(LAYER, "Info.plist"))),
        }
    }

    fn likely_sizes(&self, lens: &[(u64, u64)]) -> impl Iterator<Item = u64> + use<> {
        let longest = lens
            .iter()
            .map(|(_, len)| *len)
            .max()
            .filter(|len| *len > 0 && len.is_multiple_of(512));
        BAND_SIZES.map(|power| 1 << power).chain(longest)
    }

    /// Returns the disk with other values than those in the lists.
    fn disk(&self, geometry: BundleGeometry) -> Result<Arc<dyn BlockDevice>> {
        let tried = Staged::new(Arc::new(self.store.clone()), self.temporary.to_owned());
        sparsebundle::put_lists(&tried, geometry)?;
        staged_disk(self.path, &StagedImage::of(&tried, None)?, self.options)
    }

    fn decide(&self, recorded: Recorded<'_>) -> Result<ListDecision> {
        let lens = sparsebundle::band_lens(self.store, self.progress)?;
        let tried = self.tried_values(recorded, &lens)?;
        let fits =
            |assumed: Option<u64>, number: u64| assumed.is_none_or(|assumed| assumed == number);
        let mut candidates = Vec::new();
        for &size in &tried.sizes {
            for &band_size in &tried.band_sizes {
                if fits(self.assume.size, size) && fits(self.assume.band_size, band_size) {
                    let geometry = BundleGeometry {
                        size,
                        band_size,
                        version: recorded.geometries[0].version,
                    };
                    candidates.push(self.candidate(geometry, recorded.geometries, &lens)?);
                }
            }
        }
        self.choose(candidates, recorded, &tried)
    }

    /// Returns the values in the lists, and others that the bands, the partition map or the user suggest.
    fn tried_values(&self, recorded: Recorded<'_>, lens: &[(u64, u64)]) -> Result<TriedValues> {
        let geometries = recorded.geometries.iter();
        let mut by_disk = Vec::new();
        for geometry in geometries.clone() {
            by_disk.extend(self.recorded_size(*geometry, lens)?);
        }
        let mut sizes: Vec<u64> = geometries
            .clone()
            .map(|geometry| geometry.size)
            .chain(by_disk.iter().copied())
            .collect();
        let mut band_sizes: Vec<u64> = geometries
            .clone()
            .map(|geometry| geometry.band_size)
            .collect();
        if recorded.agreed
            && let Some(&size) = by_disk.first()
        {
            for band_size in self.likely_sizes(lens) {
                let geometry = BundleGeometry {
                    band_size,
                    size,
                    ..recorded.geometries[0]
                };
                if self.has_whole_map(geometry)? {
                    band_sizes.push(band_size);
                }
            }
        }
        let lengths: Vec<u64> = lens.iter().map(|(_, len)| *len).collect();
        band_sizes.extend(
            geometries
                .filter_map(|listed| sparsebundle::other_band_size(listed.band_size, &lengths)),
        );
        sizes.extend(self.assume.size);
        band_sizes.extend(self.assume.band_size);
        for numbers in [&mut sizes, &mut band_sizes] {
            numbers.sort_unstable();
            numbers.dedup();
        }
        Ok(TriedValues { sizes, band_sizes })
    }

    /// Returns true if the disk with these values has a GPT whose copies agree.
    fn has_whole_map(&self, geometry: BundleGeometry) -> Result<bool> {
        let whole = self
            .disk(geometry)
            .and_then(|disk| gpt::are_copies_whole(&*disk));
        Ok(readable(whole)?.flatten() == Some(true))
    }

    /// Returns the length of the disk according to a partition map at its beginning, to a volume
    /// that spans it, or to a backup map at the end of the stored data.
    fn recorded_size(&self, geometry: BundleGeometry, lens: &[(u64, u64)]) -> Result<Option<u64>> {
        // Both are read regardless of the size in the lists, if the bands extend far enough.
        let most = lens
            .iter()
            .map(|(index, _)| *index)
            .max()
            .and_then(|last| last.checked_add(1)?.checked_mul(geometry.band_size));
        let Some(most) = most else { return Ok(None) };
        let disk = self.disk(BundleGeometry {
            size: geometry.size.max(most),
            ..geometry
        });
        let Some(disk) = readable(disk)? else {
            return Ok(None);
        };
        let recorded = match readable(gpt::recorded_len(&*disk))? {
            None => None,
            Some(Some(recorded)) => Some(recorded),
            Some(None) => match readable(find_volumes(&disk, None))?.as_deref() {
                Some([volume, ..]) => readable(volume.recorded_len())?.flatten(),
                _ => {
                    let end = lens.iter().max().map(|(last, len)| {
                        let start = last.saturating_mul(geometry.band_size);
                        start.saturating_add(*len).min(disk.info().len)
                    });
                    readable(gpt::recorded_by_backup(&*disk, end.unwrap_or(0)))?.flatten()
                }
            },
        };
        Ok(recorded.filter(|recorded| recorded.is_multiple_of(512)))
    }

    fn candidate(
        &self,
        geometry: BundleGeometry,
        recorded: &[BundleGeometry],
        lens: &[(u64, u64)],
    ) -> Result<Candidate> {
        let count = |same: &dyn Fn(&BundleGeometry) -> bool| {
            recorded.iter().filter(|recorded| same(recorded)).count()
        };
        let lists = [
            count(&|recorded| recorded.size == geometry.size),
            count(&|recorded| recorded.band_size == geometry.band_size),
        ];
        let misplaced = misplaced(geometry, lens);
        let found = self
            .disk(geometry)
            .and_then(|disk| geometry::of_disk(&disk, self.options, self.depth, self.progress));
        let mut evidence = match found {
            Ok(evidence) => evidence,
            Err(error) if is_of_facts(&error) => {
                let mut evidence = Evidence::default();
                evidence.add(Fact::Unreadable(error.message().to_owned()));
                evidence
            }
            Err(error) => return Err(error),
        };
        misplaced.into_iter().for_each(|fact| evidence.add(fact));
        Ok(Candidate {
            geometry,
            lists,
            evidence,
        })
    }

    /// Returns the only candidate consistent with all independent sources, or the one that the user
    /// has chosen.
    fn choose(
        &self,
        mut candidates: Vec<Candidate>,
        recorded: Recorded<'_>,
        tried: &TriedValues,
    ) -> Result<ListDecision> {
        let is_assumed = self.assume.size.is_some() || self.assume.band_size.is_some();
        if is_assumed && candidates.len() == 1 {
            return Ok(ListDecision::Geometry {
                geometry: candidates[0].geometry,
                is_whole: true,
            });
        }
        // Data past the end of the disk or of a band contradicts a candidate only if another one has
        // space for it.
        let is_sound = |candidate: &&Candidate| {
            let Candidate {
                geometry,
                lists,
                evidence,
            } = candidate;
            let is_agreed = recorded.agreed && *geometry == recorded.geometries[0];
            let is_consistent = evidence.is_consistent()
                || (is_agreed && evidence.is_consistent_but_for_leftovers());
            is_consistent && lists.iter().all(|lists| *lists > 0) && (!recorded.agreed || is_agreed)
        };
        let rivals = candidates
            .iter()
            .filter(|candidate| candidate.evidence.is_consistent())
            .count();
        let mut sound = candidates.iter().filter(is_sound);
        if let (Some(only), None) = (sound.next(), sound.next())
            && rivals <= usize::from(only.evidence.is_consistent())
        {
            return Ok(ListDecision::Geometry {
                geometry: only.geometry,
                is_whole: true,
            });
        }
        candidates.sort_by_key(|candidate| {
            (
                candidate.evidence.against().count(),
                usize::MAX - candidate.evidence.support().count(),
                usize::MAX - candidate.lists.iter().sum::<usize>(),
            )
        });
        Err(undecided(&candidates, recorded, tried).into_error(sparsebundle::LAYER))
    }
}

/// Returns the alternatives, the best first as they are sorted, each with its evidence.
fn undecided(candidates: &[Candidate], recorded: Recorded<'_>, tried: &TriedValues) -> Undecided {
    let what = match recorded.geometries {
        [one, other] if one != other => format!(
            "Info.plist records {} bytes in bands of {}, Info.bckup {} bytes in bands of {}, \
             and nothing decides which is right; macOS writes Info.bckup first, so after a \
             crash that is the newer one",
            one.size, one.band_size, other.size, other.band_size
        ),
        lists => format!(
            "the property lists record {} bytes in bands of {}, but the rest of the bundle \
             does not agree",
            lists[0].size, lists[0].band_size
        ),
    };
    let alternative = |candidate: &Candidate| {
        let by = match candidate.lists.iter().min().copied().unwrap_or_default() {
            0 => "no list records it",
            1 if recorded.geometries.len() == 2 => "one list records it",
            1 => "the only list records it",
            _ => "both lists record it",
        };
        Alternative {
            assume: tried.choice(candidate.geometry),
            evidence: format!("{by}, {}", candidate.evidence.description()),
        }
    };
    Undecided {
        what,
        alternatives: candidates.iter().map(alternative).collect(),
    }
}

/// Reads both lists, with `at_once` at the same time: in a bucket, each is a request, and in a folder, a
/// thread costs more than to read one. The copy that an interrupted change of the size left counts as the
/// primary.
pub(super) fn both(store: &dyn Store, at_once: bool) -> Result<[ListState; 2]> {
    let read = |which| sparsebundle::listed(store, which);
    let unless_resizing = |primary, alternate| match (primary, alternate) {
        (ListState::Whole(info), ListState::Whole(backup))
            if info != backup && sparsebundle::is_resizing(store, [info, backup]) =>
        {
            [ListState::Whole(info), ListState::Whole(info)]
        }
        both => both.into(),
    };
    if !at_once {
        return Ok(unless_resizing(
            read(CopyChoice::Primary)?,
            read(CopyChoice::Alternate)?,
        ));
    }
    std::thread::scope(|scope| {
        let thread = Builder::new().spawn_scoped(scope, || read(CopyChoice::Alternate));
        let primary = read(CopyChoice::Primary);
        let failed = |_| {
            Err(Error::new(
                Kind::Io,
                LAYER,
                "the thread that reads the alternate list failed",
            ))
        };
        let alternate = match thread {
            Ok(thread) => thread.join().unwrap_or_else(failed),
            // A limit of memory can leave no room for another thread.
            Err(_) => read(CopyChoice::Alternate),
        };
        Ok(unless_resizing(primary?, alternate?))
    })
}

/// Returns the numbers in the lists, if no list contradicts them. With `is_far` they are in a bucket.
pub(in crate::open) fn agreed(store: &dyn Store, is_far: bool) -> Option<BundleGeometry> {
    let both = both(store, is_far).ok()?;
    let mut geometry = both.iter().filter_map(ListState::geometry);
    let first = geometry.next()?;
    geometry.all(|other| other == first).then_some(first)
}

/// Returns a view of a bundle in which lists can be tried out. They are small, so that changes
/// never need a temporary file.
pub(in crate::open) fn trial_of(store: &Arc<dyn Store>) -> Staged {
    Staged::new(store.clone(), PathBuf::new())
}

/// Returns the answer of `query` about the lists of a bundle, whose contents are checked in full.
pub(in crate::open) fn query_lists<T>(
    path: &Path,
    store: &Arc<dyn Store>,
    options: &OpenOptions<'_>,
    query: impl FnOnce(&ListEvidence<'_>) -> Result<T>,
) -> Result<T> {
    let staged = trial_of(store);
    query(&ListEvidence {
        path,
        store: &staged,
        options: &options.reading(),
        assume: &Assumptions::default(),
        temporary: Path::new(""),
        depth: Depth::Full,
        progress: &Silent,
    })
}

/// Returns the contradictions between the band files and these values.
pub(crate) fn misplaced(geometry: BundleGeometry, lens: &[(u64, u64)]) -> Vec<Fact> {
    let BundleGeometry {
        size, band_size, ..
    } = geometry;
    let count = size.div_ceil(band_size.max(1));
    let past = lens.iter().filter(|(index, _)| *index >= count).count();
    let long = lens
        .iter()
        .filter(|(index, len)| *index < count && *len > band_size)
        .count();
    let tail = lens.iter().filter(|(index, len)| {
        *index + 1 == count
            && *len <= band_size
            && *len > (size - index * band_size).next_multiple_of(4096)
    });
    let mut found = Vec::new();
    let past = past + tail.count();
    if past > 0 {
        found.push(Fact::BandsPastEnd(past));
    }
    if long > 0 {
        found.push(Fact::LongBands(long));
    }
    found
}

/// Returns true for errors caused by the values tried, not by this run.
fn is_of_facts(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::Corrupt | Kind::OutOfRange | Kind::Unsupported | Kind::Limit | Kind::Invalid
    )
}
