//! Sizes in the notation of hdiutil: powers of two, `b` for sectors.

use super::call::usage;
use crate::failure::Outcome;

/// The size of a sector, in bytes.
pub(super) const SECTOR: u64 = 512;

/// Parses `10g`, `1.5m` or `2048b`; a bare number counts bytes, as for mkfile(8), to which the manual
/// of hdiutil refers. Parts of a sector are rounded up.
pub(super) fn parse(text: &str) -> Outcome<u64> {
    let wrong = || {
        usage(format!(
            "invalid size {text}: expected a number and one of b (sectors), k, m, g, t, p, e"
        ))
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "b" => 9,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return Err(wrong()),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    // Fractions come from programs that divide; further digits are noise.
    let part = &part[..part.len().min(9)];
    if whole.is_empty() && part.is_empty()
        || !whole
            .bytes()
            .chain(part.bytes())
            .all(|byte| byte.is_ascii_digit())
    {
        return Err(wrong());
    }
    let number: u128 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
    let bytes = number
        .checked_mul(1 << shift)
        .ok_or_else(wrong)?
        .div_ceil(10_u128.pow(part.len() as u32));
    let bytes = u64::try_from(bytes)
        .ok()
        .and_then(|bytes| bytes.checked_next_multiple_of(SECTOR));
    bytes.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [
            ("10g", 10 << 30),
            ("1M", 1 << 20),
            ("1.5m", 3 << 19),
            ("20480", 20480),
            ("1000000", 1_000_448),
            ("8b", 4096),
            ("1e", 1 << 60),
            (
                "134217.728K",
                (134_217_728 * 1024_u64)
                    .div_ceil(1000)
                    .next_multiple_of(512),
            ),
            (".5k", 512),
        ] {
            assert_eq!(parse(text).unwrap(), bytes, "{text}");
        }
        for text in [
            "",
            "g",
            "10q",
            "-1m",
            "1.2.3m",
            "99999999999999999999e",
            "10gb",
            "16e",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
