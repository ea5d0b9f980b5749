//! What time is read from.

use std::fmt;
use std::time::{Duration, Instant};

/// A clock that never goes back. A simulated disk has its own.
pub trait Clock: fmt::Debug + Sync {
    /// Time since some moment.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct HostClock(Instant);

impl Default for HostClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for HostClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Measures a piece of work, without what is done in between for the measurement's own sake.
#[derive(Debug)]
pub(crate) struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    began: Duration,
    apart: Duration,
}

impl<'a> Stopwatch<'a> {
    pub(crate) fn start(clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            began: clock.now(),
            apart: Duration::ZERO,
        }
    }

    /// Does something that does not count.
    pub(crate) fn apart<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = self.clock.now();
        let done = work();
        self.apart += self.clock.now().saturating_sub(before);
        done
    }

    pub(crate) fn seconds(&self) -> f64 {
        // A clock may be too coarse to see a small file at all; nothing takes no time.
        self.clock
            .now()
            .saturating_sub(self.began + self.apart)
            .as_secs_f64()
            .max(1e-9)
    }
}
