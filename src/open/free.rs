//! Free space of a volume, by the allocation map of its file system.

use std::ops::Range;
use std::sync::Arc;

use super::apfs;
use super::quick_check::NodeLimit;
use super::unlock::Keys;
use super::volume::Volume;
use crate::fs::FreeMap;
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::size::counted;
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "free space";

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

    /// Compares the free map with all that the volume uses: a map with the right counts may still have
    /// free and used space in the wrong places. `keys` unlock the volumes of a container; what they do
    /// not unlock is not compared. Formats that are not checked pass.
    ///
    /// [`Kind::Corrupt`] if the check of the volume finds damage.
    pub(crate) fn confirm_free_map(
        &self,
        keys: Option<&dyn Keys>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut problems = Problems::default();
        let damaged = |message: String| {
            Error::new(Kind::Corrupt, LAYER, message).because(Reason::DamagedVolume)
        };
        match self.check(keys, &mut problems, progress) {
            None => return Ok(()),
            Some(Err(error)) => return Err(error),
            Some(Ok(unchecked)) => {
                if let Some(error) = unchecked
                    .into_iter()
                    .find(|error| error.kind() != Kind::WrongKey)
                {
                    return Err(error);
                }
            }
        }
        let damage = problems.count(Severity::Damage);
        let first = problems
            .into_iter()
            .find(|problem| problem.severity == Severity::Damage);
        match first {
            None => Ok(()),
            Some(first) => {
                let places = counted(damage, "place", "places");
                let message =
                    format!("is damaged in {places}, so its free space is kept; the first");
                Err(damaged(message).caused_by(first.error))
            }
        }
    }

    /// Does the same as [`confirm_free_map`](Self::confirm_free_map), if the volume has at most `nodes`
    /// nodes in its trees. Returns false if it has more.
    pub(crate) fn confirm_free_map_within(
        &self,
        nodes: u64,
        keys: Option<&dyn Keys>,
    ) -> Result<bool> {
        match self.confirm_free_map(keys, &NodeLimit::of(nodes)) {
            Err(error) if error.kind() == Kind::Cancelled => Ok(false),
            confirmed => confirmed.map(|()| true),
        }
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
