//! Decoder of Base64 in property lists: in lines, indented.
//!
//! Nearly all of a large image's list is block tables in Base64. The XML reader copies them several
//! times and strips white space byte by byte; [`DecodedList`] decodes them before it runs.

use crate::size::narrow;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr;

/// Prefix of the placeholder for extracted data; its number follows.
const MARK: &[u8] = b"taken out of this list: ";
/// Minimum length of an extracted element in bytes. The placeholder is shorter.
const LEAST: usize = 256;
/// Approximate number of Base64 digits decoded at a time.
const BATCH: usize = 4096;

/// A list whose long `<data>` elements were extracted and decoded.
#[derive(Debug)]
pub(super) struct DecodedList {
    /// The list with short placeholders in their place.
    pub(super) list: Vec<u8>,
    found: Vec<Vec<u8>>,
}

impl DecodedList {
    /// Extracts the elements of `list` if it is XML. Data that is not strictly valid Base64 stays,
    /// so that the XML reader reports it.
    pub(super) fn out_of(list: &[u8]) -> Self {
        let mut taken = Self {
            list: Vec::new(),
            found: Vec::new(),
        };
        let mut rest = list;
        while let Some(start) = data_in(rest).filter(|_| !list.starts_with(b"bplist")) {
            let (before, after) = rest.split_at(start);
            taken.list.extend_from_slice(before);
            rest = after;
            if let Some((bytes, end)) = decode(after)
                .filter(|(_, end)| *end >= LEAST && after[*end..].starts_with(b"</data>"))
            {
                let mark = STANDARD
                    .encode([MARK, &narrow::<u32>(taken.found.len()).to_be_bytes()].concat());
                taken.list.extend_from_slice(mark.as_bytes());
                taken.found.push(bytes);
                rest = &after[end..];
            }
        }
        taken.list.extend_from_slice(rest);
        taken
    }

    /// Returns the extracted bytes if `data` is a placeholder, otherwise `data`.
    pub(super) fn restored(&mut self, data: Vec<u8>) -> Vec<u8> {
        let number = data
            .strip_prefix(MARK)
            .and_then(|number| number.try_into().ok())
            .map(u32::from_be_bytes);
        number
            .and_then(|number| self.found.get_mut(number as usize))
            .map(std::mem::take)
            .unwrap_or(data)
    }
}

/// Returns the offset of the contents of the next `<data>` element.
fn data_in(list: &[u8]) -> Option<usize> {
    const TAG: &[u8] = b"<data>";
    let mut at = 0;
    loop {
        at += memchr(TAG[0], list.get(at..)?)?;
        if list[at..].starts_with(TAG) {
            return Some(at + TAG.len());
        }
        at += 1;
    }
}

/// Decodes the Base64 at the start of `text` up to a `<`, and returns the bytes and the offset of
/// the `<`. `None` if it is not strictly valid: whole groups of four, with zeros in the unused
/// bits.
fn decode(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let end = memchr(b'<', text)?;
    let decoded = decode_lines(&text[..end]).or_else(|| {
        // White space within lines is rare.
        let digits: Vec<_> = text[..end]
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        STANDARD.decode(digits).ok()
    });
    Some((decoded?, end))
}

/// Decodes lines with white space only around them, in batches, so that the digits are never copied
/// as a whole.
fn decode_lines(text: &[u8]) -> Option<Vec<u8>> {
    let (mut decoded, mut digits) = (
        Vec::with_capacity(text.len() / 4 * 3),
        Vec::with_capacity(2 * BATCH),
    );
    let mut rest = text;
    while let Some(line) = memchr(b'\n', rest) {
        digits.extend_from_slice(rest[..line].trim_ascii());
        rest = &rest[line + 1..];
        if digits.len() >= BATCH {
            let whole = digits.len() / 4 * 4;
            STANDARD
                .decode_vec(&digits[..whole], &mut decoded)
                .ok()
                .filter(|()| digits[whole - 1] != b'=')?;
            digits.drain(..whole);
        }
    }
    digits.extend_from_slice(rest.trim_ascii());
    STANDARD.decode_vec(&digits, &mut decoded).ok()?;
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(bytes: &[u8], width: usize, indent: &str) -> String {
        let text = STANDARD.encode(bytes);
        let lines = text
            .as_bytes()
            .chunks(width)
            .map(|line| format!("\n{indent}{}", String::from_utf8_lossy(line)));
        lines.collect::<String>() + "\n\t"
    }

    proptest! {
        #[test]
        fn base64_decodes_to_its_source(bytes in prop::collection::vec(any::<u8>(), 0..9000), width in 1usize..90, tabs in 0usize..4) {
            let text = lines(&bytes, width, &"\t".repeat(tabs)) + "</data>";
            let (decoded, end) = decode(text.as_bytes()).unwrap();
            prop_assert_eq!(&text[end..], "</data>");
            prop_assert_eq!(decoded, bytes);
        }

        #[test]
        fn restored_bytes_equal_the_old_ones(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..900), 0..6)) {
            let list = all.iter().map(|bytes| format!("<key>Data</key><data>{}</data>", lines(bytes, 52, "\t"))).collect::<String>();
            let mut taken = DecodedList::out_of(list.as_bytes());
            prop_assert!(taken.list.len() <= list.len());
            let mut text = taken.list.clone();
            let mut left = Vec::new();
            while let Some(start) = data_in(&text) {
                text.drain(..start);
                left.push(taken.restored(decode(&text).unwrap().0));
            }
            prop_assert_eq!(left, all);
        }
    }

    #[test]
    fn irregular_lists_are_not_changed() {
        let whole = "QUFB".repeat(100);
        for (text, good) in [
            ("", true),
            ("Q", false),
            ("QQ", false),
            ("QQ=", false),
            ("QQ==", true),
            ("QR==", false), // bits left over
            ("QUE=", true),
            ("QUF=", false),
            ("Q===", false),
            ("QQ=A", false),
            ("QQ==QUFB", false),
            ("=", false),
            ("&#81;", false),
            ("QU-B", false),
            ("Q U\tF\r\nB", true),
        ] {
            let list = format!("<dict><data>{whole}{text}</data></dict>");
            let taken = DecodedList::out_of(list.as_bytes());
            assert_eq!(taken.found.len(), usize::from(good), "{text}");
            assert_eq!(taken.list == list.as_bytes(), !good, "{text}");
        }
        // An end in the middle of a batch.
        let lines = format!("\t{whole}\n").repeat(BATCH / whole.len() + 1);
        for (text, good) in [
            (format!("{lines}QQ=="), true),
            (format!("{lines}\tQQ==\n{lines}"), false),
        ] {
            let list = format!("<data>{text}</data>");
            assert_eq!(
                DecodedList::out_of(list.as_bytes()).found.len(),
                usize::from(good),
                "{good}"
            );
        }
        let ended = format!(
            "<data>{}</data>",
            format!("{}QQ==\n", &whole[4..]).repeat(BATCH)
        );
        assert!(DecodedList::out_of(ended.as_bytes()).found.is_empty());
        for list in [
            format!("<data>{whole}"),
            format!("<data>{whole}<data>"),
            format!("bplist00<data>{whole}</data>"),
        ] {
            assert_eq!(DecodedList::out_of(list.as_bytes()).list, list.as_bytes());
        }
    }
}
