//! The gate before the first write: every image that is opened for changes passes it.
//!
//! A container is opened as [`OpenedContainer`]. Only this module turns that into [`FoundDisk`], which an
//! [`Image`](super::Image) and every other writer need. For changes, the independent sources of
//! geometry that take few reads are compared first: the lists of a bundle (`lists.rs`), the length
//! of the disk, both copies of a GPT, and the headers of each volume. Where they disagree, the
//! evidence that `repair` uses decides (`evidence.rs`). docs/check.md has the table of pairs.
//!
//! Counts, dates and states that an interrupted change leaves are not compared: the first access
//! puts those in order.

use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;

use super::compare_lists::{self, ListDecision, ListEvidence};
use super::driver::Headers;
use super::evidence::{self, Depth, Fact};
use super::guarded::Guarded;
use super::opening::Opening;
use super::{Layer, OpenOptions, Volume, contents, unstored};
use crate::container::asif::Asif;
use crate::container::sparsebundle::{self, Bundle, BundleGeometry};
use crate::container::{Format, Orphan};
use crate::decision::{Alternative, Assumptions, CopyChoice, Undecided};
use crate::device::{Access, BlockDevice};
use crate::partition::{self, Map, gpt};
use crate::progress::{Progress, Silent};
use crate::store::{Staged, Store};
use crate::{Error, Kind, Result};

const LAYER: &str = "image";
/// Bytes read at most of blocks that an ASIF image marks as unwritten. Covers all of an image whose
/// file has holes there, up to 4096 partly written chunks.
const MAX_UNWRITTEN: u64 = 32 << 20;

/// A container that was opened, before its contents were compared.
#[derive(Debug)]
pub(super) struct OpenedContainer {
    pub(super) format: Format,
    pub(super) disk: Arc<dyn BlockDevice>,
    /// The files of a sparse bundle.
    pub(super) store: Option<Arc<dyn Store>>,
}

/// A disk that can be read, and changed if it was opened for that.
#[derive(Debug)]
pub(crate) struct FoundDisk {
    pub(super) format: Format,
    pub(crate) disk: Arc<dyn BlockDevice>,
    _passed: GatePass,
}

/// Proof that a disk has passed the gate. Made here only.
#[derive(Debug)]
struct GatePass;

impl FoundDisk {
    fn of(opened: OpenedContainer) -> Self {
        Self {
            format: opened.format,
            disk: opened.disk,
            _passed: GatePass,
        }
    }

    /// Accepts an image that this process has just created.
    pub(super) fn new_image(opened: OpenedContainer) -> Self {
        Self::of(opened)
    }
}

/// The stored bytes of an image in a staged view: changes do not reach the image.
#[derive(Debug, Clone)]
pub(crate) struct StagedImage(super::StoredImage);

impl StagedImage {
    /// Returns the bytes of the file named `file` in `staged`, or of the bundle that it holds.
    pub(crate) fn of(staged: &Staged, file: Option<&str>) -> Result<Self> {
        use crate::store::Open;
        Ok(Self(match file {
            None => super::StoredImage::Folder(Arc::new(staged.clone())),
            Some(name) => super::StoredImage::File(
                staged
                    .open(name, Open::Write)?
                    .ok_or_else(|| Error::not_found(LAYER, name))?,
            ),
        }))
    }

    pub(crate) fn bytes(&self) -> super::StoredImage {
        self.0.clone()
    }
}

/// Lets an opened container pass, with warnings about disagreements that the evidence decides. A
/// read-only one is not compared. Fails with [`Kind::Undecided`] if sources disagree and the
/// evidence does not decide, or decides for a source that readers do not use.
pub(super) fn pass(mut opened: OpenedContainer, opening: &mut Opening<'_>) -> Result<FoundDisk> {
    if opened.disk.info().access == Access::ReadWrite {
        let gate = Gate {
            path: opening.path,
            disk: &opened.disk,
            store: opened.store.as_ref(),
            is_plain: opened.format.is_plain() && !opening.is_encrypted(),
            is_far: opening.is_far(),
            asif: opening.layers.iter().find_map(Layer::asif),
            options: &opening.options,
        };
        let warnings = gate.compare()?;
        opening.warnings.extend(warnings);
        // The disk of a stack is not that of the image below it.
        if opening.options.shadows.is_empty() {
            opened.disk = guarded(&opening.layers).unwrap_or(opened.disk);
        }
    }
    Ok(FoundDisk::of(opened))
}

/// Returns the disk of a container in which data can be past the end of the disk.
fn guarded(layers: &[Layer]) -> Option<Arc<dyn BlockDevice>> {
    layers.iter().find_map(|layer| match layer {
        Layer::Bundle(bundle) => Some(Arc::new(Guarded::bundle(bundle.clone())) as _),
        Layer::SparseImage(image) => Some(Arc::new(Guarded::sparse_image(image.clone())) as _),
        Layer::Asif(image) => Some(Arc::new(Guarded::asif(image.clone())) as _),
        _ => None,
    })
}

struct Gate<'a> {
    path: &'a Path,
    disk: &'a Arc<dyn BlockDevice>,
    store: Option<&'a Arc<dyn Store>>,
    /// The length of the disk is that of a file, so no number can be wrong. That of an encrypted one is in
    /// its header.
    is_plain: bool,
    /// The image is in a bucket, where requests are made in parallel.
    is_far: bool,
    asif: Option<&'a Arc<Asif>>,
    options: &'a OpenOptions<'a>,
}

impl Gate<'_> {
    fn compare(&self) -> Result<Vec<String>> {
        self.compare_band_size()?;
        let mut warnings = Vec::new();
        // A GPT whose beginning is lost counts as well.
        let (map, volumes) = match contents::find(self.disk) {
            Ok(found) => found,
            Err(error) if error.kind() == Kind::Io => return Err(error),
            // Contents that cannot be read contradict nothing.
            Err(_) => match partition::probe(&**self.disk) {
                Ok(map) => (map, Vec::new()),
                Err(error) if error.kind() == Kind::Io => return Err(error),
                Err(_) => return Ok(warnings),
            },
        };
        if map.is_some() {
            warnings.extend(self.compare_maps(&volumes)?);
        } else if volumes.is_empty() {
            warnings.extend(self.compare_with_stored()?);
        }
        warnings.extend(self.compare_volumes(map.as_ref(), &volumes)?);
        self.compare_unwritten(&volumes)?;
        Ok(warnings)
    }

    /// Compares the band size of a local bundle with the lengths of its files.
    fn compare_band_size(&self) -> Result<()> {
        match self.store.filter(|_| !self.is_far) {
            Some(store) => compare_band_size(self.path, store, self.options),
            None => Ok(()),
        }
    }

    /// Compares the length of the disk of a local bundle, on which nothing was found, with the backup
    /// of a GPT at the end of the last band: the beginning of the disk may be lost.
    fn compare_with_stored(&self) -> Result<Option<String>> {
        let Some(store) = self.store.filter(|_| !self.is_far) else {
            return Ok(None);
        };
        let Some(geometry) = compare_lists::agreed(&**store, false) else {
            return Ok(None);
        };
        match self.ask(store, |question| question.len_by_backup(geometry))? {
            Some(stated) if stated != geometry.size => self
                .decide_len(format!(
                    "the backup of a partition map describes a disk of {stated} bytes, the container one of {}",
                    geometry.size
                ))
                .map(Some),
            _ => Ok(None),
        }
    }

    /// Compares the copies of a GPT with each other and with the length of the disk.
    fn compare_maps(&self, volumes: &[Volume]) -> Result<Option<String>> {
        let len = self.disk.info().len;
        let stated = gpt::recorded_len(&**self.disk)?;
        if let Some(stated) = stated.filter(|stated| *stated > len && !self.is_plain) {
            return self
                .decide_len(format!(
                    "the partition map describes a disk of {stated} bytes, the container one of {len}"
                ))
                .map(Some);
        }
        if let (Some(store), Some(_)) = (self.store, stated.filter(|stated| *stated == len))
            && gpt::are_copies_whole(&**self.disk)? == Some(false)
            && let Some(geometry) = compare_lists::agreed(&**store, self.is_far)
            && self.ask(store, |question| question.has_other_band_size(geometry))?
        {
            return self
                .decide_len(
                    "with another band size the backup of the partition map would be at its \
                     recorded place"
                        .into(),
                )
                .map(Some);
        }
        let Some(differing) = gpt::difference(&**self.disk)? else {
            return Ok(None);
        };
        // Whichever end counts, the volumes are the same.
        let fits = |ends: &Vec<(u32, u64)>| {
            volumes.iter().all(|volume| {
                let end = ends
                    .iter()
                    .find(|(number, _)| volume.partition == Some(*number));
                let stated = volume.driver().stated_len(volume).ok().flatten();
                end.zip(stated).is_none_or(|((_, end), stated)| {
                    volume.range.start.saturating_add(stated) <= *end
                })
            })
        };
        if differing.common_ends.as_ref().is_some_and(fits) {
            return Ok(Some(
                "the copies of the partition map differ in the end of a partition; the volumes \
                 agree with the primary, which is used: run `bandsaw repair`"
                    .into(),
            ));
        }
        match evidence::decide_map(self.disk, differing.undecided, self.options, &Silent)? {
            CopyChoice::Primary => Ok(Some(
                "the copies of the partition map differ; the volumes agree with the primary, which is used: run \
                 `bandsaw repair` to restore the backup"
                    .into(),
            )),
            CopyChoice::Alternate => Err(repairable(
                "the copies of the partition map differ, and the volumes agree with the backup: run `bandsaw repair` first",
            )),
        }
    }

    /// Compares the length of each volume with its space, and its headers with each other. In a
    /// bucket, all volumes at the same time.
    fn compare_volumes(&self, map: Option<&Map>, volumes: &[Volume]) -> Result<Vec<String>> {
        let compared: Vec<_> = if self.is_far && volumes.len() > 1 {
            std::thread::scope(|scope| {
                let start = |volume| {
                    let thread = Builder::new();
                    (
                        volume,
                        thread.spawn_scoped(scope, move || compare_volume(volume)),
                    )
                };
                let started: Vec<_> = volumes.iter().map(start).collect();
                let failed = |_| {
                    Err(Error::new(
                        Kind::Io,
                        LAYER,
                        "a thread that compares volumes stopped",
                    ))
                };
                started
                    .into_iter()
                    .map(|(volume, thread)| match thread {
                        Ok(thread) => thread.join().unwrap_or_else(failed),
                        // A limit of memory can leave no room for another thread.
                        Err(_) => compare_volume(volume),
                    })
                    .collect()
            })
        } else {
            volumes.iter().map(compare_volume).collect()
        };
        let mut warnings = Vec::new();
        for (volume, compared) in volumes.iter().zip(compared) {
            let compared = compared.map_err(|error| match volume.partition {
                Some(number) if volumes.len() > 1 => Undecided::in_partition(error, number),
                _ => error,
            });
            match compared.map_err(|error| error.named(volume.place()))? {
                SourceComparison::Agrees => {}
                SourceComparison::Confirmed(warning) => warnings.push(warning),
                // A truncated file: nothing of it is at another place.
                SourceComparison::TooLong(_)
                    if self.is_plain
                        && (map.is_none() || volume.range.end >= self.disk.info().len) => {}
                SourceComparison::TooLong(what) if map.is_some() => return Err(repairable(what)),
                SourceComparison::TooLong(what) => warnings.push(self.decide_len(what)?),
            }
        }
        Ok(warnings)
    }

    /// Compares the unwritten blocks of an ASIF image with the volumes.
    fn compare_unwritten(&self, volumes: &[Volume]) -> Result<()> {
        let Some(image) = self.asif.filter(|_| self.options.shadows.is_empty()) else {
            return Ok(());
        };
        match unstored::find_unwritten(image, volumes, MAX_UNWRITTEN)?.first() {
            Some(place) => Err(repairable(unstored::describe_unwritten(place))),
            None => Ok(()),
        }
    }

    /// Decides by all evidence about the length of the disk, which `what` puts in doubt. Returns a
    /// warning if the container is right.
    fn decide_len(&self, what: String) -> Result<String> {
        let Some(store) = self.store else {
            return Err(repairable(what));
        };
        match self.ask(store, |question| question.decide_agreed())? {
            ListDecision::Geometry { .. } => Ok(what),
            ListDecision::Refused(_) => Err(repairable(what)),
        }
    }

    fn ask<T>(
        &self,
        store: &Arc<dyn Store>,
        ask: impl FnOnce(&ListEvidence<'_>) -> Result<T>,
    ) -> Result<T> {
        ask_with(self.path, store, self.options, ask)
    }
}

/// Asks a question about the lists of a bundle, whose contents are checked in full.
fn ask_with<T>(
    path: &Path,
    store: &Arc<dyn Store>,
    options: &OpenOptions<'_>,
    ask: impl FnOnce(&ListEvidence<'_>) -> Result<T>,
) -> Result<T> {
    let staged = compare_lists::trial_of(store);
    ask(&ListEvidence {
        path,
        store: &staged,
        options: &options.reading(),
        assume: &Assumptions::default(),
        temporary: Path::new(""),
        depth: Depth::Full,
        progress: &Silent,
    })
}

/// Compares the band size of a bundle with the lengths of its files. All are listed only if those of
/// the first bands suggest another one.
fn compare_band_size(path: &Path, store: &Arc<dyn Store>, options: &OpenOptions<'_>) -> Result<()> {
    let Some(geometry) = compare_lists::agreed(&**store, false) else {
        return Ok(());
    };
    let other = |lens: &[u64]| sparsebundle::other_band_size(geometry.band_size, lens);
    let first = sparsebundle::first_band_lens(&**store)?;
    if other(&first).is_none() && first.iter().all(|len| *len <= geometry.band_size) {
        return Ok(());
    }
    let lens = sparsebundle::band_lens(&**store, &Silent)?;
    let lens: Vec<u64> = lens.into_iter().map(|(_, len)| len).collect();
    let Some(other) = other(&lens) else {
        return Ok(());
    };
    // The contents may still agree with the lists alone.
    match ask_with(path, store, options, |question| question.decide_agreed())? {
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
pub(super) fn wrong_band_size(
    path: &Path,
    store: &Arc<dyn Store>,
    options: &OpenOptions<'_>,
) -> Result<Option<Error>> {
    match compare_band_size(path, store, options) {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == Kind::Undecided => {
            let mut what = error.message().to_owned();
            for (number, one) in Undecided::of(&error).iter().enumerate() {
                what += if number == 0 { "; " } else { ", " };
                what += &format!("{} ({})", one.assume, one.evidence);
            }
            Ok(Some(
                Error::new(Kind::Corrupt, "sparse bundle", what).named("Info.plist"),
            ))
        }
        // Without a key nothing decides.
        Err(error) if error.kind() == Kind::WrongKey => Ok(None),
        Err(error) => Err(error),
    }
}

/// The result of the comparison of a volume's own sources.
enum SourceComparison {
    /// They agree, or there is only one.
    Agrees,
    /// They differ, and the volume agrees with the one that readers use: a warning.
    Confirmed(String),
    /// The volume is longer than its space.
    TooLong(String),
}

fn compare_volume(volume: &Volume) -> Result<SourceComparison> {
    let room = volume.range.end - volume.range.start;
    // Contents that cannot be read contradict nothing.
    let only_io = |error: Error| match error.kind() {
        Kind::Io | Kind::Undecided => Err(error),
        _ => Ok(SourceComparison::Agrees),
    };
    match volume.driver().stated_len(volume) {
        Ok(Some(stated)) if stated > room => {
            return Ok(SourceComparison::TooLong(format!(
                "{} on {} has {stated} bytes by its header, but space for {room}",
                volume.format,
                volume.place()
            )));
        }
        Ok(_) => {}
        Err(error) => return only_io(error),
    }
    match volume.driver().compare_headers(volume) {
        Ok(Headers::Agree) => Ok(SourceComparison::Agrees),
        Ok(Headers::Confirmed(warning)) => Ok(SourceComparison::Confirmed(warning)),
        Ok(Headers::Differ(what)) => Err(repairable(what)),
        Err(error) => only_io(error),
    }
}

/// Returns the error about a disagreement that only a repair resolves.
fn repairable(what: impl Into<String>) -> Error {
    Undecided {
        what: what.into(),
        alternatives: Vec::new(),
    }
    .into_error(LAYER)
}

/// Returns a band size that the lengths of the files support better than the lists.
fn longer_bands(geometry: BundleGeometry, lens: &[(u64, u64)]) -> Option<u64> {
    sparsebundle::band_size_by_lengths(geometry.band_size, lens.iter().map(|(_, len)| *len))
}

/// Refuses an operation on the bands of `bundle` that would remove files past the end of the disk,
/// unless a map or volume has the length of the disk and everything on it is in order: an
/// interrupted change of the length has left them then. Lists the bands, once for an open bundle.
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
    if let Some(longer) = longer_bands(geometry, &lens) {
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
        .into_error("sparse bundle"));
    }
    let leftovers: Vec<Fact> = compare_lists::misplaced(geometry, &lens)
        .into_iter()
        .filter(|fact| matches!(fact, Fact::BandsPastEnd(_)))
        .collect();
    if leftovers.is_empty() {
        bundle.resolve_leftovers();
        return Ok(());
    }
    let mut found = evidence::of_disk(disk, options, Depth::Full, progress)?;
    leftovers.into_iter().for_each(|fact| found.add(fact));
    if found.is_consistent_but_for_leftovers() && is_all_stored(disk, progress)? {
        bundle.resolve_leftovers();
        return Ok(());
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
    .into_error("sparse bundle"))
}

/// Refuses to grow a disk in a file that stores `orphans` past its end, which are removed first, unless a
/// map or volume has the length of the disk, everything on it is in order and all that is in use is
/// stored. [`Kind::Undecided`] otherwise.
pub(super) fn check_past_end(
    disk: &Arc<dyn BlockDevice>,
    orphans: &[Orphan],
    layer: &'static str,
) -> Result<()> {
    let Some(first) = orphans.iter().find(|orphan| orphan.is_past_end) else {
        return Ok(());
    };
    let found = evidence::of_disk(disk, &OpenOptions::default(), Depth::Full, &Silent)?;
    if found.is_consistent() && is_all_stored(disk, &Silent)? {
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
    let (map, volumes) = contents::find(disk)?;
    let found = unstored::find(disk, map.as_ref(), &volumes, progress)?;
    Ok(found.places.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::container::sparsebundle::BundleOptions;
    use crate::device::BlockDeviceExt;
    use crate::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
    use crate::ops::format::NewFormat;
    use crate::store::{
        FillBuffer, MemoryObjects, ObjectMeta, Objects, Put, Remote, RemoteOptions, SharedBytes,
    };

    /// Slow objects that count requests, and rounds: a request is of a later round than all that
    /// ended before it began.
    #[derive(Debug)]
    struct CountedRequests {
        objects: MemoryObjects,
        requests: AtomicU64,
        rounds: AtomicU64,
        lists: AtomicU64,
    }

    impl CountedRequests {
        fn count<T>(&self, request: impl FnOnce() -> T) -> T {
            let round = self.rounds.load(Ordering::SeqCst) + 1;
            self.requests.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(40));
            let answer = request();
            self.rounds.fetch_max(round, Ordering::SeqCst);
            answer
        }
    }

    impl Objects for CountedRequests {
        fn read_scattered(
            &self,
            key: &str,
            offset: u64,
            into: &mut [&mut [u8]],
        ) -> Result<Option<(usize, String)>> {
            self.count(|| self.objects.read_scattered(key, offset, into))
        }

        fn put_gathered(&self, key: &str, pieces: Vec<SharedBytes>, cond: Put) -> Result<bool> {
            self.objects.put_gathered(key, pieces, cond) // not counted: the lease
        }

        fn put_large(
            &self,
            key: &str,
            len: u64,
            fill: &FillBuffer<'_>,
            go_on: &mut dyn FnMut() -> Result<()>,
        ) -> Result<()> {
            self.objects.put_large(key, len, fill, go_on)
        }

        fn copy(&self, from: &str, to: &str) -> Result<()> {
            self.objects.copy(from, to)
        }

        fn remove(&self, key: &str) -> Result<bool> {
            self.objects.remove(key)
        }

        fn stat(&self, key: &str) -> Result<Option<ObjectMeta>> {
            self.count(|| self.objects.stat(key))
        }

        fn list(
            &self,
            prefix: &str,
            each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
        ) -> Result<()> {
            self.lists.fetch_add(1, Ordering::SeqCst);
            self.count(|| self.objects.list(prefix, each))
        }
    }

    /// Stores a bundle with the contents of `disk`.
    fn bundle_of(disk: &dyn BlockDevice) -> MemoryObjects {
        const PIECE: u64 = 1 << 20;
        let (objects, len) = (MemoryObjects::default(), disk.info().len);
        let options = RemoteOptions {
            access: Access::ReadWrite,
            ..RemoteOptions::default()
        };
        let store = Remote::open(Arc::new(objects.clone()), &options).unwrap();
        let created = BundleOptions {
            len,
            band_size: Some(8 << 20),
        };
        let bundle = Bundle::create(store.clone(), &created).unwrap();
        for at in (0..len).step_by(PIECE as usize) {
            let piece = disk.read_vec(at, PIECE.min(len - at) as usize).unwrap();
            if !crate::device::is_zero(&piece) {
                bundle.write_at(at, &piece).unwrap();
            }
        }
        bundle.flush().unwrap();
        objects
    }

    /// Opens the bundle with or without the gate. Returns the numbers of requests and rounds.
    fn requests(objects: &MemoryObjects, access: Access, is_gated: bool) -> (u64, u64) {
        let counted = Arc::new(CountedRequests {
            objects: objects.clone(),
            requests: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            lists: AtomicU64::new(0),
        });
        let options = RemoteOptions {
            access,
            steal: true,
            ..RemoteOptions::default()
        };
        let store = Remote::open(counted.clone(), &options).unwrap();
        let options = OpenOptions {
            access,
            ..OpenOptions::default()
        };
        let path = Path::new("s3://bucket/x.sparsebundle");
        let mut opening = Opening::new(path, &options);
        opening.layers.push(Layer::Bucket(store.status()));
        let found = if is_gated {
            let opened = opening.settled_bundle(store).unwrap();
            pass(opened, &mut opening).unwrap()
        } else {
            FoundDisk::of(opening.bundle(store, None).unwrap())
        };
        opening.survey(&found).unwrap();
        assert!(opening.warnings.is_empty(), "{:?}", opening.warnings);
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (count(&counted.requests), count(&counted.rounds))
    }

    /// docs/check.md: in a bucket only writers compare, in at most one more round of requests.
    #[test]
    fn the_gate_takes_one_round_of_requests_in_a_bucket() {
        let folder = tempfile::tempdir().unwrap();
        for (format, layout) in [
            (NewFormat::HfsPlus, Layout::None),
            (NewFormat::Apfs, Layout::Gptspud),
        ] {
            let options = CreateOptions {
                format: Format::Udrw,
                len: Some(64 << 20),
                overwrite: true,
                volume: Some(NewVolume {
                    layout,
                    name: "Docs".into(),
                    format,
                    block_size: None,
                    source: Source::Empty,
                }),
                ..CreateOptions::default()
            };
            let created = create(&folder.path().join("x.img"), options, &Silent).unwrap();
            let objects = bundle_of(&**created.image.disk());
            let what = format!("{format:?} {layout:?}");
            let reader = requests(&objects, Access::ReadOnly, true);
            assert_eq!(
                reader,
                requests(&objects, Access::ReadOnly, false),
                "{what}: a reader"
            );
            let gated = requests(&objects, Access::ReadWrite, true);
            let plain = requests(&objects, Access::ReadWrite, false);
            assert!(
                gated.1 <= plain.1 + 1,
                "{what}: {gated:?}, {plain:?} without"
            );
        }
    }

    /// The trim before a use needs the bands that are stored, and those past the end of the disk: both are
    /// known from the opening.
    #[test]
    fn the_bands_in_a_bucket_are_not_listed_again_before_a_use() {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions {
            format: Format::Udrw,
            len: Some(64 << 20),
            volume: Some(NewVolume {
                layout: Layout::Gptspud,
                name: "Docs".into(),
                format: NewFormat::HfsPlus,
                block_size: None,
                source: Source::Empty,
            }),
            ..CreateOptions::default()
        };
        let created = create(&folder.path().join("x.img"), options, &Silent).unwrap();
        let counted = Arc::new(CountedRequests {
            objects: bundle_of(&**created.image.disk()),
            requests: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            lists: AtomicU64::new(0),
        });
        let options = RemoteOptions {
            access: Access::ReadWrite,
            steal: true,
            ..RemoteOptions::default()
        };
        let store = Remote::open(counted.clone(), &options).unwrap();
        let options = OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        };
        let mut opening = Opening::new(Path::new("s3://bucket/x.sparsebundle"), &options);
        opening.layers.push(Layer::Bucket(store.status()));
        let opened = opening.settled_bundle(store).unwrap();
        let found = pass(opened, &mut opening).unwrap();
        opening.survey(&found).unwrap();
        let image = opening.into_image(found);
        let before = counted.lists.load(Ordering::SeqCst);
        crate::ops::trim::before_use(&image, None, &Silent).unwrap();
        assert_eq!(counted.lists.load(Ordering::SeqCst), before);
    }
}
