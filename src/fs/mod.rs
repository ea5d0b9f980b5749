//! Volumes as trees of files.

pub mod apfs;
mod bitmap;
mod build;
mod change;
pub(crate) mod decoded;
pub mod foreign;
mod free;
pub mod hfsplus;
mod locked;
mod resize;
#[cfg(feature = "testing")]
mod sample;
pub mod source;
pub(crate) mod unicode;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

pub use build::plan::{Built, VolumePlan};
pub use change::{
    Change, Existing, FileSystemMut, FileSystemMutExt, NewKind, NewNode, Stored, UnlinkedFile,
};
pub use free::{FreeMap, FreeMapExt, FreeRuns};
pub use locked::{LockedVolume, VolumeEncryption, VolumeKey, recovery_key};
pub use resize::{ResizeVolume, SizeLimits};

/// The read side of a volume, shared by any number of threads.
///
/// Names are UTF-8 as macOS shows them to programs: `:` where the disk has `/`, and U+FFFD for a
/// lone surrogate. Extended attributes include those that a volume stores elsewhere:
/// `com.apple.FinderInfo` (unless all zero) and `com.apple.ResourceFork` (unless empty).
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// What the volume is and how full.
    fn volume(&self) -> VolumeInfo;

    /// The root folder.
    fn root(&self) -> NodeId;

    /// The entry `name` of folder `dir`, by the volume's own rules of case and composition. Hard
    /// links are followed.
    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>>;

    /// Everything about one object.
    fn attributes(&self, node: NodeId) -> Result<Attributes>;

    /// Calls `each` for every entry of folder `dir` in the volume's order, hard links followed, the
    /// volume's private folders left out, until it says [`ControlFlow::Break`].
    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()>;

    /// The contents of a file's fork as a read-only device.
    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>>;

    /// Where a symbolic link points.
    fn read_link(&self, node: NodeId) -> Result<String>;

    /// The names of all extended attributes.
    fn xattrs(&self, node: NodeId) -> Result<Vec<String>>;

    /// The value of one extended attribute as a read-only device, `None` if there is none of that
    /// name.
    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>>;
}

/// An object's number within its volume (a catalog node ID on HFS+).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// Which of a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// The contents proper.
    Data,
    /// The resource fork.
    Resource,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "POSIX's seven, by name")]
pub enum FileKind {
    File,
    Folder,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// An entry of a folder.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name, as [`FileSystem`] says.
    pub name: String,
    /// The object behind it (for a hard link, the object linked to).
    pub attributes: Attributes,
}

/// What is recorded of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its number; the same for all hard links of one object.
    pub id: NodeId,
    /// What it is.
    pub kind: FileKind,
    /// Bytes in the data fork (for a symbolic link, of its target; for a folder, the number of its
    /// entries).
    pub size: u64,
    /// Bytes of storage behind both forks.
    pub allocated: u64,
    /// Bytes in the resource fork.
    pub resource_size: u64,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of this object; 1 for a folder.
    pub links: u32,
    /// Device number of a device node, as macOS writes it (major in the top 8 bits).
    pub device: u32,
    /// BSD flags as in `stat(2)` on macOS: `UF_*` in the low half, `SF_*` in the high.
    pub flags: u32,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// When its contents changed.
    pub modified: Option<Timestamp>,
    /// When its attributes changed.
    pub changed: Option<Timestamp>,
    /// When it was last read.
    pub accessed: Option<Timestamp>,
    /// When it was last backed up.
    pub backed_up: Option<Timestamp>,
    /// True if it has extended attributes beyond Finder info and resource fork.
    pub has_xattrs: bool,
}

/// The attribute that is a file's resource fork.
pub const RESOURCE_FORK: &str = "com.apple.ResourceFork";

/// BSD flag: contents are compressed and described by the attribute `com.apple.decmpfs`.
pub const UF_COMPRESSED: u32 = 0x20;
/// BSD flag: hidden from people.
pub const UF_HIDDEN: u32 = 0x8000;

/// A moment: seconds since 1970-01-01 UTC, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// A whole second.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanos: 0 }
    }
}

/// What a volume is and how full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// `HFS+`, `HFSX`, ... as users know it.
    pub format: &'static str,
    /// The volume's name.
    pub name: String,
    /// The volume's UUID where it has one.
    pub uuid: Option<uuid::Uuid>,
    /// True if `A` and `a` are different names.
    pub case_sensitive: bool,
    /// True if changes go through a journal.
    pub journaled: bool,
    /// True if it was cleanly unmounted (and no journal waits to be replayed).
    pub clean: bool,
    /// True if files may have holes, for which nothing is stored.
    pub holes: bool,
    /// Bytes of an allocation block.
    pub block_size: u32,
    /// Bytes of the volume.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes that are neither used nor free: given up, and held back for older states of the
    /// volume.
    pub pending: u64,
    /// Files, as the volume counts them.
    pub files: u64,
    /// Folders, as the volume counts them.
    pub folders: u64,
    /// When it was formatted.
    pub created: Option<Timestamp>,
    /// When it last changed.
    pub modified: Option<Timestamp>,
}

/// Conveniences over [`FileSystem`].
pub trait FileSystemExt: FileSystem {
    /// The object at an absolute path within the volume; `/` and the empty path are the root.
    /// Symbolic links on the way are not followed.
    fn resolve(&self, path: &str) -> Result<Attributes> {
        let mut at = self.attributes(self.root())?;
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if at.kind != FileKind::Folder {
                return Err(Error::new(
                    Kind::NotFound,
                    "path",
                    "a part before the last is not a folder",
                )
                .named(path));
            }
            at = self
                .lookup(at.id, part)?
                .ok_or_else(|| Error::not_found("path", path))?;
        }
        Ok(at)
    }

    /// All entries of a folder.
    fn entries(&self, dir: NodeId) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        self.list(dir, &mut |entry| {
            all.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }
}

impl<F: FileSystem + ?Sized> FileSystemExt for F {}
