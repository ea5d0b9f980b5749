//! Free space of a volume, by the allocation map of its file system.

use std::ops::Range;
use std::sync::Arc;

use super::apfs;
use super::volume::Volume;
use crate::Result;
use crate::fs::FreeMap;

impl Volume {
    /// Returns the map of free bytes, in bytes of the volume: on the disk they are `range.start`
    /// further. `None`: the map of this format is not supported yet.
    ///
    /// The state of the volume is not checked; a caller that relies on the map calls
    /// [`FreeMap::is_in_order`].
    pub fn free_map(&self) -> Result<Option<Arc<dyn FreeMap>>> {
        self.driver().free_map(self)
    }

    /// Returns the end of the volume by its own header, in bytes of its device. `None`: not
    /// supported for this format.
    pub(crate) fn recorded_len(&self) -> Result<Option<u64>> {
        self.driver().recorded_len(self)
    }

    /// Returns the free map after a quick check that the volume is clean and its map not obviously
    /// wrong, as a trim requires. [`Kind::Conflict`](crate::Kind::Conflict) or
    /// [`Kind::Corrupt`](crate::Kind::Corrupt) if not.
    pub fn trusted_free_map(&self) -> Result<Option<Arc<dyn FreeMap>>> {
        self.driver().trusted_free_map(self)
    }

    /// Returns the ranges of the volume's own structures that its check reads as a whole, and that
    /// may be zeros where they are not used yet. They are relative to the start of the volume. Empty
    /// for formats that are not checked.
    pub(crate) fn own_ranges(&self) -> Result<Vec<Range<u64>>> {
        self.driver().own_ranges(self)
    }

    /// Returns the free map as it will be after a trim has freed the blocks that only older
    /// checkpoints of an APFS container use.
    pub fn projected_free_map(&self) -> Result<Option<Arc<dyn FreeMap>>> {
        if self.format.is_container() {
            Ok(Some(self.container()?.projected_free_map()?))
        } else {
            self.trusted_free_map()
        }
    }

    /// Returns the number of bytes of an APFS container that older checkpoints retain; `None` for
    /// anything else, or if it cannot be read.
    pub fn pending(&self) -> Option<u64> {
        if !self.format.is_container() {
            return None;
        }
        self.container().ok().map(|container| container.pending())
    }

    /// Frees the blocks that only older checkpoints of an APFS container use, provided that none of
    /// its volumes is open for changes. Does nothing for other formats.
    pub(crate) fn release_queued(&self) -> Result<()> {
        if self.format.is_container() {
            apfs::release_queued(&self.container()?)
        } else {
            Ok(())
        }
    }
}
