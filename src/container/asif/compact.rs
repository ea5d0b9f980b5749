//! Compaction: moves the last chunks of the file into free ones before them and truncates the file.
//! Source: docs/formats/asif.md §7.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::Asif;
use super::commit::HeldChunks;
use super::layout::{ChunkEntry, DiskChunk, FileChunk};
use super::mask::BlockState;
use super::owners::Owner;
use crate::Result;
use crate::device::{BlockDevice, regions};
use crate::progress::Progress;

/// Maximum number of chunks moved per flush; limits how long writers wait.
const MOVES_AT_ONCE: usize = 256;
/// Number of free chunks that does not justify a walk through the tables.
const SLACK: u64 = 4;

impl Asif {
    /// Moves chunks down until the file has no free chunks but [orphans](Self::orphans), and
    /// flushes. Lent chunks, and all chunks before them, stay in place. The image is consistent
    /// between any two steps, so compaction can be canceled and resumed at any time.
    pub fn compact(&self, progress: &dyn Progress) -> Result<()> {
        self.check_changeable()?;
        self.begin()?;
        self.flush()?;
        progress.stage("pack", 0);
        loop {
            progress.check()?;
            let _one_at_a_time = self.one_at_a_time()?;
            let before = self.space.extent();
            self.failed.record(
                self.relocate(FileChunk(0))
                    .and_then(|held| self.commit(held)),
            )?;
            let after = self.space.extent();
            progress.advance(before.1.0.saturating_sub(after.1.0) * self.geometry.chunk_bytes());
            if after == before {
                return Ok(());
            }
        }
    }

    /// Moves some chunks if more than a quarter of the file is free, the limit of macOS.
    pub(super) fn relocate_some(&self) -> Result<HeldChunks<'_>> {
        if !self.begun.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        let (used, end) = self.space.extent();
        let wanted = FileChunk((used + self.first_chunk().0) * 4 / 3 + SLACK);
        if end <= wanted {
            Ok(Vec::new())
        } else {
            self.relocate(wanted)
        }
    }

    /// Moves some of the last chunks of the file, those from `above` on. Partly written ones stay
    /// locked until the commit.
    fn relocate(&self, above: FileChunk) -> Result<HeldChunks<'_>> {
        let mut held = Vec::new();
        for (from, owner) in self
            .last_chunks(MOVES_AT_ONCE)?
            .into_iter()
            .take_while(|(from, _)| *from >= above)
        {
            let Some(to) = self.space.allocate_before(from)? else {
                break;
            };
            match self.relocate_one(owner, from, to, &mut held) {
                Ok(true) => self.space.release(from),
                Ok(false) => self.space.free_chunk(to),
                Err(error) => {
                    self.space.free_chunk(to);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// Moves one chunk. Returns false if it stays, because it is pinned or no longer has this owner.
    fn relocate_one<'a>(
        &'a self,
        owner: Owner,
        from: FileChunk,
        to: FileChunk,
        held: &mut HeldChunks<'a>,
    ) -> Result<bool> {
        match owner {
            Owner::Table(table) => self
                .tables
                .move_table(table, to)
                .map(|left| left == Some(from)),
            Owner::Bitmap(chunk) => self.tables.move_bitmap(chunk, from, to).map(|()| true),
            Owner::Data(chunk) => {
                let Some(alone) = self.units.exclusive_unless_pinned(chunk.0) else {
                    return Ok(false);
                };
                let moved = match self.tables.entry(chunk)? {
                    ChunkEntry::Full(place) if place == from => ChunkEntry::Full(to),
                    ChunkEntry::Partial(place) if place == from => ChunkEntry::Partial(to),
                    _ => return Ok(false),
                };
                self.copy_chunk(chunk, moved, from, to)?;
                self.tables.replace(chunk, moved)?;
                if let ChunkEntry::Partial(_) = moved {
                    held.push(alone);
                }
                Ok(true)
            }
        }
    }

    /// Copies the written blocks of a chunk. Other blocks are skipped, so that they do not become
    /// allocated.
    fn copy_chunk(
        &self,
        chunk: DiskChunk,
        entry: ChunkEntry,
        from: FileChunk,
        to: FileChunk,
    ) -> Result<()> {
        let copy = |within: Range<u64>| {
            let (from, to) = (
                self.geometry.in_file(from, within.clone()),
                self.geometry.in_file(to, within),
            );
            regions::copy(&*self.file, from.start, to.start, from.end - from.start)
        };
        let whole = 0..self.geometry.chunk_bytes();
        let ChunkEntry::Partial(_) = entry else {
            return copy(whole);
        };
        let (mask, mut rest) = (self.tables.mask(chunk)?, whole);
        while !rest.is_empty() {
            let (state, run) = self.run(&mask, &rest);
            rest.start = run.end;
            if state == BlockState::Written {
                copy(run)?;
            }
        }
        Ok(())
    }
}
