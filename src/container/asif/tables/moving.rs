//! Relocation of tables and bitmaps within the file, so that it can be truncated.

use std::sync::Arc;

use super::super::layout::{DiskChunk, FileChunk};
use super::{NewBitmap, PER_PAGE, PageId, Tables};
use crate::Result;
use crate::device::regions;

impl Tables {
    /// Moves a table to another chunk of the file. Returns its previous chunk.
    pub(in crate::container::asif) fn move_table(
        &self,
        table: u32,
        to: FileChunk,
    ) -> Result<Option<FileChunk>> {
        let _alone = self.moving.exclusive(u64::from(table));
        let Some(from) = self.state.read().directory.get(&table).copied() else {
            return Ok(None);
        };
        self.copy_chunk(from, to)?;
        let mut state = self.state.write();
        state.directory.insert(table, to);
        state.directory_changed = true;
        Ok(Some(from))
    }

    /// Moves the bitmap of the group of `chunk` from one chunk of the file to another.
    pub(in crate::container::asif) fn move_bitmap(
        &self,
        chunk: DiskChunk,
        from: FileChunk,
        to: FileChunk,
    ) -> Result<()> {
        let place = self.geometry.table_place(chunk);
        let id = PageId::of(place.table, place.bitmap_entry);
        let _alone = self.moving.exclusive(u64::from(place.table));
        self.copy_chunk(from, to)?;
        loop {
            {
                let mut state = self.state.write();
                if let Some(page) = state.pages.change(id) {
                    Arc::make_mut(page)[(place.bitmap_entry % PER_PAGE) as usize] = to.0.into();
                    state.new_bitmaps.push(NewBitmap {
                        table: place.table,
                        entry: place.bitmap_entry,
                        chunk: to,
                    });
                    let moved = state
                        .masks
                        .values_mut()
                        .filter(|slot| slot.bitmap == Some(from));
                    moved.for_each(|slot| slot.bitmap = Some(to));
                    return Ok(());
                }
            }
            self.read_page(id)?;
        }
    }

    fn copy_chunk(&self, from: FileChunk, to: FileChunk) -> Result<()> {
        let bytes = self.geometry.chunk_bytes();
        regions::copy(&*self.file, from.0 * bytes, to.0 * bytes, bytes)
    }
}
