//! Open folders by name, and the set of folders with unsynced changes.

use std::collections::{BTreeSet, HashMap};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::FileMode;
use super::host_path::HostPath;
use super::replace::UNFINISHED;
use crate::platform;
use crate::sync::Mutex;

/// Maximum number of folders kept open. A bundle has three; a tree of thousands must not use up the
/// descriptors.
const KEPT_OPEN: usize = 16;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The folders of a store, opened one path component at a time without following symbolic links.
#[derive(Debug)]
pub(super) struct Folders {
    root: HostPath,
    open: Mutex<HashMap<String, Arc<File>>>,
    changed: Mutex<ChangedFolders>,
    syncing: Mutex<()>,
}

#[derive(Debug, Default)]
struct ChangedFolders {
    folders: BTreeSet<String>,
    /// Folders of the host, the root's and perhaps those above it, in which a folder was created.
    above: Vec<PathBuf>,
    /// A sync failed: it is unknown which names are durable.
    lost: bool,
}

impl Folders {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root: HostPath::new(root),
            open: Mutex::default(),
            changed: Mutex::default(),
            syncing: Mutex::default(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        self.root.get()
    }

    /// Records that the root was renamed.
    pub(super) fn set_renamed(&self, root: &Path) {
        self.root.rename(root.to_owned());
    }

    /// Opens the folder `name` (the root is ""). `None`: it does not exist.
    pub(super) fn get(&self, name: &str) -> io::Result<Option<Arc<File>>> {
        if let Some(folder) = self.open.lock().get(name) {
            return Ok(Some(folder.clone()));
        }
        let opened = if name.is_empty() {
            rustix::fs::openat(CWD, self.root(), FOLDER, Mode::empty())
        } else {
            let (parent, last) = split(name);
            let Some(parent) = self.get(parent)? else {
                return Ok(None);
            };
            rustix::fs::openat(&*parent, last, FOLDER | OFlags::NOFOLLOW, Mode::empty())
        };
        match opened {
            Ok(folder) => Ok(Some(self.cache_open(name, File::from(folder)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the folder `name`, creating it and its parents if missing.
    pub(super) fn make(&self, name: &str, mode: FileMode) -> io::Result<Arc<File>> {
        if let Some(folder) = self.get(name)? {
            return Ok(folder);
        }
        if name.is_empty() {
            let above = holders_of_new(self.root());
            if let Some(parent) = self.root().parent() {
                std::fs::create_dir_all(parent)?;
            }
            match DirBuilder::new()
                .mode(mode.folder_bits())
                .create(self.root())
            {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            self.changed.lock().above.extend(above);
        } else {
            let (parent, last) = split(name);
            match rustix::fs::mkdirat(&*self.make(parent, mode)?, last, mode.folder()) {
                Ok(()) => self.mark(parent),
                Err(Errno::EXIST) => {} // another thread was faster
                Err(errno) => return Err(errno.into()),
            }
        }
        self.get(name)?
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Removes the folder `name` and its subfolders, at most `depth` levels, if they hold no files
    /// except leftovers of killed processes.
    pub(super) fn remove(&self, name: &str, depth: usize) -> io::Result<()> {
        let folder = match self.get(name) {
            Ok(Some(folder)) if depth > 0 => folder,
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
            Err(error) => return Err(error),
        };
        platform::remove_leftovers(&self.root().join(name), UNFINISHED);
        for found in Dir::read_from(&*folder)? {
            let found = found?;
            let Ok(last) = found.file_name().to_str() else {
                continue;
            };
            let stat = rustix::fs::statat(&*folder, last, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            match name {
                _ if !is_folder || matches!(last, "." | "..") => {}
                "" => self.remove(last, depth - 1)?,
                _ => self.remove(&format!("{name}/{last}"), depth - 1)?,
            }
        }
        // An open folder without a name must not be used for new files.
        self.open.lock().remove(name);
        let removed = if name.is_empty() {
            rustix::fs::rmdir(self.root())
        } else {
            let (parent, last) = split(name);
            let parent = self.get(parent)?.ok_or(io::ErrorKind::NotFound)?;
            rustix::fs::unlinkat(&*parent, last, AtFlags::REMOVEDIR)
        };
        match removed {
            Ok(()) if name.is_empty() => self
                .changed
                .lock()
                .above
                .extend(holders_of_new(self.root())),
            Ok(()) => self.mark(split(name).0),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Marks the names in `folder` as changed. Must be called after the change: otherwise a
    /// concurrent sync could clear the mark and miss the change.
    pub(super) fn mark(&self, folder: &str) {
        let mut changed = self.changed.lock();
        if !changed.folders.contains(folder) {
            changed.folders.insert(folder.to_owned());
        }
    }

    /// Returns true if an earlier sync failed.
    pub(super) fn lost(&self) -> bool {
        self.changed.lock().lost
    }

    /// Makes all changed names durable. A concurrent second call waits for the first, which may
    /// include its folders.
    pub(super) fn sync(&self) -> io::Result<()> {
        let _one_at_a_time = self.syncing.lock();
        let (folders, above) = {
            let mut changed = self.changed.lock();
            (
                std::mem::take(&mut changed.folders),
                std::mem::take(&mut changed.above),
            )
        };
        let done = self.sync_each(&folders, &above);
        self.changed.lock().lost |= done.is_err();
        done
    }

    fn sync_each(&self, folders: &BTreeSet<String>, above: &[PathBuf]) -> io::Result<()> {
        for folder in folders {
            if let Some(folder) = self.get(folder)? {
                platform::make_names_durable(&folder)?;
            }
        }
        above
            .iter()
            .try_for_each(|folder| platform::sync_folder(folder))
    }

    /// Closes the folder `name` and those below it, which were renamed or removed.
    pub(super) fn close(&self, name: &str) {
        let is_below = |open: &str| {
            let rest = open.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.open.lock().retain(|open, _| !is_below(open));
    }

    fn cache_open(&self, name: &str, folder: File) -> Arc<File> {
        let folder = Arc::new(folder);
        let mut cache = self.open.lock();
        if cache.len() < KEPT_OPEN {
            cache.insert(name.to_owned(), folder.clone());
        }
        folder
    }
}

/// Splits a name into its folder and last component.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// Returns the folders in which `create_dir_all` is about to create one, for `path` and its missing
/// parents.
fn holders_of_new(path: &Path) -> Vec<PathBuf> {
    let missing = path
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let holder = |folder: &Path| match folder.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
        _ => PathBuf::from("."),
    };
    missing.map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_new_folder_is_in_one_that_is_synced() {
        let scratch = tempfile::tempdir().unwrap();
        let deep = scratch.path().join("a/b/c");
        let expected = [
            scratch.path().join("a/b"),
            scratch.path().join("a"),
            scratch.path().to_owned(),
        ];
        assert_eq!(holders_of_new(&deep), expected);
        assert_eq!(
            holders_of_new(Path::new("surely-absent-folder")),
            [PathBuf::from(".")]
        );
        assert!(holders_of_new(scratch.path()).is_empty());
        let folders = Folders::new(deep);
        folders.make("bands", FileMode::ANY).unwrap();
        folders.sync().unwrap();
        assert!(
            folders.changed.lock().above.is_empty() && folders.changed.lock().folders.is_empty()
        );
    }
}
