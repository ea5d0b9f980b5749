//! Estimate of a device's latency, for dispatch.
//!
//! A request that takes microseconds is best served by the receiving thread: waking another one
//! costs more. A request that waits for a disk must not delay those after it. The times of the last
//! requests decide.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Approximate cost of a dispatch to another thread: requests that take longer are slow.
const SLOW_MICROS: u32 = 60;
/// Maximum latency recorded for one request: a single outlier (the thread had to wait for a
/// processor) does not count as slow, two do.
const MAX_MICROS: u32 = 4 * SLOW_MICROS;
/// Minimum memory throughput in bytes per microsecond; the time of copying is not counted.
const BYTES_PER_MICRO: u32 = 2048;

/// A running mean of the latency of one kind of request.
#[derive(Debug, Default)]
pub(crate) struct LatencyMean {
    micros: AtomicU32,
}

impl LatencyMean {
    pub(crate) fn is_slow(&self) -> bool {
        self.micros.load(Ordering::Relaxed) > SLOW_MICROS
    }

    /// Runs an operation on `len` bytes and records its latency.
    pub(crate) fn time<T>(&self, len: usize, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = run();
        self.record(start.elapsed(), len);
        done
    }

    fn record(&self, took: Duration, len: usize) {
        let moving = u32::try_from(len).unwrap_or(u32::MAX) / BYTES_PER_MICRO;
        let waited = u32::try_from(took.as_micros())
            .unwrap_or(u32::MAX)
            .saturating_sub(moving)
            .min(MAX_MICROS);
        // Concurrent updates may be lost, which is harmless.
        let mean = self.micros.load(Ordering::Relaxed);
        self.micros
            .store((mean * 3 + waited) / 4, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_both_ways() {
        let dispatch = LatencyMean::default();
        dispatch.record(Duration::from_micros(100), 1 << 20);
        assert!(!dispatch.is_slow(), "a megabyte may take its time");
        dispatch.record(Duration::from_secs(1), 4096);
        assert!(!dispatch.is_slow(), "once is a hiccup");
        dispatch.record(Duration::from_secs(1), 4096);
        assert!(dispatch.is_slow());
        (0..20).for_each(|_| dispatch.record(Duration::from_micros(3), 4096));
        assert!(!dispatch.is_slow());
    }
}
