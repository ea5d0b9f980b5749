//! Readahead: sequential reads prefetch the following data, several pieces concurrently, also from
//! the next bands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::buffers::PAGE;
use super::fetch::Claimed;
use super::file::File;
use super::names::NameState;
use super::remote_state::RemoteState;

/// Bytes that one task fetches, in one request; half of it until so much was read. Every request
/// costs the store as much as a megabyte or two, and a long sequential read uses all of it.
const PIECE: u64 = 8 << 20;
/// Maximum distance of two reads, in bytes, that count as sequential: those of several threads come
/// in any order.
const NEAR: u64 = 1 << 20;
/// Bytes that must be read sequentially before readahead begins.
const MIN_RUN: u64 = 1 << 20;

/// The access pattern of a file.
#[derive(Debug, Default)]
pub(super) struct AccessPattern {
    /// The end of the last read.
    end: AtomicU64,
    /// Length of the sequential run up to that end, including preceding bands.
    run: AtomicU64,
    /// The offset up to which prefetching has begun.
    begun: AtomicU64,
    /// A task was started for the next file.
    passed: AtomicBool,
}

impl AccessPattern {
    /// Records a read; returns the length of the sequential run including it.
    pub(super) fn follow(&self, offset: u64, len: u64) -> u64 {
        let before = self.end.swap(offset + len, Ordering::Relaxed);
        let run = if offset.abs_diff(before) <= NEAR {
            self.run.load(Ordering::Relaxed) + len
        } else {
            len
        };
        self.run.store(run, Ordering::Relaxed);
        run
    }
}

impl RemoteState {
    /// Returns the maximum number of bytes fetched ahead.
    fn max_ahead(&self) -> u64 {
        (self.page_cache.max_fetched() * 2).min(self.connections as u64 * PIECE)
    }
}

impl File {
    /// Starts tasks that prefetch data after `end`, the end of a sequential run of `run` bytes.
    pub(super) fn read_ahead(self: &Arc<Self>, shared: &Arc<RemoteState>, end: u64, run: u64) {
        if run >= MIN_RUN {
            self.fetch_until(shared, end, end + run.min(shared.max_ahead()), run);
        }
    }

    fn fetch_until(self: &Arc<Self>, shared: &Arc<RemoteState>, end: u64, until: u64, run: u64) {
        let begun = self.access_pattern().begun.load(Ordering::Relaxed);
        let is_ours = (end..=until + PIECE).contains(&begun);
        let mut at = if is_ours {
            begun
        } else {
            end.next_multiple_of(PAGE)
        };
        let len = self.pages().base.len;
        while at < until.min(len) {
            let piece = if run < PIECE { PIECE / 2 } else { PIECE };
            let to = (at / piece + 1) * piece;
            let (file, helped) = (self.clone(), shared.clone());
            if !shared.readers.begin(shared.connections, move || {
                file.fetch_piece(&helped, at, to)
            }) {
                break;
            }
            at = to;
        }
        self.access_pattern().begun.store(at, Ordering::Relaxed);
        // Bounds the number of files followed, even if they are short.
        let rest = until.saturating_sub(len.max(MIN_RUN));
        if at >= len && rest > 0 {
            self.prefetch_next_band(shared, rest, run);
        }
    }

    /// Prefetches the first `rest` bytes of the next band.
    fn prefetch_next_band(self: &Arc<Self>, shared: &Arc<RemoteState>, rest: u64, run: u64) {
        let Some(name) = next_band(self.name()) else {
            return;
        };
        let fetch_start = move |shared: &Arc<RemoteState>, next: &Arc<File>| {
            next.access_pattern().run.fetch_max(run, Ordering::Relaxed);
            next.fetch_until(shared, 0, rest, run);
        };
        let known = shared.names.live().get(&name).cloned();
        match known {
            Some(NameState::Open(next)) => fetch_start(shared, &next),
            Some(NameState::Gone) => {}
            // Opening it may need a request.
            Some(NameState::Known(_)) | None => {
                if !self.access_pattern().passed.swap(true, Ordering::Relaxed) {
                    let helped = shared.clone();
                    shared.readers.begin(shared.connections + 1, move || {
                        if let Ok(Some(next)) = helped.open_to_fetch(&name) {
                            fetch_start(&helped, &next);
                        }
                    });
                }
            }
        }
    }

    /// Fetches the bytes between two offsets into memory. Errors are ignored here: a later read
    /// reports them.
    fn fetch_piece(&self, shared: &RemoteState, from: u64, to: u64) {
        let (mut page, end) = (from / PAGE, to.div_ceil(PAGE));
        while page < end {
            let staying = shared.staying();
            page = match self.claim(shared, page, (end - page) * PAGE) {
                Claimed::Mine(claim) => match self.bring(shared, claim, 1) {
                    Ok(pages) => page + pages,
                    Err(_) => return,
                },
                Claimed::Known | Claimed::Coming => page + 1,
                Claimed::Past => return,
            };
            drop(staying);
            shared.evict();
        }
    }
}

/// Returns the name of the next band: `bands/20` after `bands/1f`.
fn next_band(name: &str) -> Option<String> {
    let (folder, number) = name.rsplit_once('/')?;
    let next = u64::from_str_radix(number, 16).ok()?.checked_add(1)?;
    Some(format!("{folder}/{next:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_follow_each_other() {
        assert_eq!(next_band("bands/1f").as_deref(), Some("bands/20"));
        assert_eq!(next_band("bands/ff").as_deref(), Some("bands/100"));
        assert_eq!(next_band("token"), None);
        assert_eq!(next_band("bands/x"), None);
        let stream = AccessPattern::default();
        assert_eq!(stream.follow(0, 4096), 4096);
        assert_eq!(stream.follow(4096, 4096), 8192);
        assert_eq!(stream.follow(512 << 10, 4096), 12_288);
        assert_eq!(stream.follow(100 << 20, 4096), 4096);
    }
}
