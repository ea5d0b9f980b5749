//! The masks of partly written chunks; a bitmap stores many of them.

use std::ops::Range;
use std::sync::Arc;

use super::super::LAYER;
use super::super::geometry::TablePlace;
use super::super::layout::{ChunkEntry, DiskChunk, FileChunk, parse_bitmap_entry};
use super::super::mask::{BlockState, Mask};
use super::super::space::Space;
use super::{NewBitmap, PAST_ANY_FILE, PER_PAGE, PageId, TableState, Tables};
use crate::size::to_usize;
use crate::{Error, Result};

/// The mask of a chunk, and the bitmap that stores it, if that is known to exist.
#[derive(Debug, Clone)]
pub(super) struct MaskSlot {
    pub(super) mask: Arc<Mask>,
    pub(super) bitmap: Option<FileChunk>,
}

/// Error message about a mask that contradicts the entry of its chunk: the data of the chunk would read
/// as zeros, and be overwritten.
pub(in crate::container::asif) const UNUSED_MASK: &str =
    "a partly written chunk has no written block in its bitmap: the bitmap or its entry is damaged";

impl Tables {
    /// Returns the mask of `chunk`, which must be partly written. The caller must hold its lock.
    pub(in crate::container::asif) fn mask(&self, chunk: DiskChunk) -> Result<Arc<Mask>> {
        if let Some(slot) = self.state.read().masks.get(chunk) {
            return Ok(slot.mask.clone());
        }
        let place = self.geometry.table_place(chunk);
        loop {
            let raw = self.raw_entry(place.table, place.bitmap_entry)?;
            let bitmap = parse_bitmap_entry(raw)
                .and_then(|bitmap| bitmap.ok_or("a partly written chunk has no bitmap"));
            let bitmap = bitmap.and_then(|bitmap| {
                if self.geometry.can_be(bitmap) {
                    Ok(bitmap)
                } else {
                    Err(PAST_ANY_FILE)
                }
            });
            let bitmap = bitmap.map_err(|wrong| self.wrong(&place, wrong))?;
            let _stays = self.moving.shared(u64::from(place.table));
            if self
                .state
                .read()
                .raw_in_memory(place.table, place.bitmap_entry)
                != Some(raw)
            {
                continue; // moved, or out of memory again
            }
            let mask = Arc::new(self.read_mask(self.mask_place(bitmap, &place))?);
            self.state.write().masks.insert(
                chunk,
                MaskSlot {
                    mask: mask.clone(),
                    bitmap: Some(bitmap),
                },
            );
            return Ok(mask);
        }
    }

    fn read_mask(&self, at: Range<u64>) -> Result<Mask> {
        let mut bytes = vec![0; to_usize(at.end - at.start)];
        self.read_padded(at.start, &mut bytes)?;
        let mask = Mask::parse(bytes).map_err(|block| {
            let wrong = format!("block {block} of a chunk has the invalid state 3");
            Error::corrupt(LAYER, at.start + u64::from(block / 4), wrong)
        })?;
        match mask.is_unused() {
            true => Err(Error::corrupt(LAYER, at.start, UNUSED_MASK)),
            false => Ok(mask),
        }
    }

    pub(super) fn mask_place(&self, bitmap: FileChunk, place: &TablePlace) -> Range<u64> {
        let bytes = u64::from(self.geometry.mask_bytes());
        let start = u64::from(place.in_group) * bytes;
        self.geometry.in_file(bitmap, start..start + bytes)
    }

    /// Replaces the mask of a chunk that stays partly written at the same place. The caller must
    /// hold its exclusive lock.
    pub(in crate::container::asif) fn set_mask(&self, chunk: DiskChunk, mask: Mask) {
        self.state.write().set_mask(chunk, Some(Arc::new(mask)));
    }

    /// Makes a partly written chunk, all of whose blocks are written now, a full one at the same place.
    /// The caller must hold its exclusive lock.
    ///
    /// A mask on disk, which no longer counts, becomes full too, so that a wrong state in the entry
    /// does not hide a block.
    pub(in crate::container::asif) fn set_full(
        &self,
        chunk: DiskChunk,
        place: FileChunk,
        mask: Mask,
        space: &Space,
    ) -> Result<()> {
        let is_stored = self
            .state
            .read()
            .masks
            .get(chunk)
            .is_some_and(|slot| slot.bitmap.is_some());
        self.set(
            chunk,
            ChunkEntry::Full(place),
            is_stored.then_some(mask),
            space,
        )
    }

    /// Makes the mask on disk of a full chunk, which does not count, a full one: a wrong state in the
    /// entry, now or later, then hides no block. Does nothing if the chunk was never partly written.
    /// The caller must hold its exclusive lock.
    pub(in crate::container::asif) fn fill_mask(&self, chunk: DiskChunk) -> Result<()> {
        let place = self.geometry.table_place(chunk);
        let raw = self.raw_entry(place.table, place.bitmap_entry)?;
        if let Ok(Some(_)) = parse_bitmap_entry(raw) {
            match self.mask(chunk) {
                Ok(mask) if mask.is_full() => {}
                Ok(_) => {
                    let mask = Mask::all(self.geometry.mask_bytes(), BlockState::Written);
                    self.set_mask(chunk, mask);
                }
                Err(error) if error.io_kind().is_some() => return Err(error),
                // A chunk with this mask cannot be read.
                Err(_) => {}
            }
        }
        self.leave_mask(chunk);
        Ok(())
    }

    /// Leaves the mask on disk of a full chunk as it is until the image is opened again. The tables on
    /// disk may still refer to it.
    pub(in crate::container::asif) fn leave_mask(&self, chunk: DiskChunk) {
        let (id, word, bit) = self.filled_bit(chunk);
        self.state.write().filled.entry(id).or_default()[word] |= bit;
    }

    /// Returns true if the mask on disk of a full chunk needs no change.
    pub(in crate::container::asif) fn has_filled_mask(&self, chunk: DiskChunk) -> bool {
        let (id, word, bit) = self.filled_bit(chunk);
        let state = self.state.read();
        state
            .filled
            .get(&id)
            .is_some_and(|bits| bits[word] & bit != 0)
    }

    fn filled_bit(&self, chunk: DiskChunk) -> (PageId, usize, u64) {
        let place = self.geometry.table_place(chunk);
        let within = place.entry % PER_PAGE;
        let id = PageId::of(place.table, place.entry);
        (id, (within / 64) as usize, 1 << (within % 64))
    }

    /// Allocates a bitmap for the group of `chunk` if it has none, and records it with the chunk's
    /// mask.
    pub(super) fn ensure_bitmap(&self, chunk: DiskChunk, space: &Space) -> Result<()> {
        let place = self.geometry.table_place(chunk);
        let id = PageId::of(place.table, place.bitmap_entry);
        let raw = self.raw_entry(place.table, place.bitmap_entry)?;
        let known = parse_bitmap_entry(raw).map_err(|wrong| self.wrong(&place, wrong))?;
        let bitmap = match known {
            Some(bitmap) => bitmap,
            None => self.allocate_blank(space)?,
        };
        while known.is_none() {
            {
                let mut state = self.state.write();
                if let Some(page) = state.pages.change(id) {
                    Arc::make_mut(page)[(place.bitmap_entry % PER_PAGE) as usize] = bitmap.0.into();
                    state.new_bitmaps.push(NewBitmap {
                        table: place.table,
                        entry: place.bitmap_entry,
                        chunk: bitmap,
                    });
                    state.bitmaps += 1;
                    break;
                }
            }
            self.page_in(id)?;
        }
        if let Some(slot) = self.state.write().masks.adjust(chunk) {
            slot.bitmap = Some(bitmap);
        }
        Ok(())
    }
}

impl TableState {
    pub(super) fn set_mask(&mut self, chunk: DiskChunk, mask: Option<Arc<Mask>>) {
        let Some(mask) = mask else {
            return self.masks.remove(chunk);
        };
        if self.masks.get(chunk).is_none() {
            self.masks.insert(
                chunk,
                MaskSlot {
                    mask: mask.clone(),
                    bitmap: None,
                },
            );
        }
        if let Some(slot) = self.masks.change(chunk) {
            slot.mask = mask;
        }
    }
}
