//! Dates of MS-DOS: a date and a time of day in 16 bits each, and hundredths of two seconds.

use crate::Timestamp;
use crate::timestamp::DateTime;

/// The fields of a date.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DosDate {
    /// Years since 1980, month and day in 7, 4 and 5 bits.
    pub(crate) date: u16,
    /// Hours, minutes and pairs of seconds in 5, 6 and 5 bits.
    pub(crate) time: u16,
    /// Hundredths of a second to add, 0 to 199.
    pub(crate) hundredths: u8,
}

/// The first time that can be stored.
const FIRST: Timestamp = Timestamp::from_seconds(315_532_800);
/// The last second that can be stored, of 2107.
const LAST: i64 = 4_354_819_199;

impl DosDate {
    /// Returns the fields for a time; the nearest one for times before 1980 and after 2107.
    pub(crate) fn of(time: Timestamp) -> Self {
        let time = match time.seconds > LAST {
            true => Timestamp::from_seconds(LAST),
            false => time.max(FIRST),
        };
        let date = time.date_time();
        let years = u16::try_from(date.year - 1980).unwrap_or_default();
        let hundredths = u8::try_from(time.nanos / 10_000_000).unwrap_or_default();
        let [month, day, hour, minute, second] =
            [date.month, date.day, date.hour, date.minute, date.second].map(u16::from);
        Self {
            date: years << 9 | month << 5 | day,
            time: hour << 11 | minute << 5 | (second / 2),
            hundredths: hundredths + 100 * (date.second % 2),
        }
    }

    /// Returns the time, as if the date were in UTC. `None`: not a date.
    pub(crate) fn timestamp(self) -> Option<Timestamp> {
        let field = |from: u16, shift: u32, bits: u32| {
            u8::try_from(from >> shift & ((1 << bits) - 1)).unwrap_or_default()
        };
        let (month, day) = (field(self.date, 5, 4), field(self.date, 0, 5));
        if !(1..=12).contains(&month) || day == 0 {
            return None;
        }
        let local = DateTime {
            year: 1980 + i64::from(self.date >> 9),
            month,
            day,
            hour: field(self.time, 11, 5),
            minute: field(self.time, 5, 6),
            second: 2 * field(self.time, 0, 5),
        };
        let hundredths = u32::from(self.hundredths.min(199));
        Some(Timestamp {
            seconds: local.timestamp().seconds + i64::from(hundredths / 100),
            nanos: hundredths % 100 * 10_000_000,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_back_and_forth() {
        for seconds in [FIRST.seconds, 951_868_799, 1_700_000_001, LAST] {
            for nanos in [0, 990_000_000] {
                let time = Timestamp { seconds, nanos };
                assert_eq!(DosDate::of(time).timestamp(), Some(time));
            }
        }
        let of = |seconds| DosDate::of(Timestamp::from_seconds(seconds)).timestamp();
        assert_eq!(of(0), Some(FIRST));
        assert_eq!(of(1 << 40), Some(Timestamp::from_seconds(LAST)));
        assert_eq!(DosDate::default().timestamp(), None);
    }
}
