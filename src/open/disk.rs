//! The contents of a disk: its partition map, its volumes, or neither.

use super::opening::Opening;
use super::{FoundDisk, LAYER, Layer, UNKNOWN, Volume, contents, logical_disk};
use crate::container::{SECTOR, udif};
use crate::device::BlockDevice;
use crate::error::Place;
use crate::partition::{self, Map};
use crate::{Error, Kind, Reason, Result};

/// The message of the error about an encryption header with no data after it.
const HEADER_ALONE: &str = "not an image: it has the keys of an encrypted image but no data; open \
                            the sparse bundle that contains it";

/// The message of the error about a file without bytes.
const EMPTY: &str = "is empty";

/// The message of the error about a compressed image without its end.
const UDIF_BEGINNING: &str =
    "is truncated: it begins as a compressed image, but the trailer `koly` at its end is missing";

impl Opening<'_> {
    /// Finds partitions and volumes. A raw image must contain some, or be blank: nothing else
    /// distinguishes it from any other file.
    pub(super) fn survey(&mut self, found: &FoundDisk) -> Result<()> {
        let options = self.options;
        let as_told = options.image_format.is_some();
        let mut unusable = None;
        let (map, mut volumes) = contents::find_with(&found.disk, |search| {
            match partition::probe_with(&*found.disk, search) {
                Err(error) if as_told => {
                    unusable = Some(error);
                    Ok(None)
                }
                found => found,
            }
        })?;
        self.warnings
            .extend(unusable.map(|error| error.to_string()));
        for volume in &mut volumes {
            volume.checkpoint = options.checkpoint;
            volume.cache = options.cache;
            volume.change_damaged = options.change_damaged;
            volume.system_files = options.system_files;
            volume.now = options.now;
            volume.survey();
        }
        check_checkpoint(&volumes, options.checkpoint)?;
        if options.logical_volume.is_none() {
            logical_disk::add_physical_volumes(&mut volumes, &options)?;
        }
        for volume in &volumes {
            self.warnings.extend(volume.warning_of_older_state());
        }
        // An encrypted file is an image, independent of its contents.
        let encrypted = self.is_encrypted();
        let needs_proof = found.format.is_plain() && !as_told && !encrypted;
        let proven = !volumes.is_empty()
            || map.is_some()
            || !needs_proof
            || (!has_odd_bytes(&self.layers) && contents::is_blank(&*found.disk)?);
        let cut_off = map
            .as_ref()
            .filter(|_| volumes.is_empty() && !as_told)
            .and_then(cut_off);
        let problems = map.iter().flat_map(|map| &map.problems);
        self.warnings.extend(problems.map(Error::to_string));
        self.layers.extend(map.map(Layer::Partitions));
        self.layers.push(Layer::Volumes(volumes));
        match cut_off {
            Some(error) => Err(error),
            None if encrypted && !as_told && found.disk.info().len == 0 => {
                Err(Error::new(Kind::Corrupt, LAYER, HEADER_ALONE))
            }
            None if proven => Ok(()),
            None => Err(too_short(&self.layers).unwrap_or_else(|| unknown(&*found.disk))),
        }
    }
}

/// Refuses a checkpoint of a disk whose volumes have none.
pub(super) fn check_checkpoint(volumes: &[Volume], checkpoint: Option<u64>) -> Result<()> {
    let has_some = volumes.iter().any(|volume| volume.format.is_container());
    match checkpoint {
        Some(xid) if !has_some && !volumes.is_empty() => {
            let message = "does not exist: only APFS containers have checkpoints";
            Err(Error::new(Kind::NotFound, LAYER, message).named(format!("checkpoint {xid}")))
        }
        _ => Ok(()),
    }
}

/// Returns the error for a file that nothing distinguishes from any other.
pub(super) fn unknown(disk: &dyn BlockDevice) -> Error {
    if disk.info().len == 0 {
        return Error::new(Kind::Corrupt, LAYER, EMPTY);
    }
    match udif::begins_with_chunk(disk) {
        Ok(true) => Error::new(Kind::Corrupt, LAYER, UDIF_BEGINNING).because(Reason::Truncated),
        Ok(false) => Error::unsupported(LAYER, UNKNOWN).because(Reason::UnknownFormat),
        Err(error) => error,
    }
}

/// Returns the error of a map whose partitions are all past the end of the disk: the image was
/// truncated.
fn cut_off(map: &Map) -> Option<Error> {
    let problem = map
        .problems
        .iter()
        .find(|problem| problem.kind() == Kind::OutOfRange)?;
    let error = Error::new(
        Kind::Corrupt,
        problem.layer(),
        format!("truncated: {}", problem.message()),
    )
    .because(Reason::Truncated);
    Some(match problem.place() {
        Place::Offset(offset) => error.at(*offset),
        Place::Name(_) | Place::None => error,
    })
}

/// Returns the error for a file that is shorter than a sector and not empty.
fn too_short(layers: &[Layer]) -> Option<Error> {
    let raw = layers.iter().find_map(Layer::raw)?;
    shorter_than_sector(raw.info().len + raw.trailing())
}

/// Returns the error for a file of `len` bytes if that is shorter than a sector and not empty.
pub(super) fn shorter_than_sector(len: u64) -> Option<Error> {
    (1..SECTOR).contains(&len).then(|| {
        let message =
            format!("unknown format: {len} bytes are shorter than one sector ({SECTOR} bytes)");
        Error::unsupported(LAYER, message).because(Reason::UnknownFormat)
    })
}

/// Returns true if the file length is no multiple of the sector size, which excludes a blank disk.
fn has_odd_bytes(layers: &[Layer]) -> bool {
    layers
        .iter()
        .filter_map(Layer::raw)
        .any(|raw| raw.trailing() > 0)
}
