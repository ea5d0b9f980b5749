//! One flush: stores changed parts as new objects, then one entry that references all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::LAYER;
use super::file::File;
use super::layout::{Document, EntryPurpose, Name};
use super::log::{Appended, Log};
use super::names::NameState;
use super::remote_state::RemoteState;
use crate::device::Access;
use crate::{Error, Result, parallel};

impl RemoteState {
    /// Makes all changes made before this call durable in the store.
    pub(super) fn commit(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let mut log = self.log();
        self.check_changeable()?;
        if self.draft().is_some() {
            return Ok(());
        }
        let flushes = self.flushed_locally();
        let dirty_names = self.names.take_for_commit();
        let Some(log) = log.as_mut() else {
            return Ok(());
        };
        if !dirty_names.is_empty() {
            self.commit_names(log, dirty_names.into_iter().collect())
                .map_err(|error| self.lose(error))?;
        }
        self.record_written_back(flushes)
    }

    fn commit_names(&self, log: &mut Log, dirty_names: Vec<String>) -> Result<()> {
        let known: Vec<(String, Option<NameState>)> = {
            let live = self.names.live();
            dirty_names
                .into_iter()
                .map(|name| (live.get(&name).cloned(), name))
                .map(|(live, name)| (name, live))
                .collect()
        };
        let mut files = Vec::new();
        for (_, live) in &known {
            if let Some(NameState::Open(file)) = live {
                // Cleared before the file is read: later changes set it again.
                file.listed().end_commit();
                files.push(file.clone());
            }
        }
        self.store_files(&files)?;
        let mut names = BTreeMap::new();
        for (name, live) in known {
            let now = match live {
                Some(NameState::Open(file)) => Name::File(Arc::new(file.pages_mut().committing())),
                Some(NameState::Known(file)) => Name::File(file),
                Some(NameState::Gone) | None => Name::Gone,
            };
            let before = log.state.names.get(&name);
            if before != Some(&now) && !(before.is_none() && now == Name::Gone) {
                names.insert(name, now);
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        let entry = Document {
            names,
            ..log.next(EntryPurpose::Change)?
        };
        self.append(log, entry)?;
        // Compaction only speeds up opening the bundle: after a failure, a later commit does it.
        let _ = log.compact(&*self.objects, false);
        Ok(())
    }

    /// Puts an entry; the error names the writer that was faster.
    pub(super) fn append(&self, log: &mut Log, mut entry: Document) -> Result<()> {
        entry.settled |= Instant::now() >= self.settles;
        match log.append(&*self.objects, entry)? {
            Appended::Done => Ok(()),
            Appended::Overtaken(by) => Err(self.deposed(&by.holder)),
        }
    }

    /// Stores all previous writes to the files in objects. Some of them may be in transfer already.
    pub(super) fn store_files(&self, files: &[Arc<File>]) -> Result<()> {
        let arrived = || files.iter().map(|file| file.wait_for_parts()).sum::<u64>();
        let mut failed = files.iter().map(|file| file.failures()).sum::<u64>();
        loop {
            let mut parts = Vec::new();
            for file in files {
                parts.extend(
                    file.pages()
                        .dirty
                        .iter()
                        .map(|index| (file.clone(), *index)),
                );
            }
            self.store_parts(&parts)?;
            // Pages whose upload failed in another thread are dirty again.
            let now = arrived();
            if now == failed {
                return Ok(());
            }
            failed = now;
        }
    }

    /// Stores parts of files concurrently.
    pub(super) fn store_parts(&self, parts: &[(Arc<File>, u64)]) -> Result<()> {
        let threads = parts.len().min(self.connections);
        parallel::each(
            threads,
            parts.iter(),
            || (),
            |(), (file, index), _| file.store_part(self, *index),
        )
        .map(drop)
    }

    /// Records that this writer has finished.
    pub(super) fn release(&self) -> Result<()> {
        let mut log = self.log();
        self.check_changeable()?;
        let Some(log) = log.as_mut() else {
            return Ok(());
        };
        let entry = log.next(EntryPurpose::Release)?;
        self.append(log, entry)?;
        self.lose(Error::conflict(LAYER, "the image was closed"));
        Ok(())
    }
}
