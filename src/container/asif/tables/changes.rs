//! Collection of the changes that are to be written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;
use zerocopy::big_endian::U64;

use super::super::layout::{DiskChunk, FileChunk, entry_offset};
use super::super::mask::Mask;
use super::super::space::Space;
use super::{TablePage, TableState, Tables};
use crate::Result;
use crate::size::to_usize;

#[derive(Debug, Clone, Copy)]
pub(super) struct NewBitmap {
    pub(super) table: u32,
    pub(super) entry: u32,
    pub(super) chunk: FileChunk,
}

/// A snapshot of all changes, with their file offsets.
#[derive(Debug)]
pub(in crate::container::asif) struct Changes {
    pub(in crate::container::asif) masks: Vec<(u64, Arc<Mask>)>,
    pub(in crate::container::asif) bitmap_entries: Vec<(u64, U64)>,
    pages: Vec<(Range<u64>, Arc<TablePage>)>,
    /// The complete directory, if it changed.
    pub(in crate::container::asif) directory: Option<BTreeMap<u32, FileChunk>>,
}

impl Changes {
    pub(in crate::container::asif) fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages
            .iter()
            .map(|(at, page)| (at.start, &page.as_bytes()[..to_usize(at.end - at.start)]))
    }
}

impl Tables {
    /// Returns true if the changes take so much memory that they should be committed.
    pub(in crate::container::asif) fn is_full_of_changes(&self) -> bool {
        let state = self.state.read();
        state.pages.count_changed() > state.pages.limit() / 2
            || state.masks.count_changed() > state.masks.limit() / 2
    }

    /// Returns all changes so far and marks them as being written until [`written`](Self::written).
    /// Calls must be serialized.
    pub(in crate::container::asif) fn take_changes(&self, space: &Space) -> Result<Changes> {
        loop {
            let without: Vec<DiskChunk> = self
                .state
                .read()
                .masks
                .changed()
                .filter(|(_, slot)| slot.bitmap.is_none())
                .map(|(chunk, _)| chunk)
                .collect();
            for chunk in without {
                self.ensure_bitmap(chunk, space)?;
            }
            let mut state = self.state.write();
            if state.masks.changed().all(|(_, slot)| slot.bitmap.is_some()) {
                return Ok(self.changes(&mut state));
            }
        }
    }

    fn changes(&self, state: &mut TableState) -> Changes {
        let table = |state: &TableState, table: u32| state.directory.get(&table).copied();
        let mut changes = Changes {
            masks: Vec::new(),
            bitmap_entries: Vec::new(),
            pages: Vec::new(),
            directory: None,
        };
        for (chunk, slot) in state.masks.take_changed() {
            let at = slot.bitmap.map(|bitmap| {
                self.mask_place(bitmap, &self.geometry.table_place(chunk))
                    .start
            });
            changes.masks.extend(at.map(|at| (at, slot.mask)));
        }
        for new in std::mem::take(&mut state.new_bitmaps) {
            let at = table(state, new.table)
                .map(|table| self.geometry.in_file(table, 0..0).start + entry_offset(new.entry));
            changes
                .bitmap_entries
                .extend(at.map(|at| (at, U64::new(new.chunk.0))));
        }
        for (id, page) in state.pages.take_changed() {
            changes
                .pages
                .extend(table(state, id.table).map(|table| (self.page_place(table, id), page)));
        }
        if std::mem::take(&mut state.directory_changed) {
            changes.directory = Some(state.directory.clone());
        }
        changes
    }

    /// Marks the changes that were being written as written.
    pub(in crate::container::asif) fn written(&self) {
        let mut state = self.state.write();
        state.pages.written();
        state.masks.written();
    }
}
