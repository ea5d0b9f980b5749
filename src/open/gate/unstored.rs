//! Places of a disk that hold data of files by the map of a volume, and for which the image stores
//! nothing. They read as zeros, and may be meant to, but if the image also stores data that belongs
//! to nothing, the two may belong together.
//!
//! A volume's own structures do not count: its check reads all of them, and unused parts of them are
//! zeros.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::container::asif::Asif;
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind, Slice};
use crate::fs::{FreeMap, FreeMapExt};
use crate::open::contents;
use crate::open::volume::Volume;
use crate::partition::gpt::{self, Search};
use crate::partition::{self, Map};
use crate::progress::Progress;
use crate::size::{counted, to_usize};

/// A volume with its map of free space and the ranges of its own structures, in order.
type OrderedVolume<'a> = (&'a Volume, Arc<dyn FreeMap>, Vec<Range<u64>>);

/// Maximum number of ranges listed.
const MAX_LISTED: usize = 1024;

/// Result of [`find`].
#[derive(Debug, Default)]
pub(crate) struct UnstoredRanges {
    /// Ranges of the disk that a volume uses and that are not stored; at most 1024.
    pub(crate) places: Vec<Range<u64>>,
    /// The reason why the use of some places without storage is not known.
    pub(crate) unknown: Option<String>,
}

/// Finds the places of `disk` without storage that are not free in the maps of its volumes. Space
/// that belongs to no partition counts as free.
pub(crate) fn find(
    disk: &Arc<dyn BlockDevice>,
    map: Option<&Map>,
    volumes: &[Volume],
    progress: &dyn Progress,
) -> Result<UnstoredRanges> {
    let mut found = UnstoredRanges::default();
    let partitions = map.map(|map| map.partitions.as_slice()).unwrap_or_default();
    for partition in partitions {
        let is_volume = |volume: &Volume| volume.partition == Some(partition.number);
        if volumes.iter().any(is_volume) || is_no_volume(&partition.kind) {
            continue;
        }
        let end = partition.range.end.min(disk.info().len);
        for extent in disk.extents(partition.range.start.min(end)..end) {
            if extent?.1 == ExtentKind::Hole {
                let what = format!("partition {} is of an unknown format", partition.number);
                found.unknown.get_or_insert(what);
                break;
            }
        }
    }
    for volume in volumes {
        let free = match volume.trusted_free_map() {
            Ok(Some(free)) => free,
            Ok(None) => {
                let what = format!("unsupported: free space of {}", volume.format);
                found.unknown.get_or_insert(what);
                continue;
            }
            Err(error) if error.io_kind().is_some() => return Err(error),
            Err(error) => {
                let what = format!(
                    "{} on {}: {}",
                    volume.format,
                    volume.place(),
                    error.message()
                );
                found.unknown.get_or_insert(what);
                continue;
            }
        };
        let own = own_ranges(volume)?;
        let end = volume.range.end.min(disk.info().len);
        for extent in disk.extents(volume.range.start.min(end)..end) {
            progress.check()?;
            let (hole, kind) = extent?;
            let hole = whole_units(hole, disk.info().discard, disk.info().len);
            if kind == ExtentKind::Hole && !hole.is_empty() {
                add_used(&free, &own, volume.range.start, hole, &mut found.places)?;
            }
            if found.places.len() >= MAX_LISTED {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Data in free space that may belong to a place without storage: a band under the wrong name, or an
/// entry of an index with the wrong number.
#[derive(Debug)]
pub(crate) struct MisplacedData {
    /// The place of the disk that a file uses and that is not stored.
    unstored: Range<u64>,
    /// The free place of the disk that holds data.
    pub(crate) stored: Range<u64>,
}

impl fmt::Display for MisplacedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unstored, stored } = self;
        write!(
            f,
            "bytes {} to {} of the disk are in use but not stored, and bytes {} to {} hold data in \
             free space: they may belong together",
            unstored.start, unstored.end, stored.start, stored.end
        )
    }
}

/// Finds the places that files use in whole bands or chunks, of `unit` bytes, that are not stored; at
/// most 1024. Bands of zeros in files look like this, too.
pub(crate) fn find_units(
    disk: &Arc<dyn BlockDevice>,
    map: Option<&Map>,
    volumes: &[Volume],
    unit: u64,
    progress: &dyn Progress,
) -> Result<Vec<Range<u64>>> {
    let len = disk.info().len;
    let is_unit_unstored = |place: &Range<u64>| -> Result<bool> {
        for start in (place.start / unit * unit..place.end).step_by(to_usize(unit)) {
            let mut extents = disk.extents(start..(start + unit).min(len));
            if extents.all(|extent| matches!(extent, Ok((_, ExtentKind::Hole)))) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let mut found = find(disk, map, volumes, progress)?.places;
    let mut failed = None;
    found.retain(|place| match is_unit_unstored(place) {
        Ok(is_unstored) => is_unstored,
        Err(error) => {
            failed.get_or_insert(error);
            false
        }
    });
    failed.map_or(Ok(found), Err)
}

/// Finds data in free space that may belong to the first of the `places` that [`find_units`] has found: a
/// whole band or chunk that holds other bytes than zeros. Deleted files look like this, too.
pub(crate) fn find_misplaced(
    disk: &Arc<dyn BlockDevice>,
    volumes: &[Volume],
    places: &[Range<u64>],
    unit: u64,
    progress: &dyn Progress,
) -> Result<Option<MisplacedData>> {
    let len = disk.info().len;
    let Some(unstored) = places.first().cloned() else {
        return Ok(None);
    };
    for volume in volumes {
        let Ok(Some(free)) = volume.trusted_free_map() else {
            continue;
        };
        let start = volume.range.start;
        for run in free.free_runs(0..volume.range.end.min(len).saturating_sub(start)) {
            progress.check()?;
            let run = run?;
            let units = whole_units(start + run.start..start + run.end, unit, len);
            for extent in disk.extents(units) {
                let (stored, kind) = extent?;
                if kind == ExtentKind::Data
                    && !contents::is_blank(&Slice::new(disk.clone(), stored.clone())?)?
                {
                    return Ok(Some(MisplacedData { unstored, stored }));
                }
            }
        }
    }
    Ok(None)
}

/// Finds the places of the disk of `image` that its index does not mark as written, although the file has
/// data for them and a volume uses them: the index is damaged. Reads about `most` bytes.
///
/// Volumes that are not clean, not in order or not supported do not count: what an interrupted write has
/// left is no contradiction. But if more volumes are in order with all of the data, it is meant to be there.
pub(crate) fn find_unwritten(
    image: &Asif,
    volumes: &[Volume],
    most: u64,
) -> Result<Vec<Range<u64>>> {
    let hidden = image.unwritten_data(most)?;
    let mut places = Vec::new();
    if hidden.is_empty() {
        return Ok(places);
    }
    let ordered = in_order(volumes)?;
    // The data may be a volume's own structures, without which it is not found, or a partition map.
    if let Some(tried) = unless_io(image.as_if_written(&hidden))? {
        let disk: Arc<dyn BlockDevice> = Arc::new(tried);
        if wholeness(&*disk)? > wholeness(image)? {
            return Ok(hidden);
        }
        if let Some((_, with)) = unless_io(contents::find(&disk))?
            && in_order(&with)?.len() > ordered.len()
        {
            return Ok(hidden);
        }
    }
    for (volume, free, own) in ordered {
        let end = volume.range.end.min(image.info().len);
        for hidden in &hidden {
            let part = hidden.start.max(volume.range.start)..hidden.end.min(end);
            if !part.is_empty() {
                add_used(&free, &own, volume.range.start, part, &mut places)?;
            }
        }
    }
    Ok(places)
}

/// Returns 2 if the beginning of the disk announces a GPT of which both copies are whole, 1 if it
/// announces another map, 0 if it announces none.
fn wholeness(disk: &dyn BlockDevice) -> Result<u8> {
    if unless_io(partition::probe_with(disk, Search::Announced))?
        .flatten()
        .is_none()
    {
        return Ok(0);
    }
    let is_whole = unless_io(gpt::are_copies_whole(disk))?.flatten();
    Ok(if is_whole == Some(true) { 2 } else { 1 })
}

/// Returns the supported volumes that are clean and in order, with their maps and their own structures.
fn in_order(volumes: &[Volume]) -> Result<Vec<OrderedVolume<'_>>> {
    let mut ordered = Vec::new();
    for volume in volumes.iter().filter(|volume| !volume.format.is_foreign()) {
        if let Some(Some(free)) = unless_io(volume.trusted_free_map())?
            && let Some(own) = unless_io(own_ranges(volume))?
        {
            ordered.push((volume, free, own));
        }
    }
    Ok(ordered)
}

/// Returns the places of a volume's own structures, in order, and the space past its end.
fn own_ranges(volume: &Volume) -> Result<Vec<Range<u64>>> {
    let mut own = volume.own_ranges()?;
    let len = volume.range.end - volume.range.start;
    let end = volume.recorded_len()?.filter(|end| *end < len);
    own.extend(end.map(|end| end..len));
    own.sort_unstable_by_key(|range| range.start);
    Ok(own)
}

/// Returns `None` for an error about contents; one of reading stays one.
fn unless_io<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Err(error) if error.io_kind().is_some() => Err(error),
        answer => Ok(answer.ok()),
    }
}

/// Describes the places that [`find_units`] has found.
pub(crate) fn describe_units(places: &[Range<u64>]) -> Option<String> {
    let first = places.first()?;
    let bytes = places.iter().map(|place| place.end - place.start).sum();
    Some(format!(
        "{} that files use are not stored and read as zeros, from byte {} of the disk on: a band or \
         chunk is missing, unless the files have zeros there",
        counted(bytes, "byte", "bytes"),
        first.start
    ))
}

/// Describes the first of the places that [`find_unwritten`] has found.
pub(crate) fn describe_unwritten(place: &Range<u64>) -> String {
    format!(
        "bytes {} to {} of the disk are in use and stored, but their chunk marks them as \
         unwritten: the index of the image may be damaged",
        place.start, place.end
    )
}

/// Returns true for entries of a map that hold no volume.
fn is_no_volume(kind: &str) -> bool {
    ["Apple_partition_map", "Apple_Free", "Apple_Void"].contains(&kind)
}

/// Returns the whole bands or chunks in `hole`: unwritten parts of stored ones are no lost data.
fn whole_units(hole: Range<u64>, unit: u64, len: u64) -> Range<u64> {
    let unit = unit.max(1);
    let end = match hole.end == len {
        true => len,
        false => hole.end / unit * unit,
    };
    hole.start.next_multiple_of(unit).min(end)..end
}

/// Adds the parts of `hole` that are neither free in the map of the volume at `start` nor in its
/// `own` structures, which are sorted.
fn add_used(
    free: &Arc<dyn FreeMap>,
    own: &[Range<u64>],
    start: u64,
    hole: Range<u64>,
    places: &mut Vec<Range<u64>>,
) -> Result<()> {
    let mut add = |used: Range<u64>| {
        let mut at = used.start;
        for own in own {
            if own.end <= at || own.start >= used.end {
                continue;
            }
            if own.start > at && places.len() < MAX_LISTED {
                places.push(start + at..start + own.start);
            }
            at = own.end;
        }
        if at < used.end && places.len() < MAX_LISTED {
            places.push(start + at..start + used.end);
        }
    };
    let (mut at, end) = (hole.start - start, hole.end - start);
    for run in free.free_runs(at..end) {
        let run = run?;
        add(at..run.start);
        at = run.end;
    }
    add(at..end);
    Ok(())
}
