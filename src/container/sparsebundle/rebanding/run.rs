//! Migration of the disk, range by range; each range is durable in new bands before it is removed
//! from old ones. One thread flushes and removes old bands while others copy.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use super::super::band_rules::{BandRules, check_name};
use super::super::bands::Bands;
use super::super::{
    BandIndex, Bundle, LAYER, check_band_size, check_cipher_block, plist, warnings_of_size,
};
use super::copy::BandCopy;
use super::{
    BANDS, LIST, MigratingBands, NEW_BANDS, Rebanding, finish, remove_bands, remove_old,
    write_lists,
};
use crate::decision::{Alternative, Undecided};
use crate::device::AfterDiscard;
use crate::problem::Severity;
use crate::progress::Progress;
use crate::size::{counted, narrow};
use crate::store::{Put, Store};
use crate::{Error, Kind, Result};

/// Bytes of the disk per commit, unless a band is larger. At most twice as much is stored twice,
/// plus the rest of an old band on hosts that cannot punch holes.
pub(super) const RANGE: u64 = 128 << 20;

/// Result of a change of the band size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebanded {
    /// Old band size in bytes.
    pub from: u64,
    /// New band size in bytes.
    pub to: u64,
    /// Bytes that this run copied.
    pub copied: u64,
    /// True if this run resumed an interrupted change.
    pub resumed: bool,
    /// Warnings about the new size that do not prevent the use of the bundle.
    pub warnings: Vec<String>,
}

impl Bundle {
    /// Changes the band size to `to` bytes, in place and durably, or resumes an interrupted change,
    /// for which `to` may be omitted.
    ///
    /// If the change is canceled, or the process or the host crashes, the disk keeps its contents;
    /// other software cannot open the bundle until the change is finished. A failure before the
    /// first range is committed rolls the change back. Other files in the bundle's folder stay
    /// unchanged.
    ///
    /// [`Kind::Invalid`] for an invalid band size; [`Kind::Conflict`] for a size other than that of
    /// the interrupted change; [`Kind::Corrupt`] for a bundle with damaged or misnamed bands, which
    /// is left unchanged.
    pub fn reband(self, to: Option<u64>, progress: &dyn Progress) -> Result<Rebanded> {
        self.reband_by(to, RANGE, progress)
    }

    pub(super) fn reband_by(
        mut self,
        to: Option<u64>,
        range: u64,
        progress: &dyn Progress,
    ) -> Result<Rebanded> {
        self.bands.check_changeable()?;
        if let Some(state) = self
            .finished
            .filter(|state| to.is_none_or(|to| to == state.to))
        {
            return Ok(rebanded(&state, 0, true));
        }
        let resumed = self.migrating_bands.is_some();
        let migrating_bands = match self.migrating_bands.take() {
            Some(migrating_bands) => migrating_bands,
            None => match self.begin(to, progress)? {
                Some(migrating_bands) => migrating_bands,
                None => {
                    return Ok(rebanded(
                        &state_of(&self.bands, self.bands.band_size()),
                        0,
                        false,
                    ));
                }
            },
        };
        if let Some(to) = to.filter(|to| *to != migrating_bands.state.to) {
            let message = format!(
                "a change of the band size to {} bytes was interrupted; finish it before changing \
                 to {to}",
                migrating_bands.state.to
            );
            return Err(Error::conflict(LAYER, message).named(LIST));
        }
        migrating_bands.flush(&self.bands)?;
        let mut run = MoveTask {
            old: &self.bands,
            new: migrating_bands.bands,
            state: migrating_bands.state,
            range,
        };
        let copied = run.go(progress)?;
        Ok(rebanded(&run.state, copied, resumed))
    }

    /// Checks the preconditions and writes the initial state, which makes the bundle unusable for
    /// other software. Returns `None` if the bands already have that size.
    fn begin(&self, to: Option<u64>, progress: &dyn Progress) -> Result<Option<MigratingBands>> {
        let bands = &self.bands;
        let Some(to) = to else {
            return Err(Error::invalid(
                LAYER,
                "a band size is required: no interrupted change to resume",
            ));
        };
        match bands.cipher_block() {
            Some(block) => check_cipher_block(to, narrow(block))?,
            None => check_band_size(to)?,
        }
        if to == bands.band_size() {
            if bands.store().remove(LIST)? {
                bands.store().sync()?; // left over where the last step was interrupted
            }
            return Ok(None);
        }
        let state = state_of(bands, to);
        self.check_bands(&state, progress)?;
        let store = bands.store();
        remove_bands(store, NEW_BANDS, |_| true)?;
        state.write(store)?;
        let marked = write_lists(store, &plist::rebanding_xml());
        if let Err(error) = marked {
            let _ = take_back(store, &state);
            return Err(bands.lose(error));
        }
        Ok(Some(self.migrating_bands(state)))
    }

    /// Fails if a file in `bands/` would be lost or changed: a misspelled band name, a damaged band,
    /// or one with more data than a band has.
    fn check_bands(&self, state: &Rebanding, progress: &dyn Progress) -> Result<()> {
        let rules = BandRules {
            info: state.before(),
            grain: self.bands.grain(),
        };
        progress.stage("list", 0);
        self.bands.store().list(BANDS, &mut |entry| {
            progress.check()?;
            progress.advance(1);
            let found = match BandIndex::from_name(BANDS, entry.name) {
                Some(index) => {
                    let len = entry.meta()?.map_or(0, |meta| meta.len);
                    if index.0 < rules.count() && len > state.from {
                        return Err(excess(entry.name, len, state.from));
                    }
                    rules.check_len(index, len)
                }
                None => check_name(entry.name),
            };
            match found {
                Some((Severity::Damage, what)) => {
                    Err(Error::new(Kind::Corrupt, LAYER, what).named(entry.name))
                }
                _ => Ok(()),
            }
        })
    }
}

/// Returns the error about a file with `len` bytes, whose excess would be lost with it.
fn excess(name: &str, len: u64, band_size: u64) -> Error {
    Undecided {
        what: format!(
            "{name} has {} past the end of its band, which a change of the band size would remove \
             without undo data: run `bandsaw repair` first",
            counted(len - band_size, "byte", "bytes")
        ),
        alternatives: vec![Alternative {
            assume: format!("band-size={band_size}"),
            evidence: "they are removed first, with undo data".into(),
        }],
    }
    .into_error(LAYER)
}

/// Returns the initial state of a change to bands of `to` bytes.
fn state_of(bands: &Bands, to: u64) -> Rebanding {
    Rebanding {
        size: bands.len(),
        version: bands.version(),
        from: bands.band_size(),
        to,
        moved: 0,
        naming: false,
    }
}

fn rebanded(state: &Rebanding, copied: u64, resumed: bool) -> Rebanded {
    Rebanded {
        from: state.from,
        to: state.to,
        copied,
        resumed,
        warnings: warnings_of_size(&state.after()),
    }
}

/// Rolls the bundle back, before any range was migrated.
fn take_back(store: &dyn Store, state: &Rebanding) -> Result<()> {
    remove_bands(store, NEW_BANDS, |_| true)?;
    store.sync()?;
    // The primary first: while the copy is unreadable, only the primary is used.
    for name in [plist::INFO, plist::BACKUP] {
        store.put(name, state.before().to_xml().as_bytes(), Put::Replace)?;
        store.sync()?;
    }
    store.remove(LIST)?;
    store.sync()
}

/// A change in progress.
struct MoveTask<'a> {
    old: &'a Bands,
    new: Bands,
    /// The state when this run began; later progress counts once a range is committed.
    state: Rebanding,
    range: u64,
}

impl MoveTask<'_> {
    /// Moves all bands; returns the number of copied bytes.
    fn go(&mut self, progress: &dyn Progress) -> Result<u64> {
        let moved = self.move_all(progress);
        if moved.is_err() && self.state.moved == 0 {
            // No old band has changed. If the rollback fails, the bundle stays in the state
            // between, which still opens.
            let _ = take_back(self.old.store(), &self.state);
        }
        let copied = moved?;
        let store = self.old.store();
        if !self.state.naming {
            remove_old(store)?;
            self.state = Rebanding {
                moved: self.state.size,
                naming: true,
                ..self.state
            };
            self.state.write(store)?;
        }
        finish(store, &self.state)?;
        Ok(copied)
    }

    fn move_all(&mut self, progress: &dyn Progress) -> Result<u64> {
        let Rebanding { to, moved, .. } = self.state;
        // Removes new bands that were started but not committed: they would occupy the names of new
        // bands and expose stale data.
        let whole = moved.div_ceil(to);
        remove_bands(self.old.store(), NEW_BANDS, |index| index >= whole)?;
        let stored = self.stored(progress)?;
        let marked = AtomicU64::new(moved);
        let done = thread::scope(|scope| {
            // A rendezvous channel: while one range is flushed, only the next one is copied.
            let (copied, to_commit) = mpsc::sync_channel(0);
            let (run, stored, marked) = (&*self, &stored, &marked);
            let committing = thread::Builder::new()
                .spawn_scoped(scope, move || run.commit_moved(stored, &to_commit, marked))
                .map_err(|source| Error::io(LAYER, "start a thread", source))?;
            let done = run.copy_all(stored, &copied, progress);
            drop(copied);
            committing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .and(done)
        });
        self.state.moved = marked.into_inner();
        done
    }

    /// Copies the disk range by range and sends each range to the flushing thread; returns the
    /// number of copied bytes.
    fn copy_all(
        &self,
        stored: &[BandIndex],
        copied: &SyncSender<Range<u64>>,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let Rebanding {
            size,
            from,
            to,
            mut moved,
            ..
        } = self.state;
        let range = self.range.max(to).next_multiple_of(to);
        let mut rest = stored.iter().peekable();
        let copy = BandCopy {
            old: self.old,
            new: &self.new,
            progress,
        };
        let mut bytes = 0;
        while let Some(index) = rest.peek() {
            let start = (index.0 * from).max(moved) / to * to;
            let end = start.saturating_add(range).min(size);
            bytes += copy.copy(start..end)?;
            if copied.send(start..end).is_err() {
                break; // the other thread has failed, and says why
            }
            moved = end;
            while rest.next_if(|index| self.end_of(**index) <= end).is_some() {}
        }
        Ok(bytes)
    }

    /// Makes copied ranges durable, commits them to the list, and removes the old bands; stores the
    /// end of the last committed range in `marked`.
    fn commit_moved(
        &self,
        stored: &[BandIndex],
        copied: &Receiver<Range<u64>>,
        marked: &AtomicU64,
    ) -> Result<()> {
        let Rebanding { from, to, .. } = self.state;
        let mut rest = stored.iter().peekable();
        for Range { start, end } in copied {
            self.new.flush_contents(start / to..end.div_ceil(to))?;
            // Set before the write: after a failed write the commit may still be durable.
            marked.store(end, Ordering::Relaxed);
            Rebanding {
                moved: end,
                ..self.state
            }
            .write(self.old.store())?;
            while let Some(index) = rest.next_if(|index| self.end_of(**index) <= end) {
                self.old.remove_band(*index)?;
            }
            if let Some(index) = rest.peek().filter(|index| index.0 * from < end) {
                // Frees the copied part. A host that cannot punch holes keeps it until the band is
                // removed.
                self.old.discard(index.0 * from..end, AfterDiscard::Any)?;
            }
        }
        Ok(())
    }

    /// Returns the disk offset of the end of an old band.
    fn end_of(&self, index: BandIndex) -> u64 {
        (index.0 + 1)
            .saturating_mul(self.state.from)
            .min(self.state.size)
    }

    /// Returns the old bands that are not migrated yet, in disk order.
    fn stored(&self, progress: &dyn Progress) -> Result<Vec<BandIndex>> {
        let Rebanding {
            from, moved, size, ..
        } = self.state;
        let (mut stored, mut bytes) = (Vec::new(), 0);
        self.old.store().list(BANDS, &mut |entry| {
            let index = BandIndex::from_name(BANDS, entry.name)
                .filter(|index| index.0 < size.div_ceil(from));
            let Some(index) = index.filter(|index| self.end_of(*index) > moved) else {
                return Ok(());
            };
            let len = entry.meta()?.map_or(0, |meta| meta.len);
            bytes += len.saturating_sub(moved.saturating_sub(index.0 * from));
            stored.push(index);
            Ok(())
        })?;
        stored.sort_unstable();
        progress.stage("reband", bytes);
        Ok(stored)
    }
}
