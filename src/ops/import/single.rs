//! Import of one file of the host as a tree.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags};

use super::FOLDER_LAYER;
use super::folder::Assembly;
use super::host_metadata::{EntryType, OpenFolder, read_metadata};
use super::walk::Listing;
use crate::fs::source::Tree;
use crate::platform::nodes::{c_name, node_of};
use crate::{Error, Kind, Result};

/// Returns a tree whose root, made from the parent folder, has the file at `path` of the host as
/// its only entry. Folders are refused. A symbolic link is kept as a link.
pub fn single(path: &Path) -> Result<Tree> {
    let missing = || Error::invalid(FOLDER_LAYER, "expected the name of a file").in_file(path);
    let name = path.file_name().ok_or_else(missing)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .map_or_else(|| PathBuf::from("."), Path::to_owned);
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, FOLDER_LAYER, "does not exist").in_file(path)
        }
        _ => Error::io(FOLDER_LAYER, "open", error).in_file(path),
    };
    let fd = rustix::fs::open(
        &folder,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let fd = fd.map_err(|error| failed(error.into()))?;
    std::fs::symlink_metadata(path).map_err(failed)?;
    let root_node = node_of(&fd).map_err(failed)?;
    let text = folder.to_string_lossy().into_owned().into_boxed_str();
    let root = Arc::new(OpenFolder {
        parent: None,
        name: text,
        fd,
    });
    let found = read_metadata(
        &root,
        &c_name(name.as_encoded_bytes()).map_err(failed)?,
        FileType::Unknown,
    )?;
    if matches!(found.what, EntryType::Folder { .. }) {
        return Err(Error::invalid(FOLDER_LAYER, "is a folder, expected a file").in_file(path));
    }
    Assembly::new(Listing {
        root,
        root_node,
        root_xattrs: Vec::new(),
        folders: vec![vec![found]],
    })
    .assemble()
}
