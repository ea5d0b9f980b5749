//! The subset of DER that wrapped keys use (§11.3).

use bandsaw_core::size::narrow;

/// Tags of the elements of a wrapped key: `whole` has a MAC and `wrapped`, which has the fields after it.
///
/// Source: sgan81/apfs-fuse, ApfsLib/KeyMgmt.cpp (docs/formats/apfs.md §11.3).
pub(super) mod tag {
    pub(in crate::apfs) const WHOLE: u8 = 0x30;
    pub(in crate::apfs) const MAC: u8 = 0x81;
    pub(in crate::apfs) const MAC_SALT: u8 = 0x82;
    pub(in crate::apfs) const WRAPPED: u8 = 0xA3;
    /// First field of both structures; 0.
    pub(in crate::apfs) const VERSION: u8 = 0x80;
    pub(in crate::apfs) const UUID: u8 = 0x81;
    pub(in crate::apfs) const FLAGS: u8 = 0x82;
    pub(in crate::apfs) const KEY: u8 = 0x83;
    pub(in crate::apfs) const ITERATIONS: u8 = 0x84;
    pub(in crate::apfs) const SALT: u8 = 0x85;
}

/// An element: its tag, its contents, and its full encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
    pub(super) whole: &'a [u8],
}

/// Returns the first element of `bytes`, and the bytes after it; `None` if it is truncated.
pub(super) fn first(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (len, rest) = match short {
        0..=0x7F => (usize::from(short), rest),
        // Lengths here never exceed a block.
        0x81..=0x83 => {
            let (long, rest) = rest.split_at_checked(usize::from(short & 0x7F))?;
            (
                long.iter()
                    .fold(0, |len, &byte| len << 8 | usize::from(byte)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(len)?;
    let whole = bytes.get(..bytes.len() - after.len())?;
    Some((
        Element {
            tag,
            content,
            whole,
        },
        after,
    ))
}

/// Returns the first element with this tag among consecutive elements in `bytes`.
pub(super) fn find(bytes: &[u8], tag: u8) -> Option<Element<'_>> {
    let mut rest = bytes;
    while let Some((element, after)) = first(rest) {
        if element.tag == tag {
            return Some(element);
        }
        rest = after;
    }
    None
}

/// Appends an element with this tag. Its contents must be shorter than 2^16 bytes.
pub(super) fn put(tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    let [.., high, low] = narrow::<u32>(content.len()).to_be_bytes();
    match (high, low) {
        (0, 0..=0x7F) => out.push(low),
        (0, _) => out.extend([0x81, low]),
        _ => out.extend([0x82, high, low]),
    }
    out.extend_from_slice(content);
}

/// Returns the contents of an integer element: the minimal number of bytes with the highest bit
/// clear.
pub(super) fn integer_bytes(value: u32) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let significant = bytes
        .iter()
        .position(|&byte| byte != 0)
        .unwrap_or(bytes.len() - 1);
    let sign = if bytes[significant] & 0x80 != 0 {
        &[0][..]
    } else {
        &[]
    };
    [sign, &bytes[significant..]].concat()
}

/// Parses a nonnegative integer; `None` if it has more than 64 bits.
pub(super) fn integer(content: &[u8]) -> Option<u64> {
    let significant = content
        .iter()
        .position(|&byte| byte != 0)
        .map_or(&[][..], |start| &content[start..]);
    (significant.len() <= 8).then(|| {
        significant
            .iter()
            .fold(0, |value, &byte| value << 8 | u64::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_written_as_they_are_read() {
        for len in [0, 1, 0x7F, 0x80, 0xFF, 0x100, 0x1234] {
            let (content, mut bytes) = (vec![7; len], Vec::new());
            put(0x83, &content, &mut bytes);
            let (element, rest) = first(&bytes).unwrap();
            assert_eq!(
                (element.tag, element.content, element.whole, rest),
                (0x83, &*content, &*bytes, &[][..])
            );
        }
        assert_eq!(
            (
                integer_bytes(0),
                integer_bytes(100_000),
                integer_bytes(0x80)
            ),
            (vec![0], vec![1, 0x86, 0xA0], vec![0, 0x80])
        );
        for value in [0, 1, 0x7F, 0x80, 0xFFFF, u32::MAX] {
            assert_eq!(integer(&integer_bytes(value)), Some(value.into()));
        }
    }

    #[test]
    fn elements_are_found_and_cut_ones_are_not() {
        let bytes = [0x80, 1, 0, 0x81, 0x81, 2, 7, 8, 0xA3, 0x82, 0, 1, 9];
        assert_eq!(find(&bytes, 0x81).unwrap().content, [7, 8]);
        assert_eq!(find(&bytes, 0xA3).unwrap().whole, [0xA3, 0x82, 0, 1, 9]);
        assert_eq!(find(&bytes, 0x85), None);
        assert_eq!(find(&bytes[..12], 0xA3), None);
        assert!(
            first(&[0x80, 0x84, 0, 0, 0, 0]).is_none()
                && first(&[0x80]).is_none()
                && first(&[]).is_none()
        );
        assert_eq!(
            (integer(&[0, 1, 0x86, 0xA0]), integer(&[]), integer(&[1; 9])),
            (Some(100_000), Some(0), None)
        );
    }
}
