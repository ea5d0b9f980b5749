//! Contents of files of the host, read while a volume is written.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use std::os::fd::OwnedFd;

use super::FOLDER_LAYER;
use crate::fs::source::{ContentReader, Contents, Stream, data_in_file};
use crate::ops::host_folders::{Folders, ParentLookup};
use crate::platform::nodes::{self, HostTime};
use crate::{Error, Result};

/// Location of a node of the tree on the host, and its metadata when it was listed.
#[derive(Debug)]
pub(super) struct HostEntry {
    pub(super) parent: u32,
    pub(super) name: Box<str>,
    pub(super) inode: u64,
    pub(super) modified: HostTime,
}

/// Opens files below one folder by node number.
#[derive(Debug)]
pub(super) struct HostContents {
    path: PathBuf,
    folders: Folders,
    entries: Entries,
}

#[derive(Debug)]
struct Entries(Vec<HostEntry>);

impl ParentLookup for Entries {
    fn place(&self, number: u32) -> (u32, &str) {
        let entry = &self.0[number as usize];
        (entry.parent, &entry.name)
    }
}

impl HostContents {
    /// Returns contents for `entries`, in the order of the tree's nodes, below `root`, which is at
    /// `path`.
    pub(super) fn new(path: PathBuf, root: OwnedFd, entries: Vec<HostEntry>) -> Self {
        Self {
            path,
            folders: Folders::below(root),
            entries: Entries(entries),
        }
    }

    fn path_of(&self, mut node: u32) -> PathBuf {
        let mut names = Vec::new();
        while node != 0 {
            let (parent, name) = self.entries.place(node);
            names.push(name);
            node = parent;
        }
        let mut path = self.path.clone();
        path.extend(names.iter().rev());
        path
    }

    fn conflict(&self, node: u32, message: &'static str) -> Error {
        Error::conflict(FOLDER_LAYER, message).in_file(self.path_of(node))
    }

    fn failed(&self, node: u32, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::NotFound => self.conflict(node, "removed before it was read"),
            _ => Error::io(FOLDER_LAYER, "read", error).in_file(self.path_of(node)),
        }
    }
}

impl Contents for HostContents {
    fn open(&self, stream: &Stream) -> Result<Box<dyn ContentReader + '_>> {
        let Stream::Extern { node, len, .. } = *stream else {
            return Err(Error::invalid(
                FOLDER_LAYER,
                "internal: contents in memory cannot be opened as a device",
            ));
        };
        let (parent, name) = self.entries.place(node);
        let file = self
            .folders
            .open(parent, &self.entries)
            .and_then(|folder| nodes::open_file(folder, name));
        let file = file.map_err(|error| self.failed(node, error))?;
        Ok(Box::new(HostReader {
            contents: self,
            node,
            file: File::from(file),
            len,
        }))
    }
}

struct HostReader<'a> {
    contents: &'a HostContents,
    node: u32,
    file: File,
    len: u64,
}

impl HostReader<'_> {
    /// Verifies that the file is still the one that was listed. Called at the end of a file, so a
    /// complete read is known to be consistent.
    fn check_unchanged(&self) -> Result<()> {
        let now =
            nodes::node_of(&self.file).map_err(|error| self.contents.failed(self.node, error))?;
        let then = &self.contents.entries.0[self.node as usize];
        if (now.size, now.modified, now.identity.1) == (self.len, then.modified, then.inode) {
            return Ok(());
        }
        Err(self
            .contents
            .conflict(self.node, "changed while it was copied"))
    }
}

impl ContentReader for HostReader<'_> {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self
                    .contents
                    .conflict(self.node, "truncated while it was copied"));
            }
            result => result.map_err(|error| self.contents.failed(self.node, error))?,
        }
        if offset + buf.len() as u64 == self.len {
            self.check_unchanged()
        } else {
            Ok(())
        }
    }

    fn data_from(&self, from: u64) -> Result<Option<Range<u64>>> {
        Ok(data_in_file(&self.file, 0, self.len, from))
    }
}
