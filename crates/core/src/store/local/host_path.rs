//! The path of an open file or folder, which may be renamed once.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The path under which a file or folder was opened, or to which it was renamed since.
#[derive(Debug)]
pub(super) struct HostPath {
    opened: PathBuf,
    renamed: OnceLock<PathBuf>,
}

impl HostPath {
    pub(super) fn new(opened: PathBuf) -> Self {
        Self {
            opened,
            renamed: OnceLock::new(),
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
