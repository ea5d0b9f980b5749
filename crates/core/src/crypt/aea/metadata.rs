//! The metadata of an archive, which is authenticated but not encrypted.

use crate::size::narrow;

/// Maximum length of a name that is recognized, in bytes.
const MAX_NAME: usize = 256;

/// An entry of the metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataEntry {
    /// The name, such as `com.apple.wkms.fcs-response`.
    pub name: String,
    /// Length of the value in bytes.
    pub len: u32,
}

/// Parses pairs of a name and a value. `None`: the bytes are something else, which the format
/// permits.
pub(super) fn parse(bytes: &[u8]) -> Option<Vec<MetadataEntry>> {
    let entries = pairs(bytes)?
        .into_iter()
        .map(|(name, value)| MetadataEntry {
            name: name.to_owned(),
            len: narrow(value.len()),
        });
    Some(entries.collect())
}

/// Returns the value of an entry. `None`: there is no such entry, or several.
pub(super) fn value<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut values = pairs(bytes)?.into_iter().filter(|pair| pair.0 == name);
    let (_, value) = values.next()?;
    values.next().is_none().then_some(value)
}

/// Returns pairs of a name and a value.
fn pairs(bytes: &[u8]) -> Option<Vec<(&str, &[u8])>> {
    // Descriptions differ in whether a length includes its own four bytes.
    pairs_with(bytes, 4).or_else(|| pairs_with(bytes, 0))
}

/// Returns pairs whose lengths include `own` bytes of their own.
fn pairs_with(bytes: &[u8], own: usize) -> Option<Vec<(&str, &[u8])>> {
    let (mut rest, mut pairs) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let len = len.checked_sub(own)?;
        let (pair, after) = after.split_at_checked(len)?;
        let end = pair.iter().take(MAX_NAME).position(|byte| *byte == 0)?;
        let (name, value) = pair.split_at_checked(end)?;
        pairs.push((std::str::from_utf8(name).ok()?, value.get(1..)?));
        rest = after;
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_parsed_and_anything_else_is_none() {
        let pairs = [&b"\x09\0\0\0key\0value"[..], b"\x02\0\0\0k\0"].concat();
        let names: Vec<_> = parse(&pairs)
            .unwrap()
            .into_iter()
            .map(|entry| (entry.name, entry.len))
            .collect();
        assert_eq!(names, [("key".to_owned(), 5), ("k".to_owned(), 0)]);
        let own = [&b"\x0d\0\0\0key\0value"[..], b"\x06\0\0\0k\0"].concat();
        assert_eq!(parse(&own), parse(&pairs));
        assert_eq!(parse(b""), Some(Vec::new()));
        for pairs in [&pairs, &own] {
            assert_eq!(value(pairs, "key"), Some(&b"value"[..]));
            assert_eq!(value(pairs, "k"), Some(&b""[..]));
            assert_eq!(value(pairs, "value"), None);
            assert_eq!(value(&[&pairs[..], pairs].concat(), "key"), None);
        }
        for other in [
            &pairs[..12],
            b"bplist00 and more",
            b"\x03\0\0\0abc",
            b"\xff\xff\xff\xff",
        ] {
            assert_eq!(parse(other), None);
        }
    }
}
