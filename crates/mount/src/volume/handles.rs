//! Open files and folders by the kernel's file handle.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bandsaw::Result;
use bandsaw::fs::{FileKind, FileSystem, NodeId};
use bandsaw::sync::RwLock;
use fuser::{Errno, FileHandle};

use super::files::OpenFile;

/// An open file or folder.
#[derive(Debug, Clone)]
pub(super) enum Handle {
    /// A file; true if it was opened for writing.
    File(Arc<OpenFile>, bool),
    Folder(Arc<OpenFolder>),
}

/// An open folder: its entries as they were at the first read.
#[derive(Debug)]
pub(super) struct OpenFolder {
    node: NodeId,
    entries: OnceLock<Vec<FolderEntry>>,
}

/// An entry of a folder.
#[derive(Debug)]
pub(super) struct FolderEntry {
    pub(super) name: Box<str>,
    pub(super) node: NodeId,
    pub(super) kind: FileKind,
}

impl OpenFolder {
    pub(super) fn new(node: NodeId) -> Self {
        Self {
            node,
            entries: OnceLock::new(),
        }
    }

    /// Returns the entries, which are read on the first call.
    pub(super) fn entries(&self, fs: &dyn FileSystem) -> Result<&[FolderEntry]> {
        if let Some(entries) = self.entries.get() {
            return Ok(entries);
        }
        let mut entries = Vec::new();
        fs.list(self.node, &mut |entry| {
            entries.push(FolderEntry {
                name: entry.name.into(),
                node: entry.attributes.id,
                kind: entry.attributes.kind,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        entries.shrink_to_fit();
        Ok(self.entries.get_or_init(|| entries))
    }
}

/// All open handles.
#[derive(Debug, Default)]
pub(super) struct Handles {
    open: RwLock<HashMap<u64, Handle>>,
    next: AtomicU64,
}

impl Handles {
    pub(super) fn add(&self, handle: Handle) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().insert(number, handle);
        FileHandle(number)
    }

    /// Returns the file of a handle; fails with EBADF if it is none.
    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>, Errno> {
        match self.open.read().get(&handle.0) {
            Some(Handle::File(file, _)) => Ok(file.clone()),
            _ => Err(Errno::EBADF),
        }
    }

    /// Returns the folder of a handle. With `from_start`, it is listed anew if it was listed
    /// before.
    pub(super) fn folder(
        &self,
        handle: FileHandle,
        from_start: bool,
    ) -> Result<Arc<OpenFolder>, Errno> {
        let found = match self.open.read().get(&handle.0) {
            Some(Handle::Folder(folder)) => folder.clone(),
            _ => return Err(Errno::EBADF),
        };
        if !from_start || found.entries.get().is_none() {
            return Ok(found);
        }
        let anew = Arc::new(OpenFolder::new(found.node));
        let mut open = self.open.write();
        open.insert(handle.0, Handle::Folder(anew.clone()));
        Ok(anew)
    }

    /// Removes a handle and returns it.
    pub(super) fn remove(&self, handle: FileHandle) -> Option<Handle> {
        self.open.write().remove(&handle.0)
    }
}
