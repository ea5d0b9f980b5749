//! The volumes of an image that may hold backups.

use std::sync::Arc;

use bandsaw::address::VolumeSelector;
use bandsaw::fs::apfs::{Container, Summary};
use bandsaw::fs::{FileSystem, LockedVolume};
use bandsaw::open::{Image, Keys, Volume, VolumeQuery, volume_key};
use bandsaw::{Error, Kind, Result};

use crate::backup_volume::{BackupVolume, Snapshot};
use crate::snapshots::is_backup;

/// The role of a volume that macOS made for backups.
const ROLE: &str = "Backup";

/// Returns the volumes of an image that may hold backups, or the one that `which` names. `keys` is
/// called for encrypted ones, once each.
///
/// [`Kind::WrongKey`] if such a volume is encrypted and no key is known. One that cannot be read is
/// returned with the reason, unless `which` names it.
pub fn volumes_of(
    image: &Image,
    which: Option<&VolumeSelector>,
    keys: Option<&dyn Keys>,
) -> Result<Vec<BackupVolume>> {
    let mut found = Vec::new();
    for volume in image.volumes() {
        if !volume.format.is_supported() || !may_be(volume, which) {
            continue;
        }
        match volume.format.is_container() {
            true => of_container(volume, which, keys, &mut found)?,
            false => found.extend(single(image, volume, which, keys)?),
        }
    }
    match which {
        // The error lists what there is.
        Some(selector) if found.is_empty() => {
            let fs = image.file_system_as(
                Some(selector),
                VolumeQuery {
                    snapshot: None,
                    keys,
                },
            )?;
            let name = fs.volume().name;
            found.push(without_snapshots(name, Ok(fs)));
        }
        _ => {}
    }
    Ok(found)
}

fn may_be(volume: &Volume, which: Option<&VolumeSelector>) -> bool {
    match which {
        Some(VolumeSelector::Number { partition, .. }) => {
            volume.partition.unwrap_or(1) == *partition
        }
        Some(VolumeSelector::Name(_)) | None => true,
    }
}

/// Returns a volume that is no container of others. `None` if it has another name.
fn single(
    image: &Image,
    volume: &Volume,
    which: Option<&VolumeSelector>,
    keys: Option<&dyn Keys>,
) -> Result<Option<BackupVolume>> {
    let selector = VolumeSelector::Number {
        partition: volume.partition.unwrap_or(1),
        volume: None,
    };
    let query = VolumeQuery {
        snapshot: None,
        keys,
    };
    let opened = image.file_system_as(Some(&selector), query);
    let opened = match (opened, which) {
        (Err(error), _) if error.kind() == Kind::WrongKey => return Err(error),
        (Err(error), Some(VolumeSelector::Number { .. })) => return Err(error),
        (opened, _) => opened,
    };
    let name = match &opened {
        Ok(fs) => fs.volume().name,
        Err(_) => volume.place(),
    };
    let is_other = matches!(which, Some(VolumeSelector::Name(wanted)) if *wanted != name);
    Ok((!is_other).then(|| without_snapshots(name, opened)))
}

fn without_snapshots(name: String, opened: Result<Arc<dyn FileSystem>>) -> BackupVolume {
    let (fs, problem) = match opened {
        Ok(fs) => (Some(fs), None),
        Err(error) => (None, Some(error)),
    };
    BackupVolume {
        name,
        fs,
        snapshots: Vec::new(),
        open: Box::new(|name| Err(Error::not_found("snapshot", name))),
        problem,
    }
}

/// Adds the volumes of a container that have the role or the snapshots of backups.
fn of_container(
    volume: &Volume,
    which: Option<&VolumeSelector>,
    keys: Option<&dyn Keys>,
    found: &mut Vec<BackupVolume>,
) -> Result<()> {
    let container = match (volume.container(), which) {
        (Err(error), None) => {
            found.push(without_snapshots(volume.place(), Err(error)));
            return Ok(());
        }
        (container, _) => container?,
    };
    for summary in container.volumes() {
        let summary = match (summary, which) {
            (Err(error), None) => {
                found.push(without_snapshots(volume.place(), Err(error)));
                continue;
            }
            (summary, _) => summary?,
        };
        let is_wanted = match which {
            Some(VolumeSelector::Name(name)) => summary.label.name == *name,
            Some(VolumeSelector::Number {
                volume: Some(number),
                ..
            }) => summary.label.number == *number,
            Some(VolumeSelector::Number { volume: None, .. }) | None => {
                summary.label.role == Some(ROLE)
                    || summary.snapshots.iter().any(|one| is_backup(&one.name))
            }
        };
        if is_wanted {
            found.push(within(&container, summary, keys)?);
        }
    }
    Ok(())
}

fn within(
    container: &Arc<Container>,
    summary: Summary,
    keys: Option<&dyn Keys>,
) -> Result<BackupVolume> {
    let number = summary.label.number;
    let key = |locked: &LockedVolume| volume_key(locked, keys);
    let snapshots = summary.snapshots.into_iter().map(|one| Snapshot {
        name: one.name,
        sequence: one.xid,
        created: one.created,
    });
    let mut volume = BackupVolume {
        name: summary.label.name,
        fs: None,
        snapshots: snapshots.collect(),
        open: Box::new(|name| Err(Error::not_found("snapshot", name))),
        problem: None,
    };
    match container.open_volume(number, None, &key) {
        Err(error) if error.kind() == Kind::WrongKey => return Err(error),
        Err(error) => {
            volume.problem = Some(error);
            // Snapshots of a volume whose current state is damaged may be sound.
            let container = container.clone();
            volume.open = Box::new(move |name| {
                let no_key = |locked: &LockedVolume| volume_key(locked, None);
                let opened = container.open_volume(number, Some(name), &no_key)?;
                Ok(Arc::new(opened) as Arc<dyn FileSystem>)
            });
        }
        Ok(opened) => {
            let opened = Arc::new(opened);
            volume.fs = Some(opened.clone());
            volume.open = Box::new(move |name| {
                let opened = opened.open_snapshot(name)?;
                Ok(Arc::new(opened) as Arc<dyn FileSystem>)
            });
        }
    }
    Ok(volume)
}
