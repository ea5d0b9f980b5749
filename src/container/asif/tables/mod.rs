//! The tables in memory: the entries of the chunks of the disk, loaded on demand page by page.
//!
//! Reads run in parallel: the state lock is never held during I/O. Changes stay in memory until
//! [`commit`](super::commit) has written them.
//!
//! * [`masks`]: block states of partly written chunks, in bitmaps. [`changes`]: collection of the
//!   changes that a commit writes.
//! * [`moving`]: relocation of tables and bitmaps within the file.

mod changes;
mod masks;
mod moving;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use zerocopy::big_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use self::changes::NewBitmap;
use self::masks::MaskSlot;
pub(super) use self::masks::UNUSED_MASK;
use super::LAYER;
use super::cache::Cache;
use super::geometry::{Geometry, TablePlace};
use super::layout::{ChunkEntry, DiskChunk, FileChunk, NUMBER, entry_offset};
use super::mask::Mask;
use super::space::Space;
use crate::device::units::UnitLocks;
use crate::device::{BlockDevice, regions};
use crate::size::to_usize;
use crate::sync::RwLock;
use crate::{Error, Result};

const PER_PAGE: u32 = 512;
const PAGE_BYTES: u64 = PER_PAGE as u64 * NUMBER;
/// Maximum number of cached pages, 16 MiB. Each covers 512 chunks: enough for a working set of 2
/// TiB.
const PAGES: usize = 4096;
/// Maximum size of cached masks in bytes.
const MASK_BYTES: usize = 8 << 20;
/// Minimum number of cached pages and of cached masks, however many images share the memory.
const MIN_KEPT: usize = 64;
/// Error message about a chunk number that would start past byte 2^63.
const PAST_ANY_FILE: &str = "invalid chunk number: the chunk would be past byte 2^63";

/// A part of a table, as on disk.
type TablePage = [U64; PER_PAGE as usize];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PageId {
    table: u32,
    page: u32,
}

impl PageId {
    fn of(table: u32, entry: u32) -> Self {
        Self {
            table,
            page: entry / PER_PAGE,
        }
    }

    fn unit(self) -> u64 {
        u64::from(self.table) << 32 | u64::from(self.page)
    }
}

#[derive(Debug)]
pub(super) struct Tables {
    file: Arc<dyn BlockDevice>,
    geometry: Geometry,
    state: RwLock<TableState>,
    /// Locks of the pages: held to read a page, so that it is read once.
    paging: UnitLocks,
    /// Locks of the tables: shared while a page or a mask of a table is read, exclusive while the
    /// table, or a bitmap, is created or moved.
    moving: UnitLocks,
}

#[derive(Debug)]
struct TableState {
    directory: BTreeMap<u32, FileChunk>,
    directory_changed: bool,
    pages: Cache<PageId, Arc<TablePage>>,
    masks: Cache<DiskChunk, MaskSlot>,
    /// The full chunks whose mask on disk needs no change any more, a bit for each entry of a page.
    filled: HashMap<PageId, [u64; PER_PAGE as usize / 64]>,
    /// Bitmap entries that are not on disk yet. They must be durable before any mask in these
    /// bitmaps is referenced.
    new_bitmaps: Vec<NewBitmap>,
    bitmaps: u64,
}

impl Tables {
    pub(super) fn new(
        file: Arc<dyn BlockDevice>,
        geometry: Geometry,
        directory: BTreeMap<u32, FileChunk>,
        bitmaps: u64,
    ) -> Self {
        let masks = MASK_BYTES / geometry.mask_bytes().max(64) as usize;
        let state = TableState {
            directory,
            directory_changed: false,
            pages: Cache::new(PAGES),
            masks: Cache::new(masks),
            filled: HashMap::new(),
            new_bitmaps: Vec::new(),
            bitmaps,
        };
        Self {
            file,
            geometry,
            state: RwLock::new(state),
            paging: UnitLocks::default(),
            moving: UnitLocks::default(),
        }
    }

    /// Reduces the caches so that `images` of the kind need no more memory than a single one.
    pub(super) fn share(&mut self, images: usize) {
        let state = self.state.get_mut();
        let part = |limit: usize| (limit / images.max(1)).max(MIN_KEPT.min(limit));
        state.pages.set_limit(part(state.pages.limit()));
        state.masks.set_limit(part(state.masks.limit()));
    }

    /// Returns the number of tables and of bitmaps.
    pub(super) fn count(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.directory.len() as u64, state.bitmaps)
    }

    pub(super) fn entry(&self, chunk: DiskChunk) -> Result<ChunkEntry> {
        let place = self.geometry.table_place(chunk);
        let raw = self.raw_entry(place.table, place.entry)?;
        let entry = ChunkEntry::parse(raw).map_err(|wrong| self.wrong(&place, wrong))?;
        // Opening an image rejects such a number, but a check continues.
        match entry.chunk() {
            Some(chunk) if !self.geometry.can_be(chunk) => Err(self.wrong(&place, PAST_ANY_FILE)),
            _ => Ok(entry),
        }
    }

    fn raw_entry(&self, table: u32, entry: u32) -> Result<u64> {
        loop {
            {
                let state = self.state.read();
                if !state.directory.contains_key(&table) {
                    return Ok(0);
                }
                if let Some(page) = state.pages.get(PageId::of(table, entry)) {
                    return Ok(page[(entry % PER_PAGE) as usize].get());
                }
            }
            self.page_in(PageId::of(table, entry))?;
        }
    }

    fn wrong(&self, place: &TablePlace, what: &'static str) -> Error {
        let table = self
            .state
            .read()
            .directory
            .get(&place.table)
            .map_or(0, |chunk| self.geometry.in_file(*chunk, 0..0).start);
        Error::corrupt(LAYER, table + entry_offset(place.entry), what)
    }

    /// Returns the number of chunks from `chunk` up to `end` that have the same entry without data
    /// as `chunk`. The count may be too small.
    pub(super) fn run_without_data(&self, chunk: DiskChunk, end: DiskChunk) -> Result<u64> {
        let place = self.geometry.table_place(chunk);
        let first = self.raw_entry(place.table, place.entry)?;
        let state = self.state.read();
        let until = match state.directory.range(place.table..).next() {
            Some((table, _)) if *table == place.table => {
                let Some(page) = state.pages.get(PageId::of(place.table, place.entry)) else {
                    return Ok(1);
                };
                let rest = &page[(place.entry % PER_PAGE) as usize..];
                let same = rest.iter().take_while(|entry| entry.get() == first).count() as u64;
                // Bitmap entries are between groups, so the run ends with the group.
                let in_group = u64::from(place.bitmap_entry - place.entry);
                chunk.0 + same.min(in_group).max(1)
            }
            Some((table, _)) => u64::from(*table) * self.geometry.chunks_per_table(),
            None => end.0,
        };
        Ok(until.min(end.0).max(chunk.0 + 1) - chunk.0)
    }

    /// Loads a page unless it is cached or its table does not exist.
    fn page_in(&self, id: PageId) -> Result<()> {
        let _stays = self.moving.shared(u64::from(id.table));
        self.read_page(id)
    }

    /// Does the same as [`page_in`](Self::page_in). The caller must hold the lock of the table.
    fn read_page(&self, id: PageId) -> Result<()> {
        let _alone = self.paging.exclusive(id.unit());
        let table = {
            let state = self.state.read();
            match state.directory.get(&id.table) {
                Some(table) if state.pages.get(id).is_none() => *table,
                _ => return Ok(()),
            }
        };
        let mut page: TablePage = FromZeros::new_zeroed();
        let at = self.page_place(table, id);
        self.read_padded(
            at.start,
            &mut page.as_mut_bytes()[..to_usize(at.end - at.start)],
        )?;
        self.state.write().pages.insert(id, Arc::new(page));
        Ok(())
    }

    /// Returns the file range of a page. The last page of a table may be shorter.
    fn page_place(&self, table: FileChunk, id: PageId) -> Range<u64> {
        let start = u64::from(id.page) * PAGE_BYTES;
        self.geometry.in_file(
            table,
            start..(start + PAGE_BYTES).min(self.geometry.chunk_bytes()),
        )
    }

    /// Reads from the file. Past its end a table or bitmap was never written and is zeros; `buf`
    /// must be zeroed.
    fn read_padded(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let there = to_usize(
            self.file
                .info()
                .len
                .saturating_sub(at)
                .min(buf.len() as u64),
        );
        if there == 0 {
            Ok(())
        } else {
            self.file.read_at(at, &mut buf[..there])
        }
    }

    /// Sets the entry of `chunk`, and its mask if it is partly written. The caller must hold its
    /// exclusive lock.
    pub(super) fn set(
        &self,
        chunk: DiskChunk,
        entry: ChunkEntry,
        mask: Option<Mask>,
        space: &Space,
    ) -> Result<()> {
        let place = self.geometry.table_place(chunk);
        let id = PageId::of(place.table, place.entry);
        let mask = mask.map(Arc::new);
        self.ensure_table(place.table, space)?;
        loop {
            {
                let mut state = self.state.write();
                if let Some(page) = state.pages.change(id) {
                    Arc::make_mut(page)[(place.entry % PER_PAGE) as usize] = entry.raw().into();
                    state.set_mask(chunk, mask);
                    return Ok(());
                }
            }
            self.page_in(id)?;
        }
    }

    /// Replaces the entry of `chunk`, which keeps its mask. The caller must hold its exclusive
    /// lock; its table must exist.
    pub(super) fn replace(&self, chunk: DiskChunk, entry: ChunkEntry) -> Result<()> {
        let place = self.geometry.table_place(chunk);
        let id = PageId::of(place.table, place.entry);
        loop {
            if let Some(page) = self.state.write().pages.change(id) {
                Arc::make_mut(page)[(place.entry % PER_PAGE) as usize] = entry.raw().into();
                return Ok(());
            }
            self.page_in(id)?;
        }
    }

    fn ensure_table(&self, table: u32, space: &Space) -> Result<()> {
        if self.state.read().directory.contains_key(&table) {
            return Ok(());
        }
        let _alone = self.moving.exclusive(u64::from(table));
        if self.state.read().directory.contains_key(&table) {
            return Ok(());
        }
        let chunk = self.allocate_blank(space)?;
        let mut state = self.state.write();
        state.directory.insert(table, chunk);
        state.directory_changed = true;
        Ok(())
    }

    fn allocate_blank(&self, space: &Space) -> Result<FileChunk> {
        let chunk = space.allocate()?;
        let blank = regions::blank(
            &*self.file,
            self.geometry.in_file(chunk, 0..self.geometry.chunk_bytes()),
        );
        blank
            .inspect_err(|_| space.free_chunk(chunk))
            .map(|()| chunk)
    }

    /// Calls `each` for the nonzero entries of a table, in memory or on disk, with index and value.
    pub(super) fn each_entry(&self, table: u32, each: &mut dyn FnMut(u32, u64)) -> Result<()> {
        let pages = self.geometry.entries_per_table().div_ceil(PER_PAGE);
        let mut from_file: TablePage = FromZeros::new_zeroed();
        for page in 0..pages {
            let id = PageId { table, page };
            let in_memory = self.state.read().pages.get(id).cloned();
            let place = self
                .state
                .read()
                .directory
                .get(&table)
                .map(|chunk| self.page_place(*chunk, id));
            let entries: &TablePage = match (&in_memory, place) {
                (Some(page), _) => page,
                (None, None) => return Ok(()),
                (None, Some(at)) => {
                    from_file.fill(U64::ZERO);
                    self.read_padded(
                        at.start,
                        &mut from_file.as_mut_bytes()[..to_usize(at.end - at.start)],
                    )?;
                    &from_file
                }
            };
            for (number, entry) in (page * PER_PAGE..self.geometry.entries_per_table()).zip(entries)
            {
                if entry.get() != 0 {
                    each(number, entry.get());
                }
            }
        }
        Ok(())
    }

    /// Returns the existing tables with their chunks.
    pub(super) fn directory(&self) -> BTreeMap<u32, FileChunk> {
        self.state.read().directory.clone()
    }
}

impl TableState {
    fn raw_in_memory(&self, table: u32, entry: u32) -> Option<u64> {
        Some(self.pages.get(PageId::of(table, entry))?[(entry % PER_PAGE) as usize].get())
    }
}
