//! Owners of chunks of the file. The format does not record them, so all tables are searched.

use std::collections::BTreeMap;

use super::Asif;
use super::geometry::EntryKind;
use super::layout::{ChunkEntry, DiskChunk, FileChunk, parse_bitmap_entry};
use crate::Result;

/// Use of a chunk of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Data(DiskChunk),
    /// The bitmap of this chunk's group.
    Bitmap(DiskChunk),
    Table(u32),
}

impl Asif {
    /// Returns the last `count` used chunks of the file with their owners, the last one first.
    /// References past the last used chunk are damage and ignored.
    pub(super) fn last_chunks(&self, count: usize) -> Result<Vec<(FileChunk, Owner)>> {
        let (mut last, (_, end)) = (BTreeMap::new(), self.space.extent());
        let mut keep = |chunk: FileChunk, owner: Owner| {
            if chunk < end {
                last.insert(chunk, owner);
            }
            if last.len() > count {
                last.pop_first();
            }
        };
        for (table, chunk) in self.tables.directory() {
            keep(chunk, Owner::Table(table));
            self.tables.each_entry(table, &mut |entry, raw| match self
                .geometry
                .entry_kind(table, entry)
            {
                EntryKind::Data(chunk) => {
                    ChunkEntry::parse(raw)
                        .ok()
                        .and_then(ChunkEntry::chunk)
                        .into_iter()
                        .for_each(|place| keep(place, Owner::Data(chunk)));
                }
                EntryKind::Bitmap => {
                    let group = self.geometry.last_of_group(table, entry);
                    if let (Ok(Some(bitmap)), Some(chunk)) = (parse_bitmap_entry(raw), group) {
                        keep(bitmap, Owner::Bitmap(chunk));
                    }
                }
                EntryKind::Nothing => {}
            })?;
        }
        Ok(last.into_iter().rev().collect())
    }
}
