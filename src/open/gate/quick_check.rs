//! The limit of the quick check of a volume before it is opened for changes, which is the full check up
//! to a bounded number of reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::progress::Progress;

/// Maximum number of tree nodes checked. Covers all of a volume of some ten thousand files, and the
/// upper levels of larger ones: a change of one file must not take as long as a full check.
const MAX_NODES: u64 = 512;

/// Stops a check after so many nodes.
#[derive(Debug)]
pub(in crate::open) struct NodeLimit(AtomicU64);

impl NodeLimit {
    pub(in crate::open) fn new() -> Self {
        Self::of(MAX_NODES)
    }

    pub(in crate::open) fn of(nodes: u64) -> Self {
        Self(AtomicU64::new(nodes))
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
