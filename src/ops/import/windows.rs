//! Import of folders and files of a Windows host: refused, as images are only read there.

use std::path::Path;

use super::FolderOptions;
use crate::fs::source::Tree;
use crate::progress::Progress;
use crate::{Error, Result};

pub(super) const LAYER: &str = "source folder";

/// Returns [`Kind::Unsupported`](crate::Kind): put the folder into a tar archive.
pub fn folder(path: &Path, _options: &FolderOptions, _progress: &dyn Progress) -> Result<Tree> {
    Err(refused(path))
}

/// Returns [`Kind::Unsupported`](crate::Kind): put the file into a tar archive.
pub fn single(path: &Path) -> Result<Tree> {
    Err(refused(path))
}

fn refused(path: &Path) -> Error {
    let message = "on Windows files are imported from tar archives only";
    Error::unsupported(LAYER, message).in_file(path)
}
