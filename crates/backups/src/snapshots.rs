//! Backups as snapshots, as Time Machine makes them on APFS: `com.apple.TimeMachine.DATE.backup`, with
//! the files in a folder `DATE.backup`. In the current state of the volume that folder has another
//! suffix.

use std::collections::HashSet;

use bandsaw::device::BlockDeviceExt;
use bandsaw::fs::{FileKind, FileSystem, Fork, Timestamp};
use bandsaw::{Error, Kind, Result};

use crate::LAYER;
use crate::backup::{Backup, BackupState, Place};
use crate::backup_volume::BackupVolume;
use crate::date::BackupDate;
use crate::folders::{self, about, describe, listed};
use crate::lists::{self, MAX_LIST_LEN};
use crate::reading::Reading;

pub(crate) const PREFIX: &str = "com.apple.TimeMachine.";
pub(crate) const SUFFIX: &str = ".backup";
/// The list of all backups on a volume.
pub(crate) const MANIFEST: &str = "backup_manifest.plist";
/// Seconds between the date in the manifest and the snapshot of the same backup.
const NEAR: i64 = 300;

/// Returns true for the name of a snapshot with a backup.
pub(crate) fn is_backup(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.ends_with(SUFFIX))
}

/// Reads the backups of a volume.
pub(crate) fn read(number: usize, volume: &BackupVolume, reading: &mut Reading) {
    let is_of_backups = volume.snapshots.iter().any(|one| is_backup(&one.name));
    let fs = volume.fs.as_deref();
    let manifest = fs.and_then(|fs| manifest(fs, reading));
    if !is_of_backups && manifest.is_none() {
        return;
    }
    let machine = machine(volume, reading);
    let mut dates = HashSet::new();
    for snapshot in volume.snapshots.iter().filter(|one| is_backup(&one.name)) {
        let date = snapshot.name.strip_prefix(PREFIX);
        let date = date.and_then(|rest| rest.strip_suffix(SUFFIX));
        let Some(date) = date.and_then(BackupDate::parse) else {
            let message = "the name of the snapshot is not the date of a backup";
            reading.problem(Error::new(Kind::Corrupt, LAYER, message).named(&snapshot.name));
            continue;
        };
        dates.insert(date);
        reading.list.push(Backup {
            machine: machine.clone(),
            name: snapshot.name.clone(),
            date,
            state: BackupState::Complete,
            started: None,
            completed: snapshot.created,
            copied: copied(manifest.as_deref().unwrap_or_default(), snapshot.created),
            volume: number,
            place: Place::Snapshot(snapshot.name.clone()),
            sequence: Some(snapshot.sequence),
        });
    }
    let Some(fs) = fs else { return };
    for (name, attributes) in listed(fs, fs.root(), "/", reading) {
        if attributes.kind != FileKind::Folder || !name.contains('.') {
            continue;
        }
        let Some((date, mut state)) = folders::named(&name) else {
            continue;
        };
        // The folder of the newest backup, of which there is a snapshot.
        if dates.contains(&date) && state == BackupState::Complete {
            continue;
        }
        let mut backup = Backup {
            machine: machine.clone(),
            date,
            state,
            started: None,
            completed: None,
            copied: None,
            volume: number,
            place: Place::Folder(attributes.id, format!("/{name}")),
            sequence: None,
            name,
        };
        describe(fs, &attributes, &mut backup, reading);
        if state == BackupState::Complete && backup.completed.is_none() {
            state = BackupState::Interrupted;
        }
        backup.state = state;
        reading.list.push(backup);
    }
}

/// Returns the contents of the manifest in the root folder.
fn manifest_file(fs: &dyn FileSystem) -> Result<Option<Vec<u8>>> {
    let Some(found) = fs.lookup(fs.root(), MANIFEST)? else {
        return Ok(None);
    };
    if found.kind != FileKind::File {
        return Ok(None);
    }
    if found.size > MAX_LIST_LEN {
        return Err(Error::limit(LAYER, "too long for a property list").named(MANIFEST));
    }
    let file = fs.open(found.id, Fork::Data)?;
    let len = usize::try_from(file.info().len.min(MAX_LIST_LEN)).unwrap_or(0);
    file.read_vec(0, len).map(Some)
}

fn manifest(fs: &dyn FileSystem, reading: &mut Reading) -> Option<Vec<(Timestamp, Option<u64>)>> {
    let read = manifest_file(fs);
    let bytes = read.map_err(|error| about(error, MANIFEST));
    let bytes = reading.kept(bytes).flatten()?;
    let parsed = lists::manifest(&bytes).map_err(|error| about(error, MANIFEST));
    // One that cannot be read still marks a volume of backups.
    Some(reading.kept(parsed).unwrap_or_default())
}

/// Returns the name of the machine whose backups a volume holds: as recorded, or that of the volume.
fn machine(volume: &BackupVolume, reading: &mut Reading) -> String {
    let recorded = volume.fs.as_deref().and_then(|fs| {
        let read = folders::text(fs, fs.root(), "com.apple.backupd.ComputerName");
        reading.kept(read).flatten()
    });
    let recorded = recorded.filter(|name| !name.is_empty());
    recorded.unwrap_or_else(|| volume.name.clone())
}

/// Returns the bytes that the manifest records for the backup of a snapshot.
fn copied(manifest: &[(Timestamp, Option<u64>)], created: Option<Timestamp>) -> Option<u64> {
    let created = created?.seconds;
    let distance = |time: &Timestamp| time.seconds.saturating_sub(created).saturating_abs();
    let nearest = manifest.iter().min_by_key(|(time, _)| distance(time))?;
    nearest.1.filter(|_| distance(&nearest.0) <= NEAR)
}
