//! Doing it: range by range, each durable in new bands before it goes from old ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::super::bands::Bands;
use super::super::check::{Rules, check_name};
use super::super::{BandIndex, Bundle, LAYER, check_band_size, check_cipher_block, plist, warnings_of_size};
use super::{BANDS, Front, LIST, NEW_BANDS, Rebanding, finish, remove_bands, remove_old, write_lists};
use crate::device::{ExtentKind, Leave};
use crate::problem::Severity;
use crate::progress::Progress;
use crate::store::{Put, Store};
use crate::{Error, Kind, Result};

/// Bytes of the disk between two marks, unless a band is larger: so much is stored twice at most, beside the rest of an old band
/// on hosts that cannot punch holes.
pub(super) const RANGE: u64 = 256 << 20;
/// Bytes copied at a time by each thread: what its cache holds from reading to writing.
const PIECE: u64 = 256 << 10;
const MOST_THREADS: usize = 4;

/// What a change of the size of bands came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebanded {
    /// Bytes of a band before.
    pub from: u64,
    /// Bytes of a band now.
    pub to: u64,
    /// Bytes that were copied, this time.
    pub copied: u64,
    /// Whether it went on with what had been interrupted.
    pub resumed: bool,
    /// What is odd about the new size without keeping it from working.
    pub warnings: Vec<String>,
}

impl Bundle {
    /// Gives the disk bands of `to` bytes, in place and durably, or goes on with what was interrupted, which `to` may leave out.
    ///
    /// Stopped, killed or without power at any moment, the bundle holds what it held; until it is finished nobody else
    /// opens it. What fails before anything was moved is taken back. Other files in the bundle's folder stay as they are.
    ///
    /// [`Kind::Invalid`] for a size that no band has; [`Kind::Conflict`] for another than the one that was begun with;
    /// [`Kind::Corrupt`] for a bundle with damaged or misnamed bands, which is left as it is.
    pub fn reband(self, to: Option<u64>, progress: &dyn Progress) -> Result<Rebanded> {
        self.reband_by(to, RANGE, progress)
    }

    pub(super) fn reband_by(mut self, to: Option<u64>, range: u64, progress: &dyn Progress) -> Result<Rebanded> {
        self.bands.check_changeable()?;
        if let Some(state) = self.finished.filter(|state| to.is_none_or(|to| to == state.to)) {
            return Ok(rebanded(&state, 0, true));
        }
        let resumed = self.front.is_some();
        let front = match self.front.take() {
            Some(front) => front,
            None => match self.begin(to, progress)? {
                Some(front) => front,
                None => return Ok(rebanded(&state_of(&self.bands, self.bands.band_size), 0, false)),
            },
        };
        if let Some(to) = to.filter(|to| *to != front.state.to) {
            let message = format!("bands are being changed to {} bytes; finish that before they become {to}", front.state.to);
            return Err(Error::new(Kind::Conflict, LAYER, message).named(LIST));
        }
        front.flush(&self.bands)?;
        let mut run = Run { old: &self.bands, new: front.bands, state: front.state, range, copied: AtomicU64::new(0) };
        run.go(progress)?;
        Ok(rebanded(&run.state, run.copied.into_inner(), resumed))
    }

    /// Looks whether it can be done, and makes the bundle one that others do not open. `None`: it has such bands.
    fn begin(&self, to: Option<u64>, progress: &dyn Progress) -> Result<Option<Front>> {
        let bands = &self.bands;
        let Some(to) = to else {
            return Err(Error::new(Kind::Invalid, LAYER, "no change of the size of bands was interrupted; a size is needed"));
        };
        check_band_size(to)?;
        if let Some(cipher) = &bands.cipher {
            check_cipher_block(to, cipher.block() as u32)?;
        }
        if to == bands.band_size {
            if bands.store.remove(LIST)? {
                bands.store.sync()?; // left over where the last step was interrupted
            }
            return Ok(None);
        }
        let state = state_of(bands, to);
        self.check_bands(&state, progress)?;
        let store = &*bands.store;
        remove_bands(store, NEW_BANDS, |_| true)?;
        state.write(store)?;
        let marked = write_lists(store, &plist::rebanding_xml());
        if let Err(error) = marked {
            let _ = take_back(store, &state);
            return Err(bands.lose(error));
        }
        Ok(Some(self.front(state)))
    }

    /// Refuses what would not come out of it as it went in: names that are nearly those of bands, and bands that are none.
    fn check_bands(&self, state: &Rebanding, progress: &dyn Progress) -> Result<()> {
        let rules = Rules { info: state.before(), grain: self.bands.grain() };
        progress.stage("list", 0);
        self.bands.store.list(BANDS, &mut |entry| {
            progress.check()?;
            progress.advance(1);
            let found = match BandIndex::from_name(BANDS, entry.name) {
                Some(index) => entry.meta()?.and_then(|meta| rules.check_len(index, meta.len)),
                None => check_name(entry.name),
            };
            match found {
                Some((Severity::Damage, what)) => Err(Error::new(Kind::Corrupt, LAYER, what).named(entry.name)),
                _ => Ok(()),
            }
        })
    }
}

/// What would be written for bands of `to` bytes before anything is moved.
fn state_of(bands: &Bands, to: u64) -> Rebanding {
    Rebanding { size: bands.len(), version: bands.version, from: bands.band_size, to, moved: 0, naming: false }
}

fn rebanded(state: &Rebanding, copied: u64, resumed: bool) -> Rebanded {
    Rebanded { from: state.from, to: state.to, copied, resumed, warnings: warnings_of_size(&state.after()) }
}

/// Makes the bundle again what it was before anything was moved.
fn take_back(store: &dyn Store, state: &Rebanding) -> Result<()> {
    remove_bands(store, NEW_BANDS, |_| true)?;
    store.sync()?;
    // The list that counts first: as long as the other tells of nothing, the first is asked alone.
    for name in [plist::INFO, plist::BACKUP] {
        store.put(name, state.before().to_xml().as_bytes(), Put::Replace)?;
        store.sync()?;
    }
    store.remove(LIST)?;
    store.sync()
}

/// A change under way.
struct Run<'a> {
    old: &'a Bands,
    new: Bands,
    state: Rebanding,
    range: u64,
    copied: AtomicU64,
}

impl Run<'_> {
    fn go(&mut self, progress: &dyn Progress) -> Result<()> {
        if let Err(error) = self.move_all(progress) {
            if self.state.moved == 0 {
                // Nothing has gone from old bands. If it fails, the bundle stays between the two, which opens all the same.
                let _ = take_back(&*self.old.store, &self.state);
            }
            return Err(error);
        }
        let store = &*self.old.store;
        if !self.state.naming {
            remove_old(store)?;
            self.state = Rebanding { moved: self.state.size, naming: true, ..self.state };
            self.state.write(store)?;
        }
        finish(store, &self.state)
    }

    fn move_all(&mut self, progress: &dyn Progress) -> Result<()> {
        let Rebanding { size, from, to, .. } = self.state;
        let store = &*self.old.store;
        // What was begun on and not marked. It would keep the names of new bands, and show where nothing is.
        let whole = self.state.moved.div_ceil(to);
        remove_bands(store, NEW_BANDS, |index| index >= whole)?;
        let stored = self.stored(progress)?;
        let range = self.range.max(to).next_multiple_of(to);
        let mut next = 0;
        while let Some((index, _)) = stored.get(next) {
            let start = (index.0 * from).max(self.state.moved) / to * to;
            let end = start.saturating_add(range).min(size);
            self.copy(start, end, progress)?;
            self.new.flush()?;
            self.state.moved = end;
            self.state.write(store)?;
            while let Some((index, _)) = stored.get(next).filter(|(index, _)| self.end_of(*index) <= end) {
                self.remove(*index)?;
                next += 1;
            }
            if let Some((index, _)) = stored.get(next).filter(|(index, _)| index.0 * from < end) {
                // Not needed twice. A host that punches no holes keeps it until the band goes.
                self.old.discard(index.0 * from..end, Leave::Any)?;
            }
            if end == size {
                break;
            }
        }
        Ok(())
    }

    /// Where an old band ends on the disk.
    fn end_of(&self, index: BandIndex) -> u64 {
        (index.0 + 1).saturating_mul(self.state.from).min(self.state.size)
    }

    /// The old bands that are not moved yet and their lengths, in the order of the disk.
    fn stored(&self, progress: &dyn Progress) -> Result<Vec<(BandIndex, u64)>> {
        let Rebanding { from, moved, size, .. } = self.state;
        let mut stored = Vec::new();
        self.old.store.list(BANDS, &mut |entry| {
            let index = BandIndex::from_name(BANDS, entry.name).filter(|index| index.0 < size.div_ceil(from));
            let Some(index) = index.filter(|index| self.end_of(*index) > moved) else { return Ok(()) };
            let len = entry.meta()?.map_or(0, |meta| meta.len);
            stored.push((index, len));
            Ok(())
        })?;
        stored.sort_unstable();
        let behind = |(index, len): &(BandIndex, u64)| len.saturating_sub(moved.saturating_sub(index.0 * from));
        progress.stage("reband", stored.iter().map(behind).sum());
        Ok(stored)
    }

    /// Copies a range of the disk, several new bands side by side.
    fn copy(&self, start: u64, end: u64, progress: &dyn Progress) -> Result<()> {
        let to = self.state.to;
        let (next, failed) = (AtomicU64::new(start), AtomicBool::new(false));
        let work = || loop {
            let start = next.fetch_add(to, Ordering::Relaxed);
            if start >= end || failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let copied = self.copy_band(start, start.saturating_add(to).min(end), progress);
            if copied.is_err() {
                failed.store(true, Ordering::Relaxed);
                return copied;
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        let others = cores.min((end - start).div_ceil(to) as usize) - 1;
        thread::scope(|scope| {
            let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                done = done.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            done
        })
    }

    /// Copies what is stored of a range that one new band holds.
    fn copy_band(&self, mut at: u64, end: u64, progress: &dyn Progress) -> Result<()> {
        let mut buf = vec![0; PIECE.min(end - at) as usize];
        while at < end {
            progress.check()?;
            // Asked once for a run: some hosts walk all of a file's pages to find where it ends.
            let extent = self.old.extent_at(at..end)?;
            match extent.kind {
                ExtentKind::Data => self.copy_run(at, at + extent.len, &mut buf, progress)?,
                ExtentKind::Zero => progress.advance(extent.len),
                ExtentKind::Hole => {}
            }
            at += extent.len;
        }
        Ok(())
    }

    fn copy_run(&self, mut at: u64, end: u64, buf: &mut [u8], progress: &dyn Progress) -> Result<()> {
        while at < end {
            progress.check()?;
            let piece = (end - at).min(buf.len() as u64);
            let bytes = &mut buf[..piece as usize];
            self.old.read_at(at, bytes)?;
            self.new.write_at(at, bytes)?;
            self.copied.fetch_add(piece, Ordering::Relaxed);
            progress.advance(piece);
            at += piece;
        }
        Ok(())
    }

    fn remove(&self, index: BandIndex) -> Result<()> {
        let slot = self.old.slot(index)?;
        let mut state = slot.exclusive();
        self.old.remove(index, &mut state)
    }
}
