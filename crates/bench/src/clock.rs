//! The clock of a measurement.

use std::fmt;
use std::time::{Duration, Instant};

/// A monotonic clock. A simulated disk has its own.
pub trait Clock: fmt::Debug + Sync {
    /// Returns the time since an arbitrary fixed origin.
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

/// Measures an operation, without the time that the measurement itself takes.
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

    /// Runs `work` without counting its time.
    pub(crate) fn apart<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = self.clock.now();
        let done = work();
        self.apart += self.clock.now().saturating_sub(before);
        done
    }

    pub(crate) fn seconds(&self) -> f64 {
        // The clock may be too coarse for a small file: a duration is never 0.
        self.clock
            .now()
            .saturating_sub(self.began + self.apart)
            .as_secs_f64()
            .max(1e-9)
    }
}
