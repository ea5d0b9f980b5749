//! What is lent of a file, and how a cut waits for it.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Result;

/// How far the loans given out reach. A count would not do: a cut waits only for what reaches past
/// its place.
#[derive(Debug, Default)]
pub(super) struct Loans {
    state: Mutex<LoanState>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct LoanState {
    ends: Vec<u64>,
    /// Cuts that wait. To wake nobody is a system call, too, for every loan.
    cuts: usize,
}

impl Loans {
    fn state(&self) -> MutexGuard<'_, LoanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a loan of `range` if `check` allows it; `None` for an empty range. The check is made
    /// under the lock, so that a cut either sees the loan or is seen by the check.
    pub(super) fn take(
        self: &Arc<Self>,
        range: &Range<u64>,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Option<Loan>> {
        let mut state = self.state();
        check()?;
        if range.is_empty() {
            return Ok(None);
        }
        state.ends.push(range.end);
        Ok(Some(Loan {
            loans: self.clone(),
            end: range.end,
        }))
    }

    pub(super) fn wait_until_none_beyond(&self, len: u64) {
        let beyond = |state: &mut LoanState| state.ends.iter().any(|end| *end > len);
        let mut state = self.state();
        state.cuts += 1;
        self.returned
            .wait_while(state, beyond)
            .unwrap_or_else(PoisonError::into_inner)
            .cuts -= 1;
    }
}

pub(super) struct Loan {
    loans: Arc<Loans>,
    end: u64,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut state = self.loans.state();
        if let Some(index) = state.ends.iter().position(|end| *end == self.end) {
            state.ends.swap_remove(index);
        }
        if state.cuts > 0 {
            self.loans.returned.notify_all();
        }
    }
}
