//! Whether a device answers at once.
//!
//! A request that takes microseconds is best done by the thread that received it: waking another
//! costs more. One that waits for a disk must not hold up those behind it. Which it is shows in the
//! time that the last ones took.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What handing a request over costs, about: a request that takes longer is slow.
const SLOW_MICROS: u32 = 60;
/// More is remembered as this: one hiccup of the host (the thread had to wait for a processor) is
/// not yet slow, two are.
const MOST_MICROS: u32 = 4 * SLOW_MICROS;
/// Bytes that memory moves in a microsecond at least: not counted as waiting.
const BYTES_PER_MICRO: u32 = 2048;

/// A running mean of how long requests of one kind waited.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    micros: AtomicU32,
}

impl Pace {
    pub(crate) fn is_slow(&self) -> bool {
        self.micros.load(Ordering::Relaxed) > SLOW_MICROS
    }

    /// Does something with `len` bytes and remembers how long it took.
    pub(crate) fn time<T>(&self, len: usize, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = run();
        self.note(start.elapsed(), len);
        done
    }

    fn note(&self, took: Duration, len: usize) {
        let moving = u32::try_from(len).unwrap_or(u32::MAX) / BYTES_PER_MICRO;
        let waited = u32::try_from(took.as_micros())
            .unwrap_or(u32::MAX)
            .saturating_sub(moving)
            .min(MOST_MICROS);
        // Threads that note at once may lose one of their notes, which does no harm.
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
        let dispatch = Pace::default();
        dispatch.note(Duration::from_micros(100), 1 << 20);
        assert!(!dispatch.is_slow(), "a megabyte may take its time");
        dispatch.note(Duration::from_secs(1), 4096);
        assert!(!dispatch.is_slow(), "once is a hiccup");
        dispatch.note(Duration::from_secs(1), 4096);
        assert!(dispatch.is_slow());
        (0..20).for_each(|_| dispatch.note(Duration::from_micros(3), 4096));
        assert!(!dispatch.is_slow());
    }
}
