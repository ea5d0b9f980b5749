//! Dates in the text of manifests: RFC 3339 in UTC.

use bandsaw::fs::{DateTime, Timestamp};

/// Parses what [`Timestamp`] displays. `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut parts = date.rsplitn(3, '-');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let (time, nanos) = match time.split_once('.') {
        Some((time, nanos)) if nanos.len() == 9 => (time, number(nanos)?),
        Some(_) => return None,
        None => (time, 0),
    };
    let mut parts = time.split(':');
    let mut small = |most: u32| {
        let value = number(parts.next()?)?;
        u8::try_from(value).ok().filter(|_| value <= most)
    };
    let (hour, minute, second) = (small(23)?, small(59)?, small(59)?);
    let year: i64 = year.parse().ok()?;
    let parsed = DateTime {
        year: (year.abs() < 1_000_000).then_some(year)?,
        month: u8::try_from(number(month)?).ok()?,
        day: u8::try_from(number(day)?).ok()?,
        hour,
        minute,
        second,
    };
    let stamp = Timestamp {
        nanos,
        ..parsed.timestamp()
    };
    // A date that does not exist has another text.
    (stamp.to_string() == text).then_some(stamp)
}

fn number(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_dates_go_back_and_forth() {
        for (seconds, nanos) in [
            (0, 0),
            (1_700_000_000, 5),
            (-2_082_844_800, 0),
            (1 << 36, 999_999_999),
        ] {
            let stamp = Timestamp { seconds, nanos };
            assert_eq!(parse(&stamp.to_string()), Some(stamp), "{stamp}");
        }
        for bad in [
            "",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.5Z",
            "99999999999999999999-01-01T00:00:00Z",
            "2026-01-01T00:00:00:00Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
