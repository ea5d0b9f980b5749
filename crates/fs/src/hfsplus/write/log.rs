//! The journal of a mount, and its blocks.

use crate::hfsplus::journal::Journal;
use crate::hfsplus::layout::Extent;
use bandsaw_core::Result;

use crate::write_buffer::PendingWrite;

/// The journal that all changes use, from the first one to the unmount.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Journal,
    /// The extents of the journal and its info block, if they are removed at the unmount.
    pub(super) transient: Option<Vec<Extent>>,
}

impl Log {
    /// Returns true if the volume has no journal outside of this mount.
    pub(super) fn is_transient(&self) -> bool {
        self.transient.is_some()
    }

    /// Returns the number of blocks that will be free after the unmount.
    pub(super) fn blocks(&self) -> u64 {
        self.transient
            .iter()
            .flatten()
            .map(|extent| u64::from(extent.count))
            .sum()
    }

    /// Returns true if `bytes` of changes fit in one transaction, even if no two pages are
    /// adjacent.
    pub(super) fn fits(&self, bytes: u64, page: u64) -> bool {
        self.journal
            .fits(bytes, usize::try_from(bytes / page).unwrap_or(usize::MAX))
    }

    /// Returns true if a transaction of `runs` can be written in addition to the previous one.
    pub(super) fn has_room(&self, runs: &[PendingWrite]) -> bool {
        self.journal.has_room(
            runs.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            runs.len(),
        )
    }

    /// Empties the journal. All of its transactions must be durable in place.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.journal.clear();
        self.journal.publish()
    }
}
