//! Progress reports and cancellation of long operations. The library never prints.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// Maximum number of seconds that [`RateLimited`] sleeps before it checks for cancellation again.
const MAX_SLEEP: f64 = 0.1;

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
    rate: Option<u64>,
    began: Mutex<Option<(Instant, u64)>>,
}

impl<'a> RateLimited<'a> {
    /// Wraps `inner`. `rate` is in bytes a second; `None` for no limit.
    pub fn new(inner: &'a dyn Progress, rate: Option<u64>) -> Self {
        Self {
            inner,
            rate: rate.filter(|rate| *rate > 0),
            began: Mutex::default(),
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
        *self.began.lock() = (total > 0).then(|| (Instant::now(), 0));
        self.inner.stage(name, total);
    }

    fn advance(&self, n: u64) {
        self.inner.advance(n);
        let Some(rate) = self.rate else { return };
        let (start, needed) = {
            let mut began = self.began.lock();
            let Some((start, done)) = &mut *began else {
                return;
            };
            *done = done.saturating_add(n);
            (*start, *done as f64 / rate as f64)
        };
        while !self.cancelled() {
            let missing = needed - start.elapsed().as_secs_f64();
            if missing <= 0.0 {
                return;
            }
            thread::sleep(Duration::from_secs_f64(missing.min(MAX_SLEEP)));
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
