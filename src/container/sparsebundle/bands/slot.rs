//! The in-memory state of a band: its file, its lock, and its dirty flag.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::super::BandIndex;
use super::BLOCK;
use super::band_bitmap::BandBitmap;
use crate::Result;
use crate::device::{AfterDiscard, BlockDevice};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A cached band.
///
/// Reads and writes within the file hold [`shared`](Self::shared); opening, creating, growing,
/// truncating and removing it hold [`exclusive`](Self::exclusive).
#[derive(Debug)]
pub(super) struct Slot {
    index: BandIndex,
    state: RwLock<BandState>,
    /// True if the band changed since its last flush. Set after a change, before the change is
    /// reported to the caller.
    dirty: AtomicBool,
    /// Held during a flush, so that a concurrent flush waits for it to finish.
    syncing: Mutex<()>,
    /// The cache's clock at the last lookup.
    used: AtomicU64,
}

/// State of a band.
#[derive(Debug)]
pub(super) enum BandState {
    /// Not opened yet.
    Unopened,
    /// There is no file; the band reads as zeros.
    Missing,
    /// The band has a file.
    StoredBands(Band),
}

#[derive(Debug)]
pub(super) struct Band {
    pub(super) file: Arc<dyn BlockDevice>,
    /// Used bytes of the file, at most the band size; whole cipher blocks.
    pub(super) len: u64,
    /// Bytes of an incomplete cipher block after them, less than a block.
    pub(super) incomplete: u64,
    /// End of the written part of the file. The file was grown ahead beyond it.
    filled: Filled,
    /// The map of a version 2 bundle, until the band is first written.
    pub(super) band_bitmap: Option<BandBitmap>,
}

/// An offset that writers raise while they share the band.
#[derive(Debug)]
struct Filled(AtomicU64);

/// A contiguous range within a band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BandRun {
    pub(super) kind: RunKind,
    pub(super) len: u64,
}

/// Storage of the bytes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunKind {
    /// Not stored: the band or this part of its file does not exist.
    Gap,
    /// Not mapped according to the map of the band; reads as zeros.
    Unmapped,
    /// Stored in the file, at the same offset as in the band.
    File,
    /// From the cipher block on of which the file holds only a part: lost.
    Truncated,
}

impl BandState {
    /// Returns the storage of the bytes at `within.start` and the length of the run, which does not
    /// pass `within.end`. The state must not be `Unopened`, see
    /// [`Bands::opened`](super::Bands).
    pub(super) fn locate(&self, within: &Range<u64>) -> BandRun {
        let most = within.end - within.start;
        match self {
            Self::StoredBands(band) if band.incomplete > 0 && within.start >= band.len => BandRun {
                kind: RunKind::Truncated,
                len: most,
            },
            Self::StoredBands(band) if within.start < band.stored() => {
                let most = most.min(band.stored() - within.start);
                match &band.band_bitmap {
                    None => BandRun {
                        kind: RunKind::File,
                        len: most,
                    },
                    Some(band_bitmap) => {
                        let (unmapped, len) = band_bitmap.run_at(within.start);
                        BandRun {
                            kind: if unmapped {
                                RunKind::Unmapped
                            } else {
                                RunKind::File
                            },
                            len: len.min(most),
                        }
                    }
                }
            }
            _ => BandRun {
                kind: RunKind::Gap,
                len: most,
            },
        }
    }
}

impl Band {
    pub(super) fn new(
        file: Arc<dyn BlockDevice>,
        len: u64,
        filled: u64,
        band_bitmap: Option<BandBitmap>,
    ) -> Self {
        Self {
            file,
            len,
            incomplete: 0,
            filled: Filled(AtomicU64::new(filled)),
            band_bitmap,
        }
    }

    /// Returns the number of bytes stored in the file; the rest of the band is zeros.
    pub(super) fn stored(&self) -> u64 {
        let filled = self.filled.0.load(Ordering::Acquire);
        filled.next_multiple_of(BLOCK).min(self.len)
    }

    /// Records a write up to `end`.
    pub(super) fn fill(&self, end: u64) {
        if self.filled.0.load(Ordering::Relaxed) < end {
            self.filled.0.fetch_max(end, Ordering::Release);
        }
    }

    /// Truncates the file; the removed tail reads as zeros.
    pub(super) fn cut(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len, AfterDiscard::Zeros)?;
        self.len = len;
        self.incomplete = 0;
        self.filled.0.fetch_min(len, Ordering::Relaxed);
        Ok(())
    }

    /// Truncates the part that was grown ahead. None of it is pinned, because it holds no data.
    fn trim(&mut self) -> Result<()> {
        let stored = self.stored();
        if stored < self.len {
            self.cut(stored)
        } else {
            Ok(())
        }
    }
}

impl Slot {
    pub(super) fn new(index: BandIndex) -> Self {
        Self {
            index,
            state: RwLock::new(BandState::Unopened),
            dirty: AtomicBool::new(false),
            syncing: Mutex::new(()),
            used: AtomicU64::new(0),
        }
    }

    pub(super) fn index(&self) -> BandIndex {
        self.index
    }

    /// Records a use at a time of the cache's clock.
    pub(super) fn touch(&self, now: u64) {
        if self.last_use() != now {
            self.used.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the time of the last use by the cache's clock.
    pub(super) fn last_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn shared(&self) -> RwLockReadGuard<'_, BandState> {
        self.state.read()
    }

    pub(super) fn exclusive(&self) -> RwLockWriteGuard<'_, BandState> {
        self.state.write()
    }

    /// Marks the band dirty after a change.
    pub(super) fn mark_dirty(&self) {
        if !self.dirty.load(Ordering::SeqCst) {
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Makes all changes durable that completed before the call.
    pub(super) fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        if !self.dirty.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let done = self.trim_and_flush();
        if done.is_err() {
            self.mark_dirty();
        }
        done
    }

    /// Truncates the part of a dirty band that was grown ahead.
    pub(super) fn trim(&self) {
        // Skipped while the band is in use: it would only grow again, and the next flush can
        // truncate it.
        if self.is_dirty()
            && let Some(mut state) = self.state.try_write()
            && let BandState::StoredBands(band) = &mut *state
        {
            // Best effort: a tail that remains reads as zeros.
            let _ = band.trim();
        }
    }

    fn trim_and_flush(&self) -> Result<()> {
        if let Some(mut state) = self.state.try_write()
            && let BandState::StoredBands(band) = &mut *state
        {
            let _ = band.trim();
        }
        let file = match &*self.shared() {
            BandState::StoredBands(band) => band.file.clone(),
            BandState::Unopened | BandState::Missing => return Ok(()),
        };
        file.flush()
    }
}
