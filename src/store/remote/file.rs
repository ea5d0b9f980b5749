//! A file of the bundle as a device.

use std::array;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LAYER;
use super::Session;
use super::buffers::{Buffer, PAGE};
use super::cache::Key;
use super::fetch::FetchingPages;
use super::layout::{FileState, Part};
use super::names::Listed;
use super::pages::{PageData, Pages, Source};
use super::prefetch::AccessPattern;
use super::remote_state::RemoteState;
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info, is_zero,
};
use crate::size::{narrow, to_usize};
use crate::store::Put;
use crate::store::objects::SharedBytes;
use crate::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::{Error, Result};

/// Bytes written between two checks for room.
const AT_ONCE: usize = 4 << 20;

/// Number of locks for storing parts: parts whose numbers differ modulo this are stored
/// concurrently.
const LANES: usize = 8;
/// Minimum length in bytes of a sequential run whose data is kept in memory; shorter reads are
/// served from the local disk directly, as whole pages would seldom be reused.
const MIN_KEPT: u64 = 2 * PAGE;

/// A file that is open, or that has pages in memory.
#[derive(Debug)]
pub(super) struct File {
    name: String,
    pages: RwLock<Pages>,
    /// One lock per lane. One is held while a part is being stored, all while the file is truncated
    /// or parts of it are zeroed.
    leaving: [Mutex<()>; LANES],
    failed: AtomicU64,
    listed: Listed,
    access_pattern: AccessPattern,
    fetching: FetchingPages,
}

impl File {
    pub(super) fn new(name: &str, shared: &Arc<RemoteState>, base: FileState) -> Self {
        Self {
            name: name.to_owned(),
            pages: RwLock::new(Pages::new(&shared.page_cache, base)),
            leaving: Default::default(),
            failed: AtomicU64::new(0),
            listed: Listed::default(),
            access_pattern: AccessPattern::default(),
            fetching: FetchingPages::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the lists of names with changes in which the file is.
    pub(super) fn listed(&self) -> &Listed {
        &self.listed
    }

    pub(super) fn access_pattern(&self) -> &AccessPattern {
        &self.access_pattern
    }

    /// Returns the pages that are being fetched.
    pub(super) fn fetching(&self) -> &FetchingPages {
        &self.fetching
    }

    pub(super) fn pages(&self) -> RwLockReadGuard<'_, Pages> {
        self.pages.read()
    }

    pub(super) fn pages_mut(&self) -> RwLockWriteGuard<'_, Pages> {
        self.pages.write()
    }

    fn lane(&self, part: usize) -> MutexGuard<'_, ()> {
        self.leaving[part % LANES].lock()
    }

    /// Waits until no part is being stored, and prevents further ones while this is held.
    fn staying(&self) -> [MutexGuard<'_, ()>; LANES] {
        array::from_fn(|lane| self.lane(lane))
    }

    /// Waits for parts that are being stored; then returns the number of
    /// [failures](Self::failures).
    pub(super) fn wait_for_parts(&self) -> u64 {
        drop(self.staying());
        self.failures()
    }

    /// Returns the number of parts that failed to be stored.
    pub(super) fn failures(&self) -> u64 {
        self.failed.load(Ordering::SeqCst)
    }

    /// Stores a part that has dirty pages as a new object.
    pub(super) fn store_part(&self, shared: &RemoteState, index: u64) -> Result<()> {
        let _staying = shared.staying();
        let _leaving = self.lane(to_usize(index));
        let (start, part_len) = (index.saturating_mul(shared.part), shared.part);
        let (pages, len, base) = {
            let mut inner = self.pages_mut();
            let Some(pages) = inner.begin_upload(index) else {
                return Ok(());
            };
            let len = inner.base.len.saturating_sub(start).min(part_len);
            let first = start / PAGE;
            let complete = pages.len() as u64 == len.div_ceil(PAGE);
            (pages, len, (!complete).then(|| inner.source(first)))
        };
        let stored = self.store_bytes(shared, start, len, base, &pages);
        self.pages_mut()
            .end_upload(index, stored.as_ref().ok().copied());
        if stored.is_err() {
            self.failed.fetch_add(1, Ordering::SeqCst);
        }
        stored.map(drop)
    }

    /// Stores the pages, over the part's stored bytes, as an object.
    fn store_bytes(
        &self,
        shared: &RemoteState,
        start: u64,
        len: u64,
        base: Option<(Source, u64)>,
        pages: &[(u64, PageData)],
    ) -> Result<Part> {
        let stored = base.map_or(0, |(_, rest)| rest.min(len));
        let on_disk = pages
            .iter()
            .filter(|(_, held)| matches!(held, PageData::Disk(_)))
            .count() as u64;
        let _counted = shared.page_cache.charge(stored + on_disk * PAGE);
        let mut below = shared.page_cache.buffers().take_for(stored);
        if let Some((source, _)) = base {
            self.fetch(shared, source, &mut below, stored, shared.connections)?;
        }
        // Missing pages are zeros.
        let mut all: Vec<Option<Arc<Buffer>>> =
            below.into_iter().map(|page| Some(Arc::new(page))).collect();
        all.resize(to_usize(len.div_ceil(PAGE)), None);
        for (page, held) in pages {
            let Some(to) = all.get_mut(to_usize(page - start / PAGE)) else {
                continue;
            };
            *to = match held {
                PageData::Zeros => None,
                PageData::Memory(bytes, _) => Some(bytes.clone()),
                PageData::Disk(block) => Some(Arc::new(self.bytes_of(shared, block)?)),
            };
        }
        let mut zeros = None;
        let pieces = (0..).step_by(to_usize(PAGE)).zip(all).map(|(at, page)| {
            let page = page.unwrap_or_else(|| {
                zeros
                    .get_or_insert_with(|| Arc::new(shared.page_cache.buffers().zeros()))
                    .clone()
            });
            SharedBytes::new(page, to_usize((len - at).min(PAGE)))
        });
        let pieces: Vec<SharedBytes> = pieces.collect();
        if pieces.iter().all(|piece| is_zero(piece.as_ref())) {
            return Ok(Part {
                object: None,
                offset: 0,
                len: 0,
            });
        }
        let object = shared.new_object();
        shared
            .objects
            .put_gathered(&object.key(), pieces.clone(), Put::Replace)?;
        if let Some(cache) = &shared.cache {
            let key = Key::of_object(object, 0);
            for (n, piece) in (0..).zip(&pieces) {
                let held = pages
                    .binary_search_by_key(&(start / PAGE + n), |(page, _)| *page)
                    .map(|at| &pages[at].1);
                match held {
                    Ok(PageData::Memory(_, Some(block)) | PageData::Disk(block)) => {
                        cache.adopt(key.after(n * PAGE), piece.as_ref().len(), block.clone());
                    }
                    _ => cache.insert_clean(key.after(n * PAGE), piece.as_ref()),
                }
            }
        }
        Ok(Part {
            object: Some(object),
            offset: 0,
            len,
        })
    }

    fn read_at(
        self: &Arc<Self>,
        shared: &Arc<RemoteState>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = self
            .info(Access::ReadOnly)
            .check(LAYER, offset, buf.len() as u64)?;
        let run = self.access_pattern.follow(offset, end - offset);
        self.read_ahead(shared, end, run);
        let mut at = offset;
        while at < end {
            let wanted = {
                let inner = self.pages();
                self.info_of(&inner, Access::ReadOnly)
                    .check(LAYER, offset, buf.len() as u64)?;
                let now = shared.page_cache.tick();
                loop {
                    let (page, within) = (at / PAGE, to_usize(at % PAGE));
                    let n = to_usize((PAGE - at % PAGE).min(end - at));
                    let out = &mut buf[to_usize(at - offset)..][..n];
                    match inner.pages.get(&page) {
                        Some(known) => {
                            known.last_use.set(now);
                            match &known.bytes {
                                Some(bytes) => out.copy_from_slice(&bytes[within..within + n]),
                                None if known.block.is_some() => break Some((page, true)),
                                None => out.fill(0),
                            }
                        }
                        None if inner.source(page).0 == Source::Zeros => out.fill(0),
                        None if run < MIN_KEPT && self.read_cached(shared, &inner, at, out) => {}
                        None => break Some((page, false)),
                    }
                    at += n as u64;
                    if at == end {
                        break None;
                    }
                }
            };
            match wanted {
                Some((page, true)) => self.recall(shared, page)?,
                Some((page, false)) => self.load(shared, page, (end - 1) / PAGE, run)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Changes the bytes of `range`, page by page: to `bytes`, or to zeros.
    fn change(
        &self,
        shared: &Arc<RemoteState>,
        range: Range<u64>,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let (page, within) = (at / PAGE, at % PAGE);
            let n = (PAGE - within).min(range.end - at);
            let mut inner = self.pages_mut();
            self.info_of(&inner, Access::ReadWrite).check(
                LAYER,
                range.start,
                range.end - range.start,
            )?;
            let known = inner.pages.get(&page);
            let on_disk = known.is_some_and(|known| known.only_on_disk().is_some());
            let known = known.is_some() && !on_disk;
            let zeros = !known && !on_disk && inner.source(page).0 == Source::Zeros;
            let whole = within == 0 && (n == PAGE || at + n == inner.base.len);
            if !(known || zeros || whole) {
                drop(inner);
                if on_disk {
                    self.recall(shared, page)?
                } else {
                    self.load(shared, page, page, 0)?
                }
                continue;
            }
            match bytes {
                Some(bytes) => {
                    let bytes = &bytes[to_usize(at - range.start)..][..to_usize(n)];
                    inner.write(page, within..within + n, bytes);
                }
                None if zeros => {}
                None if whole => inner.clear(page),
                None => inner.write(page, within..within + n, &vec![0; to_usize(n)]),
            }
            drop(inner);
            at += n;
        }
        shared.mark_dirty(self);
        Ok(())
    }

    fn discard(&self, shared: &Arc<RemoteState>, range: Range<u64>) -> Result<()> {
        let part = shared.part;
        let (first, last) = (range.start.div_ceil(part), range.end / part);
        if first >= last {
            return self.change(shared, range, None);
        }
        self.change(shared, range.start..first * part, None)?;
        {
            let _staying = self.staying();
            let mut inner = self.pages_mut();
            self.info_of(&inner, Access::ReadWrite).check(
                LAYER,
                range.start,
                range.end - range.start,
            )?;
            (first..last).for_each(|index| inner.clear_part(index));
        }
        self.change(shared, last * part..range.end, None)
    }

    fn info_of(&self, inner: &Pages, access: Access) -> Info {
        Info {
            len: inner.base.len,
            block: 512,
            write: narrow(PAGE),
            discard: PAGE,
            access,
        }
    }

    fn info(&self, access: Access) -> Info {
        self.info_of(&self.pages(), access)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        let inner = self.pages();
        self.info_of(&inner, Access::ReadOnly)
            .check_range(LAYER, &range)?;
        if range.is_empty() {
            return Err(Error::invalid(
                LAYER,
                "cannot report an extent: the requested range is empty",
            )
            .at(range.start));
        }
        let kind_at = |page: u64| match inner.pages.get(&page) {
            Some(known) if known.bytes.is_some() || known.block.is_some() => ExtentKind::Data,
            Some(_) => ExtentKind::Zero,
            None if inner.source(page).0 == Source::Zeros => ExtentKind::Zero,
            None => ExtentKind::Data,
        };
        let kind = kind_at(range.start / PAGE);
        let last = range.end.div_ceil(PAGE);
        let end = (range.start / PAGE + 1..last)
            .find(|page| kind_at(*page) != kind)
            .map_or(range.end, |page| page * PAGE);
        Ok(Extent {
            kind,
            len: end.min(range.end) - range.start,
        })
    }
}

/// An open handle of a file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    pub(super) file: Arc<File>,
    pub(super) access: Access,
}

impl Opened {
    fn shared(&self) -> &Arc<RemoteState> {
        &self.session.shared
    }
}

impl BlockDevice for Opened {
    fn info(&self) -> Info {
        self.file.info(self.access)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_at(self.shared(), offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.info().check(LAYER, offset, buf.len() as u64)?;
        self.shared().check_changeable()?;
        for (at, bytes) in (offset..).step_by(AT_ONCE).zip(buf.chunks(AT_ONCE)) {
            self.shared().store_behind();
            self.shared().make_room()?;
            self.file
                .change(self.shared(), at..at + bytes.len() as u64, Some(bytes))?;
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.info().check_range(LAYER, &range)?;
        self.shared().check_changeable()?;
        self.shared().make_room()?;
        self.file.discard(self.shared(), range)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.file.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.shared().flush()
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.shared().check_changeable()?;
        let _staying = self.file.staying();
        loop {
            let mut pages = self.file.pages_mut();
            let Some(page) = pages.to_recall(len) else {
                pages.set_len(len);
                break;
            };
            drop(pages);
            self.file.recall(self.shared(), page)?;
        }
        self.shared().mark_dirty(&self.file);
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
