//! The interface for modifying volumes.

use super::{FileKind, FileSystem, Fork, NodeId, Timestamp};
use bandsaw_core::Result;
use bandsaw_core::device::{AfterDiscard, BlockDevice, Memory};

use std::sync::Arc;

/// The write interface of a volume, shared by any number of threads.
///
/// Each operation is atomic, also with respect to a crash; one that fails leaves the volume
/// unchanged. Operations are durable after [`sync`](Self::sync). A crash before that undoes the
/// last of them, in order, except for contents written in place. Names have the form described at
/// [`FileSystem`]. A full volume is an error of [`Kind::Limit`](bandsaw_core::Kind::Limit), a name that
/// exists one of [`Kind::Conflict`](bandsaw_core::Kind::Conflict).
pub trait FileSystemMut: FileSystem {
    /// Returns a key that is equal for two names that are one name on the volume, by its rules of
    /// case and composition.
    fn name_key(&self, name: &str) -> Result<Vec<u8>>;

    /// Creates an object called `name` in folder `dir`; the name must not exist. A new file is
    /// empty.
    fn create(&self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId>;

    /// Adds a name to a file. [`Kind::Unsupported`](bandsaw_core::Kind::Unsupported) for objects that
    /// cannot have a second name in the format.
    fn link(&self, node: NodeId, dir: NodeId, name: &str) -> Result<()>;

    /// Adds a name to a file, replacing an existing file of that name in the same step.
    fn link_over(&self, node: NodeId, dir: NodeId, name: &str) -> Result<()>;

    /// Moves the entry `from` to the folder and name `to`. An existing entry is replaced only if
    /// `existing` says so, in the same step: a file by a file, an empty folder by a folder.
    fn rename(
        &self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        existing: ExistingTarget,
    ) -> Result<()>;

    /// Swaps two entries of any kind in one step: each object gets the folder and the name of the
    /// other; on HFS+ in the spelling given here. [`Kind::Invalid`](bandsaw_core::Kind::Invalid) if one of
    /// them contains the other. Two names of one file stay as they are.
    fn swap(&self, a: (NodeId, &str), b: (NodeId, &str)) -> Result<()>;

    /// Removes a name of a file, or an empty folder. A file without a name is kept while it is
    /// open.
    fn remove(&self, dir: NodeId, name: &str) -> Result<()>;

    /// Opens the contents of a file's fork for writing within its length and for changing its
    /// length.
    fn open_mut(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>>;

    /// Creates a file, symbolic link or special file without a name. It is invisible until
    /// [`link_unlinked`](Self::link_unlinked) links it, or [`store`](Self::store) uses its contents
    /// for another file. After a crash the next change of the volume deletes it. [`UnlinkedFile`]
    /// deletes it if it is not used.
    fn create_unlinked(&self, new: &NewNode) -> Result<NodeId>;

    /// Gives a name to an object made by [`create_unlinked`](Self::create_unlinked). An existing
    /// file is replaced only if `existing` says so, in the same step.
    fn link_unlinked(
        &self,
        node: NodeId,
        dir: NodeId,
        name: &str,
        existing: ExistingTarget,
    ) -> Result<()>;

    /// Deletes an object made by [`create_unlinked`](Self::create_unlinked) that has no name yet;
    /// if it is open, when it is closed.
    fn discard_unlinked(&self, node: NodeId) -> Result<()>;

    /// Changes the stored form of a file's contents without a visible change: its dates and
    /// everything else stay. The previous form and the unlinked file are deleted.
    ///
    /// # Errors
    ///
    /// [`Kind::Conflict`](bandsaw_core::Kind::Conflict) if the file is open, is stored in that form
    /// already, or has a resource fork; [`Kind::Limit`](bandsaw_core::Kind::Limit) for an attribute that
    /// is too large for the volume.
    fn store(&self, node: NodeId, stored: &Stored<'_>) -> Result<()>;

    /// Changes the attributes of an object.
    fn set_attributes(&self, node: NodeId, change: &Change) -> Result<()>;

    /// Sets an extended attribute to all of `value`. An existing attribute is replaced only if
    /// `existing` says so.
    fn set_xattr(
        &self,
        node: NodeId,
        name: &str,
        value: &dyn BlockDevice,
        existing: ExistingTarget,
    ) -> Result<()>;

    /// Removes an extended attribute; [`Kind::NotFound`](bandsaw_core::Kind::NotFound) if it does not
    /// exist.
    fn remove_xattr(&self, node: NodeId, name: &str) -> Result<()>;

    /// Makes all operations that returned before this call durable.
    fn sync(&self) -> Result<()>;

    /// Frees the blocks that are only held for older states of the volume, if there are enough of
    /// them to justify the writes. Everything is durable when this returns.
    fn release_held(&self) -> Result<()>;

    /// Makes everything durable and marks the volume as clean. The next change marks it as dirty
    /// again.
    fn unmount(&self) -> Result<()>;
}

/// The stored form of a file's contents.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a> {
    /// Uncompressed.
    Plain {
        /// Unlinked file with the contents.
        contents: NodeId,
    },
    /// Compressed, as by [`decmpfs::pack`](bandsaw_core::decmpfs::pack).
    Packed {
        /// Value of the compression attribute.
        attribute: &'a [u8],
        /// Unlinked file with the part that is not in the attribute, with its exact length; empty
        /// if everything is in the attribute.
        contents: NodeId,
    },
}

/// The behavior if the target exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingTarget {
    /// Keep it; the operation fails with [`Kind::Conflict`](bandsaw_core::Kind::Conflict).
    Error,
    /// Replace it.
    Replace,
}

/// Properties of an object to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Kind of the object.
    pub kind: NewKind,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner's user ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// BSD flags, as in [`Attributes`](super::Attributes).
    pub flags: u32,
    /// All timestamps; `None` for the time of the operation.
    pub created: Option<Timestamp>,
}

/// The kind of an object to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewKind {
    /// An empty file.
    File,
    /// An empty folder.
    Folder,
    /// A symbolic link to this target.
    Symlink(String),
    /// A FIFO, socket or device node, with macOS's device number.
    Special(FileKind, u32),
}

impl NewNode {
    /// Returns the properties of an object of this kind, owned by root and readable by all.
    pub fn new(kind: NewKind) -> Self {
        let mode = if matches!(kind, NewKind::Folder | NewKind::Symlink(_)) {
            0o755
        } else {
            0o644
        };
        Self {
            kind,
            mode,
            uid: 0,
            gid: 0,
            flags: 0,
            created: None,
        }
    }
}

/// Changes to an object's attributes; `None` leaves an attribute unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits, `0o7777`.
    pub mode: Option<u16>,
    /// Owner's user ID.
    pub uid: Option<u32>,
    /// Group ID.
    pub gid: Option<u32>,
    /// All BSD flags.
    pub flags: Option<u32>,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Modification time of the contents.
    pub modified: Option<Timestamp>,
    /// Change time of the attributes; if `None`, the time of the operation.
    pub changed: Option<Timestamp>,
    /// Time of the last access.
    pub accessed: Option<Timestamp>,
    /// Time of the last backup.
    pub backed_up: Option<Timestamp>,
}

/// A guard for an object without a name, which is deleted on drop unless it was given one.
#[derive(Debug)]
pub struct UnlinkedFile<'a> {
    fs: &'a dyn FileSystemMut,
    node: Option<NodeId>,
}

impl<'a> UnlinkedFile<'a> {
    /// Creates an object without a name; returns the guard and the object's number.
    pub fn new(fs: &'a dyn FileSystemMut, new: &NewNode) -> Result<(Self, NodeId)> {
        let node = fs.create_unlinked(new)?;
        Ok((
            Self {
                fs,
                node: Some(node),
            },
            node,
        ))
    }

    /// Gives the object its name.
    pub fn link_unlinked(
        mut self,
        dir: NodeId,
        name: &str,
        existing: ExistingTarget,
    ) -> Result<()> {
        match self.node {
            Some(node) => self.fs.link_unlinked(node, dir, name, existing)?,
            None => return Ok(()),
        }
        self.node = None;
        Ok(())
    }
}

impl Drop for UnlinkedFile<'_> {
    fn drop(&mut self) {
        if let Some(node) = self.node {
            // Errors cannot be returned here; the next mount finds the object.
            let _ = self.fs.discard_unlinked(node);
        }
    }
}

/// Convenience methods for [`FileSystemMut`].
pub trait FileSystemMutExt: FileSystemMut {
    /// Replaces the contents of a file's data fork by `bytes`.
    fn write_all(&self, node: NodeId, bytes: &[u8]) -> Result<()> {
        let file = self.open_mut(node, Fork::Data)?;
        file.set_len(bytes.len() as u64, AfterDiscard::Any)?;
        file.write_at(0, bytes)
    }

    /// Sets an extended attribute to `value`, replacing an existing one.
    fn set_xattr_bytes(&self, node: NodeId, name: &str, value: &[u8]) -> Result<()> {
        self.set_xattr(
            node,
            name,
            &Memory::read_only(value),
            ExistingTarget::Replace,
        )
    }
}

impl<F: FileSystemMut + ?Sized> FileSystemMutExt for F {}
