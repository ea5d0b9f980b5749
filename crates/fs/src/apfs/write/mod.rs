//! Writable APFS volumes.
//!
//! Every operation changes nodes of the volume's trees in memory ([`tree`]), and is atomic: all of
//! its changes are kept or none ([`volume`]). Kept changes are gathered until the next commit,
//! which writes every changed node to a free block, and then a checkpoint that refers to them
//! ([`commit`], [`checkpoint`]). Nothing that a checkpoint refers to is overwritten, neither nodes
//! nor contents, so that a crash leaves the previous checkpoint or the new one.
//!
//! Sections cited as §n are those of `docs/formats/apfs.md`.

mod attributes;
mod checkpoint;
mod commit;
mod container;
mod contents;
mod entries;
mod ephemeral;
mod exchange;
mod extents;
mod fall_back;
mod file;
mod inode;
mod kept_references;
mod moves;
mod nodes;
mod orphans;
mod preconditions;
mod queue;
mod snapshot;
mod space;
#[cfg(test)]
mod tests;
mod tree;
mod volume;
mod xattrs;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

pub use self::container::ContainerMut;
pub(super) use self::container::queued;
pub use self::fall_back::OlderCheckpoint;
use self::file::OpenFork;
use self::volume::Volume;
use super::container::Container;
use super::layout::{FileId, xattr_name};
use super::writer::WriteGuard;
use crate::open_volume_methods::{change_shared, read_shared};
use crate::{
    Attributes, Change, Entry, ExistingTarget, FileSystem, FileSystemMut, Fork, LockedVolume,
    NewNode, NodeId, Stored, Timestamp, VolumeInfo, VolumeKey,
};
use bandsaw_core::decmpfs;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory, ReadOnlyView};
use bandsaw_core::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use bandsaw_core::{Error, Result};

const LAYER: &str = "apfs volume";

/// Options for opening a volume for changes.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Time for all timestamps of changes; `None` uses the system's clock.
    pub now: Option<Timestamp>,
}

/// A volume in an APFS container that is open for changes, shared by any number of threads.
///
/// Only one volume of a container can be open for changes at a time. Dropping it unmounts it as
/// [`FileSystemMut::unmount`] does, but ignores errors.
#[derive(Debug)]
pub struct ApfsMut {
    shared: Arc<Shared>,
}

/// The state that the volume shares with its open files.
#[derive(Debug)]
struct Shared {
    volume: RwLock<Volume>,
    /// Open forks by file; the flag is true for the data fork.
    open: Mutex<HashMap<(FileId, bool), Weak<OpenFork>>>,
    /// Write lock of the container, released after the last commit.
    _alone: Arc<WriteGuard>,
}

impl ApfsMut {
    /// Opens volume `number`, from 1, of a container for changes. `key` is called for the key of an
    /// encrypted volume. Nothing is written before the first change.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`](bandsaw_core::Kind), with the reason, for a volume with a feature that
    /// changes would have to keep consistent and that is not supported;
    /// [`Kind::Corrupt`](bandsaw_core::Kind) or [`Kind::Conflict`](bandsaw_core::Kind) for a container that was
    /// not cleanly unmounted, or of which a volume is open for changes.
    pub fn open(
        container: &Arc<Container>,
        number: u32,
        options: WriteOptions,
        key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>,
    ) -> Result<Self> {
        let alone = container.writer.acquire()?;
        let volume = RwLock::new(Volume::open(container, number, options, key)?);
        Ok(Self {
            shared: Arc::new(Shared {
                volume,
                open: Mutex::default(),
                _alone: alone,
            }),
        })
    }
}

impl Drop for ApfsMut {
    fn drop(&mut self) {
        // Errors cannot be returned here; uncommitted changes are lost, as in a crash.
        let _ = self.unmount();
    }
}

impl Drop for Shared {
    /// Commits changes that open files made after the volume was unmounted.
    fn drop(&mut self) {
        let volume = self.volume.get_mut();
        // Errors cannot be returned here.
        let _ = volume
            .reap(&|_| false)
            .and_then(|()| volume.commit())
            .and_then(|()| volume.write_anchor());
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Volume> {
        self.volume.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Volume> {
        self.volume.write()
    }

    /// Deletes unlinked files that are not open any more, and makes all changes durable.
    fn commit_reaped(&self, volume: &mut Volume) -> Result<()> {
        volume.reap(&|id| self.is_open(id))?;
        volume.commit()
    }

    fn open_forks(&self) -> MutexGuard<'_, HashMap<(FileId, bool), Weak<OpenFork>>> {
        self.open.lock()
    }

    /// Returns true if some fork of `id` is open, so that its blocks must not be freed.
    fn is_open(&self, id: FileId) -> bool {
        let forks = self.open_forks();
        forks
            .iter()
            .any(|((open, _), fork)| *open == id && fork.strong_count() > 0)
    }
}

impl FileSystem for ApfsMut {
    fn volume(&self) -> VolumeInfo {
        self.shared.read().info()
    }

    fn root(&self) -> NodeId {
        NodeId(FileId::ROOT.0)
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        self.shared.read().read.lookup(dir, name)
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        self.shared.read().read.attributes(node)
    }

    /// Lists the entries as of the call; `each` may modify the volume.
    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut entries = Vec::new();
        self.shared.read().read.list(dir, &mut |entry| {
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        for entry in entries {
            if each(entry)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    read_shared!();

    /// Returns a copy of the current value; for a resource fork, a device that follows changes.
    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let volume = self.shared.read();
        let Some(value) = volume.read.xattr(node, name)? else {
            return Ok(None);
        };
        if name == xattr_name::RESOURCE_FORK {
            drop(volume);
            return Ok(Some(Arc::new(ReadOnlyView(OpenFork::open(
                &self.shared,
                node,
                Fork::Resource,
            )?))));
        }
        let len = usize::try_from(value.info().len)
            .map_err(|_| Error::unsupported(LAYER, "the attribute does not fit in memory"))?;
        Ok(Some(Arc::new(Memory::read_only(value.read_vec(0, len)?))))
    }
}

impl FileSystemMut for ApfsMut {
    fn name_key(&self, name: &str) -> Result<Vec<u8>> {
        Ok(self.shared.read().read.names.key(name))
    }

    change_shared!();

    fn store(&self, node: NodeId, stored: &Stored<'_>) -> Result<()> {
        self.shared
            .write()
            .store_contents(node, stored, &|id| self.shared.is_open(id))
    }

    fn set_attributes(&self, node: NodeId, change: &Change) -> Result<()> {
        self.shared.write().set_attributes(node, change)
    }

    /// Sets an attribute. An open resource fork must be written through its device instead.
    fn set_xattr(
        &self,
        node: NodeId,
        name: &str,
        value: &dyn BlockDevice,
        existing: ExistingTarget,
    ) -> Result<()> {
        let mut volume = self.shared.write();
        self.check_closed(node, name)?;
        volume.set_xattr(node, name, value, existing)
    }

    fn remove_xattr(&self, node: NodeId, name: &str) -> Result<()> {
        let mut volume = self.shared.write();
        self.check_closed(node, name)?;
        volume.remove_xattr(node, name)
    }

    fn sync(&self) -> Result<()> {
        self.shared.commit_reaped(&mut self.shared.write())
    }

    fn release_held(&self) -> Result<()> {
        let mut volume = self.shared.write();
        self.shared.commit_reaped(&mut volume)?;
        volume.release_queued()
    }

    fn unmount(&self) -> Result<()> {
        let mut volume = self.shared.write();
        self.shared.commit_reaped(&mut volume)?;
        volume.write_anchor()
    }
}

impl ApfsMut {
    /// Fails if the attribute is a resource fork that is open, because its blocks must not be
    /// freed.
    fn check_closed(&self, node: NodeId, name: &str) -> Result<()> {
        let open = self
            .shared
            .open_forks()
            .get(&(FileId(node.0), false))
            .is_some_and(|fork| fork.strong_count() > 0);
        if open && name == xattr_name::RESOURCE_FORK {
            return Err(
                Error::unsupported(LAYER, "the file is open and cannot be replaced").named(name),
            );
        }
        Ok(())
    }
}
