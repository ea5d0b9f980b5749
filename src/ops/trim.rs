//! Discard of the storage that no volume in an image uses: as macOS does on attaching, and as
//! attaching, mounting and serving do here before the first change. `bandsaw trim`.
//!
//! A volume's free map is used only if the volume was cleanly unmounted, its own structures are
//! marked as used in the map, and its check finds no damage. An interrupted trim has freed less, but never affects space in use.

use std::ops::Range;
use std::path::Path;

use super::space::{FreeSpace, Storage, UnconfirmedVolumes, can_punch};
use super::{orphans, usage};
use crate::container::sparsebundle::Bundle;
use crate::device::{Access, BlockDevice};
use crate::open::key_cache::CachedKeys;
use crate::open::{
    Image, Keys, Layer, OpenOptions, Volume, VolumeFormat, examine, interrupted, unstored,
};
use crate::problem::Severity;
use crate::progress::Progress;
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "trim";
/// Maximum number of tree nodes that are read to confirm a free map before each use of an image: those of
/// a volume of some ten thousand files.
const MAX_NODES: u64 = 1 << 12;
/// The same for an image in a bucket, where each may be a request.
const MAX_FAR_NODES: u64 = 512;
/// Bytes of the disk freed between two checks for cancellation.
const STRETCH: u64 = 1 << 30;
/// Bytes freed between two flushes, after which the work so far is durable.
pub(super) const FLUSH: u64 = 16 << 30;

/// Result of a trim.
#[derive(Debug)]
pub struct Trimmed {
    /// The volumes, in the order of the disk.
    pub volumes: Vec<TrimmedVolume>,
    /// Bytes of storage that the image's files took before.
    pub before: u64,
    /// Bytes of storage that the image's files take afterwards.
    pub after: u64,
    /// True if the host can free parts of files. Otherwise only whole bands or chunks were freed.
    pub can_punch: bool,
}

/// Result for the free space of one volume.
#[derive(Debug)]
pub struct TrimmedVolume {
    /// Number of its partition; `None` if it is the whole disk.
    pub partition: Option<u32>,
    /// Location: `partition 1`.
    pub place: String,
    /// Format of the volume.
    pub format: VolumeFormat,
    /// Free bytes of the volume, whose storage was freed if they had any.
    pub free: u64,
    /// Number of runs of free bytes.
    pub runs: u64,
    /// The reason why the volume was skipped, if it was.
    pub refused: Option<Error>,
}

impl TrimmedVolume {
    /// Returns the reason why the volume was skipped, unless it is only that its free space is not
    /// known, or that it is locked.
    pub fn warning(&self) -> Option<String> {
        let error = self
            .refused
            .as_ref()
            .filter(|error| !is_unresolved(error))?;
        Some(format!(
            "free space on {} was not released: {}",
            self.place,
            error.message()
        ))
    }
}

/// Returns true if a volume was skipped for a reason that is no fault: its format is not supported,
/// or it is locked.
pub fn is_unresolved(error: &Error) -> bool {
    error.kind() == Kind::Unsupported || error.reason() == Some(Reason::VolumeLocked)
}

/// Frees the storage that no volume of `image`, open for writing, uses. Durable on return. Volumes
/// that are damaged or cannot be trusted, whose free space is not known, or that `keys` does not unlock, are
/// skipped and reported. A locked volume keeps the whole APFS container from being trimmed.
///
/// [`Kind::Unsupported`] for formats that cannot be changed. [`Kind::Undecided`] if the image stores
/// data that belongs to no part of the disk and is not accounted for.
pub fn trim(image: &Image, keys: Option<&dyn Keys>, progress: &dyn Progress) -> Result<Trimmed> {
    orphans::refuse_orphans(image, LAYER, progress)?;
    let unconfirmed = UnconfirmedVolumes::checked(image, keys, progress)?;
    trim_confirmed(image, &unconfirmed, progress)
}

/// Does the same as [`trim`], after the volumes were checked.
pub(super) fn trim_confirmed(
    image: &Image,
    unconfirmed: &UnconfirmedVolumes,
    progress: &dyn Progress,
) -> Result<Trimmed> {
    let storage = storage(image, progress)?;
    let before = usage::host(image, progress)?.allocated;
    let can_punch = can_punch(image, true);
    release_queued(image, unconfirmed)?;
    let free = FreeSpace::of(image).without(unconfirmed);
    let volumes = free_trusted(image, &storage, free, can_punch, progress)?;
    let after = usage::host(image, progress)?.allocated;
    Ok(Trimmed {
        volumes,
        before,
        after,
        can_punch,
    })
}

/// Trims `image` before its first change by attaching, mounting or serving, as macOS does: like
/// [`trim`], without measuring, but leaves foreign file systems alone: nothing confirms their free
/// maps. Does nothing if the image is read-only, is of a format that is
/// always fully allocated, is changing its band size, has undo data beside it (a layer: beside the
/// layer), which needs what the repair freed, or stores data that may belong elsewhere: past the end of the disk, or in free space
/// while a whole band or chunk of a file is missing.
pub fn before_use(
    image: &Image,
    keys: Option<&dyn Keys>,
    progress: &dyn Progress,
) -> Result<Vec<TrimmedVolume>> {
    if image.disk().info().access == Access::ReadOnly
        || image.bundle().is_some_and(Bundle::is_between)
        || interrupted::has_undo_data(image.changed_path())
    {
        return Ok(Vec::new());
    }
    match Storage::of(image, progress)? {
        Some(storage) => {
            // A bundle is not listed again.
            let found = match &storage {
                Storage::Bundle(_, stored) => stored.orphans(),
                Storage::File { .. } => orphans::of_image(image, progress)?,
            };
            match orphans::check_found(image.layers(), image.disk(), &found, LAYER, progress) {
                // The image can be used, but its space is not known well enough to free any.
                Err(error) if error.kind() == Kind::Undecided => return Ok(Vec::new()),
                checked => checked?,
            }
            if let Some(kept) = misplaced(image, progress)? {
                return Ok(vec![kept]);
            }
            let can_punch = can_punch(image, true);
            let keys = keys.map(CachedKeys::new);
            let keys = keys.as_ref().map(|keys| keys as &dyn Keys);
            let confirm =
                |volume: &Volume| confirm_before_use(image, volume, &storage, can_punch, keys);
            let unconfirmed = UnconfirmedVolumes::locked(image, keys).and(image, &confirm)?;
            // A damaged container must not prevent the use of the image; nothing in it is freed.
            release_queued(image, &unconfirmed).or_else(|error| {
                if error.kind() == Kind::Corrupt {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
            let free = FreeSpace::of(image).without_foreign().without(&unconfirmed);
            free_trusted(image, &storage, free, can_punch, progress)
        }
        None => Ok(Vec::new()),
    }
}

/// Returns the volume whose free space is not released, because data in it may belong to a band or
/// chunk that is missing.
fn misplaced(image: &Image, progress: &dyn Progress) -> Result<Option<TrimmedVolume>> {
    let Some(unit) = image.unit() else {
        return Ok(None);
    };
    let (map, volumes) = (image.partitions(), image.volumes());
    let disk = image.disk();
    let places = unstored::find_units(disk, map, volumes, unit, progress)?;
    let found = unstored::find_misplaced(disk, volumes, &places, unit, progress)?;
    let Some(found) = found else {
        return Ok(None);
    };
    let holds_data = |volume: &&Volume| volume.range.contains(&found.stored.start);
    let Some(volume) = volumes.iter().find(holds_data) else {
        return Ok(None);
    };
    let message = format!("{found}; `bandsaw trim` releases it nevertheless");
    Ok(Some(TrimmedVolume {
        partition: volume.partition,
        place: volume.place(),
        format: volume.format,
        free: 0,
        runs: 0,
        refused: Some(Error::conflict(LAYER, message)),
    }))
}

/// Confirms the free map of a volume before the first change of an image, if there is anything to free:
/// a check reads all of its trees. [`Kind::Unsupported`] if they are too large to be read before each use.
fn confirm_before_use(
    image: &Image,
    volume: &Volume,
    storage: &Storage<'_>,
    can_punch: bool,
    keys: Option<&dyn Keys>,
) -> Result<()> {
    if volume.format.is_foreign() || !has_stored_free_space(image, volume, storage, can_punch)? {
        return Ok(());
    }
    let is_far = image.layers().iter().any(Layer::is_bucket);
    let nodes = if is_far { MAX_FAR_NODES } else { MAX_NODES };
    if volume.confirm_free_map_within(nodes, keys)? {
        return Ok(());
    }
    let message = "too large to be checked before each use; `bandsaw trim` releases its free space";
    Err(Error::unsupported(LAYER, message))
}

/// Returns true if free space of a volume is stored, without `can_punch` in whole bands or chunks, or will be
/// free once older checkpoints are released.
fn has_stored_free_space(
    image: &Image,
    volume: &Volume,
    storage: &Storage<'_>,
    can_punch: bool,
) -> Result<bool> {
    if volume.pending().is_some_and(|pending| pending > 0) {
        return Ok(true);
    }
    let free = FreeSpace::of(image).volumes;
    let Some(found) = free.iter().find(|found| found.volume.range == volume.range) else {
        return Ok(false);
    };
    let unit = storage.units(image.disk().info().len).1;
    for run in found.runs() {
        let mut run = run?;
        if !can_punch {
            run = run.start.next_multiple_of(unit)..run.end / unit * unit;
        }
        if run.start < run.end && storage.allocated_in(&run)? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Frees the space that is held only by older checkpoints of APFS containers, so that the storage
/// of removed files is discarded on the next use of the image.
fn release_queued(image: &Image, unconfirmed: &UnconfirmedVolumes) -> Result<()> {
    if image
        .volumes()
        .iter()
        .all(|volume| !volume.format.is_container())
    {
        return Ok(());
    }
    FreeSpace::of(image)
        .without(unconfirmed)
        .volumes
        .iter()
        .filter(|found| found.map.is_ok())
        .try_for_each(|found| found.volume.release_queued())
}

fn free_trusted(
    image: &Image,
    storage: &Storage<'_>,
    free: FreeSpace,
    can_punch: bool,
    progress: &dyn Progress,
) -> Result<Vec<TrimmedVolume>> {
    let mut volumes = free_all(image, storage, &free, can_punch, progress)?;
    // Bands or chunks that a flush moved were copied with their holes, which decrypt to noise, so
    // these are stored now.
    if image.encryption().is_some() && (image.sparse_image().is_some() || image.asif().is_some()) {
        free_all(image, storage, &free, can_punch, progress)?;
    }
    for (trimmed, found) in volumes.iter_mut().zip(free.volumes) {
        trimmed.refused = found.map.err();
    }
    Ok(volumes)
}

/// Frees all free space, durably.
pub(super) fn free_all(
    image: &Image,
    storage: &Storage<'_>,
    free: &FreeSpace,
    can_punch: bool,
    progress: &dyn Progress,
) -> Result<Vec<TrimmedVolume>> {
    let disk = image.disk();
    let mut volumes = Vec::with_capacity(free.volumes.len());
    progress.stage(
        "trim",
        free.volumes
            .iter()
            .map(|found| found.volume.range.end - found.volume.range.start)
            .sum(),
    );
    for found in &free.volumes {
        let (place, format) = (found.volume.place(), found.volume.format);
        let mut trimmed = TrimmedVolume {
            partition: found.volume.partition,
            place,
            format,
            free: 0,
            runs: 0,
            refused: None,
        };
        let (mut unflushed, mut seen) = (0, found.volume.range.start);
        for run in found.runs() {
            let run = run?;
            progress.advance(run.start - seen);
            seen = run.end;
            trimmed.free += run.end - run.start;
            trimmed.runs += 1;
            unflushed += run.end - run.start;
            free_run(storage, &**disk, &run, can_punch, progress)?;
            if unflushed >= FLUSH {
                disk.flush()?;
                unflushed = 0;
            }
        }
        volumes.push(trimmed);
    }
    disk.flush()?;
    Ok(volumes)
}

/// Returns the storage of a writable image.
pub(super) fn storage<'a>(image: &'a Image, progress: &dyn Progress) -> Result<Storage<'a>> {
    image.disk().info().check_writable(LAYER)?;
    Storage::of(image, progress)?.ok_or_else(|| {
        Error::unsupported(
            LAYER,
            format!(
                "cannot trim {}: the format does not store free space",
                image.format()
            ),
        )
    })
}

/// Frees the storage of a run in steps.
fn free_run(
    storage: &Storage<'_>,
    disk: &dyn BlockDevice,
    run: &Range<u64>,
    can_punch: bool,
    progress: &dyn Progress,
) -> Result<()> {
    let mut at = run.start;
    while at < run.end {
        progress.check()?;
        // Up to a unit boundary, so that no band is split.
        let end = ((at / STRETCH + 1) * STRETCH)
            .next_multiple_of(storage.units(disk.info().len).1)
            .min(run.end);
        storage.free_range(disk, &(at..end), can_punch)?;
        progress.advance(end - at);
        at = end;
    }
    Ok(())
}

/// Checks every layer of the image at `path`. [`Kind::Corrupt`] if anything is damaged.
pub fn check_fully(path: &Path, options: &OpenOptions<'_>, progress: &dyn Progress) -> Result<()> {
    let found = examine(path, options, progress)?;
    let damage = found.problems.count(Severity::Damage);
    match found
        .problems
        .into_iter()
        .find(|problem| problem.severity == Severity::Damage)
    {
        None => Ok(()),
        Some(first) => {
            let message = match damage {
                1 => "the volume is damaged; nothing was released".to_owned(),
                _ => format!("{damage} structures are damaged; nothing was released; the first"),
            };
            Err(Error::new(Kind::Corrupt, LAYER, message)
                .caused_by(first.error)
                .in_file(path))
        }
    }
}
