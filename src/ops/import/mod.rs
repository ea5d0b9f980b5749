//! Import of trees, from which volumes are built or extended: a folder or file of the host, a tar
//! archive, a part of a volume.
//!
//! An entry that an Apple volume cannot hold, such as a name that is not UTF-8, is an error that
//! names the file, before any byte of the volume is written.

pub mod apple_double;
#[cfg_attr(windows, path = "windows.rs")]
mod folder;
#[cfg(unix)]
mod host_contents;
#[cfg(unix)]
mod host_metadata;
mod items;
mod layout;
#[cfg(unix)]
mod single;
mod tar;
mod tar_contents;
mod volume;
#[cfg(unix)]
mod walk;

use std::fs::File;
use std::path::{Path, PathBuf};

pub use folder::folder;
#[cfg(windows)]
pub use folder::single;
pub use items::{Item, items};
#[cfg(unix)]
pub use single::single;
pub use tar::{tar, tar_stream};
pub use volume::volume;

use crate::fs::source::Stream;
use crate::{Error, Result};

/// The layer in errors about a folder of the host.
const FOLDER_LAYER: &str = "source folder";
/// The layer in errors about an archive.
const TAR_LAYER: &str = "tar archive";

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct FolderOptions {
    /// Files and folders of the host that are left out, such as the image being created, if it is
    /// inside the folder.
    pub leave_out: Vec<PathBuf>,
}

/// Extended attributes by name.
pub type MacAttributes = Vec<(Box<str>, Stream)>;

/// Returns the extended attributes of macOS of the file at `path` of the host, and that path: those
/// of the file itself, and those in an AppleDouble file beside it (`._NAME`). If `path` is an
/// AppleDouble file, the file is the one that it belongs to.
pub fn mac_attributes(path: &Path) -> Result<(PathBuf, MacAttributes)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of = name
        .strip_prefix("._")
        .map(|name| path.with_file_name(name));
    let of = of
        .filter(|of| of.is_file())
        .unwrap_or_else(|| path.to_owned());
    let tree = single(&of)?;
    let mut xattrs = tree
        .nodes
        .last()
        .map_or_else(Vec::new, |node| node.xattrs.clone());
    let name = of.file_name().unwrap_or_default().to_string_lossy();
    let beside = of.with_file_name(format!("._{name}"));
    if beside.is_file() {
        let failed = |source| Error::io(TAR_LAYER, "read", source).in_file(&beside);
        let file = File::open(&beside).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let found = apple_double::read(&file, 0, len).map_err(|error| error.in_file(&beside))?;
        xattrs.extend(found.unwrap_or_default());
    }
    Ok((of, xattrs))
}
