//! The journal of a mount, and the blocks it lies in.

use crate::Result;
use crate::fs::hfsplus::journal::Journal;
use crate::fs::hfsplus::layout::Extent;

use super::buffer::PendingWrite;

/// What changes go through from the first one to the unmounting.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) journal: Journal,
    /// The journal and its info block, where they go away with the mount.
    pub(super) transient: Option<Vec<Extent>>,
}

impl Log {
    /// Returns whether the volume has no journal outside of this mount.
    pub(super) fn is_transient(&self) -> bool {
        self.transient.is_some()
    }

    /// Blocks that are free again after the mount.
    pub(super) fn blocks(&self) -> u64 {
        self.transient
            .iter()
            .flatten()
            .map(|extent| u64::from(extent.count))
            .sum()
    }

    /// Returns whether so many bytes of changes fit in one transaction, in the worst case of one
    /// piece a page.
    pub(super) fn fits(&self, bytes: u64, page: u64) -> bool {
        self.journal
            .fits(bytes, usize::try_from(bytes / page).unwrap_or(usize::MAX))
    }

    /// Returns whether a transaction of `runs` can be written beside the one before it.
    pub(super) fn has_room(&self, runs: &[PendingWrite]) -> bool {
        self.journal.has_room(
            runs.iter().map(|(_, bytes)| bytes.len() as u64).sum(),
            runs.len(),
        )
    }

    /// Makes the journal empty. All it held must be in place, durably.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.journal.clear();
        self.journal.publish()
    }
}
