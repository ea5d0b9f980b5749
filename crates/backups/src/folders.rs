//! Backups as folders, as Time Machine makes them on HFS+: `Backups.backupdb/MACHINE/DATE`. Files and
//! folders that did not change are hard links to those of the backup before.

use bandsaw::device::BlockDeviceExt;
use bandsaw::fs::{Attributes, FileKind, FileSystem, NodeId, Timestamp};
use bandsaw::{Error, Kind, Result};

use crate::LAYER;
use crate::backup::{Backup, BackupState, Place};
use crate::backup_volume::BackupVolume;
use crate::date::BackupDate;
use crate::reading::Reading;

/// The folder with the backups of all machines.
pub(crate) const STORE: &str = "Backups.backupdb";
/// The link to the newest backup of a machine.
const LATEST: &str = "Latest";
/// Maximum length of a number in an extended attribute.
const LONGEST_NUMBER: u64 = 64;

/// Reads the backups of a volume.
pub(crate) fn read(number: usize, volume: &BackupVolume, reading: &mut Reading) {
    let Some(fs) = &volume.fs else { return };
    let store = reading.kept(fs.lookup(fs.root(), STORE)).flatten();
    let Some(store) = store.filter(|store| store.kind == FileKind::Folder) else {
        return;
    };
    for (machine, attributes) in listed(&**fs, store.id, &format!("/{STORE}"), reading) {
        if attributes.kind == FileKind::Folder && !machine.starts_with('.') {
            let path = format!("/{STORE}/{machine}");
            let place = MachineFolder {
                volume: number,
                fs: &**fs,
                machine,
                path,
            };
            place.read(attributes.id, reading);
        }
    }
}

/// Returns the entries of a folder, as far as they can be read.
pub(crate) fn listed(
    fs: &dyn FileSystem,
    folder: NodeId,
    path: &str,
    reading: &mut Reading,
) -> Vec<(String, Attributes)> {
    let mut entries = Vec::new();
    let listed = fs.list(folder, &mut |entry| {
        entries.push((entry.name, entry.attributes));
        Ok(std::ops::ControlFlow::Continue(()))
    });
    if let Err(error) = listed {
        reading.problem(about(error, path));
    }
    entries
}

/// Returns an error with the path that it is about.
pub(crate) fn about(error: Error, path: &str) -> Error {
    Error::new(error.kind(), LAYER, "cannot be read")
        .named(path)
        .caused_by(error)
}

struct MachineFolder<'a> {
    volume: usize,
    fs: &'a dyn FileSystem,
    machine: String,
    path: String,
}

impl MachineFolder<'_> {
    fn read(&self, folder: NodeId, reading: &mut Reading) {
        for (name, attributes) in listed(self.fs, folder, &self.path, reading) {
            if name == LATEST && attributes.kind == FileKind::Symlink {
                let target = reading.kept(self.fs.read_link(attributes.id));
                let newest = target.map(|target| {
                    let last = target.trim_end_matches('/').rsplit('/').next();
                    last.unwrap_or_default().to_owned()
                });
                reading
                    .links
                    .extend(newest.map(|newest| (self.machine.clone(), newest)));
            }
            if attributes.kind != FileKind::Folder || name.starts_with('.') {
                continue;
            }
            let path = format!("{}/{name}", self.path);
            let Some((date, state)) = named(&name) else {
                let message = "the name is not the date of a backup";
                reading.problem(Error::new(Kind::Corrupt, LAYER, message).named(path));
                continue;
            };
            let mut backup = Backup {
                machine: self.machine.clone(),
                name,
                date,
                state,
                started: None,
                completed: None,
                copied: None,
                volume: self.volume,
                place: Place::Folder(attributes.id, path),
                sequence: None,
            };
            describe(self.fs, &attributes, &mut backup, reading);
            if backup.state == BackupState::Complete
                && backup.started.is_some()
                && backup.completed.is_none()
            {
                backup.state = BackupState::Interrupted;
            }
            reading.list.push(backup);
        }
    }
}

/// Parses the name of a backup's folder.
pub(crate) fn named(name: &str) -> Option<(BackupDate, BackupState)> {
    let (date, suffix) = name.split_once('.').unwrap_or((name, ""));
    let state = match suffix {
        "" | "backup" | "previous" => BackupState::Complete,
        "inProgress" | "inprogress" => BackupState::InProgress,
        "interrupted" => BackupState::Interrupted,
        _ => return None,
    };
    Some((BackupDate::parse(date)?, state))
}

/// Adds what the extended attributes of a backup's folder record.
pub(crate) fn describe(
    fs: &dyn FileSystem,
    attributes: &Attributes,
    backup: &mut Backup,
    reading: &mut Reading,
) {
    if !attributes.has_xattrs {
        return;
    }
    let Place::Folder(_, path) = &backup.place else {
        return;
    };
    let mut number = |name: &str| {
        let read = number(fs, attributes.id, name).map_err(|error| about(error, path));
        reading.kept(read).flatten()
    };
    let time = |micros: i64| Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: u32::try_from(micros.rem_euclid(1_000_000) * 1000).unwrap_or(0),
    };
    backup.started = number("com.apple.backupd.SnapshotStartDate").map(time);
    backup.completed = number("com.apple.backupd.SnapshotCompletionDate").map(time);
    let copied = number("com.apple.backupd.SnapshotTotalBytesCopied");
    backup.copied = copied.and_then(|bytes| u64::try_from(bytes).ok());
}

/// Returns the number in an extended attribute: decimal digits, which may end with a NUL.
fn number(fs: &dyn FileSystem, node: NodeId, name: &str) -> Result<Option<i64>> {
    let Some(value) = text(fs, node, name)? else {
        return Ok(None);
    };
    let parsed = value.parse().map_err(|_| {
        let message = format!("the extended attribute {name} is not a number");
        Error::new(Kind::Corrupt, LAYER, message)
    });
    parsed.map(Some)
}

/// Returns the text in an extended attribute without a NUL at its end; at most 64 bytes of it.
pub(crate) fn text(fs: &dyn FileSystem, node: NodeId, name: &str) -> Result<Option<String>> {
    let Some(value) = fs.xattr(node, name)? else {
        return Ok(None);
    };
    let len = value.info().len.min(LONGEST_NUMBER);
    let bytes = value.read_vec(0, usize::try_from(len).unwrap_or(0))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(text.trim_matches(['\0', ' ', '\n']).to_owned()))
}
