//! The volume as changed by one thread at a time: atomic operations.

use std::sync::Arc;

use zerocopy::big_endian::U16;

use super::bitmap::Bitmap;
use super::log::Log;
use super::{LAYER, WriteOptions, recover};
use crate::hfsplus::layout::{
    Cnid, HEADER_OFFSET, VolumeHeader, VolumeHeaderRaw, fork_type, mac_date, record_flags,
    volume_attributes,
};
use crate::hfsplus::links::Links;
use crate::hfsplus::{HfsPlus, btree};
use crate::write_buffer::Buffer;
use crate::{FileSystem, Timestamp, VolumeInfo};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::device::failed::FailureFlag;
use bandsaw_core::{Error, Kind, Result};

use zerocopy::IntoBytes;

/// Minimum node size of the catalog in bytes: room for two of the longest records.
const MIN_CATALOG_NODE: u16 = 4096;

/// A volume with the state needed to change it.
#[derive(Debug)]
pub(super) struct Volume {
    /// The volume with all changes.
    pub(super) read: HfsPlus,
    /// The device below the buffer, from which file contents are read and to which they are
    /// written.
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) buffer: Arc<Buffer>,
    pub(super) bitmap: Bitmap,
    /// Present from the first change to the unmount.
    pub(super) log: Option<Log>,
    pub(super) options: WriteOptions,
    pub(super) failed: FailureFlag,
    /// Files without a name that are still open.
    pub(super) orphans: Vec<Cnid>,
    /// Objects that have no name yet.
    pub(super) nameless: Vec<Cnid>,
    /// True if an unopened file without a name could not be deleted.
    pub(super) left_behind: bool,
    /// True if the last operation failed for lack of space that a commit may free.
    pub(super) short: bool,
}

/// The state that is restored when an operation fails.
#[derive(Debug)]
struct SavedState {
    header: VolumeHeader,
    links: Links,
    catalog: btree::SavedTree,
    overflow: Option<btree::SavedTree>,
    attributes: Option<btree::SavedTree>,
    orphans: usize,
}

impl Volume {
    pub(super) fn open(device: Arc<dyn BlockDevice>, options: WriteOptions) -> Result<Self> {
        device.info().check_writable(LAYER)?;
        let recover::RecoveredVolume {
            device,
            header,
            unfinished,
        } = recover::recover(device)?;
        let buffer = Arc::new(Buffer::new(device.clone(), header.block_size));
        let mut read = HfsPlus::open(buffer.clone())?;
        if header.has(volume_attributes::SOFTWARE_LOCK) {
            return Err(Error::new(
                Kind::ReadOnly,
                LAYER,
                "read-only: the volume is locked by a flag in its header",
            ));
        }
        let message = if !read.problems().is_empty() {
            Some("read-only: the volume is damaged; repair it first")
        } else if !(read.clean || unfinished.is_some()) {
            Some("read-only: the volume was not unmounted cleanly; repair it first")
        } else {
            None
        };
        if let Some(message) = message {
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        let map = read.space.fork(
            &header.raw.allocation_file,
            &crate::hfsplus::extents::Owner::Special("allocation file"),
            &mut |block| read.overflow.get(Cnid::ALLOCATION, fork_type::DATA, block),
        )?;
        let bitmap = Bitmap::new(map, header.total_blocks)?;
        read.links.set_system_files(options.system_files);
        let catalog = read.catalog.tree_mut();
        if catalog.node_size() < MIN_CATALOG_NODE {
            let message = format!(
                "read-only: unsupported catalog node size {}",
                catalog.node_size()
            );
            return Err(Error::unsupported(LAYER, message));
        }
        catalog.set_cache(options.cache / 2);
        read.overflow
            .tree_mut()
            .into_iter()
            .for_each(|tree| tree.set_cache(options.cache / 4));
        read.attributes
            .tree_mut()
            .into_iter()
            .for_each(|tree| tree.set_cache(options.cache / 4));
        let ended = unfinished.is_none();
        let failed = FailureFlag::default();
        let (orphans, nameless) = (Vec::new(), Vec::new());
        let (short, left_behind) = (false, false);
        let mut volume = Self {
            read,
            device,
            buffer,
            bitmap,
            log: unfinished,
            options,
            failed,
            orphans,
            nameless,
            left_behind,
            short,
        };
        // Ends the interrupted mount as an unmount does, which removes its transient journal.
        if !ended {
            volume.unmount()?;
        }
        Ok(volume)
    }

    /// Returns the information on the volume for its users. A transient journal is not reported as
    /// a journal.
    pub(super) fn info(&self) -> VolumeInfo {
        let mut info = self.read.volume();
        if let Some(log) = &self.log
            && log.is_transient()
        {
            info.journaled = false;
            info.free += log.blocks() * u64::from(info.block_size);
        }
        info.clean = self.log.is_none();
        info
    }

    /// Returns the time to be recorded for changes.
    pub(super) fn now(&self) -> Timestamp {
        self.options.now.unwrap_or_else(Timestamp::now_in_seconds)
    }

    /// Returns true if the dates of the volume's header and of new records count from 1970. Each
    /// record says of itself which form its dates have.
    pub(super) fn expanded_times(&self) -> bool {
        self.read.header.has(volume_attributes::EXPANDED_TIMES)
    }

    /// Returns the time to be recorded for changes, as a date of the volume.
    pub(super) fn date(&self) -> u32 {
        mac_date(self.now(), self.expanded_times())
    }

    /// Returns the time to be recorded for changes, as a date of a record with these flags.
    pub(super) fn date_in(&self, flags: U16) -> u32 {
        mac_date(self.now(), flags.get() & record_flags::EXPANDED_TIMES != 0)
    }

    /// Returns the header for modification by the current operation.
    pub(super) fn header(&mut self) -> &mut VolumeHeaderRaw {
        &mut self.read.header.raw
    }

    /// Performs an operation atomically. It may be started twice: if it lacks blocks that the next
    /// commit frees, that commit is done in between.
    pub(super) fn change<T>(
        &mut self,
        mut change: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.failed.check(LAYER)?;
        self.begin()?;
        self.step_with_room(&mut change)
    }

    /// Performs one operation of a mounted volume; if it lacks blocks that a commit frees, commits
    /// and retries it.
    pub(super) fn step_with_room<T>(
        &mut self,
        change: &mut dyn FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.short = false;
        self.make_room()?;
        match self.step(change) {
            // Freed blocks are reused only after the commit: until then the volume on disk refers to them.
            Err(error) if error.kind() == Kind::Limit && self.short && self.bitmap.holds_any() => {
                self.commit()?;
                self.make_room()?;
                self.step(change)
            }
            done => done,
        }
    }

    /// Performs one operation of a mounted volume.
    pub(super) fn step<T>(&mut self, change: &mut dyn FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let saved = self.save();
        let done = change(self).and_then(|done| {
            self.commit_headers(&saved)?;
            self.commit_if_full()?;
            Ok(done)
        });
        match done {
            Ok(done) => {
                self.accept();
                Ok(done)
            }
            Err(error) => {
                self.rollback(saved);
                Err(error)
            }
        }
    }

    fn save(&mut self) -> SavedState {
        SavedState {
            header: self.read.header.clone(),
            links: self.read.links.clone(),
            catalog: self.read.catalog.tree_mut().save(),
            overflow: self.read.overflow.tree_mut().map(|tree| tree.save()),
            attributes: self.read.attributes.tree_mut().map(|tree| tree.save()),
            orphans: self.orphans.len(),
        }
    }

    /// Writes the headers that the operation has changed.
    fn commit_headers(&mut self, saved: &SavedState) -> Result<()> {
        self.read.catalog.tree_mut().commit_header(&saved.catalog)?;
        if let (Some(tree), Some(saved)) = (self.read.overflow.tree_mut(), &saved.overflow) {
            tree.commit_header(saved)?;
        }
        if let (Some(tree), Some(saved)) = (self.read.attributes.tree_mut(), &saved.attributes) {
            tree.commit_header(saved)?;
        }
        self.read.header.free_blocks = self.read.header.raw.free_blocks.get();
        if self.read.header.raw != saved.header.raw {
            self.read.header.raw.modify_date = self.date().into();
            self.buffer
                .write_at(HEADER_OFFSET, self.read.header.raw.as_bytes())?;
        }
        Ok(())
    }

    fn accept(&mut self) {
        self.buffer.accept();
        self.bitmap.accept();
        self.read.catalog.tree_mut().forget_changed();
        self.read
            .overflow
            .tree_mut()
            .into_iter()
            .for_each(|tree| tree.forget_changed());
        self.read
            .attributes
            .tree_mut()
            .into_iter()
            .for_each(|tree| tree.forget_changed());
    }

    fn rollback(&mut self, saved: SavedState) {
        self.buffer.rollback();
        self.bitmap.rollback();
        (self.read.header, self.read.links) = (saved.header, saved.links);
        self.orphans.truncate(saved.orphans);
        self.read.catalog.tree_mut().rollback(saved.catalog);
        if let (Some(tree), Some(saved)) = (self.read.overflow.tree_mut(), saved.overflow) {
            tree.rollback(saved);
        }
        match saved.attributes {
            Some(saved) => self
                .read
                .attributes
                .tree_mut()
                .into_iter()
                .for_each(|tree| tree.rollback(saved.clone())),
            // The operation has created the tree.
            None => self.read.attributes.set_tree(None),
        }
    }
}
