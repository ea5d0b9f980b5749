//! HFS+ and APFS volumes, read, checked, repaired, built and changed, over any
//! [`BlockDevice`]; FAT and exFAT volumes, read, checked, built and changed; HFS volumes, ISO 9660, UDF and Apple Archive,
//! read and checked; Core Storage below HFS+, read.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod ancestors;
pub mod apfs;
pub mod apple_archive;
mod bitmap;
mod block_map;
mod block_users;
mod btree_check;
mod btree_node;
mod build;
mod change;
mod check_report;
mod clusters;
pub mod core_storage;
pub mod exfat;
mod extent_device;
pub mod fat;
pub mod foreign;
mod free;
pub mod hfs;
pub mod hfsplus;
pub mod iso9660;
mod loss;
mod mode_type;
mod open_volume_methods;
mod recovered;
mod repair_step;
mod resize;
pub mod source;
#[cfg(feature = "testing")]
mod testing;
mod timestamp;
pub mod udf;
pub(crate) mod unicode;
pub mod verify_compressed;
mod volume_key;
mod write_buffer;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::BlockDevice;

pub use ancestors::Ancestors;
pub use bandsaw_core::store::{LocalFile, Open};
pub use bandsaw_core::{Error, Kind, Reason, Result, device, progress};
pub use block_map::BlockFreeMap;
pub use build::plan::{NewVolumeInfo, PlacedContents, VolumePlan};
pub use change::{
    Change, ExistingTarget, FileSystemMut, FileSystemMutExt, NewKind, NewNode, Stored, UnlinkedFile,
};
pub use free::{FreeMap, FreeMapExt, FreeRuns};
pub use loss::{Loss, Losses, Lost};
pub use recovered::{
    Certainty, EachRecovered, FoundRun, LossReason, LostRange, RecordSource, RecoveredFile,
    RecoverySummary,
};
pub use repair_step::RepairStep;
pub use resize::{ResizeVolume, SizeLimits};
#[cfg(feature = "testing")]
pub use testing::layouts;
pub use timestamp::{DateTime, Timestamp};
pub use volume_key::{LockedVolume, VolumeEncryption, VolumeKey, recovery_key};

/// The read interface of a volume, shared by any number of threads.
///
/// Names are UTF-8 as macOS shows them to programs: `:` where the disk has `/`, and U+FFFD for a
/// lone surrogate. Extended attributes include those that a volume stores elsewhere:
/// `com.apple.FinderInfo` (unless all zero) and `com.apple.ResourceFork` (unless empty).
pub trait FileSystem: fmt::Debug + Send + Sync {
    /// Returns the properties and the usage of the volume.
    fn volume(&self) -> VolumeInfo;

    /// Returns the root folder.
    fn root(&self) -> NodeId;

    /// Looks up the entry `name` of folder `dir`, by the volume's own rules of case and
    /// normalization. Hard links are followed.
    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>>;

    /// Returns the attributes of an object.
    fn attributes(&self, node: NodeId) -> Result<Attributes>;

    /// Calls `each` for every entry of folder `dir` in the volume's order, until it returns
    /// [`ControlFlow::Break`]. Hard links are followed, and the volume's private folders are
    /// omitted.
    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()>;

    /// Calls `each` for the name and the kind of every entry of folder `dir`, as [`list`](Self::list)
    /// does, but without reading the objects if the volume has their kinds in its folders.
    fn list_names(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(&str, FileKind) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.list(dir, &mut |entry| each(&entry.name, entry.attributes.kind))
    }

    /// Opens the contents of a file's fork as a read-only device.
    fn open(&self, node: NodeId, fork: Fork) -> Result<Arc<dyn BlockDevice>>;

    /// Returns the target of a symbolic link.
    fn read_link(&self, node: NodeId) -> Result<String>;

    /// Returns the names of all extended attributes.
    fn xattrs(&self, node: NodeId) -> Result<Vec<String>>;

    /// Opens the value of an extended attribute as a read-only device, `None` if it does not exist.
    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>>;
}

/// The number of an object within its volume (a catalog node ID on HFS+).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// A fork of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fork {
    /// The data fork.
    Data,
    /// The resource fork.
    Resource,
}

/// The kind of an object.
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

impl FileKind {
    /// Returns the stable name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice => "character_device",
            Self::BlockDevice => "block_device",
        }
    }
}

/// An entry of a folder.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Name, in the form described at [`FileSystem`].
    pub name: String,
    /// Attributes of the object (for a hard link, of its target).
    pub attributes: Attributes,
}

/// The attributes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the object; the same for all of its hard links.
    pub id: NodeId,
    /// Kind of the object.
    pub kind: FileKind,
    /// Length of the data fork in bytes (for a symbolic link, of its target; for a folder, the
    /// number of its entries).
    pub size: u64,
    /// Space allocated for both forks, in bytes.
    pub allocated: u64,
    /// Length of the resource fork in bytes.
    pub resource_size: u64,
    /// Permission bits, `0o7777`.
    pub mode: u16,
    /// Owner's user ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Number of names of this object; 1 for a folder.
    pub links: u32,
    /// Device number of a device node, in the format of macOS (major in the top 8 bits).
    pub device: u32,
    /// BSD flags as in `stat(2)` on macOS: `UF_*` in the low half, `SF_*` in the high.
    pub flags: u32,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Modification time of the contents.
    pub modified: Option<Timestamp>,
    /// Change time of the attributes.
    pub changed: Option<Timestamp>,
    /// Time of the last access.
    pub accessed: Option<Timestamp>,
    /// Time of the last backup.
    pub backed_up: Option<Timestamp>,
    /// True if it has extended attributes besides Finder info and resource fork.
    pub has_xattrs: bool,
}

impl Attributes {
    /// Returns the attributes of an object for which a format records none: permissions as usual, and the
    /// owner and group "unknown" of macOS.
    pub const fn plain(id: NodeId, kind: FileKind) -> Self {
        Self {
            id,
            kind,
            size: 0,
            allocated: 0,
            resource_size: 0,
            mode: match kind {
                FileKind::Folder => 0o755,
                _ => 0o644,
            },
            uid: UNKNOWN_OWNER,
            gid: UNKNOWN_OWNER,
            links: 1,
            device: 0,
            flags: 0,
            created: None,
            modified: None,
            changed: None,
            accessed: None,
            backed_up: None,
            has_xattrs: false,
        }
    }
}

/// Name of the attribute that contains a file's resource fork.
pub const RESOURCE_FORK: &str = "com.apple.ResourceFork";

/// Name of the attribute that contains the Finder information of a record.
pub(crate) const FINDER_INFO: &str = "com.apple.FinderInfo";

/// Owner and group of objects without owners: macOS's user and group "unknown".
pub(crate) const UNKNOWN_OWNER: u32 = 99;

/// BSD flag: contents are compressed and described by the attribute `com.apple.decmpfs`.
pub const UF_COMPRESSED: u32 = 0x20;
/// BSD flag: locked by the user.
pub(crate) const UF_IMMUTABLE: u32 = 0x2;
/// BSD flag: not changed since the last backup.
pub(crate) const SF_ARCHIVED: u32 = 0x1_0000;
/// BSD flag: hidden from users.
pub const UF_HIDDEN: u32 = 0x8000;

/// The properties and the usage of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Name of the format for users: `HFS+`, `HFSX`, ...
    pub format: &'static str,
    /// Name of the volume.
    pub name: String,
    /// UUID of the volume, if it has one.
    pub uuid: Option<uuid::Uuid>,
    /// True if names are case-sensitive.
    pub case_sensitive: bool,
    /// True if the volume has a journal.
    pub journaled: bool,
    /// True if it was cleanly unmounted (and no journal must be replayed).
    pub clean: bool,
    /// True if files may be sparse.
    pub holes: bool,
    /// Allocation block size in bytes.
    pub block_size: u32,
    /// Length of the volume in bytes.
    pub total: u64,
    /// Free space in bytes.
    pub free: u64,
    /// Space that is neither used nor free, in bytes: it is only held for older states of the
    /// volume.
    pub pending: u64,
    /// Number of files, by the volume's own count; 0 if it has none, as ISO 9660.
    pub files: u64,
    /// Number of folders, by the volume's own count; 0 if it has none.
    pub folders: u64,
    /// Time of formatting.
    pub created: Option<Timestamp>,
    /// Time of the last modification.
    pub modified: Option<Timestamp>,
}

/// Convenience methods for [`FileSystem`].
pub trait FileSystemExt: FileSystem {
    /// Returns the object at an absolute path within the volume; `/` and the empty path are the
    /// root. Symbolic links in the path are not followed.
    fn resolve(&self, path: &str) -> Result<Attributes> {
        let mut at = self.attributes(self.root())?;
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if at.kind != FileKind::Folder {
                return Err(Error::new(
                    Kind::NotFound,
                    "path",
                    "does not exist: a parent in the path is not a folder",
                )
                .because(Reason::NoSuchPath)
                .named(path));
            }
            at = self
                .lookup(at.id, part)?
                .ok_or_else(|| Error::not_found("path", path).because(Reason::NoSuchPath))?;
        }
        Ok(at)
    }

    /// Returns all entries of a folder.
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

// Compiles the examples in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
