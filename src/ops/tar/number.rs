//! Numbers in header fields: octal digits, or base-256 bytes for larger numbers.

/// Parses the number in `field`; 0 if it is empty. `None` if it is not a number, or too large.
pub(super) fn parse(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        return parse_binary(first, rest);
    }
    let digits: &[u8] = field.split(|byte| *byte == 0).next()?;
    digits
        .trim_ascii()
        .iter()
        .try_fold(0_i64, |number, digit| match digit {
            b'0'..=b'7' => number.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
            _ => None,
        })
}

/// Parses a big-endian number in two's complement, whose first byte has the top bit set as a mark.
fn parse_binary(first: u8, rest: &[u8]) -> Option<i64> {
    let negative = first & 0x40 != 0;
    let start = i64::from(first & 0x3F) - if negative { 0x40 } else { 0 };
    rest.iter().try_fold(start, |number, &byte| {
        number.checked_mul(256)?.checked_add(i64::from(byte))
    })
}

/// Writes `number` in octal digits, followed by a zero byte. Returns `false` if the field is too
/// short.
pub(super) fn put(field: &mut [u8], number: u64) -> bool {
    let width = field.len() - 1;
    let digits = format!("{number:0width$o}\0");
    if digits.len() != field.len() {
        return false;
    }
    field.copy_from_slice(digits.as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal() {
        assert_eq!(parse(b"0000644\0"), Some(0o644));
        assert_eq!(parse(b"   644 \0"), Some(0o644));
        assert_eq!(parse(b"\0\0\0\0"), Some(0));
        assert_eq!(parse(b"77777777777"), Some(0o77_777_777_777));
        assert_eq!(parse(b"0000648\0"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn binary() {
        assert_eq!(parse(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(0x2_0000_0000));
        assert_eq!(parse(&[0xFF; 12]), Some(-1));
        assert_eq!(
            parse(b"\x80\x01\0\0\0\0\0\0\0\0\0\0"),
            None,
            "more than 63 bits"
        );
    }

    #[test]
    fn numbers_read_back() {
        let mut field = [1; 8];
        assert!(put(&mut field, 0o777_7777));
        assert_eq!(parse(&field), Some(0o777_7777));
        assert!(!put(&mut field, 0o1000_0000));
    }
}
