//! Metadata of one entry of a folder of the host.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::FileType;

use super::FOLDER_LAYER;
use crate::fs::FileKind;
use crate::fs::source::Stream;
use crate::platform::nodes::{self, HostNode};
use crate::{Error, Result};

/// An entry of a listed folder.
#[derive(Debug)]
pub(super) struct ListedEntry {
    pub(super) name: Box<str>,
    pub(super) node: HostNode,
    pub(super) xattrs: Vec<(Box<str>, Stream)>,
    pub(super) what: EntryType,
}

#[derive(Debug)]
pub(super) enum EntryType {
    File,
    Folder { number: usize },
    Symlink(Box<str>),
    Special(FileKind, u32),
}

/// A folder of the walk, kept open while its subfolders wait to be listed.
#[derive(Debug)]
pub(super) struct OpenFolder {
    pub(super) parent: Option<Arc<OpenFolder>>,
    /// The name; for the topmost folder, its path.
    pub(super) name: Box<str>,
    pub(super) fd: OwnedFd,
}

impl OpenFolder {
    /// Returns the path, for messages.
    pub(super) fn path(&self) -> PathBuf {
        match &self.parent {
            Some(parent) => parent.path().join(&*self.name),
            None => PathBuf::from(&*self.name),
        }
    }
}

/// Reads the metadata of one entry of a folder. `kind` is its type according to the listing.
pub(super) fn read_metadata(
    place: &OpenFolder,
    name: &CStr,
    kind: FileType,
) -> Result<ListedEntry> {
    let text = name.to_str().map_err(|_| {
        let path = place.path().join(name.to_string_lossy().as_ref());
        Error::unsupported(FOLDER_LAYER, "a name on an Apple volume must be UTF-8").in_file(path)
    })?;
    let stat = || {
        nodes::node_at(place.fd.as_fd(), name)
            .map_err(|error| failed("read metadata", error, place, text))
    };
    let kind = if kind == FileType::Unknown {
        stat()?.kind
    } else {
        kind
    };
    // Other nodes have no attributes to import on Linux, and opening them could have side effects.
    let opened = match kind {
        FileType::RegularFile => Some(nodes::open_file(&place.fd, text)),
        FileType::Directory => Some(nodes::open_folder(&place.fd, text)),
        _ => None,
    };
    let (node, xattrs) = match opened
        .transpose()
        .map_err(|error| failed("open", error, place, text))?
    {
        Some(fd) => {
            let node =
                nodes::node_of(&fd).map_err(|error| failed("read metadata", error, place, text))?;
            (
                node,
                xattrs_of(&fd).map_err(|error| error.in_file(place.path().join(text)))?,
            )
        }
        None => (stat()?, Vec::new()),
    };
    Ok(ListedEntry {
        name: text.into(),
        what: what(place, text, &node)?,
        node,
        xattrs,
    })
}

fn what(place: &OpenFolder, name: &str, node: &HostNode) -> Result<EntryType> {
    Ok(match node.kind {
        FileType::RegularFile => EntryType::File,
        FileType::Directory => EntryType::Folder { number: 0 },
        FileType::Symlink => EntryType::Symlink(target(place, name)?),
        FileType::Fifo => EntryType::Special(FileKind::Fifo, 0),
        FileType::Socket => EntryType::Special(FileKind::Socket, 0),
        FileType::CharacterDevice => {
            EntryType::Special(FileKind::CharDevice, device(node, place, name)?)
        }
        FileType::BlockDevice => {
            EntryType::Special(FileKind::BlockDevice, device(node, place, name)?)
        }
        FileType::Unknown => {
            return Err(Error::unsupported(FOLDER_LAYER, "unknown file type")
                .in_file(place.path().join(name)));
        }
    })
}

fn target(place: &OpenFolder, name: &str) -> Result<Box<str>> {
    let target = rustix::fs::readlinkat(&place.fd, name, Vec::new())
        .map_err(|error| failed("read link", error, place, name))?;
    match target.into_string() {
        Ok(target) => Ok(target.into()),
        Err(_) => Err(Error::unsupported(
            FOLDER_LAYER,
            "the target of a link on an Apple volume must be UTF-8",
        )
        .in_file(place.path().join(name))),
    }
}

fn device(node: &HostNode, place: &OpenFolder, name: &str) -> Result<u32> {
    nodes::device_to_mac(node.special).ok_or_else(|| {
        Error::unsupported(
            FOLDER_LAYER,
            "the device number does not fit in the 8 and 24 bits of macOS",
        )
        .in_file(place.path().join(name))
    })
}

/// Returns the extended attributes of an open file, under their macOS names.
pub(super) fn xattrs_of(fd: &OwnedFd) -> Result<Vec<(Box<str>, Stream)>> {
    let found = nodes::xattrs(fd.as_fd())
        .map_err(|error| Error::io(FOLDER_LAYER, "read extended attributes", error))?;
    Ok(found
        .into_iter()
        .map(|(name, value)| (name.into(), Stream::Bytes(value.into())))
        .collect())
}

/// Returns the error of a system call on an entry that was just listed.
pub(super) fn failed(
    doing: &'static str,
    error: impl Into<std::io::Error>,
    place: &OpenFolder,
    name: &str,
) -> Error {
    let error = error.into();
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::conflict(FOLDER_LAYER, "removed while the folder was read")
        }
        _ => Error::io(FOLDER_LAYER, doing, error),
    }
    .in_file(place.path().join(name))
}
