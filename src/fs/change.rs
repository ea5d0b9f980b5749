//! Volumes as trees of files that change.

use super::{FileKind, FileSystem, Fork, NodeId, Timestamp};
use crate::Result;
use crate::device::{AfterDiscard, BlockDevice, Memory};

use std::sync::Arc;

/// The write half of a volume, shared by any number of threads.
///
/// Each operation is done whole or not at all, also in the eyes of a crash; one that fails leaves
/// the volume as it was. Operations are durable after [`sync`](Self::sync), and a crash before that
/// undoes the last of them, in order, but for contents written in place. Names are as
/// [`FileSystem`] has them. A full volume is [`Kind::Limit`](crate::Kind::Limit), a name that is
/// taken [`Kind::Conflict`](crate::Kind::Conflict).
pub trait FileSystemMut: FileSystem {
    /// Makes an object called `name` in folder `dir`, where nothing of that name may be. A file is
    /// empty.
    fn create(&self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId>;

    /// Gives a file one more name. [`Kind::Unsupported`](crate::Kind::Unsupported) for what the
    /// format allows no second name.
    fn link(&self, node: NodeId, dir: NodeId, name: &str) -> Result<()>;

    /// The same in the place of a file that may be there, in one step.
    fn link_over(&self, node: NodeId, dir: NodeId, name: &str) -> Result<()>;

    /// Moves the entry `from` to the folder and name `to`. What is there is replaced only if
    /// `existing` says so, in one step: a file by a file, an empty folder by a folder.
    fn rename(&self, from: (NodeId, &str), to: (NodeId, &str), existing: Existing) -> Result<()>;

    /// Lets two entries change places, whatever they are, in one step: each object is called
    /// afterwards what the other was, where that was; on HFS+ in the spelling given here.
    /// [`Kind::Invalid`](crate::Kind::Invalid) if one of them lies in the other. Two names of one
    /// file stay as they are.
    fn swap(&self, a: (NodeId, &str), b: (NodeId, &str)) -> Result<()>;

    /// Removes a name of a file, or an empty folder. A file without a name stays as long as it is
    /// open.
    fn remove(&self, dir: NodeId, name: &str) -> Result<()>;

    /// The contents of a file's fork, to be written within its length and made longer and shorter.
    fn open_mut(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>>;

    /// Makes a file, symbolic link or special file without a name: nobody sees it before it gets
    /// one by [`link_unlinked`](Self::link_unlinked), or its contents become those of another file by
    /// [`store`](Self::store). After a crash the next change of the volume removes it. [`UnlinkedFile`]
    /// sees to it that none is forgotten.
    fn create_unlinked(&self, new: &NewNode) -> Result<NodeId>;

    /// Gives what [`create_unlinked`](Self::create_unlinked) has made its name. A file that is there is
    /// replaced only if `existing` says so, in the same step.
    fn link_unlinked(
        &self,
        node: NodeId,
        dir: NodeId,
        name: &str,
        existing: Existing,
    ) -> Result<()>;

    /// Removes what [`create_unlinked`](Self::create_unlinked) has made and has got no name; when it is
    /// closed, if it is open.
    fn discard_unlinked(&self, node: NodeId) -> Result<()>;

    /// Stores the contents of a file another way, which its readers do not see: its dates and all
    /// else stay. What was stored is gone with the file without a name.
    /// [`Kind::Conflict`](crate::Kind::Conflict) if the file is open, is stored that way already,
    /// or has a resource fork; [`Kind::Limit`](crate::Kind::Limit) for an attribute that the volume
    /// holds no place for.
    fn store(&self, node: NodeId, stored: &Stored<'_>) -> Result<()>;

    /// Changes what is recorded of an object.
    fn set_attributes(&self, node: NodeId, change: &Change) -> Result<()>;

    /// Sets an extended attribute to all of `value`. One of that name is replaced only if
    /// `existing` says so.
    fn set_xattr(
        &self,
        node: NodeId,
        name: &str,
        value: &dyn BlockDevice,
        existing: Existing,
    ) -> Result<()>;

    /// Removes an extended attribute; [`Kind::NotFound`](crate::Kind::NotFound) if there is none of
    /// that name.
    fn remove_xattr(&self, node: NodeId, name: &str) -> Result<()>;

    /// Makes everything that returned before this call durable.
    fn sync(&self) -> Result<()>;

    /// Makes blocks free that were given up and are held back for older states of the volume, if
    /// there are enough of them to be worth the writes. Everything is durable when it returns.
    fn release_held(&self) -> Result<()>;

    /// Makes everything durable and leaves the volume clean. It can be changed further, which makes
    /// it unclean again.
    fn unmount(&self) -> Result<()>;
}

/// How contents are to be stored.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a> {
    /// As they are.
    Plain {
        /// The file without a name that holds them.
        contents: NodeId,
    },
    /// Packed, as [`decmpfs::pack`](crate::decmpfs::pack) does.
    Packed {
        /// The attribute that says how.
        attribute: &'a [u8],
        /// The file without a name that holds what is not in the attribute, cut to its length;
        /// empty if all is.
        contents: NodeId,
    },
}

/// What to do about something that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays; the operation fails with [`Kind::Conflict`](crate::Kind::Conflict).
    Error,
    /// It is replaced.
    Replace,
}

/// An object to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// What it is.
    pub kind: NewKind,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// BSD flags, as in [`Attributes`](super::Attributes).
    pub flags: u32,
    /// All its dates; `None` for the time of the operation.
    pub created: Option<Timestamp>,
}

/// What an object to be made is.
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
    /// An object of this kind, owned by root, readable by all.
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

/// What of an object's attributes is to change; `None` leaves a part as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits, `0o7777`.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// All BSD flags.
    pub flags: Option<u32>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When its contents changed.
    pub modified: Option<Timestamp>,
    /// When its attributes changed; without this, the time of the operation.
    pub changed: Option<Timestamp>,
    /// When it was last read.
    pub accessed: Option<Timestamp>,
    /// When it was last backed up.
    pub backed_up: Option<Timestamp>,
}

/// An object without a name, which is removed again unless it gets one.
#[derive(Debug)]
pub struct UnlinkedFile<'a> {
    fs: &'a dyn FileSystemMut,
    node: Option<NodeId>,
}

impl<'a> UnlinkedFile<'a> {
    /// Makes one.
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

    /// Gives it its name.
    pub fn link_unlinked(mut self, dir: NodeId, name: &str, existing: Existing) -> Result<()> {
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
            // Best effort: nobody is left to tell. The next mount finds it.
            let _ = self.fs.discard_unlinked(node);
        }
    }
}

/// Conveniences over [`FileSystemMut`].
pub trait FileSystemMutExt: FileSystemMut {
    /// Puts `bytes` in the place of all contents of a file's data fork.
    fn write_all(&self, node: NodeId, bytes: &[u8]) -> Result<()> {
        let file = self.open_mut(node, Fork::Data)?;
        file.set_len(bytes.len() as u64, AfterDiscard::Any)?;
        file.write_at(0, bytes)
    }

    /// Sets an extended attribute to `value`, whether or not there is one of that name.
    fn set_xattr_bytes(&self, node: NodeId, name: &str, value: &[u8]) -> Result<()> {
        self.set_xattr(node, name, &Memory::read_only(value), Existing::Replace)
    }
}

impl<F: FileSystemMut + ?Sized> FileSystemMutExt for F {}
