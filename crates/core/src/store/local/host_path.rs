//! The path of an open file or folder, which may be renamed once.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::Error;

/// The path under which a file or folder was opened, or to which it was renamed since.
#[derive(Debug)]
pub(super) struct HostPath {
    opened: PathBuf,
    /// The end of the path that names a file within its bundle.
    name: Option<String>,
    renamed: OnceLock<PathBuf>,
}

impl HostPath {
    pub(super) fn new(opened: PathBuf) -> Self {
        Self {
            opened,
            name: None,
            renamed: OnceLock::new(),
        }
    }

    /// Returns the path of a file, of which `name` is the end that names it within its bundle.
    pub(super) fn in_bundle(opened: PathBuf, name: String) -> Self {
        Self {
            name: Some(name),
            ..Self::new(opened)
        }
    }

    /// Returns an error that names the bundle and the file in it, or the file alone if it is of no
    /// bundle.
    pub(super) fn named(&self, error: Error) -> Error {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        let folder = |name: &str| self.get().ancestors().nth(name.split('/').count());
        match name.and_then(|name| Some((folder(name)?, name))) {
            Some((folder, name)) => error.in_folder(folder, name),
            None => error.in_file(self.get()),
        }
    }

    pub(super) fn get(&self) -> &Path {
        self.renamed.get().unwrap_or(&self.opened)
    }

    /// Records that it was renamed; only the first time counts.
    pub(super) fn rename(&self, path: PathBuf) {
        let _ = self.renamed.set(path);
    }
}
