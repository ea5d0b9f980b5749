//! The conversion of backups on HFS+ into a volume of backups on APFS: a snapshot for each date, in
//! which unchanged files are the same as in the snapshot before.
//!
//! The dates are converted from the oldest to the newest: the folder of the date before is changed in
//! place, renamed as macOS does it, and kept as a snapshot. A date whose snapshot exists is complete.
//! After an interruption the unfinished date is compared with the source, file by file.

mod objects;
mod trees;
mod verify;

use std::sync::Arc;

use bandsaw::device::{AfterDiscard, BlockDeviceExt};
use bandsaw::fs::apfs::{ApfsMut, Container, WriteOptions};
use bandsaw::fs::{
    ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork,
    LockedVolume, NewKind, NewNode, NodeId, Timestamp, VolumeKey,
};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};
use plist::{Dictionary, Value};

use self::objects::{Copier, Failed};
use self::trees::{Known, Update, known_files};
use crate::backup::{Backup, Place};
use crate::backups::{Backups, is_complete};
use crate::folders::about;
use crate::snapshots::{MANIFEST, PREFIX, SUFFIX};

/// Layer name in errors.
const LAYER: &str = "conversion of backups";
/// The attribute of the root folder that names the converted backups. Its value is text of our own.
const ORIGIN: &str = "bandsaw.converted-from";
/// Maximum length of its value in bytes.
const MAX_ORIGIN_LEN: u64 = 2048;
/// Maximum number of problems that are kept.
const MAX_PROBLEMS: usize = 1000;

/// The result of a conversion.
#[derive(Debug, Default)]
pub struct Conversion {
    /// Number of dates that were converted in this run.
    pub dates: usize,
    /// Number of dates that an earlier run converted.
    pub known_dates: usize,
    /// Names of backups that are not complete, and are left out.
    pub left_out: Vec<String>,
    /// Number of files that were copied.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Number of further names given to files that the target had.
    pub linked: u64,
    /// Number of folders that were made.
    pub folders: u64,
    /// Number of files of all dates that were compared with the source at the end.
    pub compared: u64,
    /// The objects that cannot be read, or not kept completely, with the reasons.
    pub problems: Vec<Error>,
    /// Number of further problems.
    pub more_problems: u64,
}

impl Conversion {
    fn problem(&mut self, error: Error) {
        match self.problems.len() < MAX_PROBLEMS {
            true => self.problems.push(error),
            false => self.more_problems += 1,
        }
    }
}

/// Fails if these backups cannot be converted: [`Kind::Invalid`] if they are of several machines, on
/// several volumes, or snapshots already; [`Kind::NotFound`] if none is complete.
pub fn check_convertible(backups: &Backups) -> Result<()> {
    BackupSource::new(backups).map(drop)
}

/// Converts the complete backups in folders, all of one machine, into snapshots of the first volume of
/// a container. That volume is empty, or has what an interrupted conversion of the same backups left.
/// Objects that cannot be read are left out of their dates, and are among the problems.
///
/// # Errors
///
/// [`Kind::Conflict`] if the volume has anything else, those of [`check_convertible`], and errors of the
/// target.
pub fn convert(
    backups: &Backups,
    target: &Arc<Container>,
    progress: &dyn Progress,
) -> Result<Conversion> {
    let source = BackupSource::new(backups)?;
    let done = snapshots(target)?;
    source.check_order(&done)?;
    let known = source.known(target, &done)?;
    let opened = ApfsMut::open(target, 1, WriteOptions::default(), &no_key)?;
    let mut run = ConversionRun {
        source: &source,
        to: &opened,
        progress,
        known,
        report: Conversion {
            left_out: source.left_out.clone(),
            known_dates: done.len(),
            ..Conversion::default()
        },
    };
    run.begin(done.len())?;
    for number in done.len()..source.dates.len() {
        run.date(number)?;
    }
    run.finish()?;
    opened.unmount()?;
    Ok(run.report)
}

/// Compares every file of every date with its source, and counts them. The container must have been
/// opened after the conversion.
///
/// # Errors
///
/// [`Kind::Corrupt`], with the path, if a date differs from its source; those of [`convert`].
pub fn verify_conversion(
    backups: &Backups,
    target: &Arc<Container>,
    report: &mut Conversion,
    progress: &dyn Progress,
) -> Result<()> {
    verify::verify(&BackupSource::new(backups)?, target, report, progress)
}

/// The backups that are converted.
struct BackupSource<'a> {
    fs: Arc<dyn FileSystem>,
    /// In the order of their dates.
    dates: Vec<DateFolder<'a>>,
    left_out: Vec<String>,
    /// The folder of the machine.
    machine: (NodeId, String),
    origin: String,
}

/// A date of the source.
struct DateFolder<'a> {
    backup: &'a Backup,
    folder: NodeId,
    path: &'a str,
}

impl DateFolder<'_> {
    fn date(&self) -> &str {
        let name = &self.backup.name;
        name.split_once('.').map_or(name, |(date, _)| date)
    }

    fn snapshot(&self) -> String {
        format!("{PREFIX}{}{SUFFIX}", self.date())
    }

    /// Returns the time at which it was made; without a record, the reading of the Mac's clock.
    fn completed(&self) -> Timestamp {
        let by_name = Timestamp::from_seconds(self.backup.date.0);
        self.backup.completed.unwrap_or(by_name)
    }
}

impl<'a> BackupSource<'a> {
    fn new(backups: &'a Backups) -> Result<Self> {
        backups.check_one_machine()?;
        let mut dates = Vec::new();
        let mut left_out = Vec::new();
        let mut volumes = Vec::new();
        for backup in backups.all() {
            match &backup.place {
                _ if !is_complete(backup) => left_out.push(backup.name.clone()),
                Place::Folder(folder, path) => {
                    volumes.push(backup.volume);
                    dates.push(DateFolder {
                        backup,
                        folder: *folder,
                        path,
                    });
                }
                Place::Snapshot(name) => {
                    let message = "is a snapshot on APFS already";
                    return Err(Error::invalid(LAYER, message).named(name));
                }
            }
        }
        let same_date = dates.windows(2).find(|two| two[0].date() == two[1].date());
        if let Some([one, _]) = same_date {
            let message = "there are two complete backups of this date";
            return Err(Error::invalid(LAYER, message).named(one.path));
        }
        let Some(first) = dates.first() else {
            return Err(Error::not_found(LAYER, "a complete backup"));
        };
        if volumes.iter().any(|volume| *volume != volumes[0]) {
            let message = "the backups are on several volumes: name one";
            return Err(Error::invalid(LAYER, message));
        }
        let volume = backups.volumes().get(volumes[0]);
        let fs = volume.and_then(|volume| volume.fs.clone());
        let fs = fs.ok_or_else(|| Error::not_found(LAYER, "the volume of the backups"))?;
        let path = first.path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let machine = fs.resolve(path)?.id;
        let info = fs.volume();
        let uuid = info.uuid.map(|uuid| uuid.to_string());
        let mut origin = format!("{} {path}", uuid.unwrap_or(info.name));
        while origin.len() as u64 > MAX_ORIGIN_LEN {
            origin.pop();
        }
        Ok(Self {
            machine: (machine, first.backup.machine.clone()),
            fs,
            dates,
            left_out,
            origin,
        })
    }

    /// Fails unless these are the snapshots of the first dates.
    fn check_order(&self, done: &[String]) -> Result<()> {
        for (number, name) in done.iter().enumerate() {
            if self.dates.get(number).map(DateFolder::snapshot).as_ref() != Some(name) {
                let message =
                    "the target has a snapshot that is not of the next date of the source";
                return Err(Error::conflict(LAYER, message).named(name));
            }
        }
        Ok(())
    }

    /// Returns the files of several names that the target has.
    fn known(&self, target: &Arc<Container>, done: &[String]) -> Result<Known> {
        let Some((name, date)) = done.last().zip(self.dates.get(done.len().wrapping_sub(1))) else {
            return Ok(Known::new());
        };
        let snapshot = target.open_volume(1, Some(name), &no_key)?;
        let folder = snapshot.resolve(&format!("/{}{SUFFIX}", date.date()))?;
        known_files(&*self.fs, date.folder, &snapshot, folder.id)
    }
}

/// A conversion in progress.
struct ConversionRun<'a> {
    source: &'a BackupSource<'a>,
    to: &'a ApfsMut,
    progress: &'a dyn Progress,
    known: Known,
    report: Conversion,
}

impl ConversionRun<'_> {
    /// Checks that the target is empty, or the unfinished conversion of the same backups, and
    /// describes the machine.
    fn begin(&mut self, done: usize) -> Result<()> {
        let root = self.to.root();
        let origin = origin(self.to)?;
        match origin {
            Some(origin) if origin == self.source.origin => {}
            Some(origin) => {
                let message = format!("the target is the conversion of other backups: {origin}");
                return Err(Error::conflict(LAYER, message));
            }
            None if done > 0 || !self.to.entries(root)?.is_empty() => {
                return Err(Error::conflict(LAYER, "the target is not empty"));
            }
            None => {}
        }
        let (machine, name) = &self.source.machine;
        let set = |name: &str, value: &[u8]| self.to.set_xattr_bytes(root, name, value);
        set(ORIGIN, self.source.origin.as_bytes())?;
        set("com.apple.backupd.ComputerName", name.as_bytes())?;
        let from = &self.source.fs;
        let names = match from.xattrs(*machine) {
            Ok(names) => names,
            Err(error) => {
                self.report.problem(error);
                Vec::new()
            }
        };
        for name in names
            .iter()
            .filter(|name| name.starts_with("com.apple.backupd."))
        {
            match from.xattr(*machine, name) {
                Ok(Some(value)) => {
                    self.to
                        .set_xattr(root, name, &*value, ExistingTarget::Replace)?;
                }
                Ok(None) => {}
                Err(error) => self.report.problem(error),
            }
        }
        self.to.set_backup_role()?;
        self.to.sync()
    }

    /// Converts one date.
    fn date(&mut self, number: usize) -> Result<()> {
        let date = &self.source.dates[number];
        let before = number
            .checked_sub(1)
            .map(|before| &self.source.dates[before]);
        self.progress.stage(date.date(), 0);
        let (to, root) = (self.to, self.to.root());
        let working = format!("{}.inprogress", date.date());
        let (folder, is_exact) = self.working_folder(before, &working)?;
        let copier = Copier {
            from: &*self.source.fs,
            to,
            progress: self.progress,
        };
        let old = before.map(|before| before.folder);
        Update::new(copier, &mut self.known, is_exact, &mut self.report).run(
            date.path,
            old,
            date.folder,
            folder,
        )?;
        self.write_manifest(number)?;
        let complete = format!("{}{SUFFIX}", date.date());
        let rename = |from: &str, target: &str| {
            to.rename((root, from), (root, target), ExistingTarget::Error)
        };
        rename(&working, &complete)?;
        to.take_snapshot(&date.snapshot(), Some(date.completed()))?;
        rename(&complete, &format!("{}.previous", date.date()))?;
        to.sync()?;
        self.report.dates += 1;
        Ok(())
    }

    /// Gives the folder of the last date the name that it has between two backups.
    fn finish(&self) -> Result<()> {
        let (to, root) = (self.to, self.to.root());
        if let Some(last) = self.source.dates.last() {
            let complete = format!("{}{SUFFIX}", last.date());
            if to.lookup(root, &complete)?.is_some() {
                let previous = format!("{}.previous", last.date());
                to.rename((root, &complete), (root, &previous), ExistingTarget::Error)?;
            }
        }
        to.release_held()
    }

    /// Returns the folder that is changed, under its name, and true if it has exactly the files of the
    /// date before.
    fn working_folder(
        &self,
        before: Option<&DateFolder<'_>>,
        working: &str,
    ) -> Result<(NodeId, bool)> {
        let (to, root) = (self.to, self.to.root());
        let mut found = None;
        for entry in to.entries(root)? {
            if entry.attributes.kind != FileKind::Folder || !entry.name.contains('.') {
                continue;
            }
            if let Some(other) = found.replace(entry) {
                let message = "the target has more than one folder of a backup";
                return Err(Error::conflict(LAYER, message).named(other.name));
            }
        }
        let Some(entry) = found else {
            return match before {
                None => {
                    let folder = NewNode::new(NewKind::Folder);
                    Ok((to.create(root, working, &folder)?, true))
                }
                Some(before) => Err(missing(before)),
            };
        };
        if entry.name == working {
            return Ok((entry.attributes.id, false));
        }
        // An interruption before the snapshot leaves a folder of this date that was complete.
        let of_this = working.replace(".inprogress", SUFFIX);
        let of_last = |suffix: &str| before.map(|before| format!("{}{suffix}", before.date()));
        let is_exact = match &entry.name {
            name if *name == of_this => false,
            name if Some(name) == of_last(".previous").as_ref()
                || Some(name) == of_last(SUFFIX).as_ref() =>
            {
                true
            }
            name => {
                let message = "the target has a folder of another date";
                return Err(Error::conflict(LAYER, message).named(name));
            }
        };
        let new = (root, working);
        to.rename((root, &entry.name), new, ExistingTarget::Error)?;
        Ok((entry.attributes.id, is_exact))
    }

    /// Writes the list of the dates so far, with the bytes that were copied for each.
    fn write_manifest(&self, number: usize) -> Result<()> {
        let mut list = Vec::new();
        for date in self.source.dates.iter().take(number + 1) {
            let Some(copied) = date.backup.copied else {
                continue;
            };
            let Ok(seconds) = u64::try_from(date.completed().seconds) else {
                continue;
            };
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let inside = |key: &str, value: Value| {
                let mut dictionary = Dictionary::new();
                dictionary.insert(key.to_owned(), value);
                Value::from(dictionary)
            };
            let size = inside("physicalSize", Value::from(copied));
            list.push(Value::from(plist::Date::from(time)));
            list.push(inside("stats", inside("changed", size)));
        }
        let mut bytes = Vec::new();
        Value::from(list)
            .to_writer_binary(&mut bytes)
            .map_err(|error| Error::unsupported(LAYER, error.to_string()))?;
        let (to, root) = (self.to, self.to.root());
        let file = match to.lookup(root, MANIFEST)? {
            Some(found) => found.id,
            None => to.create(root, MANIFEST, &NewNode::new(NewKind::File))?,
        };
        let device = to.open_mut(file, Fork::Data)?;
        device.set_len(bytes.len() as u64, AfterDiscard::Any)?;
        device.write_at(0, &bytes)
    }
}

fn missing(date: &DateFolder<'_>) -> Error {
    let message = "the target has no folder of this date, although it has its snapshot";
    Error::conflict(LAYER, message).named(date.date())
}

/// Returns the names of the snapshots of the first volume, the oldest first.
fn snapshots(target: &Container) -> Result<Vec<String>> {
    let mut volumes = target.volumes().into_iter();
    let first = volumes.next();
    let first = first.ok_or_else(|| Error::not_found(LAYER, "a volume in the target"))??;
    Ok(first.snapshots.into_iter().map(|one| one.name).collect())
}

/// Returns the record of the backups of which a volume is the conversion.
fn origin(fs: &dyn FileSystem) -> Result<Option<String>> {
    let Some(value) = fs.xattr(fs.root(), ORIGIN)? else {
        return Ok(None);
    };
    let len = value.info().len.min(MAX_ORIGIN_LEN);
    let bytes = value.read_vec(0, usize::try_from(len).unwrap_or(0))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Fails for an encrypted volume: targets are made without encryption of their own.
fn no_key(_locked: &LockedVolume) -> Result<VolumeKey> {
    Err(Error::new(
        Kind::WrongKey,
        LAYER,
        "the target volume is encrypted",
    ))
}

/// Returns the error of an operation on both sides.
fn either(failed: Failed, path: &str) -> Error {
    match failed {
        Failed::Source(error) | Failed::Target(error) => about(error, path),
    }
}
