//! The extents of streams among the volume's records, and the extent references that count the
//! users of blocks (§8.5, §9).

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::LAYER;
use super::space::AllocationUse;
use super::volume::{Volume, corrupt};
use crate::apfs::btree::{Key, Tree, TreeKind};
use crate::apfs::layout::{
    ExtentRefRaw, FileExtentRaw, FileId, KeyRest, Paddr, RecordKey, UPDATE_OWNER, extent_flags,
    extent_ref_kind, record_type,
};
use crate::apfs::stream::{self, StoredRun};
use bandsaw_core::{Error, Kind, Result};

/// A run of a stream, in whole blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamRun {
    /// Offset in the stream in bytes.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// First block, `None` for a hole.
    pub(super) place: Option<Paddr>,
    /// True if the blocks are allocated, but read as zeros.
    pub(super) unwritten: bool,
    /// Tweak number of the first block on an encrypted volume.
    pub(super) crypto_id: Option<u64>,
}

impl StreamRun {
    pub(super) fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Returns a hole.
    pub(super) fn hole(start: u64, len: u64) -> Self {
        Self {
            start,
            len,
            place: None,
            unwritten: false,
            crypto_id: None,
        }
    }

    /// Returns the part within `range`, which must overlap it.
    fn within(&self, range: &Range<u64>, block: u64) -> Self {
        let (start, end) = (self.start.max(range.start), self.end().min(range.end));
        let before = (start - self.start) / block;
        let place = self.place.map(|place| Paddr(place.0 + before));
        let crypto_id = self.crypto_id.map(|id| id.wrapping_add(before));
        Self {
            start,
            len: end - start,
            place,
            unwritten: self.unwritten,
            crypto_id,
        }
    }

    /// Returns its blocks.
    pub(super) fn blocks(&self, block: u64) -> Option<Range<u64>> {
        self.place.map(|place| place.0..place.0 + self.len / block)
    }
}

/// A stream, and the owner of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamIds {
    pub(super) stream: FileId,
    pub(super) owner: FileId,
}

impl Volume {
    pub(super) fn block(&self) -> u64 {
        self.store.block_size.get().into()
    }

    /// Returns the runs of a stream that overlap `range`.
    pub(super) fn runs(&self, stream: FileId, range: &Range<u64>) -> Result<Vec<StreamRun>> {
        let tree = self.files.reader()?;
        let wanted = RecordKey::numbered(stream, record_type::FILE_EXTENT, range.start);
        let first = tree.floor(&Key::Record(wanted), |record| match record.key {
            Key::Record(RecordKey {
                id,
                kind: record_type::FILE_EXTENT,
                rest: KeyRest::Number(start),
            }) if id == stream => start,
            _ => range.start,
        })?;
        let from = RecordKey::numbered(
            stream,
            record_type::FILE_EXTENT,
            first.unwrap_or(range.start),
        );
        let mut cursor = tree.seek(&Key::Record(from))?;
        let mut runs = Vec::new();
        while let Some(record) = cursor.next()? {
            let Key::Record(RecordKey {
                id,
                kind: record_type::FILE_EXTENT,
                rest: KeyRest::Number(start),
            }) = record.key
            else {
                break;
            };
            if id != stream || start >= range.end {
                break;
            }
            let run = self.run(stream, start, record.value)?;
            if run.end() > range.start {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// Returns the runs of a stream that overlap `range` in the form that readers use, without
    /// holes.
    pub(super) fn stored_runs(
        &self,
        stream: FileId,
        range: &Range<u64>,
    ) -> Result<Vec<stream::StreamRun>> {
        let stored = |StreamRun {
                          start,
                          len,
                          place,
                          unwritten,
                          crypto_id,
                      }| {
            let at = self.store.offset(place?);
            let stored = if unwritten {
                StoredRun::Unwritten
            } else {
                StoredRun::Data {
                    at,
                    crypto_id: crypto_id.unwrap_or(0),
                }
            };
            Some(stream::StreamRun { start, len, stored })
        };
        Ok(self
            .runs(stream, range)?
            .into_iter()
            .filter_map(stored)
            .collect())
    }

    fn run(&self, stream: FileId, start: u64, value: &[u8]) -> Result<StreamRun> {
        let (raw, _) = FileExtentRaw::read_from_prefix(value)
            .map_err(|_| corrupt(stream, "truncated extent"))?;
        let (len, block) = (raw.len(), self.block());
        let place = Some(Paddr(raw.paddr.get())).filter(|place| place.0 != 0);
        let inside = place.is_none_or(|place| {
            place
                .0
                .checked_add(len / block)
                .is_some_and(|end| end <= self.store.blocks)
        });
        let whole = len > 0
            && len.is_multiple_of(block)
            && start.is_multiple_of(block)
            && start.checked_add(len).is_some();
        if !inside || !whole {
            return Err(corrupt(stream, "malformed extent"));
        }
        let crypto_id = place
            .filter(|_| self.read.cipher.is_some())
            .map(|_| raw.crypto_id.get());
        Ok(StreamRun {
            start,
            len,
            place,
            unwritten: raw.flags() & extent_flags::UNWRITTEN != 0,
            crypto_id,
        })
    }

    fn put_run(&mut self, stream: FileId, run: &StreamRun) -> Result<()> {
        let flags = if run.unwritten {
            extent_flags::UNWRITTEN
        } else {
            0
        };
        let flags = flags
            | run
                .crypto_id
                .map_or(0, |_| extent_flags::CRYPTO_ID_IS_TWEAK);
        let raw = FileExtentRaw::new(
            run.len,
            run.place.unwrap_or(Paddr(0)),
            run.crypto_id.unwrap_or(0),
            flags,
        );
        self.put_raw(
            RecordKey::numbered(stream, record_type::FILE_EXTENT, run.start),
            &raw,
        )
    }

    /// Removes `range`, whole blocks, from a stream and frees its blocks. Returns the number of
    /// bytes that were holes.
    pub(super) fn cut(&mut self, stream: FileId, range: &Range<u64>) -> Result<u64> {
        let block = self.block();
        let mut holes = 0;
        for run in self.runs(stream, range)? {
            self.remove_record(RecordKey::numbered(
                stream,
                record_type::FILE_EXTENT,
                run.start,
            ))?;
            if run.start < range.start {
                self.put_run(stream, &run.within(&(run.start..range.start), block))?;
            }
            if run.end() > range.end {
                self.put_run(stream, &run.within(&(range.end..run.end()), block))?;
            }
            let gone = run.within(range, block);
            match gone.blocks(block) {
                Some(blocks) => self.release(blocks)?,
                None => holes += gone.len,
            }
        }
        Ok(holes)
    }

    /// Adds a run to a stream where it has none, merging it with the run before if their blocks are
    /// contiguous.
    pub(super) fn insert_run(&mut self, ids: StreamIds, run: StreamRun) -> Result<()> {
        let block = self.block();
        if let Some(blocks) = run.blocks(block) {
            let count = blocks.end - blocks.start;
            // Counts on disk, which may be wrong.
            let raw = &mut self.read.raw;
            raw.allocated_blocks = raw.allocated_blocks.get().saturating_add(count).into();
            raw.total_blocks_allocated = raw
                .total_blocks_allocated
                .get()
                .saturating_add(count)
                .into();
        }
        let before = match run.start.checked_sub(block) {
            Some(start) => self.runs(ids.stream, &(start..run.start))?.pop(),
            None => None,
        };
        if let Some(before) =
            before.filter(|before| before.end() == run.start && before.unwritten == run.unwritten)
        {
            let joined = StreamRun {
                len: before.len + run.len,
                ..before
            };
            let numbered = before
                .crypto_id
                .map(|id| id.wrapping_add(before.len / block))
                == run.crypto_id;
            match (before.blocks(block), run.blocks(block)) {
                (None, None) => return self.put_run(ids.stream, &joined),
                (Some(a), Some(b))
                    if a.end == b.start
                        && numbered
                        && self.extend_reference(&a, b.end, ids.owner)? =>
                {
                    return self.put_run(ids.stream, &joined);
                }
                _ => {}
            }
        }
        if let Some(blocks) = run.blocks(block) {
            let raw = ExtentRefRaw::new(
                extent_ref_kind::NEW,
                blocks.end - blocks.start,
                ids.owner.0,
                1,
            );
            self.put_reference(blocks.start, &raw)?;
        }
        self.put_run(ids.stream, &run)
    }

    /// Allocates blocks for `len` bytes of a stream that has none there, in as few runs as
    /// possible, preferably following the blocks before `start`.
    pub(super) fn allocate(
        &mut self,
        ids: StreamIds,
        start: u64,
        len: u64,
    ) -> Result<Vec<StreamRun>> {
        let block = self.block();
        let mut runs = Vec::new();
        let mut at = start;
        let mut after = match start.checked_sub(block) {
            Some(before) => self
                .runs(ids.stream, &(before..start))?
                .pop()
                .and_then(|run| run.blocks(block)),
            None => None,
        };
        while at < start + len {
            let wanted = (start + len - at) / block;
            let next = match after.take() {
                Some(before) => self.space.allocate_at(before.end, wanted)?,
                None => None,
            };
            let blocks = match next {
                Some(blocks) => blocks,
                None => self.space.allocate(wanted, AllocationUse::Contents)?,
            };
            let len = (blocks.end - blocks.start) * block;
            let crypto_id = self.read.cipher.as_ref().map(|_| blocks.start);
            let run = StreamRun {
                start: at,
                len,
                place: Some(Paddr(blocks.start)),
                unwritten: false,
                crypto_id,
            };
            self.insert_run(ids, run)?;
            at = run.end();
            runs.push(run);
        }
        Ok(runs)
    }

    // Extent references.

    fn reference(&self, block: u64) -> Result<Option<(u64, ExtentRefRaw)>> {
        reference_in(&self.references.reader()?, block)
    }

    fn put_reference(&mut self, first: u64, raw: &ExtentRefRaw) -> Result<()> {
        let mut key = Vec::new();
        RecordKey::single(FileId(first), record_type::EXTENT_REF).put(&mut key);
        debug_assert!(TreeKind::ExtentReferences.key(&key).is_some());
        self.references.put(&key, raw.as_bytes())
    }

    fn remove_reference(&mut self, first: u64) -> Result<()> {
        let mut key = Vec::new();
        RecordKey::single(FileId(first), record_type::EXTENT_REF).put(&mut key);
        self.references.remove(&key).map(drop)
    }

    /// Extends the reference to `end` if there is one to exactly these blocks. Returns true if so.
    fn extend_reference(&mut self, blocks: &Range<u64>, end: u64, owner: FileId) -> Result<bool> {
        match self.reference(blocks.start)? {
            Some((first, raw))
                if first == blocks.start
                    && raw.blocks() == blocks.end - blocks.start
                    && raw.kind() == extent_ref_kind::NEW
                    && (raw.owner.get(), raw.references.get()) == (owner.0, 1) =>
            {
                self.put_reference(
                    first,
                    &ExtentRefRaw::new(extent_ref_kind::NEW, end - first, owner.0, 1),
                )?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Changes the owner of the blocks of a stream that has no other users.
    pub(super) fn own(&mut self, stream: FileId, owner: FileId) -> Result<()> {
        let block = self.block();
        for blocks in self
            .runs(stream, &(0..u64::MAX))?
            .iter()
            .filter_map(|run| run.blocks(block))
        {
            let mut at = blocks.start;
            while at < blocks.end {
                match self.reference(at)? {
                    Some((first, raw))
                        if first == at
                            && raw.kind() == extent_ref_kind::NEW
                            && raw.references.get() == 1
                            && raw.blocks() > 0 =>
                    {
                        self.put_reference(
                            at,
                            &ExtentRefRaw::new(extent_ref_kind::NEW, raw.blocks(), owner.0, 1),
                        )?;
                        at += raw.blocks();
                    }
                    _ => {
                        return Err(corrupt(
                            stream,
                            "some of its blocks have another owner or a reference count other than 1",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives a stream with a single user the number of another stream, which must be unused.
    pub(super) fn renumber(&mut self, from: FileId, to: FileId) -> Result<()> {
        self.own(from, to)?;
        for run in self.runs(from, &(0..u64::MAX))? {
            self.remove_record(RecordKey::numbered(
                from,
                record_type::FILE_EXTENT,
                run.start,
            ))?;
            self.put_run(to, &run)?;
        }
        let [from, to] =
            [from, to].map(|stream| RecordKey::single(stream, record_type::DATA_STREAM));
        if let Some(record) = self.record(from)? {
            self.remove_record(from)?;
            self.put(to, &record)?;
        }
        Ok(())
    }

    /// Decrements the reference counts of these blocks; those that reach zero are freed.
    fn release(&mut self, blocks: Range<u64>) -> Result<()> {
        let mut at = blocks.start;
        while at < blocks.end {
            let Some((first, raw)) = self.reference(at)? else {
                at = self.release_from_snapshot(at..blocks.end)?;
                continue;
            };
            let (end, last) = (first + raw.blocks(), (first + raw.blocks()).min(blocks.end));
            // For a snapshot's blocks the record has the change of the count, which may be
            // negative.
            let users = raw.references.get();
            let is_new = raw.kind() == extent_ref_kind::NEW;
            if !is_new && raw.kind() != extent_ref_kind::UPDATE || is_new && users == 0 {
                return Err(Error::new(
                    Kind::Corrupt,
                    LAYER,
                    format!("the reference record of block {at} is of an unknown kind"),
                ));
            }
            self.remove_reference(first)?;
            let rest = [
                (first..at, users),
                (at..last, users.wrapping_sub(1)),
                (last..end, users),
            ];
            for (run, users) in rest
                .into_iter()
                .filter(|(run, users)| !run.is_empty() && *users != 0)
            {
                let raw =
                    ExtentRefRaw::new(raw.kind(), run.end - run.start, raw.owner.get(), users);
                self.put_reference(run.start, &raw)?;
            }
            if is_new && users == 1 {
                self.space.free_run(at..last)?;
                let count = last - at;
                let raw = &mut self.read.raw;
                raw.allocated_blocks = raw.allocated_blocks.get().saturating_sub(count).into();
                raw.total_blocks_freed = raw.total_blocks_freed.get().saturating_add(count).into();
            }
            at = last;
        }
        Ok(())
    }

    /// Records one user less for blocks whose reference is in a snapshot's tree, up to the end of
    /// that reference or to the next record. The blocks stay until the snapshot is deleted.
    fn release_from_snapshot(&mut self, blocks: Range<u64>) -> Result<u64> {
        let mut end = None;
        for kept in &mut self.kept {
            let found = reference_in(kept.tree(&self.store)?, blocks.start)?
                .filter(|(_, raw)| raw.kind() == extent_ref_kind::NEW);
            if let Some((first, raw)) = found {
                end = Some(first + raw.blocks());
                break;
            }
        }
        let key = Key::Record(RecordKey::single(
            FileId(blocks.start),
            record_type::EXTENT_REF,
        ));
        let next = self
            .references
            .reader()?
            .seek(&key)?
            .next()?
            .and_then(|record| match record.key {
                Key::Record(key) => Some(key.id.0),
                Key::Pair(..) => None,
            });
        let end = end.map(|end| next.map_or(end, |next| next.min(end)).min(blocks.end));
        let Some(end) = end.filter(|end| *end > blocks.start) else {
            let message = format!(
                "the volume is damaged: no record of the owner of block {}",
                blocks.start
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        };
        let raw = ExtentRefRaw::new(
            extent_ref_kind::UPDATE,
            end - blocks.start,
            UPDATE_OWNER,
            1_u32.wrapping_neg(),
        );
        self.put_reference(blocks.start, &raw)?;
        Ok(end)
    }
}

/// Returns the reference in a tree that covers `block`, and its first block.
fn reference_in(tree: &Tree, block: u64) -> Result<Option<(u64, ExtentRefRaw)>> {
    let key = Key::Record(RecordKey::single(FileId(block), record_type::EXTENT_REF));
    let found = tree.floor(&key, |record| {
        let Key::Record(key) = record.key else {
            return None;
        };
        let (raw, _) = ExtentRefRaw::read_from_prefix(record.value).ok()?;
        (key.kind == record_type::EXTENT_REF).then_some((key.id.0, raw))
    })?;
    Ok(found.flatten().filter(|(first, raw)| {
        first
            .checked_add(raw.blocks())
            .is_some_and(|end| end > block)
    }))
}
