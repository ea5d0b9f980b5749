//! The gate before the first write: every image that is opened for changes passes it.
//!
//! A container is opened as [`OpenedContainer`]. Only this module turns that into [`FoundDisk`], which an
//! [`Image`](super::Image) and every other writer need. For changes, the independent sources of
//! geometry that take few reads are compared first: the lists of a bundle (`compare_lists.rs`)
//! and its band size (`band_size.rs`), the length of the disk, both copies of a GPT, and the headers of
//! each volume (`compare_volume.rs`). Where they disagree, the evidence that `repair` uses decides
//! (`geometry.rs`). docs/check.md has the table of pairs.
//!
//! Counts, dates and states that an interrupted change leaves are not compared: the first access
//! puts those in order.

pub(super) mod band_size;
pub(crate) mod compare_lists;
mod compare_volume;
pub(crate) mod geometry;
pub(super) mod guarded;
pub(crate) mod interrupted;
pub(crate) mod leftovers;
pub(super) mod quick_check;
pub(super) mod resolve_lists;
pub(crate) mod unstored;

use std::path::Path;
use std::sync::Arc;
use std::thread::Builder;

use self::band_size::compare_band_size;
use self::compare_lists::{ListDecision, ListEvidence, query_lists};
use self::compare_volume::{SourceComparison, compare_volume};
use self::geometry::{Depth, repairable};
use self::guarded::Guarded;
use super::opening::Opening;
use super::{LAYER, Layer, OpenOptions, Volume, contents};
use crate::container::Format;
use crate::container::asif::Asif;
use crate::container::sparsebundle;
use crate::decision::{CopyChoice, Undecided};
use crate::device::{Access, BlockDevice};
use crate::partition::{self, Map, gpt};
use crate::progress::Silent;
use crate::store::Store;
use crate::{Error, Kind, Result};

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
                Err(_) => return self.check_token().map(|()| warnings),
            },
        };
        if map.is_none() && volumes.is_empty() {
            self.check_token()?;
        }
        if map.is_some() {
            warnings.extend(self.compare_maps(&volumes)?);
        } else if volumes.is_empty() {
            warnings.extend(self.compare_with_stored()?);
        }
        warnings.extend(self.compare_volumes(map.as_ref(), &volumes)?);
        self.compare_unwritten(&volumes)?;
        Ok(warnings)
    }

    /// Refuses a bundle in which nothing is recognized if its token holds bytes that are not an
    /// encryption header: its bands may be encrypted, and plain data would be lost among them.
    fn check_token(&self) -> Result<()> {
        let damaged = self
            .store
            .map(|store| sparsebundle::damaged_token(&**store));
        damaged.transpose()?.flatten().map_or(Ok(()), Err)
    }

    /// Compares the band size of a local bundle with the lengths of its files.
    fn compare_band_size(&self) -> Result<()> {
        match self.store.filter(|_| !self.is_far) {
            Some(store) => compare_band_size(self.path, store, self.options, Depth::Quick),
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
        match self.query_evidence(store, |question| question.len_by_backup(geometry))? {
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
            && self.query_evidence(store, |question| question.has_other_band_size(geometry))?
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
        match geometry::decide_map(self.disk, differing.undecided, self.options, &Silent)? {
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
        match self.query_evidence(store, |question| question.decide_agreed())? {
            ListDecision::Geometry { .. } => Ok(what),
            ListDecision::Refused(_) => Err(repairable(what)),
        }
    }

    fn query_evidence<T>(
        &self,
        store: &Arc<dyn Store>,
        query: impl FnOnce(&ListEvidence<'_>) -> Result<T>,
    ) -> Result<T> {
        query_lists(self.path, store, self.options, query)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::container::sparsebundle::{Bundle, BundleOptions};
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
            confirm: &mut dyn FnMut() -> Result<()>,
        ) -> Result<()> {
            self.objects.put_large(key, len, fill, confirm)
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
            let opened = opening.resolved_bundle(store).unwrap();
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
        let opened = opening.resolved_bundle(store).unwrap();
        let found = pass(opened, &mut opening).unwrap();
        opening.survey(&found).unwrap();
        let image = opening.into_image(found);
        let before = counted.lists.load(Ordering::SeqCst);
        crate::ops::trim::before_use(&image, None, &Silent).unwrap();
        assert_eq!(counted.lists.load(Ordering::SeqCst), before);
    }
}
