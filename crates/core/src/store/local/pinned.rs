//! File ranges in use, and waiting for them before a file is truncated.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::sync::{Condvar, Mutex};

/// The ends of the file ranges in use. A count would not suffice: truncation waits only for ranges
/// past the new length.
#[derive(Debug, Default)]
pub(super) struct PinnedRanges {
    state: Mutex<PinState>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct PinState {
    ends: Vec<u64>,
    /// Number of waiting truncations; without any, a wakeup, which is a system call, is skipped.
    cuts: usize,
}

impl PinnedRanges {
    /// Records a file range if `check` allows it; `None` for an empty range. The check is made
    /// under the lock, so that a concurrent truncation either waits for the range or makes the
    /// check fail.
    pub(super) fn pin(
        self: &Arc<Self>,
        range: &Range<u64>,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Option<PinnedRange>> {
        let mut state = self.state.lock();
        check()?;
        if range.is_empty() {
            return Ok(None);
        }
        state.ends.push(range.end);
        Ok(Some(PinnedRange {
            pinned: self.clone(),
            end: range.end,
        }))
    }

    pub(super) fn wait_until_none_beyond(&self, len: u64) {
        let beyond = |state: &mut PinState| state.ends.iter().any(|end| *end > len);
        let mut state = self.state.lock();
        state.cuts += 1;
        self.returned.wait_while(state, beyond).cuts -= 1;
    }
}

pub(super) struct PinnedRange {
    pinned: Arc<PinnedRanges>,
    end: u64,
}

impl Drop for PinnedRange {
    fn drop(&mut self) {
        let mut state = self.pinned.state.lock();
        if let Some(index) = state.ends.iter().position(|end| *end == self.end) {
            state.ends.swap_remove(index);
        }
        if state.cuts > 0 {
            self.pinned.returned.notify_all();
        }
    }
}
