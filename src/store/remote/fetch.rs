//! Fetching of bytes that are not in memory, from the local disk or the store.

use std::collections::BTreeMap;

use super::buffers::{Buffer, PAGE};
use super::cache::Key;
use super::file::File;
use super::pages::{Pages, Source};
use super::remote_state::RemoteState;
use crate::size::to_usize;
use crate::sync::{Condvar, Mutex};
use crate::{Result, parallel};

/// Maximum number of bytes that a sequential read itself fetches beyond its end; more is left to
/// [tasks](super::prefetch).
const MAX_BEYOND: u64 = 1 << 20;
/// Minimum number of bytes per connection, if a request is split over several.
const MIN_FETCH: u64 = 1 << 20;

/// Pages of a file that are being fetched: the first ones, and their ends.
#[derive(Debug, Default)]
pub(super) struct FetchingPages {
    pages: Mutex<BTreeMap<u64, u64>>,
    arrived: Condvar,
}

impl FetchingPages {
    /// Waits until no thread is fetching a page.
    fn wait_for(&self, page: u64) {
        drop(
            self.arrived
                .wait_while(self.pages.lock(), |pages| is_coming(pages, page)),
        );
    }
}

fn is_coming(pages: &BTreeMap<u64, u64>, page: u64) -> bool {
    pages
        .range(..=page)
        .next_back()
        .is_some_and(|(_, end)| page < *end)
}

/// The result of claiming a page for fetching.
pub(super) enum Claimed<'a> {
    Mine(Claim<'a>),
    /// Another thread is fetching it.
    Coming,
    /// No fetch needed: it is in memory, or zeros.
    Known,
    /// No fetch possible: it is past the end of the file.
    Past,
}

/// The exclusive right to fetch some pages, released on drop.
pub(super) struct Claim<'a> {
    coming: &'a FetchingPages,
    page: u64,
    source: Source,
    bytes: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.coming.pages.lock().remove(&self.page);
        self.coming.arrived.notify_all();
    }
}

impl File {
    /// Fills pages, of which `bytes` are needed, from the cache on the local disk, beginning with
    /// the first. Returns the number of filled pages and the number of leading pages that are not
    /// cached.
    fn fetch_cached(
        &self,
        shared: &RemoteState,
        key: Option<Key>,
        pages: &mut [Buffer],
        bytes: u64,
    ) -> (usize, usize) {
        let (Some(cache), Some(key)) = (&shared.cache, key) else {
            return (0, pages.len());
        };
        let (mut filled, mut missing) = (0, 0);
        for (at, page) in (0..).step_by(to_usize(PAGE)).zip(pages) {
            let (key, len) = (key.after(at), to_usize((bytes - at).min(PAGE)));
            if missing == 0 && cache.get(key, len, page) {
                filled += 1;
            } else if filled > 0 || (missing > 0 && cache.has(key, len)) {
                break;
            } else {
                missing += 1;
            }
        }
        (filled, missing)
    }

    /// Fills `into` from the cache on the local disk, from an offset in the file; the page is not
    /// in memory. `false`: it is not cached.
    pub(super) fn read_cached(
        &self,
        shared: &RemoteState,
        inner: &Pages,
        at: u64,
        into: &mut [u8],
    ) -> bool {
        let (page, within) = (at / PAGE, to_usize(at % PAGE));
        let Some(cache) = &shared.cache else {
            return false;
        };
        let (source, rest) = inner.source(page);
        let is_whole = to_usize(rest.min(PAGE)) >= within + into.len();
        is_whole
            && self
                .key(inner, source)
                .is_some_and(|key| cache.get_part(key, within, into))
    }

    /// Returns the cache key of the bytes from there on.
    fn key(&self, inner: &Pages, source: Source) -> Option<Key> {
        match source {
            Source::Zeros => None,
            Source::Object(object, offset) => Some(Key::of_object(object, offset)),
            Source::Plain(offset) => {
                let plain = inner.base.plain.as_ref()?;
                let first = inner.plain_key.get(self.name(), plain);
                Some(first.after(offset))
            }
        }
    }

    /// Fills the first `bytes` of pages from the store, large amounts over several connections. The
    /// rest of the last page is zeros.
    pub(super) fn fetch(
        &self,
        shared: &RemoteState,
        source: Source,
        pages: &mut [Buffer],
        bytes: u64,
        connections: usize,
    ) -> Result<()> {
        let mut into: Vec<&mut [u8]> = Vec::with_capacity(pages.len());
        for (at, page) in (0..).step_by(to_usize(PAGE)).zip(pages) {
            let (wanted, rest) = page.split_at_mut(to_usize(bytes.saturating_sub(at).min(PAGE)));
            rest.fill(0);
            into.push(wanted);
        }
        let (key, offset) = match source {
            Source::Zeros => {
                into.iter_mut().for_each(|page| page.fill(0));
                return Ok(());
            }
            Source::Object(object, offset) => (object.key(), offset),
            Source::Plain(offset) => (self.name().to_owned(), offset),
        };
        // It may have been replaced during the read, or long before.
        let plain = if matches!(source, Source::Plain(_)) {
            self.pages().base.plain.clone()
        } else {
            None
        };
        let read = |offset: u64, into: &mut [&mut [u8]]| {
            let len: usize = into.iter().map(|page| page.len()).sum();
            match (&plain, shared.objects.read_scattered(&key, offset, into)?) {
                (Some(plain), Some((_, tag))) if tag != plain.tag => {
                    Err(shared.replaced(&key, plain, true))
                }
                (_, Some((n, _))) if n == len => Ok(()),
                (Some(plain), _) => Err(shared.replaced(&key, plain, false)),
                (None, found) => Err(shared.missing_object(&key, offset, found.map(|(n, _)| n))),
            }
        };
        let each = bytes
            .div_ceil(connections as u64)
            .max(MIN_FETCH)
            .next_multiple_of(PAGE);
        let offsets = (0..).map(|n| offset + n * each);
        let pieces = into.chunks_mut(to_usize(each / PAGE)).zip(offsets);
        let count = to_usize(bytes.div_ceil(each));
        parallel::each(count, pieces, || (), |(), (piece, at), _| read(at, piece)).map(drop)
    }

    /// Fetches the pages from `page` up to that of `last` into memory; more after a sequential run
    /// of `run` bytes.
    pub(super) fn load(&self, shared: &RemoteState, page: u64, last: u64, run: u64) -> Result<()> {
        let wanted = ((last + 1 - page) * PAGE).max(run.next_multiple_of(PAGE).min(MAX_BEYOND));
        let staying = shared.staying();
        match self.claim(shared, page, wanted) {
            Claimed::Mine(claim) => {
                self.bring(shared, claim, shared.connections)?;
                drop(staying);
                shared.evict();
            }
            Claimed::Coming => {
                drop(staying);
                self.fetching().wait_for(page);
            }
            Claimed::Known | Claimed::Past => {}
        }
        Ok(())
    }

    /// Claims up to `wanted` bytes from a page on, as far as they have one source. The caller of
    /// this, as of the next function, holds [`staying`](RemoteState::staying).
    pub(super) fn claim(&self, shared: &RemoteState, page: u64, wanted: u64) -> Claimed<'_> {
        let mut coming = self.fetching().pages.lock();
        if is_coming(&coming, page) {
            return Claimed::Coming;
        }
        let inner = self.pages();
        let (source, rest) = inner.source(page);
        let len = inner.base.len.saturating_sub(page.saturating_mul(PAGE));
        if len == 0 {
            return Claimed::Past;
        }
        let next_known = inner
            .pages
            .range(page..)
            .next()
            .map_or(u64::MAX, |(next, _)| (next - page).saturating_mul(PAGE));
        if next_known == 0 || source == Source::Zeros {
            return Claimed::Known;
        }
        let next_coming = coming
            .range(page..)
            .next()
            .map_or(u64::MAX, |(next, _)| (next - page).saturating_mul(PAGE));
        let most = shared.part.min(shared.page_cache.max_fetched());
        let bytes = rest
            .min(wanted)
            .min(next_known)
            .min(next_coming)
            .min(len)
            .min(most);
        coming.insert(page, page + bytes.div_ceil(PAGE));
        Claimed::Mine(Claim {
            coming: self.fetching(),
            page,
            source,
            bytes,
        })
    }

    /// Fetches one or more pages, as many as have one source, into memory; returns their number.
    pub(super) fn bring(
        &self,
        shared: &RemoteState,
        claim: Claim<'_>,
        connections: usize,
    ) -> Result<u64> {
        let (page, source, wanted) = (claim.page, claim.source, claim.bytes);
        let _counted = shared.page_cache.charge(wanted);
        let mut pages = shared.page_cache.buffers().take_for(wanted);
        let key = self.key(&self.pages(), source);
        let (cached, missing) = self.fetch_cached(shared, key, &mut pages, wanted);
        let count = if cached > 0 { cached } else { missing };
        pages.truncate(count);
        let bytes = wanted.min(count as u64 * PAGE);
        if cached == 0 {
            self.fetch(shared, source, &mut pages, bytes, connections)?;
            if let (Some(cache), Some(key)) = (&shared.cache, key) {
                for (at, page) in (0..).step_by(to_usize(PAGE)).zip(&pages) {
                    cache.insert_clean(key.after(at), &page[..to_usize((bytes - at).min(PAGE))]);
                }
            }
        }
        let mut inner = self.pages_mut();
        let (source_now, rest_now) = inner.source(page);
        if source_now == source && rest_now >= bytes && inner.base.len >= page * PAGE + bytes {
            for (number, bytes) in (page..).zip(pages) {
                inner.insert_clean(number, bytes);
            }
        }
        Ok(bytes.div_ceil(PAGE))
    }
}
