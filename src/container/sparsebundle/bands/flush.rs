//! Flushing, and refusal of changes after a failed flush.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::{BandIndex, LAYER};
use super::Bands;
use super::slot::Slot;
use crate::device::Access;
use crate::sync::Mutex;
use crate::{Error, Kind, Result, parallel};

/// Maximum number of threads in one flush, and the number of dirty bands that justifies another
/// thread.
const MAX_FLUSHERS: usize = 8;
const BANDS_PER_FLUSHER: usize = 4;
/// A flush of one band that takes longer starts the other threads. Disks exceed this; memory does
/// not, and there starting a thread would take longer than flushing a band.
const AT_ONCE: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
pub(super) struct Unflushed {
    /// True if a band or a name changed since the last flush began.
    anything: AtomicBool,
    /// True if bands were created or removed.
    names: AtomicBool,
    /// Serializes flushes: a second one must not return before the first is done.
    flushing: Mutex<()>,
    /// True if a flush failed or a plist may be half written: the durable state is unknown.
    lost: AtomicBool,
}

impl Bands {
    pub(in super::super) fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let _one_at_a_time = self.unflushed.flushing.lock();
        self.check_changeable()?;
        if !self.unflushed.anything.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        self.sync_bands(|_| true)
            .map_err(|error| self.lose(error))?;
        if self.unflushed.names.swap(false, Ordering::SeqCst) {
            self.sync_names_now()?;
        }
        // A band that was closed concurrently may have failed to flush.
        self.check_changeable()
    }

    /// Makes the contents of `bands` durable, but not their names. Does not wait for writers of
    /// other bands.
    pub(in super::super) fn flush_contents(&self, bands: Range<u64>) -> Result<()> {
        self.check_changeable()?;
        self.sync_bands(|index| bands.contains(&index.0))
            .map_err(|error| self.lose(error))?;
        // A band that was closed concurrently may have failed to flush.
        self.check_changeable()
    }

    /// Flushes the bands that `wanted` selects. Uses several threads once one flush has taken long:
    /// a file system that commits its journal for each flush can then combine commits.
    fn sync_bands(&self, wanted: impl Fn(BandIndex) -> bool) -> Result<()> {
        let mut slots = self.cache.all();
        slots.retain(|slot| wanted(slot.index()));
        // Truncates all bands first: on file systems where the flush of one file flushes all, the
        // others then have nothing left to flush.
        slots.iter().for_each(|slot| slot.trim());
        let dirty = slots.iter().filter(|slot| slot.is_dirty()).count();
        let others = (dirty / BANDS_PER_FLUSHER).min(MAX_FLUSHERS - 1);
        let mut rest = slots.iter();
        // Includes clean slots: a thread that is closing a band marks it clean before its flush is
        // done.
        for slot in rest.by_ref() {
            let begun = Instant::now();
            slot.sync()?;
            if others > 0 && begun.elapsed() > AT_ONCE {
                break;
            }
        }
        parallel::each(1 + others, rest, || (), |(), slot, _| slot.sync()).map(drop)
    }

    pub(super) fn sync_names_now(&self) -> Result<()> {
        self.store.sync().map_err(|error| self.lose(error))
    }

    /// Marks a band dirty after a change, before the change is reported to the caller.
    pub(super) fn changed(&self, slot: &Slot) {
        slot.mark_dirty();
        self.set_unflushed();
    }

    /// Records that a band was created or removed.
    pub(super) fn names_changed(&self) {
        self.unflushed.names.store(true, Ordering::SeqCst);
        self.set_unflushed();
    }

    fn set_unflushed(&self) {
        if !self.unflushed.anything.load(Ordering::SeqCst) {
            self.unflushed.anything.store(true, Ordering::SeqCst);
        }
    }

    /// Evicts bands of the same shard that were not used recently, or flushes and evicts the least
    /// recently used one. Does nothing if all are in use.
    pub(super) fn close_some(&self, near: BandIndex) -> Result<()> {
        if let Some(slot) = self.cache.evict_clean(near) {
            slot.sync().map_err(|error| self.lose(error))?;
            self.cache.evict(slot);
        }
        Ok(())
    }

    /// Refuses changes if the bundle is read-only or an earlier flush failed.
    pub(in super::super) fn check_changeable(&self) -> Result<()> {
        self.info().check_writable(LAYER)?;
        if self.unflushed.lost.load(Ordering::SeqCst) {
            let refused = "an earlier flush failed and may have lost changes; open the image again to \
                 change it";
            return Err(Error::new(Kind::Io, LAYER, refused));
        }
        Ok(())
    }

    /// Refuses all further changes, because the durable state is unknown.
    pub(in super::super) fn lose(&self, error: Error) -> Error {
        self.unflushed.lost.store(true, Ordering::SeqCst);
        error
    }
}
