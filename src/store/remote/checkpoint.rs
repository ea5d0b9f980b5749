//! Checkpoints: the bundle under its plain names, as other programs see it. Source:
//! docs/formats/object-store.md §7.
//!
//! A file is copied to its plain name; then an entry records that the plain object is the file;
//! only then its former objects are removed. An interrupted checkpoint is started again,
//! independent of how far it came.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::LAYER;
use super::Remote;
use super::layout::{
    Document, EntryPurpose, FileState, LeaseHolder, Name, OBJECTS, ObjectId, Part, Plain,
};
use super::lease;
use super::log::Log;
use super::names::NameState;
use super::remote_state::RemoteState;
use crate::size::to_usize;
use crate::store::Put;
use crate::store::objects::ObjectsExt;
use crate::{Error, Result, parallel};

/// Number of files in one entry.
const BATCH: usize = 64;
/// Maximum number of bytes of files assembled in memory at one time. Larger files are copied piece
/// by piece.
const MAX_IN_MEMORY: u64 = 64 << 20;
/// Interval of checks for cancellation while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time after an entry of ours during which a writer that takes over does not touch plain names.
/// Less than any [`grace`](super::RemoteOptions).
const PROOF: Duration = Duration::from_secs(20);

/// The time at which it was certain that no other writer had taken over.
#[derive(Debug, Clone, Copy)]
struct SoleWriterProof(Instant, SystemTime);

impl SoleWriterProof {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// Checks both clocks: one of them stops while the machine sleeps.
    fn holds(&self) -> bool {
        self.0.elapsed() < PROOF && self.1.elapsed().is_ok_and(|passed| passed < PROOF)
    }
}

/// A callback for the number of further bytes copied.
pub(super) type Advanced<'a> = dyn Fn(u64) -> Result<()> + Sync + 'a;

/// The results of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checkpointed {
    /// Number of files copied to their plain names.
    pub copied: u64,
    /// Number of files whose plain objects were removed.
    pub removed: u64,
    /// Number of removed objects under `.bandsaw/` that were no longer referenced.
    pub cleared: u64,
}

/// The status of a bundle in an object store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Number of writers so far; 0 for a plain bundle only.
    pub generation: u64,
    /// The current writer, or one that ended without closing the bundle.
    pub holder: Option<LeaseHolder>,
    /// Number of files whose plain objects are not up to date.
    pub lagging: u64,
    /// Number of snapshots.
    pub snapshots: u64,
}

impl Remote {
    /// Brings the objects under plain names to the state of the last flush, and removes objects
    /// that are no longer referenced.
    ///
    /// After a writer that did not close the bundle it waits until none of its requests can still
    /// be in flight. `advanced` is called with the number of bytes copied, and with 0 in between:
    /// an error from it stops the work, which the next checkpoint resumes.
    pub fn checkpoint(
        &self,
        advanced: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<Checkpointed> {
        self.shared().commit()?;
        self.shared().wait_settled(advanced)?;
        self.shared()
            .with_flushes_to_store(|| self.shared().checkpoint(advanced))
    }

    /// Returns the status of the bundle, as of when it was opened or of the last commit since.
    pub fn status(&self) -> Status {
        let log = self.shared().log();
        let Some(state) = log.as_ref().map(|log| &log.state) else {
            return Status::default();
        };
        let lags = |name: &&Name| match name {
            Name::File(file) => !file.is_plain(),
            Name::Gone => true,
            Name::Done => false,
        };
        Status {
            generation: state.generation,
            holder: (state.what != EntryPurpose::Release).then(|| state.holder.clone()),
            lagging: state.names.values().filter(lags).count() as u64,
            snapshots: state.snapshots.len() as u64,
        }
    }
}

impl RemoteState {
    /// Returns true if no request of an earlier writer can change plain names any more.
    pub(super) fn is_settled(&self) -> bool {
        Instant::now() >= self.settles || self.log().as_ref().is_none_or(|log| log.state.settled)
    }

    fn wait_settled(&self, advanced: &Advanced<'_>) -> Result<()> {
        while !self.is_settled() {
            advanced(0)?;
            thread::sleep(
                POLL_INTERVAL.min(self.settles.saturating_duration_since(Instant::now())),
            );
        }
        Ok(())
    }

    /// Copies everything committed to plain names. The writer must be settled.
    pub(super) fn checkpoint(&self, advanced: &Advanced<'_>) -> Result<Checkpointed> {
        self.check_changeable()?;
        let mut log = self.log();
        let Some(log) = log.as_mut() else {
            return Ok(Checkpointed::default());
        };
        let files: Vec<(String, Arc<FileState>)> = log
            .state
            .names
            .iter()
            .filter_map(|(name, known)| match known {
                Name::File(file) if !file.is_plain() => Some((name.clone(), file.clone())),
                _ => None,
            })
            .collect();
        let mut gone: Vec<String> = log
            .state
            .names
            .iter()
            .filter(|(_, known)| **known == Name::Gone)
            .map(|(name, _)| name.clone())
            .collect();
        let (copied, removed) = (files.len() as u64, gone.len() as u64);
        if copied + removed > 0 {
            self.keep_for_snapshots(log, files.iter().map(|(name, _)| name).chain(&gone))?;
            if self.took_over {
                // Removed first: afterwards no late request can copy from these objects.
                self.clear(log)?;
            }
            self.record_names(log, BTreeMap::new())?;
        }
        let (large, mut files): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(_, file)| file.len > MAX_IN_MEMORY);
        while !files.is_empty() {
            let _moving = self.moving();
            let some = files.len().min(BATCH);
            self.make_independent(log, &mut files[..some])?;
            let done = self.copy_some(&files[..some], advanced)?;
            files.retain(|(name, _)| !done.contains_key(name));
            self.record_names(log, done)?;
        }
        for file in large {
            let mut file = [file];
            let moving = self.moving();
            self.make_independent(log, &mut file)?;
            // From here on the file consists of permanent objects, and is read from them during the
            // copy.
            drop(moving);
            let [(name, file)] = file;
            let now = self.copy_large(log, &name, &file, advanced)?;
            let _moving = self.moving();
            self.record_names(log, BTreeMap::from([(name, now)]))?;
        }
        while !gone.is_empty() {
            let proved = SoleWriterProof::now();
            let mut done = BTreeMap::new();
            while let Some(name) = gone.pop_if(|_| proved.holds() && done.len() < BATCH) {
                advanced(0)?;
                self.objects.remove(&name)?;
                done.insert(name, Name::Done);
            }
            self.record_names(log, done)?;
        }
        let cleared = self.clear(log)?;
        Ok(Checkpointed {
            copied,
            removed,
            cleared,
        })
    }

    /// Commits the new objects of unchanged files; success proves that no other writer has taken
    /// over.
    fn record_names(&self, log: &mut Log, names: BTreeMap<String, Name>) -> Result<()> {
        let moved: Vec<_> = names
            .iter()
            .map(|(name, now)| {
                (
                    name.clone(),
                    log.state.names.get(name).cloned(),
                    now.clone(),
                )
            })
            .collect();
        let entry = Document {
            names,
            ..log.next(EntryPurpose::Change)?
        };
        self.append(log, entry).map_err(|error| self.lose(error))?;
        let mut live = self.names.live();
        for (name, before, now) in moved {
            let (Some(Name::File(before)), Name::File(now)) = (before, now) else {
                continue;
            };
            match live.get_mut(&name) {
                Some(NameState::Open(file)) => file.pages_mut().moved(&before, &now),
                Some(known @ NameState::Known(_)) => *known = NameState::Known(now),
                Some(NameState::Gone) | None => {}
            }
        }
        Ok(())
    }

    /// Copies the plain objects of files that partly consist of them, because the plain objects are
    /// about to be replaced.
    fn make_independent(
        &self,
        log: &mut Log,
        files: &mut [(String, Arc<FileState>)],
    ) -> Result<()> {
        let mut names = BTreeMap::new();
        for (name, file) in files.iter_mut().filter(|(_, file)| file.plain.is_some()) {
            *file = Arc::new(self.without_plain(name, (**file).clone())?);
            names.insert(name.clone(), Name::File(file.clone()));
        }
        if names.is_empty() {
            Ok(())
        } else {
            self.record_names(log, names)
        }
    }

    /// Copies files, one at least, to their plain names for as long as it is certain that no other
    /// writer does. The caller has just proved that no other writer had taken over.
    fn copy_some(
        &self,
        files: &[(String, Arc<FileState>)],
        advanced: &Advanced<'_>,
    ) -> Result<BTreeMap<String, Name>> {
        let proved = SoleWriterProof::now();
        let largest = files.iter().map(|(_, file)| file.len).max().unwrap_or(0);
        let threads = (MAX_IN_MEMORY / largest.max(1)).min(self.connections as u64);
        let done = parallel::each(
            to_usize(threads),
            files.iter().enumerate(),
            Vec::new,
            |done, (number, (name, file)), _| {
                if number > 0 && !proved.holds() {
                    return Ok(());
                }
                advanced(0)?;
                let now = self.copy_to_plain(name, file)?;
                advanced(file.len)?;
                done.push((name.clone(), now));
                Ok(())
            },
        )?;
        Ok(done.into_iter().flatten().collect())
    }

    /// Makes the plain object equal to the file.
    fn copy_to_plain(&self, name: &str, file: &FileState) -> Result<Name> {
        if let Some(object) = self.only_object(file)? {
            self.objects.copy(&object.key(), name)?;
        } else {
            let mut bytes = vec![0; to_usize(file.len)];
            self.fill(file, 0, &mut bytes)?;
            self.objects
                .put_gathered(name, vec![bytes.into()], Put::Replace)?;
        }
        self.as_plain(name, file.len)
    }

    /// Copies a file that need not fit into memory to its plain name. Uploading its pieces may take
    /// long: the plain object changes by one request, just before which it is proved that no other
    /// writer has taken over.
    fn copy_large(
        &self,
        log: &mut Log,
        name: &str,
        file: &FileState,
        advanced: &Advanced<'_>,
    ) -> Result<Name> {
        let mut prove = || self.record_names(log, BTreeMap::new());
        if let Some(object) = self.only_object(file)? {
            prove()?;
            self.objects.copy(&object.key(), name)?;
            advanced(file.len)?;
        } else {
            let fill = |offset: u64, into: &mut [u8]| {
                self.fill(file, offset, into)?;
                advanced(into.len() as u64)
            };
            self.objects.put_large(name, file.len, &fill, &mut prove)?;
        }
        self.as_plain(name, file.len)
    }

    /// Returns the file as consisting of its plain object, which was just stored.
    fn as_plain(&self, name: &str, len: u64) -> Result<Name> {
        let found = self
            .objects
            .stat(name)?
            .filter(|meta| meta.len == len)
            .ok_or_else(|| {
                Error::conflict(LAYER, "changed by another program during the checkpoint")
                    .in_part(name)
            })?;
        let plain = Some(Plain {
            len,
            size: len,
            tag: found.tag,
        });
        Ok(Name::File(Arc::new(FileState {
            len,
            plain,
            parts: BTreeMap::new(),
        })))
    }

    /// Returns the object that holds exactly the whole file, if any.
    fn only_object(&self, file: &FileState) -> Result<Option<ObjectId>> {
        let mut parts = file.parts.values();
        let (
            Some(Part {
                object: Some(object),
                offset: 0,
                len,
            }),
            None,
        ) = (parts.next(), parts.next())
        else {
            return Ok(None);
        };
        if *len != file.len {
            return Ok(None);
        }
        let found = self.objects.stat(&object.key())?;
        Ok(found
            .is_some_and(|meta| meta.len == file.len)
            .then_some(*object))
    }

    /// Reads a file that is stored in parts, from `offset`. `into` must be zeros: ranges that are
    /// not stored stay as they are.
    fn fill(&self, file: &FileState, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset + into.len() as u64;
        for (index, part) in file
            .parts
            .range(offset / self.part..end.div_ceil(self.part))
        {
            let start = index * self.part;
            let (from, to) = (start.max(offset), (start + part.len).min(end));
            if let Some(object) = part.object
                && from < to
            {
                let out = &mut into[to_usize(from - offset)..to_usize(to - offset)];
                self.read(&object.key(), part.offset + (from - start), out)?;
            }
        }
        Ok(())
    }

    fn read(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<()> {
        match self.objects.read_at(key, offset, into)? {
            Some(n) if n == into.len() => Ok(()),
            found => Err(self.missing_object(key, offset, found)),
        }
    }

    /// Removes the objects that neither the newest state nor a snapshot references, and the log up
    /// to a new manifest.
    ///
    /// The objects are determined first, then an entry is put, and only then they are removed: the
    /// entry proves that no other writer had taken over until then, and a later one begins with a
    /// state and snapshots that do not reference them.
    pub(super) fn clear(&self, log: &mut Log) -> Result<u64> {
        let moving = self.moving();
        let mut needed: HashSet<ObjectId> = self.uncommitted();
        needed.extend(self.recorded_objects());
        needed.extend(log.state.objects());
        for snapshot in log.state.snapshots.values().flatten() {
            needed.insert(snapshot.manifest);
            needed.extend(self.snapshot(snapshot)?.objects());
        }
        let mut unneeded = Vec::new();
        self.objects.list(OBJECTS, &mut |key, _| {
            // Objects of a later generation are not ours: if there are any, the entry below is
            // refused.
            unneeded.extend(
                ObjectId::from_key(key)
                    .filter(|id| id.generation <= self.generation && !needed.contains(id)),
            );
            Ok(())
        })?;
        drop(moving);
        if unneeded.is_empty() && log.is_short() {
            return Ok(0);
        }
        let entry = log.next(EntryPurpose::Change)?;
        self.append(log, entry).map_err(|error| self.lose(error))?;
        for object in &unneeded {
            self.objects.remove(&object.key())?;
        }
        log.compact(&*self.objects, true)?;
        lease::remove_old(&*self.objects, self.generation)?;
        Ok(unneeded.len() as u64)
    }

    /// Returns the objects that open files reference.
    fn uncommitted(&self) -> HashSet<ObjectId> {
        let files = self.names.open_files();
        files
            .iter()
            .flat_map(|file| {
                file.pages()
                    .base
                    .parts
                    .values()
                    .filter_map(|part| part.object)
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

impl Document {
    /// Returns the objects that files reference.
    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        let files = self.names.values().filter_map(|name| {
            if let Name::File(file) = name {
                Some(file)
            } else {
                None
            }
        });
        files.flat_map(|file| file.parts.values().filter_map(|part| part.object))
    }
}
