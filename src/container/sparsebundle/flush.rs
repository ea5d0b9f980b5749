//! What is durable, and what is refused once that is not known.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::bands::Bands;
use super::slot::Slot;
use super::{BandIndex, LAYER};
use crate::device::Access;
use crate::{Error, Kind, Result};

/// Threads that wait for the disk in one flush, and how many dirty bands are worth one more.
const MOST_FLUSHERS: usize = 8;
const BANDS_PER_FLUSHER: usize = 4;
/// A disk takes longer for a band. Memory does not, and there a thread would take longer to start
/// than a band to flush.
const AT_ONCE: Duration = Duration::from_micros(100);

/// What was changed since the last flush.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// Some band, or some name, since the last flush began.
    anything: AtomicBool,
    /// Names of bands that were made or removed.
    names: AtomicBool,
    /// One flush at a time: the second must not return before the first is done.
    flushing: Mutex<()>,
    /// A flush failed, or a plist may be half written: what is durable is not known.
    lost: AtomicBool,
}

impl Bands {
    pub(super) fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let _one_at_a_time = self
            .unflushed
            .flushing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.check_changeable()?;
        if !self.unflushed.anything.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.sync_bands(|_| true)
            .map_err(|error| self.lose(error))?;
        if self.unflushed.names.swap(false, Ordering::SeqCst) {
            self.sync_names_now()?;
        }
        // A band that was closed meanwhile may have failed to flush.
        self.check_changeable()
    }

    /// Makes what is in `bands` durable, and not their names: nobody who writes to others meanwhile
    /// is waited for.
    pub(super) fn flush_contents(&self, bands: Range<u64>) -> Result<()> {
        self.check_changeable()?;
        self.sync_bands(|index| bands.contains(&index.0))
            .map_err(|error| self.lose(error))?;
        // A band that was closed meanwhile may have failed to flush.
        self.check_changeable()
    }

    /// Flushes bands, those of a large flush side by side once one has taken long: a file system
    /// that has to commit its journal for each does it once for several that wait.
    fn sync_bands(&self, wanted: impl Fn(BandIndex) -> bool) -> Result<()> {
        let mut slots = self.cache.all();
        slots.retain(|slot| wanted(slot.index));
        // All of them first: where the flush of one file is that of all, the others then have
        // nothing left to flush.
        slots.iter().for_each(|slot| slot.trim());
        let dirty = slots.iter().filter(|slot| slot.is_dirty()).count();
        let others = (dirty / BANDS_PER_FLUSHER).min(MOST_FLUSHERS - 1);
        let next = AtomicUsize::new(0);
        // Clean ones too: whoever is just closing one has marked it clean before its flush is done.
        let sync_next = || match slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            Some(slot) => slot.sync().map(|()| true),
            None => Ok(false),
        };
        loop {
            let begun = Instant::now();
            if !sync_next()? {
                return Ok(());
            }
            if others > 0 && begun.elapsed() > AT_ONCE {
                break;
            }
        }
        let work = || {
            while sync_next()? {}
            Ok(())
        };
        thread::scope(|scope| {
            let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                done = done.and(
                    other
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            done
        })
    }

    pub(super) fn sync_names_now(&self) -> Result<()> {
        self.store.sync().map_err(|error| self.lose(error))
    }

    /// Notes a change of a band that is done, before its caller is told so.
    pub(super) fn changed(&self, slot: &Slot) {
        slot.mark_dirty();
        self.note();
    }

    /// Notes that a band was made or removed.
    pub(super) fn names_changed(&self) {
        self.unflushed.names.store(true, Ordering::SeqCst);
        self.note();
    }

    fn note(&self) {
        if !self.unflushed.anything.load(Ordering::SeqCst) {
            self.unflushed.anything.store(true, Ordering::SeqCst);
        }
    }

    /// Closes bands that were not used for long, or at least the one least recently used, flushed
    /// first. Does nothing where all are in use.
    pub(super) fn close_some(&self, near: BandIndex) -> Result<()> {
        if let Some(slot) = self.cache.forget_clean(near) {
            slot.sync().map_err(|error| self.lose(error))?;
            self.cache.forget(slot);
        }
        Ok(())
    }

    /// Refuses changes of what is read-only, or of what may have lost something.
    pub(super) fn check_changeable(&self) -> Result<()> {
        self.info().check_writable(LAYER)?;
        if self.unflushed.lost.load(Ordering::SeqCst) {
            let refused =
                "an earlier flush failed and what it lost is not known; open it anew to change it";
            return Err(Error::new(Kind::Io, LAYER, refused));
        }
        Ok(())
    }

    /// Refuses all changes from now on, because it is not known what is durable.
    pub(super) fn lose(&self, error: Error) -> Error {
        self.unflushed.lost.store(true, Ordering::SeqCst);
        error
    }
}
