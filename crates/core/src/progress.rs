//! Progress reports and cancellation of long operations. The library never prints.

use std::fmt;
use std::time::Instant;

use crate::rate::{self, TokenBucket};
use crate::sync::Mutex;

/// A receiver of progress reports of long operations, which may cancel them. Called from several
/// threads.
pub trait Progress: Sync {
    /// Reports a new stage: its name (`"copy"`), and its total in units (bytes, unless the stage
    /// counts files).
    fn stage(&self, name: &str, total: u64);
    /// Reports `n` more units of the stage as done.
    fn advance(&self, n: u64);
    /// Returns true if the operation is to stop at the next safe point, leaving no damage.
    fn cancelled(&self) -> bool;
}

/// Ignores all reports and never cancels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// Drops the reports of an operation that is part of another one, and forwards the cancellation of
/// the whole.
pub struct NestedProgress<'a>(pub &'a dyn Progress);

impl fmt::Debug for NestedProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NestedProgress").finish_non_exhaustive()
    }
}

impl Progress for NestedProgress<'_> {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// Limits the rate of operations that move bytes: a thread that reports progress too early sleeps.
/// Stages without a total count no bytes and are not limited.
pub struct RateLimited<'a> {
    inner: &'a dyn Progress,
    rate: u64,
    stage: Mutex<Option<(Instant, TokenBucket)>>,
}

impl<'a> RateLimited<'a> {
    /// Wraps `inner`. `rate` is in bytes a second; `None` for no limit.
    pub fn new(inner: &'a dyn Progress, rate: Option<u64>) -> Self {
        Self {
            inner,
            rate: rate.unwrap_or(0),
            stage: Mutex::default(),
        }
    }
}

impl fmt::Debug for RateLimited<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimited")
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

impl Progress for RateLimited<'_> {
    fn stage(&self, name: &str, total: u64) {
        let bucket = TokenBucket::new(self.rate).filter(|_| total > 0);
        *self.stage.lock() = bucket.map(|bucket| (Instant::now(), bucket));
        self.inner.stage(name, total);
    }

    fn advance(&self, n: u64) {
        self.inner.advance(n);
        let taken = |(began, bucket): &mut (Instant, TokenBucket)| bucket.take(n, began.elapsed());
        let wait = self.stage.lock().as_mut().map(taken);
        if let Some(wait) = wait {
            rate::sleep(wait, || self.cancelled());
        }
    }

    fn cancelled(&self) -> bool {
        self.inner.cancelled()
    }
}

impl dyn Progress + '_ {
    /// Returns `Err(Cancelled)` if cancellation was requested.
    pub fn check(&self) -> crate::Result<()> {
        if self.cancelled() {
            return Err(crate::Error::new(
                crate::Kind::Cancelled,
                "interrupt",
                "cancelled",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_limit_slows_bytes_down_and_nothing_else() {
        let limited = RateLimited::new(&Silent, Some(1 << 20));
        let began = Instant::now();
        limited.stage("list", 0);
        limited.advance(1 << 40);
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "what counts no bytes does not wait"
        );
        limited.stage("trim", 1 << 20);
        let began = Instant::now();
        limited.advance(100 << 10);
        assert!(began.elapsed() >= Duration::from_millis(95));
    }
}
