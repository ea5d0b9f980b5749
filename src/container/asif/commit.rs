//! Making changes durable, in the order of docs/formats/asif.md §8, with two additional barriers.
//!
//! ```text
//!  data, new bitmaps (blank), copies of moved chunks            flush
//!  masks, and the entries of new bitmaps                        flush
//!  tables, in place                                             flush
//!  the inactive directory, with a lower version                 flush
//!  its version, which activates it                              flush
//!  chunks that no table refers to any more are free
//! ```
//!
//! A mask is durable before the entry that refers to it: otherwise stale contents of blocks would
//! be visible. The entry of a moved, partly written chunk changes in a single step, so such a chunk
//! is locked against writes from its move to the end of the commit. Steps without changes are
//! skipped; a flush after writes in place is one flush of the file.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use uuid::Uuid;
use zerocopy::IntoBytes;

use super::layout::{DIRECTORY_VERSION, FileChunk, HeaderRaw, table_offset};
use super::{Asif, LAYER};
use crate::device::units::{HeldUnit, UnitLocks};
use crate::size::to_usize;
use crate::{Error, Result};

/// Chunks that are locked until a commit is done.
pub(super) type HeldChunks<'a> = Vec<HeldUnit<&'a UnitLocks>>;

impl Asif {
    /// Makes all changes before this call durable. The caller must serialize calls and record
    /// failures.
    pub(super) fn commit(&self, held: HeldChunks<'_>) -> Result<()> {
        // Chunks released from now on may still be referenced by the tables being written.
        let released = self.space.take_released();
        let changes = self.tables.take_changes(&self.space)?;
        self.file.flush()?;
        for (at, mask) in &changes.masks {
            self.file.write_at(*at, mask.as_bytes())?;
        }
        for (at, entry) in &changes.bitmap_entries {
            self.file.write_at(*at, entry.as_bytes())?;
        }
        self.file.flush()?;
        for (at, page) in changes.pages() {
            self.file.write_at(at, page)?;
        }
        self.file.flush()?;
        if let Some(tables) = &changes.directory {
            self.write_directory(tables)?;
        }
        self.tables.written();
        drop(held);
        self.space.reclaim(released)
    }

    /// Writes the inactive directory, then activates it.
    fn write_directory(&self, tables: &BTreeMap<u32, FileChunk>) -> Result<()> {
        let mut head = self.head.lock();
        let version = head.version.checked_add(1).ok_or_else(|| {
            Error::limit(
                LAYER,
                format!(
                    "cannot change the image: its directory has the highest possible version, {}",
                    head.version
                ),
            )
        })?;
        let other = 1 - head.active;
        let Some(at) = head.directories[other] else {
            return Err(Error::unsupported(
                LAYER,
                "cannot change the image: it has one directory, and a safe change needs two",
            ));
        };
        let mut bytes = vec![0; to_usize(self.geometry.directory_bytes())];
        // A version lower than the active one, so that a partial write does not activate it. If
        // both have version 0 the first is active, and this is the other one.
        bytes[..DIRECTORY_VERSION].copy_from_slice(&head.version.saturating_sub(1).to_be_bytes());
        for (table, chunk) in tables {
            let start = to_usize(table_offset(*table));
            bytes[start..][..size_of_val(&chunk.0)].copy_from_slice(&chunk.0.to_be_bytes());
        }
        self.file.write_at(at, &bytes)?;
        self.file.flush()?;
        bytes[..DIRECTORY_VERSION].copy_from_slice(&version.to_be_bytes());
        self.file
            .write_at(at, &bytes[..self.geometry.block as usize])?;
        self.file.flush()?;
        (head.active, head.version) = (other, version);
        Ok(())
    }

    /// Gives the image a new UUID before the first change of a session, durably, so that existing
    /// layers above it are detected as out of date.
    pub(super) fn begin(&self) -> Result<()> {
        if self.begun.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one_at_a_time = self.one_at_a_time()?;
        self.begin_locked()
    }

    /// Does the same as [`begin`](Self::begin). The caller must serialize calls.
    pub(super) fn begin_locked(&self) -> Result<()> {
        self.begin_locked_as(Uuid::new_v4())
    }

    /// Gives the image the UUID `uuid` unless it has already a new one for this session. The caller
    /// must serialize calls.
    pub(super) fn begin_locked_as(&self, uuid: Uuid) -> Result<()> {
        if self.begun.load(Ordering::Acquire) {
            return Ok(());
        }
        self.space.keep_orphans(self.shows_holes)?;
        // Extends the file to whole chunks, so that the missing part of a table or bitmap at the
        // end can be written in place.
        let len = self.file.info().len;
        let whole = len.next_multiple_of(self.geometry.chunk_bytes());
        if whole != len {
            self.file
                .set_len(whole, crate::device::AfterDiscard::Zeros)?;
        }
        if !self.layer.is_cache {
            self.change_header(|raw| raw.uuid = uuid.into_bytes())?;
        }
        self.begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Changes fields of the header with one durable write of one sector.
    pub(super) fn change_header(&self, change: impl FnOnce(&mut HeaderRaw)) -> Result<()> {
        let mut head = self.head.lock();
        let mut raw = head.raw.clone();
        change(&mut raw);
        self.failed.record(
            self.file
                .write_at(0, raw.as_bytes())
                .and_then(|()| self.file.flush()),
        )?;
        head.raw = raw;
        Ok(())
    }

    /// Commits if so much has changed that memory would otherwise not be bounded.
    pub(super) fn flush_if_over_limit(&self) -> Result<()> {
        if !self.tables.is_full_of_changes() {
            return Ok(());
        }
        let _one_at_a_time = self.one_at_a_time()?;
        if self.tables.is_full_of_changes() {
            self.failed.record(self.commit(Vec::new()))
        } else {
            Ok(())
        }
    }
}
