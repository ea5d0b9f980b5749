//! The contents of a file as a device: reads and writes in place, growth and truncation.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::records::date_of;
use super::volume::Volume;
use super::{LAYER, Shared};
use crate::hfsplus::catalog::{LocatedObject, Object};
use crate::hfsplus::extents::{ForkDevice, ForkSpace};
use crate::hfsplus::layout::{
    Cnid, FileRaw, ForkRaw, fork_type, mac_date, record_flags, timestamp,
};
use crate::hfsplus::stat;
use crate::{Attributes, Change, ExistingTarget, FileKind, Fork, NodeId, RESOURCE_FORK, Timestamp};
use bandsaw_core::device::{
    Access, AfterDiscard, BlockDevice, BlockDeviceExt, Extent, FileRange, Info,
};
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::RwLock;
use bandsaw_core::{Error, Kind, Result};

/// Bytes of a resource fork copied at a time.
const PIECE: u64 = 1 << 20;

/// An open fork, shared by all of its users.
#[derive(Debug)]
pub(super) struct OpenFork {
    shared: Arc<Shared>,
    id: Cnid,
    kind: u8,
    /// The blocks of the fork. Requests hold the lock shared, so that no block is freed while it is
    /// in use.
    file: RwLock<ForkDevice>,
    date: Arc<ContentDate>,
    /// True if the contents are compressed, in an attribute or the resource fork; then neither fork
    /// can be written.
    compressed: bool,
}

/// A fork in the volume's table, from its opening until it is completely closed.
#[derive(Debug)]
pub(super) struct KnownFork {
    fork: Weak<OpenFork>,
    date: Arc<ContentDate>,
}

/// Modification date of the contents of an open fork. It exists until it is written, even while the
/// fork is being closed.
#[derive(Debug)]
pub(super) struct ContentDate {
    /// The date in the catalog, or the one to be written there if `stale`.
    modified: AtomicU32,
    /// True if the dates of the file's record count from 1970.
    expanded: bool,
    /// True if the date must still be written.
    stale: AtomicBool,
}

impl OpenFork {
    /// Returns the open fork of a file, and opens it first if necessary.
    pub(super) fn open(shared: &Arc<Shared>, node: NodeId, fork: Fork) -> Result<Arc<Self>> {
        let volume = shared.read();
        let found = volume.find(node)?;
        let Object::File(file) = &found.object else {
            return Err(Error::invalid(LAYER, "is a folder, expected a file")
                .named(format!("object {}", node.0)));
        };
        if fork == Fork::Data && stat::file_kind(file) == FileKind::File {
            // Refuses broken links.
            volume.read.check_readable(node)?;
        }
        let kind = if fork == Fork::Data {
            fork_type::DATA
        } else {
            fork_type::RESOURCE
        };
        let id = found.object.id();
        let mut forks = shared.open_forks();
        let known = forks.get(&(id, kind));
        if let Some(open) = known.and_then(|known| known.fork.upgrade()) {
            return Ok(open);
        }
        // A thread that is closing the fork may still have to write a date, which applies to this
        // one too.
        let date = known.map(|known| known.date.clone());
        let device = device(&volume, file, kind)?;
        let compressed = volume.read.compression(&found.object)?.is_some();
        let open = Arc::new(Self {
            shared: shared.clone(),
            id,
            kind,
            file: RwLock::new(device),
            date: date.unwrap_or_else(|| Arc::new(ContentDate::recorded(file))),
            compressed,
        });
        forks.insert(
            (id, kind),
            KnownFork {
                fork: Arc::downgrade(&open),
                date: open.date.clone(),
            },
        );
        Ok(open)
    }

    /// Fails if the contents cannot be written.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.shared.read().check_own(self.id)?;
        if self.compressed {
            let message = "cannot write to a compressed file; decompress it first (`bandsaw \
                           decompress`) or replace it";
            return Err(Error::unsupported(LAYER, message).named(format!("object {}", self.id)));
        }
        Ok(())
    }

    /// Performs one step of a resize to `len` bytes; returns true if more is to be done.
    fn resize_step(&self, volume: &mut Volume, len: u64, zeros: bool) -> Result<bool> {
        // The exclusive lock prevents reads and writes of the bytes to be cut off.
        let mut open = self.file.write();
        let (done, device, date) = volume.change(|volume| {
            let (found, mut file) = file_of(volume, self.id)?;
            let raw = *fork_of(&mut file, self.kind);
            let mut fork = volume.fork_map(&raw, self.id, self.kind)?;
            let done = volume.resize_fork(&mut fork, len, zeros)?;
            volume.store_fork(&mut fork, &raw)?;
            *fork_of(&mut file, self.kind) = fork.raw;
            let date = volume.date_in(file.flags);
            (file.dates.content_mod, file.dates.attribute_mod) = (date.into(), date.into());
            volume.put(found.parent, &found.name, &Object::File(file))?;
            let space = ForkSpace {
                device: volume.device.clone(),
                ..volume.read.space.clone()
            };
            Ok((
                done,
                space.device_over(&fork.extents, fork.raw.logical_size.get()),
                date,
            ))
        })?;
        *open = device;
        self.date.modified.store(date, Ordering::Relaxed);
        Ok(!done)
    }

    /// Updates the modification date after a write that does not change the catalog.
    fn touch(&self) {
        let now = self.shared.read().now();
        self.date.touch(mac_date(now, self.date.expanded));
    }
}

impl KnownFork {
    pub(super) fn is_open(&self) -> bool {
        self.fork.strong_count() > 0
    }
}

impl ContentDate {
    fn recorded(file: &FileRaw) -> Self {
        Self {
            modified: AtomicU32::new(file.dates.content_mod.get()),
            expanded: file.flags.get() & record_flags::EXPANDED_TIMES != 0,
            stale: AtomicBool::new(false),
        }
    }

    /// Dates have a resolution of one second, so most writes change nothing.
    fn touch(&self, now: u32) {
        if self.modified.swap(now, Ordering::Relaxed) != now {
            self.stale.store(true, Ordering::Release);
        }
    }

    /// Records that the catalog contains `date`, so that no date is pending.
    fn is_recorded(&self, date: u32) {
        self.modified.store(date, Ordering::Relaxed);
        self.stale.store(false, Ordering::Release);
    }

    fn due(&self) -> Option<Timestamp> {
        self.stale
            .load(Ordering::Acquire)
            .then(|| timestamp(self.modified.load(Ordering::Relaxed), self.expanded))
            .flatten()
    }

    /// Writes the pending date of a fork of `id`.
    fn write_pending(&self, volume: &mut Volume, id: Cnid) -> Result<()> {
        if !self.stale.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let date = self.modified.load(Ordering::Relaxed);
        volume.change(|volume| {
            let Ok((found, mut file)) = file_of(volume, id) else {
                return Ok(());
            };
            (file.dates.content_mod, file.dates.attribute_mod) = (date.into(), date.into());
            volume.put(found.parent, &found.name, &Object::File(file))
        })
    }
}

impl Drop for OpenFork {
    fn drop(&mut self) {
        let mut volume = self.shared.write();
        // Best effort: errors cannot be reported here. The next mount deletes files without a name.
        let _ = self.date.write_pending(&mut volume, self.id);
        let mut forks = self.shared.open_forks();
        if forks
            .get(&(self.id, self.kind))
            .is_some_and(|known| !known.is_open())
        {
            forks.remove(&(self.id, self.kind));
            volume.bitmap.give_up((self.id, self.kind));
        }
        drop(forks);
        if volume.orphans.contains(&self.id) {
            let shared = &self.shared;
            if volume.reap([self.id], &|id| shared.is_open(id)).is_err() {
                // Left for the unmount, or for the next mount.
                volume.orphans.retain(|orphan| *orphan != self.id);
                volume.left_behind = true;
            }
        }
    }
}

/// Changes the attributes of an object. A new content date replaces a pending one.
pub(super) fn set_attributes(
    shared: &Shared,
    volume: &mut Volume,
    node: NodeId,
    change: &Change,
) -> Result<()> {
    volume.set_attributes(node, change)?;
    if let Some(modified) = change.modified {
        let forks = shared.open_forks();
        keys(node)
            .filter_map(|key| forks.get(&key))
            .for_each(|known| {
                known
                    .date
                    .is_recorded(date_of(modified, known.date.expanded))
            });
    }
    Ok(())
}

/// Adds the pending date of a file's contents to its attributes. `_volume` must be the guard under
/// which they were read: otherwise the date could be written in between, and no longer be pending.
pub(super) fn add_due_date(shared: &Shared, _volume: &Volume, found: &mut Attributes) {
    let forks = shared.open_forks();
    let latest = keys(found.id)
        .filter_map(|key| forks.get(&key)?.date.due())
        .max();
    if let Some(latest) = latest {
        (found.modified, found.changed) = (Some(latest), Some(latest));
    }
}

/// Returns the keys of a file's forks in the table of open forks.
fn keys(node: NodeId) -> impl Iterator<Item = (Cnid, u8)> {
    let id = u32::try_from(node.0).ok().map(Cnid);
    [fork_type::DATA, fork_type::RESOURCE]
        .into_iter()
        .filter_map(move |kind| Some((id?, kind)))
}

/// Writes the pending dates of all open files.
pub(super) fn note_dates(shared: &Shared) -> Result<()> {
    let mut volume = shared.write();
    let known: Vec<_> = shared
        .open_forks()
        .iter()
        .map(|((id, _), known)| (*id, known.date.clone()))
        .collect();
    known
        .iter()
        .try_for_each(|(id, date)| date.write_pending(&mut volume, *id))
}

/// Replaces the contents of a resource fork by those of `value`.
pub(super) fn set_resource_fork(
    shared: &Arc<Shared>,
    node: NodeId,
    value: &dyn BlockDevice,
    existing: ExistingTarget,
) -> Result<()> {
    let fork = OpenFork::open(shared, node, Fork::Resource)?;
    fork.check_writable()?;
    if fork.info().len > 0 && existing == ExistingTarget::Error {
        return Err(Error::conflict(LAYER, "already exists").named(RESOURCE_FORK));
    }
    let len = value.info().len;
    fork.set_len(len, AfterDiscard::Any)?;
    let mut at = 0;
    while at < len {
        let piece = value.read_vec(at, to_usize(PIECE.min(len - at)))?;
        fork.write_at(at, &piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Truncates a resource fork to zero length; fails if it is already empty.
pub(super) fn remove_resource_fork(shared: &Arc<Shared>, node: NodeId) -> Result<()> {
    let fork = OpenFork::open(shared, node, Fork::Resource)?;
    fork.check_writable()?;
    match fork.info().len {
        0 => Err(Error::not_found(LAYER, RESOURCE_FORK)),
        _ => fork.set_len(0, AfterDiscard::Zeros),
    }
}

fn device(volume: &Volume, file: &FileRaw, kind: u8) -> Result<ForkDevice> {
    let raw = if kind == fork_type::DATA {
        &file.data_fork
    } else {
        &file.resource_fork
    };
    let fork = volume.fork_map(raw, Cnid(file.file_id.get()), kind)?;
    let capacity = u64::from(raw.total_blocks.get()) * u64::from(volume.read.header.block_size);
    if raw.logical_size.get() > capacity {
        let message = format!(
            "the recorded length of {} bytes exceeds its blocks, which have {capacity} bytes",
            raw.logical_size
        );
        return Err(
            Error::new(Kind::Corrupt, LAYER, message).named(format!("file {}", file.file_id))
        );
    }
    let space = ForkSpace {
        device: volume.device.clone(),
        ..volume.read.space.clone()
    };
    Ok(space.device_over(&fork.extents, raw.logical_size.get()))
}

pub(super) fn fork_of(file: &mut FileRaw, kind: u8) -> &mut ForkRaw {
    if kind == fork_type::DATA {
        &mut file.data_fork
    } else {
        &mut file.resource_fork
    }
}

pub(super) fn file_of(volume: &Volume, id: Cnid) -> Result<(LocatedObject, FileRaw)> {
    let found = volume.find(NodeId(id.0.into()))?;
    match found.object {
        Object::File(file) => Ok((found, file)),
        Object::Folder(_) => Err(Error::not_found(LAYER, format!("file {id}"))),
    }
}

impl BlockDevice for OpenFork {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadWrite,
            ..self.file.read().info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read().read_at(offset, buf)
    }

    /// Writes within the file's length; use [`set_len`](BlockDevice::set_len) first to extend it.
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.file.read().overwrite(offset, buf)?;
        self.touch();
        Ok(())
    }

    /// A file of HFS+ has no holes: bytes that must become zero are overwritten, and its blocks
    /// remain allocated.
    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        {
            let file = self.file.read();
            file.info().check_range(LAYER, &range)?;
            if leave == AfterDiscard::Zeros {
                file.zero(range)?;
            }
        }
        self.touch();
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.file.read().extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        let mut volume = self.shared.write();
        self.date.write_pending(&mut volume, self.id)?;
        volume.commit()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        let mut volume = self.shared.write();
        let old = self.file.read().len();
        if len == old {
            return Ok(());
        }
        loop {
            match self.resize_step(&mut volume, len, leave == AfterDiscard::Zeros) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    // Restore the old length after a failed extension.
                    while self.file.read().len() > old
                        && self.resize_step(&mut volume, old, false)?
                    {}
                    return Err(error);
                }
            }
        }
    }

    /// Returns `None`, because blocks may be reused for another file.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.file.read().info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
