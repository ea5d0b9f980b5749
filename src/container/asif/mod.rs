//! ASIF, Apple's sparse image format of macOS 26 (`.asif`): one file of chunks, and tables that map
//! chunks of the disk to chunks of the file. Also the format of the layers of a stack.
//!
//! * [`layout`]: the on-disk structures; [`geometry`]: their sizes, counts and offsets.
//! * [`load`]: loading and validation of these structures.
//! * [`tables`] in memory, page by page ([`cache`]); [`mask`]: the block states of partly written
//!   chunks; [`space`]: allocation of the chunks of the file.
//! * [`chunks`]: reads and writes of the disk; [`unwritten`]: data in blocks that count as unwritten.
//! * [`commit`]: flush, by means of the inactive directory; [`compact`]: moving chunks down and
//!   truncating the file, for which [`owners`] searches for their references.
//! * [`create`], [`resize`], [`metadata`], [`check`](mod@check); [`overlay`]: the operations of a
//!   layer of a stack.

mod cache;
mod check;
mod chunks;
mod commit;
mod compact;
mod create;
mod file_mapping;
mod geometry;
mod layout;
mod load;
mod mask;
mod metadata;
mod overlay;
mod owners;
mod repair;
mod resize;
mod space;
mod tables;
mod unwritten;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uuid::Uuid;

use self::geometry::{EntryKind, Geometry};
use self::layout::{ChunkEntry, DiskChunk, FileChunk, HeaderRaw};
use self::load::Loaded;
use self::mask::BlockState;
use self::space::Space;
use self::tables::Tables;
use super::Orphan;
use crate::device::units::UnitLocks;
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, FileRange, Info, failed::FailureFlag, regions,
};
use crate::error::Place;
use crate::problem::Findings;
use crate::sync::{Mutex, MutexGuard, RwLock};
use crate::{Error, Result};

pub use self::check::{check, check_with};
pub use self::create::{AsifOptions, Kind as LayerKind};
pub use self::geometry::probe;
pub use self::load::directories;
pub(crate) use self::load::{lost_newer, peek_uuid, use_directory};
pub use self::metadata::Metadata;
pub use self::repair::repair;

/// The layer in errors.
pub(crate) const LAYER: &str = "asif";

/// A disk, or a layer of one, in an ASIF file.
#[derive(Debug)]
pub struct Asif {
    file: Arc<dyn BlockDevice>,
    access: Access,
    geometry: Geometry,
    /// Length of the disk in bytes.
    len: AtomicU64,
    tables: Tables,
    space: Space,
    /// Locks of the chunks of the disk: shared to read and write in place, exclusive to allocate,
    /// move or free a chunk.
    units: Arc<UnitLocks>,
    /// Chunks whose first write is in progress.
    first_writes: Mutex<Vec<DiskChunk>>,
    head: Mutex<FileHead>,
    described: RwLock<MetadataState>,
    layer: Layer,
    /// Reason why the image is read-only, if it is.
    read_only: Option<String>,
    /// False if holes of the file read as noise, because it is encrypted.
    shows_holes: bool,
    /// True if the header has the UUID of this session.
    begun: AtomicBool,
    /// Serializes flushes and changes of the size or the metadata: a second flush must not return
    /// before the first is done.
    flushing: Mutex<()>,
    failed: FailureFlag,
}

/// The structures at the start of the file.
#[derive(Debug)]
struct FileHead {
    raw: HeaderRaw,
    directories: [Option<u64>; 2],
    /// Index of the active directory, and its version.
    active: usize,
    version: u64,
}

/// The metadata, and the chunks of the disk's address space that store it.
#[derive(Debug)]
struct MetadataState {
    metadata: Metadata,
    chunks: Vec<DiskChunk>,
    read_only: Option<String>,
}

/// Role of an image in a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// UUID of the image below when this one was created; nil for an image of its own, and above a
    /// raw disk.
    pub parent: Uuid,
    /// True if it stores copies of the blocks below; its UUID is then that of the image below.
    pub is_cache: bool,
    /// True if unwritten blocks show the layer below, so that zeros must be explicit.
    pub is_overlaid: bool,
}

/// Space usage of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Chunk size in bytes.
    pub chunk_size: u64,
    /// Number of chunks with data, including metadata.
    pub data: u64,
    /// Number of chunks with tables.
    pub tables: u64,
    /// Number of chunks with bitmaps.
    pub bitmaps: u64,
    /// Number of chunks in the file, including the first ones with header and directories.
    pub chunks: u64,
    /// Number of free chunks in the file, which [`Asif::compact`] removes.
    pub unused: u64,
    /// Length of the file in bytes.
    pub file_len: u64,
}

impl Asif {
    /// Opens the image in `file`; read-only if the file or the header does not allow writes.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let loaded = load::load(&*file, &mut Findings::Open)?;
        let access = if loaded.header.read_only.is_some() {
            Access::ReadOnly
        } else {
            file.info().access
        };
        Self::over(file, loaded, access)
    }

    /// Opens the image in `file` read-only with the given one of its [`directories`].
    pub(crate) fn open_directory(file: Arc<dyn BlockDevice>, directory: usize) -> Result<Self> {
        let loaded = load::load_with(&*file, Some(directory), &mut Findings::Open)?;
        Self::over(file, loaded, Access::ReadOnly)
    }

    /// Opens the same file read-only with its other directory. `None` if there is none, or if it
    /// names the same tables.
    pub(crate) fn with_other_directory(&self) -> Result<Option<Self>> {
        let Some([_, other]) =
            directories(&*self.file)?.filter(|[active, _]| *active == self.directory().0)
        else {
            return Ok(None);
        };
        let image = Self::open_directory(self.file.clone(), other)?;
        Ok(Some(Self {
            shows_holes: self.shows_holes,
            ..image
        }))
    }

    /// Returns the index and the version of the directory in use.
    pub(crate) fn directory(&self) -> (usize, u64) {
        let head = self.head.lock();
        (head.active, head.version)
    }

    fn over(file: Arc<dyn BlockDevice>, loaded: Loaded, access: Access) -> Result<Self> {
        let Loaded {
            raw,
            header,
            active,
            version,
            tables,
            used,
            bitmaps,
            ..
        } = loaded;
        let geometry = header.geometry;
        let is_overlaid = header.is_cache || !header.parent.is_nil();
        let image = Self {
            access,
            geometry,
            len: AtomicU64::new(header.sectors * u64::from(geometry.block)),
            tables: Tables::new(file.clone(), geometry, tables, bitmaps),
            space: Space::new(file.clone(), geometry.chunk_bytes(), used),
            units: Arc::default(),
            first_writes: Mutex::default(),
            head: Mutex::new(FileHead {
                raw,
                directories: header.directories,
                active,
                version,
            }),
            described: RwLock::new(MetadataState {
                metadata: Metadata::default(),
                chunks: Vec::new(),
                read_only: header.metadata_read_only,
            }),
            layer: Layer {
                parent: header.parent,
                is_cache: header.is_cache,
                is_overlaid,
            },
            read_only: header.read_only,
            shows_holes: true,
            begun: AtomicBool::new(false),
            flushing: Mutex::default(),
            failed: FailureFlag::default(),
            file,
        };
        if let Some(first) = header.metadata {
            image.read_metadata(header.sectors, first)?;
        }
        Ok(image)
    }

    /// Makes the image a layer above another one. Its header need not say so: the image below may
    /// be a raw disk.
    #[must_use]
    pub fn overlaid(mut self) -> Self {
        self.layer.is_overlaid = true;
        self
    }

    /// Returns the size of a chunk in bytes.
    pub fn chunk_size(&self) -> u64 {
        self.geometry.chunk_bytes()
    }

    /// Tells that the file is encrypted, so that free chunks read as noise. Those before the last
    /// used chunk then do not count as [orphans](Self::orphans).
    #[must_use]
    pub fn encrypted(mut self) -> Self {
        self.shows_holes = false;
        self
    }

    /// Reduces the caches so that `images` of them need no more memory than a single one.
    #[must_use]
    pub(crate) fn sharing_memory(mut self, images: usize) -> Self {
        self.tables.share(images);
        self
    }

    /// Returns its role in a stack.
    pub fn layer(&self) -> Layer {
        Layer {
            parent: Uuid::from_bytes(self.head.lock().raw.parent_uuid),
            ..self.layer
        }
    }

    /// Returns the UUID that layers above refer to. It changes at the first write of a session,
    /// except for a cache.
    pub fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.head.lock().raw.uuid)
    }

    /// Returns the reason why the header makes the image read-only, if it does.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Returns the reason why the header makes the metadata read-only, if it does.
    pub fn metadata_read_only(&self) -> Option<String> {
        self.described().read_only.clone()
    }

    /// Returns the block size in bytes: 512 or 4096.
    pub fn block(&self) -> u32 {
        self.geometry.block
    }

    /// Returns the space usage.
    pub fn usage(&self) -> Usage {
        let (tables, bitmaps) = self.tables.count();
        let (used, end) = self.space.extent();
        Usage {
            chunk_size: self.geometry.chunk_bytes(),
            data: used.saturating_sub(tables + bitmaps),
            tables,
            bitmaps,
            chunks: end.0,
            unused: end.0.saturating_sub(self.first_chunk().0 + used),
            file_len: self.file.info().len,
        }
    }

    /// Finds the stored data that belongs to no chunk of the disk: in free chunks of the file, and
    /// in chunks past the end of the disk. Reads all tables.
    pub fn orphans(&self) -> Result<Vec<Orphan>> {
        let (_, end) = self.space.extent();
        let end = end.0 * self.geometry.chunk_bytes();
        let mut orphans = Vec::new();
        for run in self.space.orphans(self.shows_holes)? {
            let what = match run.start >= end {
                true => "data after the last chunk",
                false => "data in unused chunks of the file",
            };
            orphans.push(Orphan {
                what: what.to_owned(),
                place: Place::Offset(run.start),
                len: run.end - run.start,
                is_past_end: false,
            });
        }
        for (chunk, place) in self.chunks_beyond()? {
            if !self.geometry.can_be(place) {
                continue; // no data can be there
            }
            let range = self.geometry.in_file(place, 0..self.geometry.chunk_bytes());
            if !regions::is_zero(&*self.file, range.clone())? {
                orphans.push(Orphan {
                    what: format!("chunk {} is past the end of the disk", chunk.0),
                    place: Place::Offset(range.start),
                    len: range.end - range.start,
                    is_past_end: true,
                });
            }
        }
        Ok(orphans)
    }

    /// Removes all [orphans](Self::orphans), durably. The chunks of the file that they took are
    /// free, and the file is truncated.
    pub fn remove_orphans(&self) -> Result<()> {
        self.check_changeable()?;
        let _one_at_a_time = self.one_at_a_time()?;
        self.begin_locked()?;
        let unused = self.space.orphans(self.shows_holes)?;
        self.space.drop_orphans();
        let len = self.len.load(Ordering::SeqCst);
        let end = self.geometry.max_sectors * u64::from(self.geometry.block);
        let removed = self.clear(len, end).and_then(|()| {
            unused.into_iter().try_for_each(|run| {
                let end = run.end.min(self.file.info().len);
                self.file
                    .discard(run.start.min(end)..end, AfterDiscard::Zeros)
            })?;
            self.commit(Vec::new())
        });
        self.failed.record(removed)
    }

    /// Makes the orphan at byte `place` of the file the chunk `number` of the disk, which must not
    /// be stored. Durable on return. Returns true if its bitmap says that it was partly written, which
    /// it then is again; the caller must make sure that the bitmap is not older than the chunk.
    /// [`Kind::Invalid`](crate::Kind) if it cannot be at that place.
    pub(crate) fn restore_chunk(&self, place: u64, number: u64) -> Result<bool> {
        self.check_changeable()?;
        let (bytes, chunk) = (self.geometry.chunk_bytes(), DiskChunk(number));
        let invalid = || Error::invalid(LAYER, format!("invalid offset {place} of a chunk"));
        let is_inside = self.geometry.start(chunk) < self.len.load(Ordering::SeqCst);
        if !place.is_multiple_of(bytes) || !is_inside {
            return Err(invalid());
        }
        let _one_at_a_time = self.one_at_a_time()?;
        if self.tables.entry(chunk)? != ChunkEntry::Uninit {
            return Err(invalid());
        }
        // A bitmap counts only for a partly written chunk, and may be stale for others.
        let blocks = 0..self.geometry.blocks_per_chunk();
        let mask = self.tables.mask(chunk).ok();
        let mask = mask.filter(|mask| !mask.is_full() && !mask.is(blocks, BlockState::Uninit));
        let is_partial = mask.is_some();
        let found = FileChunk(place / bytes);
        if !self.space.claim(found) {
            return Err(invalid());
        }
        self.begin_locked()?;
        let entry = match is_partial {
            true => ChunkEntry::Partial(found),
            false => ChunkEntry::Full(found),
        };
        let mask = mask.map(|mask| (*mask).clone());
        let restored = self
            .tables
            .set(chunk, entry, mask, &self.space)
            .and_then(|()| self.commit(Vec::new()));
        self.failed.record(restored).map(|()| is_partial)
    }

    /// Returns the stored chunks past the end of the disk, without the metadata, and their places.
    fn chunks_beyond(&self) -> Result<Vec<(DiskChunk, FileChunk)>> {
        let end = self.len.load(Ordering::SeqCst);
        let described = self.described().chunks.clone();
        let mut beyond = Vec::new();
        for (table, _) in self.tables.directory() {
            self.tables.each_entry(table, &mut |entry, raw| {
                let EntryKind::Data(chunk) = self.geometry.entry_kind(table, entry) else {
                    return;
                };
                if self.geometry.start(chunk) < end || described.contains(&chunk) {
                    return;
                }
                let place = ChunkEntry::parse(raw).ok().and_then(ChunkEntry::chunk);
                beyond.extend(place.map(|place| (chunk, place)));
            })?;
        }
        Ok(beyond)
    }

    /// Returns the first chunk of the file after the header and the directories.
    fn first_chunk(&self) -> FileChunk {
        self.geometry.first_chunk(&self.head.lock().directories)
    }

    fn check_changeable(&self) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.failed.check(LAYER)
    }

    fn one_at_a_time(&self) -> Result<MutexGuard<'_, ()>> {
        let guard = self.flushing.lock();
        self.failed.check(LAYER)?;
        Ok(guard)
    }
}

impl BlockDevice for Asif {
    fn info(&self) -> Info {
        let block = if self.geometry.block.is_multiple_of(4096) {
            4096
        } else {
            512
        };
        let len = self.len.load(Ordering::SeqCst);
        let discard = self.geometry.chunk_bytes();
        Info {
            len,
            block,
            write: self.file.info().write,
            discard,
            access: self.access,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.read(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.check_changeable()?;
        self.begin()?;
        self.write(offset, buf)?;
        self.flush_if_over_limit()
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        self.check_changeable()?;
        self.begin()?;
        self.drop_range(range, leave)?;
        self.flush_if_over_limit()
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        self.extent(range)
    }

    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let _one_at_a_time = self.one_at_a_time()?;
        if !self.begun.load(Ordering::Acquire) {
            // Nothing was changed, and a commit would truncate the file: data after its last chunk is
            // kept from the first change on.
            return self.failed.record(self.file.flush());
        }
        self.failed
            .record(self.relocate_some().and_then(|held| self.commit(held)))
    }

    /// `len` must be a whole number of blocks, not zero, and leave room for the metadata. The
    /// change is durable on return. New bytes of a layer are holes, which show the layer below.
    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        let _one_at_a_time = self.one_at_a_time()?;
        self.resize(len, len..len)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        self.file_range_of_chunk(range)
    }
}

/// Returns the number of blocks of a disk of `len` bytes. Fails if `len` is zero or not a multiple
/// of `block`.
fn blocks_of(block: u32, len: u64) -> Result<u64> {
    if len == 0 || !len.is_multiple_of(u64::from(block)) {
        return Err(Error::invalid(
            LAYER,
            format!("{len} bytes are not a whole number of blocks of {block} bytes"),
        ));
    }
    Ok(len / u64::from(block))
}
