//! pax records: `LENGTH KEY=VALUE\n`, where the length includes itself and values may hold any
//! bytes.

use std::ops::Range;

/// A record: its key, and the range of its value in the contents of the header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PaxRecord<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Range<usize>,
}

/// Returns the records in the contents of a header in order. The first invalid one is `None`, and
/// ends the iteration.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = Option<PaxRecord<'_>>> {
    let mut at = Some(0);
    std::iter::from_fn(move || {
        // Some programs pad with zeros.
        let start = at.filter(|&start| bytes.get(start).is_some_and(|byte| *byte != 0))?;
        let record = parse(bytes, start);
        at = record.as_ref().map(|record| record.value.end + 1);
        Some(record)
    })
}

fn parse(bytes: &[u8], start: usize) -> Option<PaxRecord<'_>> {
    let digits = bytes[start..]
        .iter()
        .take(10)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let length: usize = std::str::from_utf8(&bytes[start..start + digits])
        .ok()?
        .parse()
        .ok()?;
    let body = bytes.get(start + digits..start.checked_add(length)?)?;
    let (b' ', body) = body.split_first()? else {
        return None;
    };
    let (b'\n', body) = body.split_last()? else {
        return None;
    };
    let key = body.iter().position(|byte| *byte == b'=')?;
    let from = start + digits + 1;
    Some(PaxRecord {
        key: &body[..key],
        value: from + key + 1..from + body.len(),
    })
}

/// Returns the length of the record of a key and a value of these lengths. It includes its own
/// digits.
pub(super) fn record_length(key: usize, value: u64) -> u64 {
    let rest = key as u64 + value + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() as u64 != length {
        length += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_anything() {
        let bytes = b"12 path=a=b\n17 key=with\nnewline\n\0\0";
        let wrong_second = records(bytes).collect::<Vec<_>>();
        assert_eq!(
            wrong_second[0],
            Some(PaxRecord {
                key: b"path",
                value: 8..11
            })
        );
        assert_eq!(wrong_second[1], None);
        let bytes = b"20 key=with\nnewline\n";
        assert_eq!(
            records(bytes).collect::<Vec<_>>(),
            [Some(PaxRecord {
                key: b"key",
                value: 7..19
            })]
        );
        assert_eq!(&bytes[7..19], b"with\nnewline");
    }

    #[test]
    fn nonsense_ends_it() {
        for bytes in [
            &b"9 path=ab"[..],
            b"99 path=ab\n",
            b"x path=ab\n",
            b"8 pathab\n",
            b"99999999999999 a=b\n",
            b"0 a=b\n",
        ] {
            assert_eq!(records(bytes).collect::<Vec<_>>(), [None], "{bytes:?}");
        }
    }

    #[test]
    fn a_length_counts_its_digits() {
        assert_eq!(record_length(4, 3), "12 path=abc\n".len() as u64);
        for value in [0, 1, 90, 91, 92, 93, 988, 989, 990, 99_990] {
            let length = record_length(4, value);
            assert_eq!(
                length,
                length.to_string().len() as u64 + 1 + 4 + 1 + value + 1,
                "{value}"
            );
        }
    }
}
