//! Points in time.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A point in time. Displayed as RFC 3339 in UTC, `2024-03-01T12:34:56Z`, with nine decimals if
/// needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC, negative before.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

/// A date and a time of day in UTC, in the proleptic Gregorian calendar. Displayed as
/// `2024-03-01 12:34:56`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names")]
pub struct DateTime {
    pub year: i64,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
}

impl Timestamp {
    /// Returns the timestamp of a whole second.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self { seconds, nanos: 0 }
    }

    /// Returns the time of the clock.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Returns the time of the clock in whole seconds.
    pub fn now_in_seconds() -> Self {
        Self::from_seconds(Self::now().seconds)
    }

    /// Returns the date and time to the minute in UTC, `2024-03-01 12:34`.
    pub fn to_minute(self) -> String {
        let mut text = self.date_time().to_string();
        text.truncate(text.len().saturating_sub(":00".len()));
        text
    }

    /// Returns the date and time of day in UTC.
    pub fn date_time(self) -> DateTime {
        // Days are counted from 1 March of year 0, so that the leap day is the last of its year.
        let (days, rest) = (
            self.seconds.div_euclid(86_400),
            self.seconds.rem_euclid(86_400),
        );
        let since_march_0 = days + 719_468;
        let (era, day_of_era) = (
            since_march_0.div_euclid(146_097),
            since_march_0.rem_euclid(146_097),
        );
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let small = |n: i64| u8::try_from(n).unwrap_or(0);
        DateTime {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: small(month),
            day: small(day_of_year - (153 * month_from_march + 2) / 5 + 1),
            hour: small(rest / 3_600),
            minute: small(rest / 60 % 60),
            second: small(rest % 60),
        }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nanos: since.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self { seconds, nanos: 0 },
                    nanos => Self {
                        seconds: seconds - 1,
                        nanos: 1_000_000_000 - nanos,
                    },
                }
            }
        }
    }
}

impl DateTime {
    /// Returns the point in time. Fields out of range count on: month 2, day 30 is 1 or 2 March.
    pub fn timestamp(self) -> Timestamp {
        let (year, month) = match i64::from(self.month) {
            month @ 3.. => (self.year, month - 3),
            month => (self.year - 1, month + 9),
        };
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let day_of_year = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        let days = year * 365 + leap_days + day_of_year - 719_468;
        let [hour, minute, second] = [self.hour, self.minute, self.second].map(i64::from);
        Timestamp::from_seconds(((days * 24 + hour) * 60 + minute) * 60 + second)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = self;
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
        )
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.date_time().to_string().replace(' ', "T"))?;
        if self.nanos > 0 {
            write!(f, ".{:09}", self.nanos)?;
        }
        f.write_str("Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_times_before_1970_are_negative() {
        let half = std::time::Duration::from_millis(500);
        for (time, seconds, nanos) in [
            (UNIX_EPOCH, 0, 0),
            (UNIX_EPOCH + half, 0, 500_000_000),
            (UNIX_EPOCH - half, -1, 500_000_000),
            (UNIX_EPOCH - half * 2, -1, 0),
        ] {
            assert_eq!(Timestamp::from(time), Timestamp { seconds, nanos });
        }
    }

    #[test]
    fn minutes_have_no_seconds() {
        let time = Timestamp::from_seconds(1_709_296_496);
        assert_eq!(time.to_minute(), "2024-03-01 12:34");
    }

    #[test]
    fn dates_go_back_and_forth() {
        // Some 780 years before and after 1970, at every time of day.
        for step in -1000..=1000_i64 {
            let time = Timestamp::from_seconds(step * (285 * 86_400 + 7_919));
            assert_eq!(time.date_time().timestamp(), time, "{time}");
        }
        // Each day of two years, from February 2000 on.
        for day in 0..=800 {
            let time = Timestamp::from_seconds(951_696_000 + day * 86_400);
            assert_eq!(time.date_time().timestamp(), time, "{time}");
        }
    }
}
