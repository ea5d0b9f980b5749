//! Pages of one file in memory or on the local disk, over its stored bytes.

use crate::size::{narrow, to_usize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::buffers::{Buffer, PAGE};
use super::cache::{Block, Key};
use super::layout::{FileState, ObjectId, Part, Plain};
use super::page_cache::{ByteCounts, PageCache};

/// A cached page: in memory, on the local disk, in both places, or zeros, which need none.
#[derive(Debug)]
pub(super) struct Page {
    /// [`PAGE`] bytes in memory.
    pub(super) bytes: Option<Arc<Buffer>>,
    /// The block on the local disk; for clean pages the cache itself records it.
    pub(super) block: Option<Arc<Block>>,
    pub(super) state: PageState,
    pub(super) last_use: LastUse,
}

/// The time of the last use of a page, by the logical clock of the budget.
#[derive(Debug)]
pub(super) struct LastUse(AtomicU64);

impl LastUse {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

/// The state of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageState {
    /// Stored elsewhere; it can be evicted.
    Clean,
    /// Being stored in an object, and not changed since that began.
    Leaving,
    /// Stored nowhere else.
    Dirty,
}

/// The contents of a page.
#[derive(Debug, Clone)]
pub(super) enum PageData {
    Zeros,
    /// In memory, and in a block too, if there is one.
    Memory(Arc<Buffer>, Option<Arc<Block>>),
    Disk(Arc<Block>),
}

/// The source of bytes that are not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Zeros,
    /// This object, from this offset.
    Object(ObjectId, u64),
    /// The plain object, from this offset.
    Plain(u64),
}

/// The current state of a file. Its pages are counted in the cache of the bundle.
#[derive(Debug)]
pub(super) struct Pages {
    cache: Arc<PageCache>,
    /// Its stored state, without the pages.
    pub(super) base: FileState,
    pub(super) pages: BTreeMap<u64, Page>,
    /// Numbers of parts that have dirty pages.
    pub(super) dirty: BTreeSet<u64>,
    /// A number that changes with every change.
    pub(super) version: u64,
    /// The minimum length since the last commit: committed data past it is no longer visible.
    pub(super) least: u64,
    /// The cache key of the plain object.
    pub(super) plain_key: PlainKey,
}

/// The cache key of a plain object, computed when it is first needed.
#[derive(Debug, Default)]
pub(super) struct PlainKey(OnceLock<Key>);

impl PlainKey {
    pub(super) fn get(&self, name: &str, plain: &Plain) -> Key {
        *self.0.get_or_init(|| Key::of_plain(name, plain, 0))
    }
}

impl Page {
    fn zeros(now: u64) -> Self {
        Self {
            bytes: None,
            block: None,
            state: PageState::Dirty,
            last_use: LastUse(AtomicU64::new(now)),
        }
    }

    /// Returns true if its bytes need not stay in memory.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.state == PageState::Clean || (self.block.is_some() && self.bytes.is_some())
    }

    fn count(&self) -> ByteCounts {
        let bytes = |counts: bool| {
            if counts {
                i64::from(narrow::<u32>(PAGE))
            } else {
                0
            }
        };
        let (in_memory, on_disk, changed) = (
            self.bytes.is_some(),
            self.block.is_some(),
            self.state != PageState::Clean,
        );
        ByteCounts {
            used: bytes(in_memory),
            dirty: bytes(in_memory && changed && !on_disk),
            spilled: bytes(on_disk && changed),
        }
    }

    pub(super) fn held(&self) -> PageData {
        match (&self.bytes, &self.block) {
            (Some(bytes), _) => PageData::Memory(bytes.clone(), self.block.clone()),
            (None, Some(block)) => PageData::Disk(block.clone()),
            (None, None) => PageData::Zeros,
        }
    }

    /// Returns true if its bytes, if it has any, are in memory and nowhere else.
    pub(super) fn is_memory_only(&self) -> bool {
        self.state == PageState::Dirty && self.block.is_none()
    }

    /// Returns the block with its bytes, if they are not in memory.
    pub(super) fn only_on_disk(&self) -> Option<&Arc<Block>> {
        self.block.as_ref().filter(|_| self.bytes.is_none())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.invalidate_range(0..u64::MAX);
    }
}

impl Pages {
    /// Creates the state of a file that is stored as `base`, without pages.
    pub(super) fn new(cache: &Arc<PageCache>, base: FileState) -> Self {
        Self {
            cache: cache.clone(),
            pages: BTreeMap::new(),
            dirty: BTreeSet::new(),
            version: base.version(),
            least: base.len,
            plain_key: PlainKey::default(),
            base,
        }
    }

    fn insert(&mut self, number: u64, page: Page) {
        let after = page.count();
        let before = self.pages.insert(number, page);
        self.cache.count(
            before.map_or_else(ByteCounts::default, |page| page.count()),
            after,
        );
    }

    /// Changes a page, if there is one.
    fn alter(&mut self, number: u64, alter: impl FnOnce(&mut Page)) {
        if let Some(page) = self.pages.get_mut(&number) {
            let before = page.count();
            alter(page);
            self.cache.count(before, page.count());
        }
    }

    /// Returns the source of the page, and the number of bytes from its start that come from there:
    /// at least 1.
    pub(super) fn source(&self, page: u64) -> (Source, u64) {
        let part_len = self.cache.part();
        let at = page * PAGE;
        let (index, within) = (at / part_len, at % part_len);
        let rest = part_len - within;
        match self.base.parts.get(&index) {
            Some(Part {
                object: Some(object),
                offset,
                len,
            }) if within < *len => (Source::Object(*object, offset + within), len - within),
            None => match &self.base.plain {
                Some(plain) if at < plain.len => (Source::Plain(at), rest.min(plain.len - at)),
                _ => (Source::Zeros, rest),
            },
            Some(_) => (Source::Zeros, rest),
        }
    }

    /// Inserts a fetched page, unless there is one.
    pub(super) fn insert_clean(&mut self, page: u64, bytes: Buffer) {
        if !self.pages.contains_key(&page) {
            let clean = Page {
                bytes: Some(Arc::new(bytes)),
                state: PageState::Clean,
                ..Page::zeros(self.cache.tick())
            };
            self.insert(page, clean);
        }
    }

    /// Writes within a page that is in memory or zeros, or a whole page.
    pub(super) fn write(&mut self, page: u64, within: Range<u64>, bytes: &[u8]) {
        let now = self.cache.tick();
        let known = self.pages.entry(page).or_insert_with(|| Page::zeros(now));
        let before = known.count();
        let buffers = self.cache.buffers();
        let contents = known.bytes.get_or_insert_with(|| {
            Arc::new(if within == (0..PAGE) {
                buffers.acquire()
            } else {
                buffers.zeros()
            })
        });
        Arc::make_mut(contents)[to_usize(within.start)..to_usize(within.end)]
            .copy_from_slice(bytes);
        (known.block, known.state) = (None, PageState::Dirty);
        known.last_use.set(now);
        self.cache.count(before, known.count());
        self.changed(page);
    }

    /// Zeros a whole page.
    pub(super) fn clear(&mut self, page: u64) {
        self.insert(page, Page::zeros(self.cache.tick()));
        self.changed(page);
    }

    fn changed(&mut self, page: u64) {
        self.dirty.insert(page * PAGE / self.cache.part());
        self.version = self.version.wrapping_add(1);
    }

    /// Zeros a whole part and drops its pages.
    pub(super) fn clear_part(&mut self, index: u64) {
        self.invalidate_range(self.cache.pages_of(index));
        self.base.parts.insert(
            index,
            Part {
                object: None,
                offset: 0,
                len: 0,
            },
        );
        self.dirty.remove(&index);
        self.version = self.version.wrapping_add(1);
    }

    /// Returns the page that truncation to `len` would change partially, if it is only on the local
    /// disk.
    pub(super) fn to_recall(&self, len: u64) -> Option<u64> {
        let cut = len / PAGE;
        let known = self
            .pages
            .get(&cut)
            .filter(|_| len < self.base.len && !len.is_multiple_of(PAGE))?;
        known.only_on_disk().map(|_| cut)
    }

    /// Changes the length; truncated bytes read as zeros if the file grows again. No page may need
    /// to [be recalled](Self::to_recall).
    pub(super) fn set_len(&mut self, len: u64) {
        let part_len = self.cache.part();
        if len < self.base.len {
            self.invalidate_range(len.div_ceil(PAGE)..u64::MAX);
            let rest = to_usize(len % PAGE);
            if rest > 0 {
                self.alter(len / PAGE, |page| {
                    if let Some(bytes) = &mut page.bytes {
                        Arc::make_mut(bytes)[rest..].fill(0);
                        page.block = None;
                    }
                });
            }
            self.dirty.retain(|index| index * part_len < len);
            self.base.parts.retain(|index, part| {
                part.len = part.len.min(len.saturating_sub(index * part_len));
                index * part_len < len
            });
            if let Some(plain) = &mut self.base.plain {
                plain.len = plain.len.min(len);
            }
        }
        self.least = self.least.min(len);
        self.base.len = len;
        self.version = self.version.wrapping_add(1);
    }

    fn invalidate_range(&mut self, pages: Range<u64>) {
        let gone: Vec<u64> = self.pages.range(pages).map(|(page, _)| *page).collect();
        for page in gone.iter().filter_map(|page| self.pages.remove(page)) {
            self.cache.count(page.count(), ByteCounts::default());
        }
    }

    /// Evicts pages last used before `before` whose bytes are stored elsewhere too.
    pub(super) fn evict_used_before(&mut self, before: u64) {
        self.pages.retain(|_, page| {
            if !page.is_elsewhere() || page.last_use.get() >= before {
                return true;
            }
            let counted = page.count();
            page.bytes = None;
            let stays = page.state != PageState::Clean;
            let left = if stays {
                page.count()
            } else {
                ByteCounts::default()
            };
            self.cache.count(counted, left);
            stays
        });
    }

    /// Records that a block holds the bytes of a page, if they have not changed since. The page is
    /// dropped from memory unless it `stays`.
    pub(super) fn spilled(
        &mut self,
        page: u64,
        bytes: &Arc<Buffer>,
        block: Arc<Block>,
        stays: bool,
    ) {
        self.alter(page, |known| {
            let is_same = known
                .bytes
                .as_ref()
                .is_some_and(|now| Arc::ptr_eq(now, bytes));
            if !is_same || known.state == PageState::Clean || known.block.is_some() {
                return;
            }
            known.block = Some(block);
            if !stays && known.state == PageState::Dirty {
                known.bytes = None;
            }
        });
    }

    /// Records that the bytes of a block are in memory again, if the page still refers to that
    /// block.
    pub(super) fn recalled(&mut self, page: u64, block: &Arc<Block>, bytes: Buffer) {
        let now = self.cache.tick();
        self.alter(page, |known| {
            let found = known.only_on_disk();
            if found.is_some_and(|found| Arc::ptr_eq(found, block)) {
                known.bytes = Some(Arc::new(bytes));
                known.last_use.set(now);
            }
        });
    }

    /// Restores pages that were flushed to blocks and are not in the store.
    pub(super) fn replay(&mut self, pages: &[(u64, Option<Arc<Block>>)]) {
        for (number, block) in pages {
            let page = Page {
                block: block.clone(),
                ..Page::zeros(0)
            };
            self.insert(*number, page);
            self.dirty.insert(number * PAGE / self.cache.part());
        }
    }

    /// Returns the pages in memory that are neither in the store nor in a block.
    pub(super) fn without_block(&self) -> Vec<(u64, Arc<Buffer>)> {
        let pages = self
            .changed_pages()
            .filter(|(_, page)| page.block.is_none());
        pages
            .filter_map(|(number, page)| Some((number, page.bytes.clone()?)))
            .collect()
    }

    /// Returns the pages that are not in the store.
    pub(super) fn changed_pages(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.pages
            .iter()
            .filter(|(_, page)| page.state != PageState::Clean)
            .map(|(number, page)| (*number, page))
    }

    /// Returns the pages of a part and marks them as being stored. `None`: nothing in it is dirty.
    pub(super) fn begin_upload(&mut self, index: u64) -> Option<Vec<(u64, PageData)>> {
        if !self.dirty.remove(&index) {
            return None;
        }
        let pages = self.pages.range_mut(self.cache.pages_of(index));
        Some(
            pages
                .map(|(number, page)| {
                    if page.state == PageState::Dirty {
                        page.state = PageState::Leaving;
                    }
                    (*number, page.held())
                })
                .collect(),
        )
    }

    /// Ends the storing of pages, successful or not. Successfully stored pages that are not in
    /// memory are dropped.
    pub(super) fn end_upload(&mut self, index: u64, arrived: Option<Part>) {
        let mut gone = Vec::new();
        for (number, page) in self.pages.range_mut(self.cache.pages_of(index)) {
            if page.state == PageState::Leaving {
                let before = page.count();
                if arrived.is_some() {
                    gone.extend(page.only_on_disk().map(|_| *number));
                    (page.state, page.block) = (PageState::Clean, None);
                } else {
                    page.state = PageState::Dirty;
                }
                self.cache.count(before, page.count());
            }
        }
        // Without bytes they would be taken for zeros; the object has them.
        gone.iter()
            .for_each(|number| drop(self.pages.remove(number)));
        match arrived {
            Some(part) => drop(self.base.parts.insert(index, part)),
            None => drop(self.dirty.insert(index)),
        }
    }

    /// Returns the state that is about to be committed.
    pub(super) fn committing(&mut self) -> FileState {
        self.least = self.base.len;
        self.base.clone()
    }

    /// Replaces the locations in `before`, which was committed, by those in `now`; later changes
    /// are kept.
    pub(super) fn moved(&mut self, before: &FileState, now: &FileState) {
        let part_len = self.cache.part();
        self.base
            .parts
            .retain(|index, part| before.parts.get(index) != Some(part));
        // Bytes truncated since must not become visible again.
        for (index, part) in now.parts.range(..self.least.div_ceil(part_len)) {
            let len = part.len.min(self.least - index * part_len);
            self.base
                .parts
                .entry(*index)
                .or_insert(Part { len, ..*part });
        }
        self.plain_key = PlainKey::default();
        self.base.plain = now.plain.as_ref().map(|plain| Plain {
            len: plain.len.min(self.least),
            ..plain.clone()
        });
    }
}
