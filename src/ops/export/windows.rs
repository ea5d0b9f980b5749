//! Export of a folder of a volume to a folder of a Windows host.
//!
//! Contents and dates are kept, and names with [replacements](super::windows_names). Hard links become
//! hard links, or copies where the host has none. Symbolic links, special files, permissions, owners and
//! extended attributes are not kept; links, special files and resource forks are noted.

use std::collections::HashMap;
use std::fs::{self, File, FileTimes};
use std::io;
use std::ops::ControlFlow;
use std::os::windows::fs::{FileTimesExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::windows_names::TakenNames;
use super::{BUFFER, Exported, FolderOptions, LAYER, about, check_ancestors, copy, is_fatal};
use crate::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp};
use crate::progress::Progress;
use crate::{Error, Result};

/// A folder can be opened (`CreateFileW`), and its dates set.
const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
const FILE_WRITE_ATTRIBUTES: u32 = 0x0100;

/// Exports the contents of the folder at `path` of a volume to `target`, which is created if it
/// does not exist. Any other entry at `path` is exported into `target` under its own name.
///
/// Without `overwrite`, no existing file is changed.
pub fn to_folder(
    fs: &dyn FileSystem,
    path: &str,
    target: &Path,
    options: &FolderOptions,
    progress: &dyn Progress,
) -> Result<Exported> {
    let top = fs.resolve(path)?;
    let volume = fs.volume();
    let is_root = top.id == fs.root();
    let used = volume.total.saturating_sub(volume.free);
    progress.stage("copy", if is_root { used } else { top.size });
    let made = make_folder(target).map_err(|error| error.in_file(target))?;
    let mut export = WindowsExport {
        fs,
        progress,
        overwrite: options.overwrite,
        report: Exported::default(),
        folders: Vec::new(),
        first_names: HashMap::new(),
        buffer: vec![0; BUFFER],
    };
    if top.kind == FileKind::Folder {
        export.walk(path, top, target, made)?;
    } else {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let entry = Entry {
            name: options.name.as_deref().unwrap_or(name).to_owned(),
            attributes: top,
        };
        export.entry(entry, folder, target, &mut TakenNames::default())?;
    }
    Ok(export.report)
}

/// A folder of the host, with the folder of the volume that it comes from.
struct MadeFolder {
    parent: usize,
    attributes: Attributes,
    /// Path in the volume.
    path: String,
    target: PathBuf,
    /// True if its dates are to be set.
    ours: bool,
}

struct WindowsExport<'a> {
    fs: &'a dyn FileSystem,
    progress: &'a dyn Progress,
    overwrite: bool,
    report: Exported,
    folders: Vec<MadeFolder>,
    /// The first name of each file with hard links.
    first_names: HashMap<NodeId, PathBuf>,
    buffer: Vec<u8>,
}

impl WindowsExport<'_> {
    /// Exports everything below `top`, then sets the dates of the folders, the deepest first.
    fn walk(&mut self, path: &str, top: Attributes, target: &Path, made: bool) -> Result<()> {
        self.folders.push(MadeFolder {
            parent: 0,
            attributes: top,
            path: path.trim_end_matches('/').to_owned(),
            target: target.to_owned(),
            ours: made,
        });
        let mut number = 0;
        while number < self.folders.len() {
            match self.enter(number) {
                Err(error) if !is_fatal(&error) => {
                    let error = about(error, &self.folders[number].path, "");
                    self.report.problem(error);
                }
                entered => entered?,
            }
            number += 1;
        }
        self.report.folders = self.folders.len() as u64 - 1;
        for folder in self.folders.iter().rev().filter(|folder| folder.ours) {
            if let Err(error) = folder_dates(folder) {
                let error = Error::io(LAYER, "set dates", error);
                self.report.problem(about(error, &folder.path, ""));
            }
        }
        Ok(())
    }

    /// Exports the entries of a folder; its folders are added to the list.
    fn enter(&mut self, number: usize) -> Result<()> {
        let (path, target) = (
            self.folders[number].path.clone(),
            self.folders[number].target.clone(),
        );
        let mut taken = TakenNames::default();
        let (fs, id) = (self.fs, self.folders[number].attributes.id);
        fs.list(id, &mut |entry| {
            self.progress.check()?;
            let name = entry.name.clone();
            let done = match entry.attributes.kind {
                FileKind::Folder => self.folder(number, entry, &target, &mut taken),
                _ => self.entry(entry, &path, &target, &mut taken),
            };
            match done {
                Err(error) if is_fatal(&error) => return Err(about(error, &path, &name)),
                Err(error) => self.report.problem(about(error, &path, &name)),
                Ok(()) => {}
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn folder(
        &mut self,
        parent: usize,
        entry: Entry,
        target: &Path,
        taken: &mut TakenNames,
    ) -> Result<()> {
        check_ancestors(entry.attributes.id, parent, |number| {
            let above = &self.folders[number];
            (above.attributes.id, above.parent)
        })?;
        let path = self.folders[parent].path.clone();
        let target = target.join(self.name(&entry.name, &path, taken)?);
        let made = make_folder(&target)?;
        self.folders.push(MadeFolder {
            parent,
            attributes: entry.attributes,
            path: format!("{path}/{}", entry.name),
            target,
            ours: made || self.overwrite,
        });
        Ok(())
    }

    /// Returns the name of an entry on the host, and notes one that is not its own.
    fn name(&mut self, name: &str, path: &str, taken: &mut TakenNames) -> Result<String> {
        let host = taken
            .reserve(name)
            .ok_or_else(|| Error::unsupported(LAYER, "the host does not support this name"))?;
        if host != name {
            let message = format!("Windows refuses the name: extracted as {host}");
            self.report
                .add_problem(about(Error::unsupported(LAYER, message), path, name));
        }
        Ok(host)
    }

    /// Exports an entry that is not a folder.
    fn entry(
        &mut self,
        Entry { name, attributes }: Entry,
        path: &str,
        target: &Path,
        taken: &mut TakenNames,
    ) -> Result<()> {
        let mut skipped = |what: &str| {
            let error = Error::unsupported(LAYER, format!("{what}: skipped"));
            self.report.add_problem(about(error, path, &name));
        };
        match attributes.kind {
            FileKind::File => {}
            FileKind::Symlink => {
                skipped("symbolic link");
                return Ok(());
            }
            _ => {
                skipped("special file");
                return Ok(());
            }
        }
        if attributes.resource_size > 0 {
            skipped("resource fork");
        }
        let target = target.join(self.name(&name, path, taken)?);
        if self.overwrite && fs::symlink_metadata(&target).is_ok_and(|meta| !meta.is_dir()) {
            fs::remove_file(&target).map_err(|error| Error::io(LAYER, "replace", error))?;
        }
        let bytes = match self.first_names.get(&attributes.id) {
            Some(first) if fs::hard_link(first, &target).is_ok() => 0,
            _ => self.file(&attributes, &target)?,
        };
        if attributes.links > 1 {
            self.first_names.entry(attributes.id).or_insert(target);
        }
        self.report.files += 1;
        self.report.bytes += bytes;
        Ok(())
    }

    fn file(&mut self, attributes: &Attributes, target: &Path) -> Result<u64> {
        let contents = self.fs.open(attributes.id, Fork::Data)?;
        let file = File::create_new(target).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::conflict(LAYER, "already exists"),
            _ => Error::io(LAYER, "create", error),
        })?;
        if let Err(error) = copy(&*contents, &file, &mut self.buffer, self.progress) {
            // An incomplete file could be mistaken for a complete one. Best effort: the error is
            // reported.
            drop(file);
            let _ = fs::remove_file(target);
            return Err(error);
        }
        file.set_times(dates(attributes))
            .map_err(|error| Error::io(LAYER, "set dates", error))?;
        Ok(contents.info().len)
    }
}

/// Creates a folder of the host. `false`: it exists. A link to a folder is refused.
fn make_folder(target: &Path) -> Result<bool> {
    match fs::create_dir(target) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(target) {
                Ok(meta) if meta.is_dir() => Ok(false),
                _ => Err(Error::conflict(LAYER, "already exists and is not a folder")),
            }
        }
        Err(error) => Err(Error::io(LAYER, "create folder", error)),
    }
}

fn folder_dates(folder: &MadeFolder) -> io::Result<()> {
    let mut options = File::options();
    options
        .access_mode(FILE_WRITE_ATTRIBUTES)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
    options
        .open(&folder.target)?
        .set_times(dates(&folder.attributes))
}

fn dates(attributes: &Attributes) -> FileTimes {
    let mut times = FileTimes::new();
    if let Some(modified) = attributes.modified.and_then(moment) {
        times = times.set_modified(modified);
    }
    if let Some(accessed) = attributes.accessed.and_then(moment) {
        times = times.set_accessed(accessed);
    }
    if let Some(created) = attributes.created.and_then(moment) {
        times = times.set_created(created);
    }
    times
}

/// Returns a time as the standard library has it; `None` if it cannot.
fn moment(date: Timestamp) -> Option<SystemTime> {
    let whole = Duration::from_secs(date.seconds.unsigned_abs());
    let at = match date.seconds {
        0.. => UNIX_EPOCH.checked_add(whole),
        _ => UNIX_EPOCH.checked_sub(whole),
    };
    at?.checked_add(Duration::from_nanos(date.nanos.into()))
}
