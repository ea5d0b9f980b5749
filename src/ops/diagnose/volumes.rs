//! Diagnosis of disks that open, but have no usable volume: "no mountable file systems".

use std::path::Path;

use super::{Cause, content};
use crate::open::{Contents, Examination, Layer, Volume, VolumeFormat};
use crate::partition::Map;
use crate::{Error, Kind, Result};

/// Partition types whose contents are known by name, with description and advice.
const SPECIAL: [(&str, &str, &str); 6] = [
    (
        "Apple_CoreStorage",
        "a CoreStorage volume group (FileVault before macOS 10.13, or a Fusion drive)",
        "its header is missing: copy the disk again, whole; Bandsaw reads it then",
    ),
    (
        "Apple_RAID",
        "a part of a software RAID",
        "assemble all of its parts on a Mac",
    ),
    ("Apple_Boot", "a boot partition", "it has no user data"),
    (
        "Linux LVM",
        "a volume group of Linux (LVM)",
        "on Linux: `losetup -P`, then `vgchange -ay`",
    ),
    ("Linux Swap", "swap space of Linux", "it has no files"),
    (
        "Apple_UFS",
        "a UFS volume",
        "open it on FreeBSD, or on Linux with the driver `ufs`",
    ),
];

/// Returns the cause for an open disk whose volumes are all damaged, or cut off.
pub(super) fn damaged(path: &Path, layers: &[Layer]) -> Result<Option<Cause>> {
    let (map, volumes) = found(layers);
    let mut first = None;
    let wanted = |volume: &&Volume| volume.format.is_supported() && !volume.starts_computer;
    for volume in volumes.iter().filter(wanted) {
        match volume.check_openable() {
            // The check reports unsupported and locked volumes.
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::OutOfRange) => {
                first = first.or(Some((volume, error)));
            }
            Err(error) if error.kind() == Kind::Io => return Err(error),
            _ => return Ok(None),
        }
    }
    let cut = map.and_then(cut_off);
    let Some((volume, error)) = first else {
        let cut = cut.filter(|_| volumes.is_empty());
        return Ok(cut.map(|problem| {
            content::cut_short(format!("is truncated: {}", problem.message()))
                .in_layer("partition map")
                .of(problem.duplicate())
        }));
    };
    let what = format!(
        "has a damaged {} volume on {}: {}",
        volume.format,
        volume.place(),
        error.message()
    );
    let damaged = match cut {
        Some(_) => content::cut_short(what),
        None => Cause::new("volume-damaged", "volume", what),
    };
    let check = format!(
        "run `bandsaw check {}` to list the problems",
        path.display()
    );
    Ok(Some(
        damaged
            .advise(check)
            .advise("on a Mac, try First Aid of Disk Utility on a copy")
            .of(error),
    ))
}

/// Returns the reason why an open disk has no usable volume, by the verdict on its contents.
pub(super) fn unusable(path: &Path, layers: &[Layer], check: &Examination) -> Option<Cause> {
    let (map, volumes) = found(layers);
    match check.contents.as_ref()? {
        Contents::Volumes => None,
        Contents::Unknown if map.is_none() => Some(unknown(path, layers)),
        _ => Some(match volumes.first() {
            Some(volume) => unread(path, volume),
            None => empty(path, layers, map),
        }),
    }
}

/// Returns the partition map and the volumes of an open disk.
fn found(layers: &[Layer]) -> (Option<&Map>, &[Volume]) {
    let map = layers.iter().find_map(Layer::partitions);
    let volumes = layers.iter().find_map(Layer::volumes);
    (map, volumes.unwrap_or_default())
}

/// Returns the cause for a disk that is not blank and in which nothing is recognized.
fn unknown(path: &Path, layers: &[Layer]) -> Cause {
    let cause = Cause::new(
        "unknown",
        "disk",
        "has unknown contents: the disk is not blank, but has no known volume",
    )
    .advise(format!(
        "run `bandsaw repair --dry-run {}` to see whether a backup of the lost structures exists",
        path.display()
    ))
    .advise("it may be the data of a program without a signature (VeraCrypt, for example)");
    advise_on_token(cause, layers)
}

/// Returns the cause for a volume of a format that is known by name only.
fn unread(path: &Path, volume: &Volume) -> Cause {
    let cause = Cause::new(
        "file-system-not-read",
        "volume",
        format!(
            "has {} on {}, which is not supported",
            volume.format,
            volume.place()
        ),
    );
    let name = path.display();
    let cause = match volume.format.linux_driver() {
        Some(driver) => cause.advise(format!(
            "on Linux: `bandsaw convert {name} disk.img`, then `sudo mount -o ro,loop,offset={} -t {driver} disk.img /mnt`",
            volume.range.start
        )),
        None => cause,
    };
    match volume.format {
        VolumeFormat::Luks => {
            let sector = volume.range.start / 512;
            let cause = Cause {
                code: "other-system",
                ..cause
            };
            cause.advise(format!(
                "on Linux: `bandsaw convert {name} disk.img`, then `sudo losetup -f --show -o $(({sector} * 512)) disk.img` and `cryptsetup open` of that device"
            ))
        }
        VolumeFormat::BitLocker => {
            let offset = volume.range.start;
            let cause = Cause {
                code: "other-system",
                ..cause
            };
            cause.advise(format!(
                "on Linux: `bandsaw convert {name} disk.img`, then `sudo losetup -f --show -o {offset} disk.img` and `cryptsetup open --type bitlk` of that device"
            ))
        }
        VolumeFormat::Lvm => cause.advise("on Linux: `losetup -P`, then `vgchange -ay`"),
        VolumeFormat::Swap => cause.advise("it has no files"),
        _ => cause,
    }
}

/// Returns the problem of a partition that extends past the end of the disk.
fn cut_off(map: &Map) -> Option<&Error> {
    map.problems
        .iter()
        .find(|problem| problem.kind() == Kind::OutOfRange)
}

/// Returns the cause for a disk without a recognized file system.
fn empty(path: &Path, layers: &[Layer], map: Option<&Map>) -> Cause {
    let Some(map) = map else {
        let blank = Cause::new(
            "blank",
            "disk",
            "has a disk without partition map and known file system",
        );
        let blank = blank
            .advise("this is normal for a new image that is not formatted")
            .advise("an incomplete download may look like this: compare it with the original")
            .advise(match has_layer_above_file(layers) {
                true => "it may be swap or raw data of another program".to_owned(),
                false => format!("run `bandsaw info {}` to see its size", path.display()),
            });
        return advise_on_token(blank, layers);
    };
    let special = map.partitions.iter().find_map(|partition| {
        let known = SPECIAL.iter().find(|(kind, _, _)| partition.kind == *kind);
        known.map(|(_, what, advice)| (partition.number, what, advice))
    });
    if let Some((number, what, advice)) = special {
        return Cause::new(
            "no-file-system",
            "partition map",
            format!("has {what} in partition {number}, but no volume"),
        )
        .advise(*advice);
    }
    let what = "has partitions, but none has a known file system";
    let unformatted = "the volumes may never have been formatted, or be encrypted as a whole \
                       (FileVault, BitLocker, VeraCrypt)";
    Cause::new("no-file-system", "partition map", what)
        .advise(unformatted)
        .advise(format!(
            "run `bandsaw info {}` to see the types of the partitions",
            path.display()
        ))
}

/// Adds the advice for a bundle that opened as a plain one, but may be encrypted.
fn advise_on_token(cause: Cause, layers: &[Layer]) -> Cause {
    let bundle = layers.iter().find_map(Layer::bundle);
    let encryption = layers.iter().find_map(Layer::encryption);
    if bundle.is_none() || encryption.is_some() {
        return cause;
    }
    cause.advise(
        "if it was encrypted, its file `token` is empty, missing or damaged: restore that from a \
         backup",
    )
}

fn has_layer_above_file(layers: &[Layer]) -> bool {
    let is_below =
        |layer: &Layer| layer.is_file() || layer.is_bucket() || layer.volumes().is_some();
    layers.iter().any(|layer| !is_below(layer))
}

/// Returns the cause for an image whose only problem is its file name extension, on which macOS
/// relies.
pub(super) fn misnamed(path: &Path, layers: &[Layer]) -> Option<Cause> {
    let format = layers.iter().find_map(Layer::format)?;
    path.extension()
        .filter(|_| !format.fits_name(path))
        .map(|found| {
            let what = format!(
                "is a {} ({format}), but the name ends in .{}",
                format.description(),
                found.display()
            );
            Cause::new("wrong-extension", "file", what).advise(format!(
                "rename it to end in .{}: macOS decides by the name, Bandsaw by the contents",
                format.extension()
            ))
        })
}
