//! Dates of backups: in their names, and as people write them.
//!
//! A name is a reading of the Mac's clock, in the Mac's time zone, which nothing records. Dates are
//! therefore compared with names as they are written; a date that is relative to now needs the
//! difference between the Mac's clock and UTC, which [`Backups`](crate::Backups) infers.

use std::fmt;
use std::ops::Range;

use bandsaw::fs::{DateTime, Timestamp};
use bandsaw::{Error, Result};

use crate::LAYER;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A reading of a Mac's clock, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupDate(
    /// Seconds since 1970-01-01 00:00:00 of the same clock.
    pub i64,
);

impl BackupDate {
    /// Parses `2026-11-01-143012`, as in the names of backups. `None` if it is not a date.
    pub fn parse(name: &str) -> Option<Self> {
        let bytes = name.as_bytes();
        let dashes = [4, 7, 10].iter().all(|&at| bytes.get(at) == Some(&b'-'));
        if bytes.len() != 17 || !dashes {
            return None;
        }
        let field = |at: Range<usize>| digits(name.get(at)?);
        let date = DateTime {
            year: i64::from(field(0..4)?),
            month: u8::try_from(field(5..7)?).ok()?,
            day: u8::try_from(field(8..10)?).ok()?,
            hour: u8::try_from(field(11..13)?).ok()?,
            minute: u8::try_from(field(13..15)?).ok()?,
            second: u8::try_from(field(15..17)?).ok()?,
        };
        valid(date).then(|| Self(date.timestamp().seconds))
    }

    /// Returns the fields of the date.
    pub fn fields(self) -> DateTime {
        Timestamp::from_seconds(self.0).date_time()
    }
}

impl fmt::Display for BackupDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.fields(), f)
    }
}

/// A date as a person writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DateQuery {
    /// `latest`: the newest complete backup.
    Latest,
    /// `oldest`: the oldest complete backup.
    Oldest,
    /// The backups of a day, an hour, a minute or a second of the Mac's clock.
    Within(Range<i64>),
}

impl DateQuery {
    /// Parses a date. `now` is the present reading of the Mac's clock, for dates relative to it.
    /// [`Kind::Invalid`](bandsaw::Kind::Invalid) if it is not a date.
    pub fn parse(text: &str, now: BackupDate) -> Result<Self> {
        let written = text.trim();
        let lower = written.to_ascii_lowercase();
        let found = match lower.as_str() {
            "latest" | "newest" | "last" => Some(Self::Latest),
            "oldest" | "first" => Some(Self::Oldest),
            "today" => Some(Self::day(now.0)),
            "yesterday" => Some(Self::day(now.0.saturating_sub(DAY))),
            _ => ago(&lower, now).or_else(|| absolute(written)),
        };
        found.ok_or_else(|| {
            let message = "not a date: expected for example 2026-11-01, \"2026-11-01 14:30\", \
                           latest, yesterday or \"3 days ago\"";
            Error::invalid(LAYER, message).named(text)
        })
    }

    fn day(at: i64) -> Self {
        Self::around(at, DAY)
    }

    fn around(at: i64, unit: i64) -> Self {
        let start = at.div_euclid(unit).saturating_mul(unit);
        Self::Within(start..start.saturating_add(unit))
    }
}

/// Parses `3 days ago` and `an hour ago`.
fn ago(text: &str, now: BackupDate) -> Option<DateQuery> {
    let mut words = text.split_ascii_whitespace();
    let (count, unit) = (words.next()?, words.next()?);
    if words.next()? != "ago" || words.next().is_some() {
        return None;
    }
    let count = match count {
        "a" | "an" | "one" => 1,
        count => i64::from(digits(count)?),
    };
    let back = |unit: i64| now.0.saturating_sub(count.saturating_mul(unit));
    Some(match unit.strip_suffix('s').unwrap_or(unit) {
        "minute" | "min" => DateQuery::around(back(MINUTE), MINUTE),
        "hour" => DateQuery::around(back(HOUR), HOUR),
        "day" => DateQuery::day(back(DAY)),
        "week" => DateQuery::day(back(7 * DAY)),
        "month" => DateQuery::day(months_before(now, count)),
        "year" => DateQuery::day(months_before(now, count.saturating_mul(12))),
        _ => return None,
    })
}

/// Returns the same day `count` months earlier, or the last day of that month.
fn months_before(now: BackupDate, count: i64) -> i64 {
    let mut date = now.fields();
    let months = date.year * 12 + i64::from(date.month) - 1;
    let months = months.saturating_sub(count).clamp(0, 9999 * 12);
    date.year = months.div_euclid(12);
    date.month = u8::try_from(months.rem_euclid(12) + 1).unwrap_or(1);
    while !valid(date) && date.day > 1 {
        date.day -= 1;
    }
    date.timestamp().seconds
}

/// Parses a date, a date and a time of day, or the beginning of one.
fn absolute(text: &str) -> Option<DateQuery> {
    let (date, time) = match text.get(10..) {
        Some(rest) if !rest.is_empty() => {
            let time = rest.strip_prefix(['-', ' ', 'T', 't'])?;
            (text.get(..10)?, Some(time.trim_start()))
        }
        _ => (text, None),
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next(), parts.next());
    if year.len() != 4
        || parts.next().is_some()
        || [month, day].iter().flatten().any(|part| part.len() > 2)
    {
        return None;
    }
    let number = |text: Option<&str>| match text {
        None => Some(1),
        Some(text) => u8::try_from(digits(text)?).ok(),
    };
    let first = DateTime {
        year: i64::from(digits(year)?),
        month: number(month)?,
        day: number(day)?,
        hour: 0,
        minute: 0,
        second: 0,
    };
    if !valid(first) {
        return None;
    }
    let start = first.timestamp().seconds;
    let next_month = |months: i64| months_before(BackupDate(start), -months);
    match (time, month, day) {
        (None, None, _) => Some(DateQuery::Within(start..next_month(12))),
        (None, Some(_), None) => Some(DateQuery::Within(start..next_month(1))),
        (None, Some(_), Some(_)) => Some(DateQuery::day(start)),
        (Some(time), _, Some(_)) => time_of_day(start, time),
        (Some(_), ..) => None,
    }
}

/// Parses `14`, `14:30`, `1430`, `14:30:12` or `143012` after a day that begins at `start`.
fn time_of_day(start: i64, time: &str) -> Option<DateQuery> {
    let fields: Vec<&str> = match time.contains(':') {
        true => time.split(':').collect(),
        false if time.len() <= 2 => vec![time],
        false => (0..time.len())
            .step_by(2)
            .map(|at| time.get(at..at + 2))
            .collect::<Option<_>>()?,
    };
    let [hour, minute, second] = [0, 1, 2].map(|at| match fields.get(at) {
        None => Some(0),
        Some(field) if field.len() <= 2 => digits(field).map(i64::from),
        Some(_) => None,
    });
    let (hour, minute, second) = (hour?, minute?, second?);
    if fields.len() > 3 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let unit = [HOUR, MINUTE, 1][fields.len() - 1];
    Some(DateQuery::around(
        start + hour * HOUR + minute * MINUTE + second,
        unit,
    ))
}

/// Parses up to nine digits.
fn digits(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns true for a date of the calendar.
fn valid(date: DateTime) -> bool {
    date.timestamp().date_time() == date
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28 09:30:00.
    fn now() -> BackupDate {
        BackupDate::parse("2026-11-28-093000").unwrap()
    }

    fn within(text: &str) -> Option<(String, i64)> {
        match DateQuery::parse(text, now()).ok()? {
            DateQuery::Within(range) => {
                Some((BackupDate(range.start).to_string(), range.end - range.start))
            }
            _ => None,
        }
    }

    #[test]
    fn names_are_dates_of_the_calendar() {
        assert_eq!(now().to_string(), "2026-11-28 09:30:00");
        for bad in [
            "",
            "2026-11-28",
            "2026-11-28-0930",
            "2026-02-30-000000",
            "2026-13-01-000000",
            "2026-11-28-246000",
            "2026-11-28-0930\u{661}",
            "20261128-09300000",
            "+026-11-28-093000",
        ] {
            assert_eq!(BackupDate::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn people_write_dates_in_many_forms() {
        let day = |text: &str| Some((format!("{text} 00:00:00"), DAY));
        for (text, expected) in [
            ("2026-11-01", day("2026-11-01")),
            ("2026-11-1", day("2026-11-01")),
            ("today", day("2026-11-28")),
            (" Yesterday ", day("2026-11-27")),
            ("3 days ago", day("2026-11-25")),
            ("a week ago", day("2026-11-21")),
            ("9 months ago", day("2026-02-28")),
            ("1 year ago", day("2025-11-28")),
            ("2026-11", Some(("2026-11-01 00:00:00".into(), 30 * DAY))),
            ("2026", Some(("2026-01-01 00:00:00".into(), 365 * DAY))),
            ("2 hours ago", Some(("2026-11-28 07:00:00".into(), HOUR))),
            (
                "2026-11-01 14:30",
                Some(("2026-11-01 14:30:00".into(), MINUTE)),
            ),
            (
                "2026-11-01T14:30:12",
                Some(("2026-11-01 14:30:12".into(), 1)),
            ),
            ("2026-11-01-143012", Some(("2026-11-01 14:30:12".into(), 1))),
            ("2026-11-01 14", Some(("2026-11-01 14:00:00".into(), HOUR))),
        ] {
            assert_eq!(within(text), expected, "{text}");
        }
        assert_eq!(
            DateQuery::parse("LATEST", now()).unwrap(),
            DateQuery::Latest
        );
        for bad in [
            "",
            "tomorrow",
            "2026-02-30",
            "2026-11-01 25",
            "2026-11-01 1:2:3:4",
            "3 days",
            "days ago",
            "99999999999 days ago",
            "2026-11-01é14",
            "20261101",
            "2026-11 14:30",
            "2026-11-01 14305",
        ] {
            assert!(DateQuery::parse(bad, now()).is_err(), "{bad}");
        }
        // Far back is no overflow.
        assert!(DateQuery::parse("999999999 years ago", now()).is_ok());
    }
}
