//! What is lent of a file, and how a cut waits for it.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::Result;

/// How far the loans given out reach. A count would not do: a cut waits only for what reaches past its place.
#[derive(Debug, Default)]
pub(super) struct Loans {
    ends: Mutex<Vec<u64>>,
    returned: Condvar,
}

impl Loans {
    fn ends(&self) -> MutexGuard<'_, Vec<u64>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a loan of `range` if `check` allows it; `None` for an empty range. The check is made under the lock, so
    /// that a cut either sees the loan or is seen by the check.
    pub(super) fn take(self: &Arc<Self>, range: &Range<u64>, check: impl FnOnce() -> Result<()>) -> Result<Option<Loan>> {
        let mut ends = self.ends();
        check()?;
        if range.is_empty() {
            return Ok(None);
        }
        ends.push(range.end);
        Ok(Some(Loan { loans: self.clone(), end: range.end }))
    }

    pub(super) fn wait_until_none_beyond(&self, len: u64) {
        let beyond = |ends: &mut Vec<u64>| ends.iter().any(|end| *end > len);
        drop(self.returned.wait_while(self.ends(), beyond).unwrap_or_else(PoisonError::into_inner));
    }
}

pub(super) struct Loan {
    loans: Arc<Loans>,
    end: u64,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut ends = self.loans.ends();
        if let Some(index) = ends.iter().position(|end| *end == self.end) {
            ends.swap_remove(index);
        }
        self.loans.returned.notify_all();
    }
}
