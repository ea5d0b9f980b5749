//! Where bytes come from that are not in memory: the local disk, and the store.

use std::sync::atomic::Ordering;
use std::thread;

use super::cache::Key;
use super::file::File;
use super::pages::{Count, PAGE, Source};
use super::shared::Shared;
use crate::Result;

/// What is read ahead at most of sequential reads, in bytes.
const MOST_AHEAD: u64 = 4 << 20;
/// What one of several connections fetches at least of one request, in bytes.
const LEAST_FETCH: u64 = 1 << 20;

impl File {
    /// Fills `into` with what the local disk has of it, whole pages from its start on; how many bytes that are. And how many follow
    /// that it does not have.
    fn fetch_cached(&self, shared: &Shared, key: Option<Key>, into: &mut [u8]) -> (usize, usize) {
        let (Some(cache), Some(key)) = (&shared.cache, key) else { return (0, into.len()) };
        let mut page = vec![0; PAGE as usize];
        let (mut filled, mut missing) = (0, 0);
        for (n, out) in (0..).zip(into.chunks_mut(PAGE as usize)) {
            let key = key.after(n * PAGE);
            if missing == 0 && cache.get(key, out.len(), &mut page) {
                out.copy_from_slice(&page[..out.len()]);
                filled += out.len();
            } else if filled > 0 || (missing > 0 && cache.has(key, out.len())) {
                break;
            } else {
                missing += out.len();
            }
        }
        (filled, missing)
    }

    /// What the cache calls the bytes from there on.
    fn key(&self, source: Source) -> Option<Key> {
        match source {
            Source::Zeros => None,
            Source::Object(object, offset) => Some(Key::of_object(object, offset)),
            Source::Plain(offset) => Some(Key::of_plain(&self.name, self.pages().base.plain.as_ref()?, offset)),
        }
    }

    /// Fills `into` from the store, large pieces over several connections.
    pub(super) fn fetch(&self, shared: &Shared, source: Source, into: &mut [u8]) -> Result<()> {
        let (key, offset) = match source {
            Source::Zeros => {
                into.fill(0);
                return Ok(());
            }
            Source::Object(object, offset) => (object.key(), offset),
            Source::Plain(offset) => (self.name.clone(), offset),
        };
        let read = |offset: u64, into: &mut [u8]| match shared.objects.read_at(&key, offset, into)? {
            Some(n) if n == into.len() => Ok(()),
            found => Err(shared.moved_on(&key, offset, found)),
        };
        let each = (into.len() as u64).div_ceil(shared.connections as u64).max(LEAST_FETCH).next_multiple_of(PAGE);
        if into.len() as u64 <= each {
            read(offset, into)?;
        } else {
            thread::scope(|scope| {
                let offsets = (0..).map(|n| offset + n * each);
                let pieces = into.chunks_mut(each as usize).zip(offsets);
                let threads: Vec<_> = pieces.map(|(piece, at)| scope.spawn(move || read(at, piece))).collect();
                let mut done = Ok(());
                for thread in threads {
                    done = done.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                }
                done
            })?;
        }
        match source {
            // Somebody may have replaced it while it was read, or long before.
            Source::Plain(_) => self.check_plain(shared),
            _ => Ok(()),
        }
    }

    /// Refuses a plain object that is not the one that the file was opened with.
    pub(super) fn check_plain(&self, shared: &Shared) -> Result<()> {
        let Some(plain) = self.pages().base.plain.clone() else { return Ok(()) };
        shared.check_plain(&self.name, &plain)
    }

    /// Brings pages into memory, from `page` on and up to that of `last`; more where reads go on from each other.
    pub(super) fn load(&self, shared: &Shared, page: u64, last: u64) -> Result<()> {
        let staying = shared.staying();
        let (source, bytes) = {
            let inner = self.pages();
            let (source, rest) = inner.source(page, shared.part);
            let mut wanted = (last + 1 - page) * PAGE;
            if self.next.load(Ordering::Relaxed) == page * PAGE {
                let ahead = (self.ahead.load(Ordering::Relaxed) * 2).clamp(PAGE, MOST_AHEAD);
                self.ahead.store(ahead, Ordering::Relaxed);
                wanted = wanted.max(ahead);
            } else {
                self.ahead.store(0, Ordering::Relaxed);
            }
            let next_known = inner.pages.range(page..).next().map_or(u64::MAX, |(next, _)| (next - page).saturating_mul(PAGE));
            let most = shared.part.min(shared.most_fetched());
            (source, rest.min(wanted).min(next_known).min(inner.base.len.saturating_sub(page * PAGE)).min(most))
        };
        let mut fetched = vec![0; bytes as usize];
        let key = self.key(source);
        let (cached, missing) = self.fetch_cached(shared, key, &mut fetched);
        if cached > 0 {
            fetched.truncate(cached);
        } else {
            fetched.truncate(missing);
            self.fetch(shared, source, &mut fetched)?;
            if let (Some(cache), Some(key)) = (&shared.cache, key) {
                let pages = (0..).zip(fetched.chunks(PAGE as usize));
                pages.for_each(|(n, bytes)| cache.keep(key.after(n * PAGE), bytes));
            }
        }
        let bytes = fetched.len() as u64;
        let mut inner = self.pages_mut();
        let mut count = Count::default();
        let (source_now, rest_now) = inner.source(page, shared.part);
        if source_now == source && rest_now >= bytes && inner.base.len >= page * PAGE + bytes {
            let now = shared.tick();
            for (number, bytes) in (page..).zip(fetched.chunks(PAGE as usize)) {
                let mut whole = bytes.to_vec();
                whole.resize(PAGE as usize, 0);
                count.add(inner.insert_clean(number, whole, now));
            }
        }
        drop((inner, staying));
        shared.count(count);
        shared.evict();
        Ok(())
    }
}
