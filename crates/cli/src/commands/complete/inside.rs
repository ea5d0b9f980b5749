//! Volumes, snapshots and paths inside an image, as candidates.
//!
//! Nothing is asked and nothing fails: an image that is locked, in use, remote or damaged has no
//! candidates.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bandsaw::address::Address;
use bandsaw::device::Access;
use bandsaw::fs::{FileKind, FileSystem, FileSystemExt};
use bandsaw::open::{self, Image, KeyFile, NetworkOptions, OpenOptions, VolumeQuery};
use bandsaw::ops::describe::{KeySlotInfo, KeySlotKind};
use bandsaw::ops::snapshot;
use bandsaw_backups::{Backups, volumes_of};
use bandsaw_states::{BundleFolder, Shelf};

use super::{Candidates, ShellCompletion};

/// Adds what follows `IMAGE:` in a word; paths only if `paths` is set.
pub(super) fn add(candidates: &mut Candidates, current: &str, paths: bool) {
    let Some((image, rest)) = split(current) else {
        add_snapshots(candidates, current);
        return;
    };
    candidates.also = ShellCompletion::None;
    let Some(opened) = open(image) else { return };
    match rest.split_once('/') {
        Some((volume, _)) if paths && (volume.is_empty() || volume.ends_with(':')) => {
            add_paths(candidates, current, &opened, volume, rest);
        }
        Some(_) => {}
        None => add_volumes(candidates, current, image, &opened, rest, paths),
    }
}

/// Adds the snapshots of a bundle, if the word is `BUNDLE@…`.
pub(super) fn add_snapshots(candidates: &mut Candidates, current: &str) {
    let Some((image, _)) = current.rsplit_once('@') else {
        return;
    };
    for name in bundle_snapshots(image) {
        candidates.add(current, format!("{image}@{name}"), "");
    }
}

/// Returns the names of the snapshots of a local bundle.
pub(super) fn bundle_snapshots(image: &str) -> Vec<String> {
    if image.contains("://") || !Path::new(image).is_dir() {
        return Vec::new();
    }
    let found = snapshot::list(Path::new(image), NetworkOptions::default());
    let names = found.unwrap_or_default().into_iter();
    names.map(|snapshot| snapshot.name).collect()
}

/// Adds the numbers of the key slots of an encrypted image of this host.
pub(super) fn add_key_slots(candidates: &mut Candidates, current: &str, image: &str) {
    if image.contains("://") {
        return;
    }
    let file = KeyFile::open(
        Path::new(image),
        Access::ReadOnly,
        NetworkOptions::default(),
    );
    let Ok(Some(file)) = file else { return };
    for slot in KeySlotInfo::all(&file.description().key_slots) {
        let kind = match slot.kind {
            KeySlotKind::Passphrase { .. } => "passphrase",
            _ => "certificate",
        };
        candidates.add(current, slot.number.to_string(), kind);
    }
}

/// Adds the names of the states of a bundle.
pub(super) fn add_states(candidates: &mut Candidates, current: &str, bundle: &str) {
    let names = BundleFolder::open(Path::new(bundle))
        .and_then(|bundle| Shelf::of(&bundle, None)?.names())
        .unwrap_or_default();
    candidates.add_all(current, names.iter().map(String::as_str));
}

/// Adds the dates of the Time Machine backups in an image of this host.
pub(super) fn add_dates(candidates: &mut Candidates, current: &str, image: &str) {
    let Some(image) = open(image) else { return };
    let backups = Backups::read(volumes_of(&image, None, None).unwrap_or_default());
    if !backups.all().is_empty() {
        candidates.add(current, "latest".to_owned(), "the newest complete backup");
    }
    for backup in backups.all() {
        candidates.add(current, backup.date.to_string(), &backup.machine);
    }
}

/// Adds the checkpoints of the APFS containers in the image that an operand names.
pub(super) fn add_checkpoints(candidates: &mut Candidates, current: &str, operand: &str) {
    let image = split(operand).map_or(operand, |(image, _)| image);
    let Some(image) = open(image) else { return };
    for volume in image.volumes() {
        for xid in volume
            .container()
            .iter()
            .flat_map(|container| container.checkpoints())
        {
            candidates.add(current, xid.to_string(), "");
        }
    }
}

/// Splits a word after an existing image of the host and a colon.
fn split(current: &str) -> Option<(&str, &str)> {
    if current.contains("://") {
        return None;
    }
    let mut cuts = current.match_indices(':').map(|(at, _)| at);
    let at = cuts.find(|at| Path::new(&current[..*at]).exists())?;
    Some((&current[..at], &current[at + 1..]))
}

/// Opens an image of this host, without keys.
fn open(image: &str) -> Option<Image> {
    if image.contains("://") {
        return None;
    }
    open::open(Path::new(image), &OpenOptions::default()).ok()
}

/// Adds the objects of the folder that the word names. `volume` ends with a colon, or is empty.
fn add_paths(candidates: &mut Candidates, current: &str, image: &Image, volume: &str, rest: &str) {
    let Some(fs) = file_system(image, volume.trim_end_matches(':')) else {
        return;
    };
    let Some(cut) = current.len().checked_sub(rest.len()) else {
        return;
    };
    let path = &current[cut + volume.len()..];
    let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
    let before = &current[..current.len() - path.len() + folder.len()];
    let Ok(found) = fs.resolve(folder.trim_end_matches('/')) else {
        return;
    };
    // The candidates of a damaged folder are those before the damage.
    let _ = fs.list_names(found.id, &mut |name, kind| {
        let end = if kind == FileKind::Folder { "/" } else { "" };
        candidates.add(current, format!("{before}{name}{end}"), "");
        Ok(ControlFlow::Continue(()))
    });
}

/// Returns the volume that `NAME`, `#N` or `NAME@SNAPSHOT` names; the first readable one for the
/// empty name.
fn file_system(image: &Image, volume: &str) -> Option<Arc<dyn FileSystem>> {
    if volume.is_empty() {
        return image.file_system(None).ok();
    }
    let address = Address::parse(&format!("x:{volume}:/"), &|path| path == Path::new("x")).ok()?;
    let query = VolumeQuery {
        snapshot: address.snapshot.as_deref(),
        keys: None,
    };
    image.file_system_as(address.volume.as_ref(), query).ok()
}

/// Adds the volumes of an image, or the snapshots of one.
fn add_volumes(
    candidates: &mut Candidates,
    current: &str,
    path: &str,
    image: &Image,
    rest: &str,
    paths: bool,
) {
    let end = if paths { ":/" } else { "" };
    if paths {
        candidates.add(current, format!("{path}:/"), "the first volume");
    }
    for volume in image.volumes() {
        let number = volume.partition.unwrap_or(1);
        let format = volume.format.name();
        if !volume.format.is_container() {
            let name = volume.open().map(|fs| fs.volume().name).unwrap_or_default();
            candidates.add(
                current,
                format!("{path}:#{number}{end}"),
                &format!("{format} {name}"),
            );
            if !name.is_empty() && !name.contains([':', '/']) {
                candidates.add(current, format!("{path}:{name}{end}"), format);
            }
            continue;
        }
        for summary in volume.member_summaries() {
            let (name, within) = (&summary.label.name, summary.label.number);
            let numbered = format!("{path}:#{number}.{within}{end}");
            candidates.add(current, numbered, &format!("{format} {name}"));
            if name.is_empty() || name.contains([':', '/']) {
                continue;
            }
            candidates.add(current, format!("{path}:{name}{end}"), format);
            let wanted = rest
                .split_once('@')
                .is_some_and(|(volume, _)| volume == name);
            for snapshot in summary.snapshots.iter().filter(|_| wanted) {
                let snapshot = format!("{path}:{name}@{}{end}", snapshot.name);
                candidates.add(current, snapshot, "snapshot");
            }
        }
    }
}
