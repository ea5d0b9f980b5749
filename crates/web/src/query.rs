//! Queries of addresses and bodies of forms: names and values as bytes.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use zeroize::{Zeroize, Zeroizing};

/// Everything is encoded but letters, digits and these.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// Fields of a query or form.
const MAX_FIELDS: usize = 64;

/// The fields of a query or form. Values are wiped when dropped, as one may be a passphrase.
#[derive(Default)]
pub(crate) struct Fields(Vec<(String, Zeroizing<Vec<u8>>)>);

impl Fields {
    /// Reads `a=b&c=d`. Fields past the limit, and names that are not UTF-8, are ignored.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let field = |part: &[u8]| {
            let (name, value) = match part.iter().position(|byte| *byte == b'=') {
                Some(at) => (part.get(..at)?, part.get(at + 1..)?),
                None => (part, &part[..0]),
            };
            let name = String::from_utf8(decoded(name).to_vec()).ok()?;
            Some((name, decoded(value)))
        };
        let parts = text.split(|byte| *byte == b'&');
        Self(parts.take(MAX_FIELDS).filter_map(field).collect())
    }

    /// Returns the first value of a field.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// Returns the first value of a field, if it is text and not empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let value = std::str::from_utf8(self.bytes(name)?).ok()?;
        Some(value).filter(|value| !value.is_empty())
    }

    /// Returns the first value of a field, if it is a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

fn decoded(part: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut spaced = part.to_vec();
    for byte in &mut spaced {
        if *byte == b'+' {
            *byte = b' ';
        }
    }
    // With its full capacity: growing would leave copies behind that are not wiped.
    let mut value = Zeroizing::new(Vec::with_capacity(spaced.len()));
    value.extend(percent_decode(&spaced));
    spaced.zeroize();
    value
}

/// Writes an address relative to the page: its name, and fields of bytes.
pub(crate) fn address(page: &str, fields: &[(&str, &[u8])]) -> String {
    let mut address = page.to_owned();
    for (number, (name, value)) in fields.iter().enumerate() {
        address.push(if number == 0 { '?' } else { '&' });
        address.push_str(name);
        address.push('=');
        address.extend(percent_encode(value, ENCODED));
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_there_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        let address = address("folder", &[("i", &all), ("p", b"/a b&c=d+e")]);
        assert!(address.is_ascii() && !address.contains(' '));
        let fields = Fields::parse(address.split_once('?').unwrap().1.as_bytes());
        assert_eq!(fields.bytes("i").unwrap(), all);
        assert_eq!(fields.text("p").unwrap(), "/a b&c=d+e");
        assert_eq!(fields.text("i"), None);
    }

    #[test]
    fn odd_queries_are_read() {
        let fields = Fields::parse(b"a&b=1&b=2&=3&c=%4&d=%zz&&e=+%2B");
        assert_eq!(fields.bytes("a"), Some(&b""[..]));
        assert_eq!((fields.text("a"), fields.number("b")), (None, Some(1)));
        assert_eq!(
            (fields.text("c"), fields.text("d")),
            (Some("%4"), Some("%zz"))
        );
        assert_eq!(fields.text("e"), Some(" +"));
        let many = "x=1&".repeat(1000);
        assert_eq!(Fields::parse(many.as_bytes()).0.len(), MAX_FIELDS);
    }
}
