//! Human-readable sizes (`8m`, `1.5GiB`, `8GB`, `16384s`, `4096`), and conversions between types of
//! numbers.
//!
//! A unit is binary unless it is followed by a plain `B`, as in `8MB`. Case does not matter.

use std::fmt;

use crate::{Error, Result};

/// Bytes of a sector, independent of the disk's own block size.
pub const SECTOR: u64 = 512;

/// Maximum number of digits after the point; more cannot be exact for any unit except with trailing
/// zeros.
const MAX_FRACTION_DIGITS: usize = 18;

const BINARY: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Converts a number of bytes or units in memory, which the caller knows to fit: a length that was
/// read, an index that was checked. One that does not fit becomes `usize::MAX`, not a small number.
///
/// A number from disk that nothing bounds needs `usize::try_from`.
#[allow(clippy::cast_possible_truncation, reason = "compared before")]
pub const fn to_usize(number: u64) -> usize {
    debug_assert!(number <= usize::MAX as u64, "the caller bounds the number");
    if number <= usize::MAX as u64 {
        number as usize
    } else {
        usize::MAX
    }
}

/// Converts a number that the caller knows to fit, as [`to_usize`] does, to a smaller type: a length
/// within a node, a count of what is in memory. One that does not fit becomes the maximum.
pub fn narrow<T: Unsigned>(number: impl TryInto<T>) -> T {
    let narrowed = number.try_into();
    debug_assert!(narrowed.is_ok(), "the caller bounds the number");
    narrowed.unwrap_or(T::MAX)
}

/// The types to which [`narrow`] converts.
pub trait Unsigned {
    /// The greatest number.
    const MAX: Self;
}

impl Unsigned for u8 {
    const MAX: Self = u8::MAX;
}

impl Unsigned for u16 {
    const MAX: Self = u16::MAX;
}

impl Unsigned for u32 {
    const MAX: Self = u32::MAX;
}

impl Unsigned for u64 {
    const MAX: Self = u64::MAX;
}

/// Parses a size in bytes.
///
/// * `4096` and `4096b` are bytes, `16384s` is sectors of 512 bytes;
/// * `8k`, `8m`, `8g`, `8t`, `8p`, `8e`, and the same as `8KiB` to `8EiB`, are binary;
/// * `8kB` to `8EB` are decimal;
/// * a fraction (`1.5g`) is accepted if it is a whole number of bytes; a space before the unit is
///   allowed.
///
/// Anything else, and a size that exceeds 64 bits, is [`Kind::Invalid`](crate::Kind).
pub fn parse(text: &str) -> Result<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit_bytes(unit.trim_start_matches(' '))
        .ok_or_else(|| invalid(text, "expected a size, such as 512k, 200g or 20GB"))?;
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return Err(invalid(text, "expected a size, such as 512k, 200g or 20GB")),
        Some((whole, fraction)) => (whole, fraction.trim_end_matches('0')),
        None => (number, ""),
    };
    if whole.is_empty() || fraction.contains('.') {
        return Err(invalid(text, "expected a size, such as 512k, 200g or 20GB"));
    }
    let whole: Option<u64> = whole
        .parse::<u64>()
        .ok()
        .and_then(|whole| whole.checked_mul(unit));
    let fraction = fraction_bytes(fraction, unit)
        .ok_or_else(|| invalid(text, "expected a whole number of bytes"))?;
    whole
        .and_then(|whole| whole.checked_add(fraction))
        .ok_or_else(|| invalid(text, "exceeds 64 bits"))
}

/// Formats `bytes` for people: `{}` gives `8 MiB` or, rounded to a tenth, `1.5 GiB`; `{:#}` adds
/// the exact number, as in `8 MiB (8388608 bytes)`.
pub fn display(bytes: u64) -> Display {
    Display(bytes)
}

/// Formats a share of a whole in percent: `25 %`, or `under 1 %`.
pub fn percent(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part) * 100, u128::from(whole.max(1)));
    match part {
        0 => "0 %".to_owned(),
        _ if part < whole => "under 1 %".to_owned(),
        _ => format!("{} %", (part + whole / 2) / whole),
    }
}

/// Returns a number with its noun: `1 byte`, `2,000 bytes`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{} {noun}", grouped(number))
}

/// Returns a number with its digits in groups of three: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The return type of [`display`].
#[derive(Debug, Clone, Copy)]
pub struct Display(u64);

impl fmt::Display for Display {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let human = human(self.0);
        if f.alternate() && self.0 >= 1024 {
            write!(f, "{human} ({} bytes)", self.0)
        } else {
            f.pad(&human)
        }
    }
}

/// Formats in the largest binary unit that leaves at least 1; whole multiples without a point.
fn human(bytes: u64) -> String {
    let mut power = bytes.checked_ilog2().unwrap_or(0) / 10;
    let unit = 1_u64 << (10 * power);
    if bytes.is_multiple_of(unit) {
        let name = if bytes == 1 {
            "byte"
        } else {
            BINARY[power as usize]
        };
        return format!("{} {name}", bytes / unit);
    }
    let mut tenths = (u128::from(bytes) * 10 + u128::from(unit / 2)) / u128::from(unit);
    if tenths == 10_240 {
        (tenths, power) = (10, power + 1);
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, BINARY[power as usize])
}

/// Returns the number of bytes of one unit.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    match unit.as_str() {
        "" | "b" => return Some(1),
        "s" => return Some(SECTOR),
        _ => {}
    }
    let power = 1 + narrow::<u32>("kmgtpe".find(unit.chars().next()?)?);
    match unit.get(1..)? {
        "" | "ib" => Some(1 << (10 * power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// Returns the number of bytes of the digits after the point; `None` if that is no whole number.
fn fraction_bytes(digits: &str, unit: u64) -> Option<u64> {
    if digits.is_empty() {
        return Some(0);
    }
    if digits.len() > MAX_FRACTION_DIGITS {
        return None;
    }
    let scale = 10_u128.pow(narrow(digits.len()));
    let bytes = digits.parse::<u128>().ok()? * u128::from(unit);
    if bytes.is_multiple_of(scale) {
        u64::try_from(bytes / scale).ok()
    } else {
        None
    }
}

fn invalid(text: &str, why: &str) -> Error {
    let text = if text.is_empty() { "nothing" } else { text };
    Error::invalid("size",
        format!("{why}; write bytes (4096), binary units (8k 8m 8g 8t 8p or 8MiB), decimal units (8MB) or sectors (16384s)"),
    )
    .named(format!("{text:?}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Kind;

    #[test]
    fn percents() {
        for (part, whole, expected) in [
            (0, 0, "0 %"),
            (0, 7, "0 %"),
            (1, u64::MAX, "under 1 %"),
            (1, 101, "under 1 %"),
            (1, 100, "1 %"),
            (2, 3, "67 %"),
            (u64::MAX, u64::MAX, "100 %"),
        ] {
            assert_eq!(percent(part, whole), expected);
        }
    }

    #[test]
    fn numbers_that_fit_are_kept() {
        assert_eq!(to_usize(u64::from(u32::MAX)), u32::MAX as usize);
        assert_eq!(narrow::<u32>(u64::from(u32::MAX)), u32::MAX);
        assert_eq!(narrow::<u16>(65_535_usize), u16::MAX);
        assert_eq!(narrow::<u8>(7_u32), 7);
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("4096B", 4096),
            ("16384s", 8 << 20),
            ("8k", 8 << 10),
            ("8m", 8 << 20),
            ("8M", 8 << 20),
            ("8MiB", 8 << 20),
            ("8mib", 8 << 20),
            ("8 MiB", 8 << 20),
            ("8MB", 8_000_000),
            ("8g", 8 << 30),
            ("8GiB", 8 << 30),
            ("8GB", 8_000_000_000),
            ("1t", 1 << 40),
            ("2p", 2 << 50),
            ("15EiB", 15 << 60),
            ("1.5g", 3 << 29),
            ("1.50g", 3 << 29),
            ("0.5s", 256),
            ("1.25kB", 1250),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in [
            "",
            " ",
            "g",
            "-1",
            "-8m",
            "+8m",
            "8x",
            "8mm",
            "8iB",
            "8sb",
            "8bb",
            "8 m b",
            " 8m",
            "8m ",
            "0x10",
            "1,024",
            "1_024",
            ".5g",
            "1.g",
            "1.2.3",
            "1..2",
            "1.5",
            "1.5b",
            "1.0001k",
            "16e",
            "18446744073709551616",
            "36028797018963968s",
            "1.0000000000000000000001g",
            "٣",
            "8µ",
            "8éB",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{text:?}");
            let shown = error.to_string();
            assert!(
                ["8m", "8MiB", "8MB", "16384s", "4096"]
                    .iter()
                    .all(|form| shown.contains(form)),
                "{shown}"
            );
        }
    }

    #[test]
    fn for_people() {
        for (bytes, short, long) in [
            (0, "0 bytes", "0 bytes"),
            (1, "1 byte", "1 byte"),
            (1023, "1023 bytes", "1023 bytes"),
            (1024, "1 KiB", "1 KiB (1024 bytes)"),
            (1 << 20, "1 MiB", "1 MiB (1048576 bytes)"),
            (3 << 29, "1.5 GiB", "1.5 GiB (1610612736 bytes)"),
            (4_153_344, "4.0 MiB", "4.0 MiB (4153344 bytes)"),
            ((1 << 20) - 1, "1.0 MiB", "1.0 MiB (1048575 bytes)"),
            (
                u64::MAX,
                "16.0 EiB",
                "16.0 EiB (18446744073709551615 bytes)",
            ),
        ] {
            assert_eq!(display(bytes).to_string(), short);
            assert_eq!(format!("{:#}", display(bytes)), long);
        }
        assert_eq!(format!("{:>8}|", display(8 << 20)), "   8 MiB|");
    }

    proptest! {
        #[test]
        fn plain_bytes_are_themselves(bytes: u64) {
            prop_assert_eq!(parse(&bytes.to_string()).unwrap(), bytes);
            prop_assert_eq!(parse(&format!("{bytes}b")).unwrap(), bytes);
        }

        #[test]
        fn binary_is_a_shift_and_decimal_a_power(number in 0_u64..1 << 14, power in 1_u32..=5) {
            let letter = "kmgtp".as_bytes()[power as usize - 1] as char;
            prop_assert_eq!(parse(&format!("{number}{letter}")).unwrap(), number << (10 * power));
            prop_assert_eq!(parse(&format!("{number}{}iB", letter.to_ascii_uppercase())).unwrap(), number << (10 * power));
            prop_assert_eq!(parse(&format!("{number}{letter}B")).unwrap(), number * 1000_u64.pow(power));
        }

        #[test]
        fn displayed_sizes_parse_back(bytes: u64) {
            let shown = display(bytes).to_string();
            // A tenth of a unit may be a fraction of a byte; whole numbers must round-trip.
            if !shown.contains('.') {
                prop_assert_eq!(parse(shown.trim_end_matches("ytes")).unwrap(), bytes);
            }
            let exact = format!("{:#}", display(bytes));
            prop_assert!(exact.contains(&bytes.to_string()) || bytes < 1024, "{}", exact);
        }

        #[test]
        fn never_panics(text: String, number in "[0-9.]{0,40}", unit in "[a-zA-Z ]{0,4}") {
            let _ = parse(&text);
            let _ = parse(&format!("{number}{unit}"));
        }
    }
}
