//! The growth of a bundle from one check to the next.

use serde::{Deserialize, Serialize};

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Minimum seconds between two sizes: a day, less what a timer may be late.
const APART: i64 = DAY - 4 * 3600;
/// Number of sizes kept, about a month of daily checks.
const MAX_SIZES: usize = 32;

/// The storage of a bundle at some times, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sizes(Vec<(i64, u64)>);

impl Sizes {
    /// Adds the bytes at a time, in seconds since 1970, unless the last size is of the same day.
    pub(super) fn add(&mut self, time: i64, bytes: u64) {
        // A clock that ran backwards makes later times worthless.
        self.0.retain(|(before, _)| *before <= time);
        let last = self.0.last().map_or(i64::MIN, |(last, _)| *last);
        if time.saturating_sub(last) >= APART {
            self.0.push((time, bytes));
            let oldest = self.0.len().saturating_sub(MAX_SIZES);
            self.0.drain(..oldest);
        }
    }

    /// Returns the bytes that were added each day until now. `None`: no size is old enough.
    pub(super) fn per_day(&self, now: i64, bytes: u64) -> Option<i64> {
        let (time, before) = *self.0.first()?;
        let elapsed = now.checked_sub(time).filter(|elapsed| *elapsed >= APART)?;
        let grown =
            (i128::from(bytes) - i128::from(before)) * i128::from(DAY) / i128::from(elapsed);
        i64::try_from(grown).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_since_the_oldest_size() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.per_day(DAY, 1000), None);
        for day in 0..10 {
            sizes.add(day * DAY, 1000 + 50 * day as u64);
            // A second check of the day.
            sizes.add(day * DAY + 3600, 5);
        }
        assert_eq!(sizes.per_day(10 * DAY, 1500), Some(50));
        assert_eq!(sizes.per_day(10 * DAY, 0), Some(-100));
        assert_eq!(sizes.per_day(3600, 1500), None);
        assert_eq!(sizes.per_day(i64::MIN, 1500), None);
        assert_eq!(sizes.per_day(DAY, u64::MAX), None);
        for day in 10..100 {
            sizes.add(day * DAY, 1500);
        }
        assert_eq!(sizes.0.len(), MAX_SIZES);
        assert_eq!(sizes.per_day(100 * DAY, 1500), Some(0));
        // The clock ran backwards.
        sizes.add(5 * DAY, 100);
        assert_eq!(sizes.0, [(5 * DAY, 100)]);
    }
}
