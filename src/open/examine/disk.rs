//! Checks of a disk: its partition map, its volumes, and the places without storage.

use std::sync::Arc;

use super::{CheckedLayer, Examination, LayerVerdict};
use crate::container::Format;
use crate::device::BlockDevice;
use crate::fs::verify_compressed;
use crate::open::apfs::VolumeQuery;
use crate::open::{Contents, LAYER, OpenOptions, Volume, contents, disk, logical_disk, unstored};
use crate::partition::{self, Map};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// Checks the partition map and every volume of a disk.
pub(super) fn examine_disk(
    disk: &Arc<dyn BlockDevice>,
    format: Format,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    if let Some(name) = options.logical_volume {
        let opened = logical_disk::logical_disk(disk, name, &options.reading());
        let Some((logical, damage)) = found.opened("logical volume", opened)? else {
            return Ok(());
        };
        if let Some(damage) = damage.map(|damage| Error::new(Kind::Corrupt, LAYER, damage)) {
            found.problems.add(Severity::Damage, damage);
        }
        let options = OpenOptions {
            logical_volume: None,
            physical_volumes: &[],
            ..*options
        };
        let logical: Arc<dyn BlockDevice> = logical;
        return examine_disk(&logical, format, &options, found, progress);
    }
    let mut is_map_unusable = false;
    let problems = &mut found.problems;
    let contents = contents::find_with(disk, |search| {
        partition::check_with(&**disk, search, problems).inspect_err(|_| is_map_unusable = true)
    });
    let (map, mut volumes) = match contents {
        Err(error) if is_map_unusable => {
            return found.judged::<Map>("partition map", Err(error)).map(drop);
        }
        contents => match found.opened("volumes", contents)? {
            Some(contents) => contents,
            None => return Ok(()),
        },
    };
    found.layers.extend(map.as_ref().map(|map| CheckedLayer {
        layer: map.scheme.to_string(),
        verdict: LayerVerdict::Checked,
    }));
    disk::check_checkpoint(&volumes, options.checkpoint)?;
    logical_disk::add_physical_volumes(&mut volumes, options)?;
    missing_volumes(disk, map.as_ref(), &volumes, &mut found.problems)?;
    found.is_cut_off =
        format.is_plain() && !found.is_encrypted && is_cut_off(disk, &found.problems, &volumes);
    let contents = Contents::of(disk, map.as_ref(), &volumes)?;
    if matches!(contents, Contents::Unknown) {
        let is_plain = format.is_plain()
            && options.image_format.is_none()
            && map.is_none()
            && !found.is_encrypted;
        let error = if is_plain {
            disk::unknown(&**disk)
        } else {
            contents::unknown()
        };
        found.judged::<()>("disk", Err(error))?;
    }
    judge_contents(&contents, options, found);
    found.contents = Some(contents);
    let looked_into = if found.only_outside {
        &[]
    } else {
        volumes.as_slice()
    };
    for volume in looked_into {
        check_volume(volume, options, found, progress)?;
    }
    if !found.only_outside && !found.orphans.is_empty() && options.shadows.is_empty() {
        compare_orphans(disk, map.as_ref(), &volumes, found, progress)?;
    }
    if !found.only_outside
        && options.shadows.is_empty()
        && found.orphans.is_empty()
        && found.problems.count(Severity::Damage) == 0
        && let Some(unit) = found.unit
    {
        let places = unstored::find_units(disk, map.as_ref(), &volumes, unit, progress)?;
        let misplaced = unstored::find_misplaced(disk, &volumes, &places, unit, progress)?;
        let note = misplaced.map(|misplaced| misplaced.to_string());
        if let Some(note) = note.or_else(|| unstored::describe_units(&places)) {
            let note = Error::new(Kind::Corrupt, LAYER, note);
            found.problems.add(Severity::Note, note);
        }
    }
    if !found.only_outside
        && options.shadows.is_empty()
        && let Some(image) = &found.asif
        && let Some(place) = unstored::find_unwritten(image, &volumes, u64::MAX)?.first()
    {
        let message = unstored::describe_unwritten(place);
        found.doubt(message);
    }
    Ok(())
}

/// Returns true if a partition, by the problems of the map, or a volume, by its header, extends past
/// the end of the disk.
fn is_cut_off(disk: &Arc<dyn BlockDevice>, of_map: &Problems, volumes: &[Volume]) -> bool {
    let len = disk.info().len;
    let is_past_end = |volume: &Volume| {
        let stated = volume.driver().stated_len(volume).ok().flatten();
        stated.is_some_and(|stated| volume.range.start.saturating_add(stated) > len)
    };
    of_map
        .listed()
        .iter()
        .any(|problem| problem.error.kind() == Kind::OutOfRange)
        || volumes.iter().any(is_past_end)
}

/// Reports contents that are not checked, and data that is stored for a blank disk.
fn judge_contents(contents: &Contents, options: &OpenOptions<'_>, found: &mut Examination) {
    match contents {
        Contents::Foreign(uses) => {
            let what = format!("not checked: {}", uses.join(", "));
            found
                .problems
                .add(Severity::Note, Error::unsupported("disk", what));
        }
        Contents::Blank if options.shadows.is_empty() => {
            let bytes: u64 = found.orphans.iter().map(|orphan| orphan.len).sum();
            if let Some(first) = found.orphans.first() {
                let message = format!(
                    "the disk is blank, but {bytes} stored bytes do not belong to any part of it \
                     ({}): the index of the image may be damaged",
                    first.what
                );
                found.doubt(message);
            }
        }
        Contents::Volumes | Contents::Blank | Contents::Unknown => {}
    }
}

/// Checks a volume, and its files if they are to be decoded.
fn check_volume(
    volume: &Volume,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    let layer = format!("{} on {}", volume.format, volume.place());
    match volume.check(options.keys, &mut found.problems, progress) {
        Some(checked) => {
            found.has_checked_volume = true;
            let unseen = found.judged(layer, checked)?.unwrap_or_default();
            found
                .layers
                .extend(unseen.into_iter().map(|error| CheckedLayer {
                    layer: format!("volume on {}", volume.place()),
                    verdict: LayerVerdict::Unknown(error),
                }));
        }
        None => {
            found.has_skipped_volume = true;
            found.layers.push(CheckedLayer {
                layer,
                verdict: LayerVerdict::Skipped,
            });
        }
    }
    if found.decoding && volume.format.is_supported() {
        decode_files(volume, options, found, progress)?;
    }
    Ok(())
}

/// Reports stored data that belongs to no part of the disk, if places that are in use have no
/// storage.
fn compare_orphans(
    disk: &Arc<dyn BlockDevice>,
    map: Option<&Map>,
    volumes: &[Volume],
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    let unstored = match unstored::find(disk, map, volumes, progress) {
        Ok(unstored) => unstored,
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::OutOfRange) => return Ok(()),
        Err(error) => return Err(error),
    };
    let (Some(place), Some(first)) = (unstored.places.first(), found.orphans.first()) else {
        return Ok(());
    };
    let bytes: u64 = found.orphans.iter().map(|orphan| orphan.len).sum();
    let message = format!(
        "bytes {} to {} of the disk are in use but not stored, and {bytes} stored bytes do not \
         belong to any part of the disk ({}): the index of the image may be damaged",
        place.start, place.end, first.what
    );
    found.doubt(message);
    Ok(())
}

/// Decodes the compressed files of every volume of the disk, including those in containers.
fn decode_files(
    volume: &Volume,
    options: &OpenOptions<'_>,
    found: &mut Examination,
    progress: &dyn Progress,
) -> Result<()> {
    let wanted = VolumeQuery {
        snapshot: None,
        keys: options.keys,
    };
    let numbers = if volume.format.is_container() {
        let container = found.opened("volumes", volume.container())?;
        // Failures are among the problems already.
        let volumes = container.map_or_else(Vec::new, |container| container.volumes());
        volumes
            .into_iter()
            .flatten()
            .map(|volume| Some(volume.label.number))
            .collect()
    } else {
        vec![None]
    };
    for number in numbers {
        let (mut layer, mut place) = ("compressed files".to_owned(), volume.place());
        if let Some(number) = number {
            layer += &format!(" of volume {number}");
            place += &format!(", volume {number}");
        }
        layer += &format!(" on {}", volume.place());
        let Some(fs) = found.opened(&layer, volume.open_within(number, wanted))? else {
            continue;
        };
        let checked = verify_compressed::check(&*fs, &place, &mut found.problems, progress);
        found.judged(layer, checked)?;
    }
    Ok(())
}

/// Reports partitions of Apple's types that do not begin with such a volume. Blank ones are noted
/// as unformatted.
fn missing_volumes(
    disk: &Arc<dyn BlockDevice>,
    map: Option<&Map>,
    volumes: &[Volume],
    problems: &mut Problems,
) -> Result<()> {
    let partitions = map.map(|map| map.partitions.as_slice()).unwrap_or_default();
    for partition in partitions
        .iter()
        .filter(|partition| ["Apple_HFS", "Apple_APFS", "Apple_HFSX"].contains(&&*partition.kind))
    {
        if volumes
            .iter()
            .any(|volume| volume.partition == Some(partition.number))
        {
            continue;
        }
        let start = partition.range.start;
        let severity = if contents::is_partition_blank(disk, partition)? {
            Severity::Note
        } else {
            Severity::Warning
        };
        let what = format!(
            "partition {} has the type {}, but no known file system begins there",
            partition.number, partition.kind
        );
        problems.add(severity, Error::corrupt("volume", start, what));
    }
    Ok(())
}
