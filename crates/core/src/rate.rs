//! Limits of throughput.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// The time that a bucket saves up while nothing is taken.
const BURST: Duration = Duration::from_millis(100);
/// Maximum time of a sleep before cancellation is checked again.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// The limit of reading from files of the host.
static READING: OnceLock<ReadLimit> = OnceLock::new();

/// A token bucket: bytes can be taken at any time, and have to be waited for. It knows no clock.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// Bytes a second, not 0.
    rate: u64,
    /// The time at which everything that was taken is paid for.
    paid: Duration,
}

impl TokenBucket {
    /// Creates a bucket for `rate` bytes a second, at the time 0. `None` if that is 0: no limit.
    pub fn new(rate: u64) -> Option<Self> {
        (rate > 0).then_some(Self {
            rate,
            paid: Duration::ZERO,
        })
    }

    /// Takes `n` bytes at the time `now`, and returns for how long the caller has to wait. A time
    /// before that of an earlier call is permitted.
    pub fn take(&mut self, n: u64, now: Duration) -> Duration {
        let cost = Duration::try_from_secs_f64(n as f64 / self.rate as f64);
        let cost = cost.unwrap_or(Duration::MAX);
        let saved_up = now.saturating_sub(BURST);
        self.paid = self.paid.max(saved_up).saturating_add(cost);
        self.paid.saturating_sub(now)
    }
}

#[derive(Debug)]
struct ReadLimit {
    bucket: Mutex<TokenBucket>,
    began: Instant,
    cancelled: fn() -> bool,
}

/// Limits the rate at which this process reads from files of the host, in bytes a second; 0 for no
/// limit. A thread that reads too fast sleeps until `cancelled` returns true. Only the first call has
/// an effect.
pub fn limit_reading(rate: u64, cancelled: fn() -> bool) {
    if let Some(bucket) = TokenBucket::new(rate) {
        let _ = READING.set(ReadLimit {
            bucket: Mutex::new(bucket),
            began: Instant::now(),
            cancelled,
        });
    }
}

/// Waits until `n` bytes may have been read.
pub(crate) fn after_read(n: usize) {
    if let Some(limit) = READING.get() {
        let now = limit.began.elapsed();
        let wait = limit.bucket.lock().take(n as u64, now);
        sleep(wait, limit.cancelled);
    }
}

/// Sleeps, until `cancelled` returns true.
pub(crate) fn sleep(time: Duration, cancelled: impl Fn() -> bool) {
    let began = Instant::now();
    while !cancelled() {
        let missing = time.saturating_sub(began.elapsed());
        if missing.is_zero() {
            return;
        }
        thread::sleep(missing.min(MAX_SLEEP));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn bytes_take_their_time() {
        let mut bucket = TokenBucket::new(1000).unwrap();
        assert_eq!(bucket.take(500, MILLIS(0)), MILLIS(500));
        // Another thread queues behind the first.
        assert_eq!(bucket.take(500, MILLIS(0)), MILLIS(1000));
        // A thread that waited as told does not wait again.
        assert_eq!(bucket.take(0, MILLIS(1000)), MILLIS(0));
        assert_eq!(bucket.take(250, MILLIS(1000)), MILLIS(250));
        // A clock that runs backwards.
        assert_eq!(bucket.take(0, MILLIS(0)), MILLIS(1250));
    }

    #[test]
    fn a_pause_saves_up_little() {
        let mut bucket = TokenBucket::new(1000).unwrap();
        assert_eq!(bucket.take(100, MILLIS(3_600_000)), MILLIS(0));
        assert_eq!(bucket.take(100, MILLIS(3_600_000)), MILLIS(100));
        // Over any second at most the rate, and what was saved up.
        let (mut now, mut taken) = (MILLIS(7_200_000), 0);
        let end = now + MILLIS(1000);
        while now < end {
            taken += 70;
            now += bucket.take(70, now);
        }
        assert!((1000..=1000 + 100 + 70).contains(&taken), "{taken}");
    }

    #[test]
    fn limits_are_whole_numbers() {
        assert!(TokenBucket::new(0).is_none());
        let mut slowest = TokenBucket::new(1).unwrap();
        assert!(slowest.take(u64::MAX, MILLIS(0)) > MILLIS(u64::MAX / 2));
        assert_eq!(slowest.take(u64::MAX, MILLIS(0)), Duration::MAX);
        let mut fastest = TokenBucket::new(u64::MAX).unwrap();
        assert!(fastest.take(1 << 40, MILLIS(0)) < MILLIS(1));
    }

    #[test]
    fn a_cancelled_sleep_ends() {
        sleep(Duration::MAX, || true);
    }
}
