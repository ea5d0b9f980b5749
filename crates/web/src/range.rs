//! Ranges of bytes that a client asks for.

use std::ops::Range;

/// The answer to a field `Range`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// All bytes: no field, or one that need not be understood.
    All,
    /// One range, not empty and within the length.
    Part(Range<u64>),
    /// A range that is not within the length.
    Unsatisfiable,
}

impl RequestedRange {
    /// Reads a field `Range` for contents of `len` bytes. Several ranges are answered with all
    /// bytes, which every client accepts.
    pub(crate) fn parse(field: Option<&[u8]>, len: u64) -> Self {
        let parts = || {
            let text = std::str::from_utf8(field?).ok()?.strip_prefix("bytes=")?;
            let (first, last) = text.trim().split_once('-')?;
            let number = |text: &str| match text {
                "" => Some(None),
                _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(Some(text.parse().unwrap_or(u64::MAX)))
                }
                _ => None,
            };
            Some((number(first)?, number(last)?))
        };
        match parts() {
            Some((Some(first), Some(last))) if first > last => Self::All,
            Some((Some(first), last)) if first < len => {
                let end = last.map_or(len, |last: u64| last.saturating_add(1).min(len));
                Self::Part(first..end)
            }
            Some((None, Some(last))) if last > 0 && len > 0 => {
                Self::Part(len.saturating_sub(last)..len)
            }
            Some((None, None)) | None => Self::All,
            Some(_) => Self::Unsatisfiable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_length() {
        let of = |field: &str, len| RequestedRange::parse(Some(field.as_bytes()), len);
        assert_eq!(RequestedRange::parse(None, 10), RequestedRange::All);
        assert_eq!(of("bytes=0-4", 10), RequestedRange::Part(0..5));
        assert_eq!(of("bytes=5-", 10), RequestedRange::Part(5..10));
        assert_eq!(
            of("bytes=5-99999999999999999999", 10),
            RequestedRange::Part(5..10)
        );
        assert_eq!(of("bytes=-3", 10), RequestedRange::Part(7..10));
        assert_eq!(of("bytes=-30", 10), RequestedRange::Part(0..10));
        for field in ["bytes=10-", "bytes=-0", "bytes=18446744073709551615-"] {
            assert_eq!(of(field, 10), RequestedRange::Unsatisfiable, "{field}");
        }
        assert_eq!(of("bytes=0-", 0), RequestedRange::Unsatisfiable);
        for field in [
            "bytes=5-4",
            "bytes=0-1,4-5",
            "bytes=+1-2",
            "bytes=-",
            "lines=1-2",
            "bytes",
        ] {
            assert_eq!(of(field, 10), RequestedRange::All, "{field}");
        }
        assert_eq!(
            RequestedRange::parse(Some(b"bytes=\xFF-1"), 10),
            RequestedRange::All
        );
    }
}
