//! One band as it is held in memory: its file, its lock, and whether it waits to be flushed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::BandIndex;
use super::mapped::Mapped;
use crate::Result;
use crate::device::{AfterDiscard, BlockDevice};

/// What a band file grows by is a multiple of this, as macOS does it.
pub(super) const BLOCK: u64 = 4096;

/// One band, met at least once and not yet forgotten by the cache.
///
/// Reading and writing within the file hold [`shared`](Self::shared); opening, making, growing,
/// cutting and removing it hold [`exclusive`](Self::exclusive).
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) index: BandIndex,
    state: RwLock<BandState>,
    /// Changed since it was last flushed. Set after a change, before its caller is told that it is
    /// done.
    dirty: AtomicBool,
    /// Held while the file is being flushed, so that nobody takes a flush under way for one that is
    /// done.
    syncing: Mutex<()>,
    /// The cache's clock when it was last asked for.
    pub(super) used: AtomicU64,
}

/// What is known of a band.
#[derive(Debug)]
pub(super) enum BandState {
    /// Nobody has looked.
    Unopened,
    /// There is no file: all zeros.
    Missing,
    /// There is a file.
    StoredBands(Band),
}

/// The open file of a band.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) file: Arc<dyn BlockDevice>,
    /// Bytes of the file that count, at most a band's.
    pub(super) len: u64,
    /// How far the file may hold anything. What it is longer by was grown ahead and never written.
    pub(super) filled: AtomicU64,
    /// The map of a version 2 bundle, until the band is first written.
    pub(super) mapped: Option<Mapped>,
}

/// A run of bytes within a band.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BandRun {
    pub(super) kind: RunKind,
    pub(super) len: u64,
}

/// Where the bytes of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunKind {
    /// Nowhere: the band or this part of its file does not exist.
    Gap,
    /// Nowhere that counts: the map says so.
    Unmapped,
    /// In the file, at the same place as in the band.
    File,
}

impl BandState {
    /// Where the bytes at `within.start` are, and for how long, never past `within.end`: what
    /// reading, `extent_at` and lending go by. `Unopened` is for
    /// [`Bands::opened`](super::bands::Bands) to rule out.
    pub(super) fn locate(&self, within: &Range<u64>) -> BandRun {
        let most = within.end - within.start;
        match self {
            Self::StoredBands(band) if within.start < band.stored() => {
                let most = most.min(band.stored() - within.start);
                match &band.mapped {
                    None => BandRun {
                        kind: RunKind::File,
                        len: most,
                    },
                    Some(mapped) => {
                        let (unmapped, len) = mapped.run_at(within.start);
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
        mapped: Option<Mapped>,
    ) -> Self {
        Self {
            file,
            len,
            filled: AtomicU64::new(filled),
            mapped,
        }
    }

    /// Bytes from the front that are in the file; the rest of the band is zeros.
    pub(super) fn stored(&self) -> u64 {
        self.filled
            .load(Ordering::Acquire)
            .next_multiple_of(BLOCK)
            .min(self.len)
    }

    /// Notes that something was written up to `end`.
    pub(super) fn fill(&self, end: u64) {
        if self.filled.load(Ordering::Relaxed) < end {
            self.filled.fetch_max(end, Ordering::Release);
        }
    }

    /// Cuts the file; what it was longer by reads as zeros.
    pub(super) fn cut(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len, AfterDiscard::Zeros)?;
        self.len = len;
        self.filled.fetch_min(len, Ordering::Relaxed);
        Ok(())
    }

    /// Cuts off what was grown ahead. None of it is lent: there is nothing in it.
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

    pub(super) fn shared(&self) -> RwLockReadGuard<'_, BandState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn exclusive(&self) -> RwLockWriteGuard<'_, BandState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a change that is done.
    pub(super) fn mark_dirty(&self) {
        if !self.dirty.load(Ordering::SeqCst) {
            self.dirty.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Makes all changes durable that were done before the call.
    pub(super) fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.dirty.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let done = self.trim_and_flush();
        if done.is_err() {
            self.mark_dirty();
        }
        done
    }

    /// Cuts off what was grown ahead, of a band that waits to be flushed.
    pub(super) fn trim(&self) {
        // Whoever is busy with the band would only grow it again: then the tail can wait for the
        // next flush.
        if self.is_dirty()
            && let Ok(mut state) = self.state.try_write()
            && let BandState::StoredBands(band) = &mut *state
        {
            // Nobody was promised it: a tail that stays reads as zeros like one that is gone.
            let _ = band.trim();
        }
    }

    fn trim_and_flush(&self) -> Result<()> {
        if let Ok(mut state) = self.state.try_write()
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
