//! Modification of HFS+ and HFSX volumes.
//!
//! Every operation writes its changes of the metadata to a [`Buffer`](crate::write_buffer::Buffer) over the
//! volume, and they are kept or rolled back as a whole. The changes of successive operations remain
//! pending until the next commit, which writes them through a journal: the volume's own, or, on a
//! volume without one, a journal that exists only from the first change to the unmount. After a
//! crash, the volume is in the state after some operation, never in the middle of one.
//!
//! File contents are written directly to their blocks, and become durable before the commit that
//! assigns the blocks to a file. Blocks that were freed are not reused before the commit that frees
//! them.

mod attributes;
mod bitmap;
mod block_counts;
mod commit;
mod entries;
mod exchange;
mod file;
mod forks;
mod links;
mod log;
mod mounting;
mod moves;
mod objects;
mod records;
pub(super) mod recover;
mod relocate;
mod reserved;
mod resize;
mod space;
mod unlinked;
mod volume;
mod xattrs;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(super) use self::bitmap::run_in;
use self::file::{KnownFork, OpenFork};
use self::volume::Volume;
use super::DEFAULT_CACHE;
use super::layout::Cnid;
use crate::open_volume_methods::{change_shared, read_shared};
use crate::{
    Attributes, Change, Entry, ExistingTarget, FileSystem, FileSystemMut, Fork, NewNode, NodeId,
    RESOURCE_FORK, ResizeVolume, SizeLimits, Stored, Timestamp, VolumeInfo,
};
use bandsaw_core::decmpfs;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory, ReadOnlyView};
use bandsaw_core::progress::Progress;
use bandsaw_core::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use bandsaw_core::{Error, Result};

const LAYER: &str = "hfs+";
/// Number of entries of a folder that are read before the first one is reported.
const LISTED_AT_ONCE: usize = 512;

/// Options for opening a volume for changes.
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions {
    /// Size of the cache for tree nodes in bytes; also the limit for changes that are not yet
    /// committed.
    pub cache: usize,
    /// The time recorded for changes; `None` uses the system clock.
    pub now: Option<Timestamp>,
    /// Lists the files of the volume's journal and finds them by name. They cannot be changed.
    pub system_files: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            cache: DEFAULT_CACHE,
            now: None,
            system_files: false,
        }
    }
}

/// An HFS+ or HFSX volume that can be read and changed by any number of threads.
///
/// Dropping it unmounts the volume like [`FileSystemMut::unmount`], but errors are ignored.
#[derive(Debug)]
pub struct HfsPlusMut {
    shared: Arc<Shared>,
}

/// State shared by the volume and its open files.
#[derive(Debug)]
pub(super) struct Shared {
    volume: RwLock<Volume>,
    open: Mutex<HashMap<(Cnid, u8), KnownFork>>,
}

impl HfsPlusMut {
    /// Opens the volume that takes all of `device` for changes.
    ///
    /// A journal is replayed first; otherwise nothing is written before the first change. Fails
    /// with [`Kind::Corrupt`](bandsaw_core::Kind) if the volume was not cleanly unmounted or its primary
    /// header is damaged (it needs repair), and with [`Kind::ReadOnly`](bandsaw_core::Kind) if it is
    /// locked.
    pub fn open(device: Arc<dyn BlockDevice>, options: WriteOptions) -> Result<Self> {
        let volume = RwLock::new(Volume::open(device, options)?);
        Ok(Self {
            shared: Arc::new(Shared {
                volume,
                open: Mutex::default(),
            }),
        })
    }

    /// Adds a journal of `size` bytes, by default as large as Apple's formatter makes it, and
    /// unmounts the volume. Fails with [`Kind::Conflict`](bandsaw_core::Kind) if it already has one.
    pub fn enable_journal(&self, size: Option<u64>) -> Result<()> {
        file::note_dates(&self.shared)?;
        self.shared.write().enable_journal(size)
    }

    /// Returns the size of the tree nodes that are cached at present, in bytes.
    pub fn cached(&self) -> usize {
        self.shared.read().read.cached()
    }

    /// Removes the volume's journal and unmounts the volume. Fails with
    /// [`Kind::NotFound`](bandsaw_core::Kind) if it has none.
    pub fn disable_journal(&self) -> Result<()> {
        file::note_dates(&self.shared)?;
        self.shared.write().disable_journal()
    }
}

impl Drop for HfsPlusMut {
    fn drop(&mut self) {
        // Errors cannot be reported here; uncommitted changes are lost, as in a crash.
        let _ = self.unmount();
    }
}

impl Drop for Shared {
    /// Unmounts again, because files closed later may have changed the volume after it was
    /// unmounted.
    fn drop(&mut self) {
        let volume = self.volume.get_mut();
        // Errors cannot be reported here.
        let _ = volume.unmount();
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Volume> {
        self.volume.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Volume> {
        self.volume.write()
    }

    fn open_forks(&self) -> MutexGuard<'_, HashMap<(Cnid, u8), KnownFork>> {
        self.open.lock()
    }

    /// Returns true if a fork of `id` is open, so that its blocks must not be freed.
    fn is_open(&self, id: Cnid) -> bool {
        let forks = self.open_forks();
        forks
            .iter()
            .any(|((open, _), known)| *open == id && known.is_open())
    }
}

impl HfsPlusMut {
    /// Refuses to change the attribute without which compressed contents would be lost.
    fn check_attribute(&self, node: NodeId, name: &str) -> Result<()> {
        if name != decmpfs::ATTRIBUTE || self.shared.read().read.compression_of(node)?.is_none() {
            return Ok(());
        }
        let message = "cannot change the compression attribute alone; replace the file instead";
        Err(Error::unsupported(LAYER, message).named(name))
    }
}

impl FileSystem for HfsPlusMut {
    fn volume(&self) -> VolumeInfo {
        self.shared.read().info()
    }

    fn root(&self) -> NodeId {
        NodeId(Cnid::ROOT.0.into())
    }

    fn lookup(&self, dir: NodeId, name: &str) -> Result<Option<Attributes>> {
        let volume = self.shared.read();
        let mut found = volume.read.lookup(dir, name)?;
        if let Some(found) = &mut found {
            file::add_due_date(&self.shared, &volume, found);
        }
        Ok(found)
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        let volume = self.shared.read();
        let mut found = volume.read.attributes(node)?;
        // Files without a name have an entry in the private folder, which does not count as a name.
        if u32::try_from(node.0).is_ok_and(|id| volume.is_nameless(Cnid(id))) {
            found.links = 0;
        }
        file::add_due_date(&self.shared, &volume, &mut found);
        Ok(found)
    }

    /// Entries that are added or removed during the listing may or may not be reported; `each` may
    /// change the volume.
    fn list(
        &self,
        dir: NodeId,
        each: &mut dyn FnMut(Entry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut after = None;
        loop {
            let volume = self.shared.read();
            let (mut entries, last) =
                volume
                    .read
                    .list_after(dir, after.as_deref(), LISTED_AT_ONCE)?;
            entries
                .iter_mut()
                .for_each(|entry| file::add_due_date(&self.shared, &volume, &mut entry.attributes));
            drop(volume);
            for entry in entries {
                if each(entry)?.is_break() {
                    return Ok(());
                }
            }
            match last {
                Some(last) => after = Some(last),
                None => return Ok(()),
            }
        }
    }

    read_shared!();

    /// Returns a copy of the value in memory; a resource fork is returned as a live device.
    fn xattr(&self, node: NodeId, name: &str) -> Result<Option<Arc<dyn BlockDevice>>> {
        let volume = self.shared.read();
        let Some(value) = volume.read.xattr(node, name)? else {
            return Ok(None);
        };
        if name == RESOURCE_FORK {
            drop(volume);
            return self.open(node, Fork::Resource).map(Some);
        }
        let len = value.info().len;
        let len = usize::try_from(len).map_err(|_| {
            let message = format!("attribute of {len} bytes does not fit in memory");
            Error::unsupported(LAYER, message).named(name)
        })?;
        Ok(Some(Arc::new(Memory::read_only(value.read_vec(0, len)?))))
    }
}

impl FileSystemMut for HfsPlusMut {
    fn name_key(&self, name: &str) -> Result<Vec<u8>> {
        self.shared.read().name_key(name)
    }

    change_shared!();

    fn store(&self, node: NodeId, stored: &Stored<'_>) -> Result<()> {
        exchange::store(&self.shared, node, stored)
    }

    fn set_attributes(&self, node: NodeId, change: &Change) -> Result<()> {
        file::set_attributes(&self.shared, &mut self.shared.write(), node, change)
    }

    fn set_xattr(
        &self,
        node: NodeId,
        name: &str,
        value: &dyn BlockDevice,
        existing: ExistingTarget,
    ) -> Result<()> {
        if name == RESOURCE_FORK {
            return file::set_resource_fork(&self.shared, node, value, existing);
        }
        self.check_attribute(node, name)?;
        self.shared.write().set_xattr(node, name, value, existing)
    }

    fn remove_xattr(&self, node: NodeId, name: &str) -> Result<()> {
        if name == RESOURCE_FORK {
            return file::remove_resource_fork(&self.shared, node);
        }
        self.check_attribute(node, name)?;
        self.shared.write().remove_xattr(node, name)
    }

    fn sync(&self) -> Result<()> {
        file::note_dates(&self.shared)?;
        self.shared.write().commit()
    }

    /// Only [syncs](FileSystemMut::sync), because no older states are held.
    fn release_held(&self) -> Result<()> {
        self.sync()
    }

    fn unmount(&self) -> Result<()> {
        file::note_dates(&self.shared)?;
        self.shared.write().unmount()
    }
}

impl ResizeVolume for HfsPlusMut {
    fn limits(&self) -> Result<SizeLimits> {
        Ok(self.shared.read().limits())
    }

    fn resize(&self, len: u64, progress: &dyn Progress) -> Result<()> {
        file::note_dates(&self.shared)?;
        self.shared.write().resize(len, progress)
    }
}

#[cfg(test)]
mod tests;
