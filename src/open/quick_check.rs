//! The quick check of a volume before it is opened for changes: the full check up to a bounded
//! number of reads.

use std::sync::atomic::{AtomicU64, Ordering};

use super::volume::Volume;
use crate::device::Access;
use crate::problem::Severity;
use crate::progress::Progress;
use crate::{Error, Kind, Reason, Result};

/// The layer of the error about a damaged volume.
const LAYER: &str = "quick check";
/// Maximum number of tree nodes checked. Covers all of a volume of some ten thousand files, and the
/// upper levels of larger ones: a change of one file must not take as long as a full check.
const MAX_NODES: u64 = 512;

/// Stops a check after so many nodes.
#[derive(Debug)]
pub(super) struct NodeLimit(AtomicU64);

impl NodeLimit {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(MAX_NODES))
    }
}

impl Progress for NodeLimit {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _n: u64) {
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
    }

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Refuses to change a volume that the first part of its check finds damaged. No key is requested, so the
/// files of an encrypted volume are not checked. Other errors are ignored: opening the volume
/// reports them.
///
/// [`Kind::Corrupt`] with the first finding.
pub(super) fn check(volume: &Volume) -> Result<()> {
    if volume.device().info().access == Access::ReadOnly || volume.checkpoint.is_some() {
        return Ok(());
    }
    damage(volume)?.map_or(Ok(()), Err)
}

/// Returns the damage that the first part of the check of a volume finds.
pub(super) fn damage(volume: &Volume) -> Result<Option<Error>> {
    let budget = NodeLimit::new();
    let problems = volume.driver().quick_check(volume, &budget)?;
    let mut damage = problems
        .into_iter()
        .filter(|problem| problem.severity == Severity::Damage);
    let Some(first) = damage.next() else {
        return Ok(None);
    };
    let message = match damage.count() {
        0 => "is damaged".to_owned(),
        more => format!("is damaged in {} places or more; the first", more + 1),
    };
    Ok(Some(
        Error::new(Kind::Corrupt, LAYER, message)
            .because(Reason::DamagedVolume)
            .named(volume.place())
            .caused_by(first.error),
    ))
}
