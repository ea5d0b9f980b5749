//! Flushes to the local disk, and their upload to the store. Source: docs/formats/object-store.md
//! §10.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::LAYER;
use super::buffers::{Buffer, PAGE};
use super::cache::{Block, Cache, NameRecord};
use super::file::File;
use super::names::NameState;
use super::periodic::PeriodicTask;
use super::remote_state::RemoteState;
use crate::{Error, Kind, Result};

impl RemoteState {
    /// Makes all changes made before this call durable: in the store, or on the local disk if so
    /// configured.
    pub(super) fn flush(&self) -> Result<()> {
        match self.local_cache() {
            Some(cache) if self.draft().is_none() && self.flush_locally(cache)? => Ok(()),
            // If the local disk is full or fails, flush to the store.
            _ => self.commit(),
        }
    }

    /// Returns the cache, if flushes go to it.
    pub(super) fn local_cache(&self) -> Option<&Cache> {
        self.cache.as_ref().filter(|cache| cache.takes_flushes())
    }

    /// Flushes to the local disk. `false`: it is full or fails.
    fn flush_locally(&self, cache: &Cache) -> Result<bool> {
        self.check_changeable()?;
        let mut journal = cache.journal();
        if journal.paused {
            return Ok(false);
        }
        let dirty_names = self.names.take_for_writeback();
        if dirty_names.is_empty() {
            return Ok(true);
        }
        let mut record = || {
            let live: Vec<(String, Option<NameState>)> = {
                let live = self.names.live();
                dirty_names
                    .iter()
                    .map(|name| (name.clone(), live.get(name).cloned()))
                    .collect()
            };
            let mut names = BTreeMap::new();
            for (name, live) in live {
                let recorded = match live {
                    Some(NameState::Open(file)) => {
                        // Cleared before the file is read: later changes set it again.
                        file.listed().end_writeback();
                        file.recorded(cache)?
                    }
                    Some(NameState::Known(file)) => NameRecord::File {
                        state: (*file).clone(),
                        pages: Vec::new(),
                    },
                    Some(NameState::Gone) | None => NameRecord::Gone,
                };
                names.insert(name, recorded);
            }
            cache.flush_blocks().ok()?;
            journal.record(names).ok()
        };
        if record().is_some() {
            return Ok(true);
        }
        self.names.put_back_for_writeback(dirty_names);
        Ok(false)
    }

    /// Returns the number of local flushes before the files to be committed now are read.
    pub(super) fn flushed_locally(&self) -> u64 {
        self.cache
            .as_ref()
            .map_or(0, |cache| cache.journal().flushes)
    }

    /// Records that the store has the data of these local flushes. Without the record, a crash
    /// would bring old contents back.
    pub(super) fn record_written_back(&self, flushes: u64) -> Result<()> {
        let Some(cache) = &self.cache else {
            return Ok(());
        };
        cache
            .journal()
            .drop_flushed(flushes)
            .map_err(|error| self.lose(error))
    }

    /// Restores data that was flushed locally and is not in the store, as uncommitted changes.
    pub(super) fn replay(self: &Arc<Self>) {
        let Some(cache) = &self.cache else { return };
        let journal = cache.journal();
        for (name, recorded) in journal.names() {
            let live = match recorded {
                NameRecord::Gone => NameState::Gone,
                NameRecord::File { state, pages } => {
                    let file = File::new(name, self, state.clone());
                    file.listed().set_for_commit();
                    file.pages_mut().replay(pages);
                    NameState::Open(Arc::new(file))
                }
            };
            self.names.live().insert(name.clone(), live);
            self.names.mark_dirty([name.as_str()], false);
        }
    }

    /// Starts the periodic upload of locally flushed data to the store.
    pub(super) fn begin_uploads(self: &Arc<Self>) -> Result<Option<PeriodicTask>> {
        let Some(cache) = self.local_cache() else {
            return Ok(None);
        };
        let shared = Arc::downgrade(self);
        let upload = move || {
            // The next change reports an error.
            shared
                .upgrade()
                .is_some_and(|shared| shared.commit().is_ok())
        };
        PeriodicTask::start("upload", cache.upload_after(), upload).map(Some)
    }

    /// Commits everything, and sends flushes to the store during `work`, which moves committed
    /// data.
    pub(super) fn with_flushes_to_store<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let pause = |paused| {
            self.cache
                .iter()
                .for_each(|cache| cache.journal().paused = paused)
        };
        pause(true);
        let done = self.commit().and_then(|()| work());
        pause(false);
        done
    }

    /// Returns the objects that are needed as long as the journal is valid.
    pub(super) fn recorded_objects(&self) -> Vec<super::layout::ObjectId> {
        self.cache
            .as_ref()
            .map_or_else(Vec::new, |cache| cache.journal().objects().collect())
    }
}

impl File {
    /// Returns the record of the file: everything that is in no object, in blocks. `None`: there is
    /// no room.
    fn recorded(&self, cache: &Cache) -> Option<NameRecord> {
        let loose = self.pages().without_block();
        for (number, bytes) in loose {
            let block = cache.write(&bytes)?;
            self.pages_mut().spilled(number, &bytes, block, true);
        }
        // Under the lock only the few pages that were written in the meantime remain.
        let mut pages = self.pages_mut();
        for (number, bytes) in pages.without_block() {
            pages.spilled(number, &bytes, cache.write(&bytes)?, true);
        }
        let list = pages
            .changed_pages()
            .map(|(number, page)| (number, page.block.clone()))
            .collect();
        Some(NameRecord::File {
            state: pages.base.clone(),
            pages: list,
        })
    }

    /// Moves dirty pages of a part from memory to the local disk. `false`: there is no room.
    pub(super) fn spill(&self, shared: &RemoteState, cache: &Cache, part: u64) -> bool {
        let per_part = shared.part / PAGE;
        let loose = self.pages().without_block();
        for (number, bytes) in loose
            .into_iter()
            .filter(|(number, _)| number / per_part == part)
        {
            let Some(block) = cache.write(&bytes) else {
                return false;
            };
            self.pages_mut().spilled(number, &bytes, block, false);
        }
        true
    }

    /// Reads a page that is only on the local disk into memory.
    pub(super) fn recall(&self, shared: &RemoteState, page: u64) -> Result<()> {
        let block = self
            .pages()
            .pages
            .get(&page)
            .and_then(|known| known.only_on_disk().cloned());
        let Some(block) = block else { return Ok(()) };
        let bytes = self.bytes_of(shared, &block)?;
        self.pages_mut().recalled(page, &block, bytes);
        shared.evict();
        Ok(())
    }

    /// Returns the contents of a block that are stored nowhere else.
    pub(super) fn bytes_of(&self, shared: &RemoteState, block: &Block) -> Result<Buffer> {
        let mut bytes = shared.page_cache.buffers().acquire();
        block.read(&mut bytes).map_err(|error| {
            let place = shared.cache.as_ref().map_or("", Cache::place);
            let message = format!("{place} lost data written to {}", self.name());
            Error::new(Kind::Io, LAYER, message).caused_by(error)
        })?;
        Ok(bytes)
    }
}
