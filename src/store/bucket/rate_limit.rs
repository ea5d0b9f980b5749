//! A bandwidth limit, shared by all requests.

use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// A rate limiter.
#[derive(Debug)]
pub(super) struct RateLimiter {
    bytes_per_second: u64,
    /// The time at which all bytes admitted so far are transferred at this rate.
    free_from: Mutex<Instant>,
}

impl RateLimiter {
    /// Creates a limit of this many bytes a second; 0 counts as 1.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            free_from: Mutex::new(Instant::now()),
        }
    }

    /// Returns the delay before so many bytes may be sent.
    pub(super) fn reserve(&self, bytes: usize) -> Duration {
        self.reserve_at(Instant::now(), bytes)
    }

    fn reserve_at(&self, now: Instant, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 1_000_000_000) / u128::from(self.bytes_per_second);
        let mut free_from = self.free_from.lock();
        let begin = now.max(*free_from);
        *free_from = begin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 2));
        begin - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let now = Instant::now() + Duration::from_secs(1);
        let pace = RateLimiter::new(1000);
        assert_eq!(pace.reserve_at(now, 500), Duration::ZERO);
        assert_eq!(pace.reserve_at(now, 2000), Duration::from_millis(500));
        assert_eq!(pace.reserve_at(now, 1), Duration::from_millis(2500));
        let later = now + Duration::from_secs(9);
        assert_eq!(
            pace.reserve_at(later, 1000),
            Duration::ZERO,
            "unused time is not saved up"
        );
        assert_eq!(pace.reserve_at(later, 1), Duration::from_secs(1));
    }
}
