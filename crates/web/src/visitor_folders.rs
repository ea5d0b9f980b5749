//! The folders of the host that visitors may write to: by uploads, and by restoring files.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::LAYER;

/// Folders that visitors may write to, with numbers from 0.
#[derive(Debug)]
pub(crate) struct VisitorFolders(Vec<VisitorFolder>);

/// An open folder that visitors may write to.
#[derive(Debug)]
pub(crate) struct VisitorFolder {
    pub(crate) folder: Arc<OwnedFd>,
    /// Its path when it was opened, for people.
    pub(crate) path: PathBuf,
}

impl VisitorFolders {
    /// Opens the folders, once and for all.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Self> {
        let open = |path: &PathBuf| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
                failed("open a folder that visitors may write to", errno).in_file(path)
            })?;
            Ok(VisitorFolder {
                folder: Arc::new(folder),
                path: path.canonicalize().unwrap_or_else(|_| path.clone()),
            })
        };
        paths.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// Returns the paths of the folders, for people.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|folder| &*folder.path)
    }

    /// Returns the folder of this number.
    pub(crate) fn get(&self, number: usize) -> Result<&VisitorFolder> {
        let missing = || Error::not_found(LAYER, "the folder");
        self.0.get(number).ok_or_else(missing)
    }
}

/// Returns the error of a failed system call; `doing` is a verb, with its object if it has one.
pub(crate) fn failed(doing: &'static str, errno: Errno) -> Error {
    Error::io(LAYER, doing, io::Error::from(errno))
}
