//! Property lists of images, XML or binary, read within bounds.
//!
//! A small list can make a large tree (the objects of a binary list may be used many times) or a deep
//! one, so its tree is measured before it is built. Source of the binary format: Apple's
//! `CFBinaryPList.c`.

use std::io::Cursor;

use memchr::{memchr, memmem};
use plist::{Dictionary, Value};

use crate::{Error, Kind, Result};

/// Maximum depth of nested collections.
const MAX_DEPTH: usize = 64;
/// Start of a binary list.
const BINARY: &[u8] = b"bplist";
/// Length of the trailer of a binary list in bytes.
const TRAILER: usize = 32;
/// Memory that a value takes at least, in bytes.
const VALUE: u64 = 32;

/// Parses a list whose root is a dictionary, as [`parse_value`] does. [`Kind::Corrupt`] for another
/// root.
pub fn parse(
    layer: &'static str,
    bytes: &[u8],
    max_values: usize,
    max_bytes: u64,
) -> Result<Dictionary> {
    let value = parse_value(layer, bytes, max_values, max_bytes)?;
    value.into_dictionary().ok_or_else(|| {
        let message = "expected a property list that is a dictionary";
        Error::new(Kind::Corrupt, layer, message)
    })
}

/// Returns a list, XML or binary, as XML text for people. Its root may be of any type.
///
/// [`Kind::Corrupt`] if it is not a list; [`Kind::Limit`] if it has more than 50,000 values and tags,
/// is more than 64 collections deep, or takes more than 4 MiB of memory.
pub fn property_list_xml(bytes: &[u8]) -> Result<String> {
    const LAYER: &str = "property list";
    let value = parse_value(LAYER, bytes, 50_000, 4 << 20)?;
    let mut text = Vec::new();
    let written = value.to_writer_xml(&mut text);
    let text = written.ok().and_then(|()| String::from_utf8(text).ok());
    text.ok_or_else(|| Error::unsupported(LAYER, "a value that XML cannot hold"))
}

/// Parses a list. What follows `</plist>` is ignored.
///
/// [`Kind::Corrupt`] if it is not a list; [`Kind::Limit`] if it has more than `max_values` values and
/// tags, is more than 64 collections deep, or takes more than `max_bytes` of memory.
pub fn parse_value(
    layer: &'static str,
    bytes: &[u8],
    max_values: usize,
    max_bytes: u64,
) -> Result<Value> {
    let limit = |text: String| Error::limit(layer, text);
    let corrupt = || Error::new(Kind::Corrupt, layer, "expected a property list");
    // The texts of the crate are those of its types.
    let broken = |error: plist::Error| match error.is_eof() {
        true => Error::new(Kind::Corrupt, layer, "the property list is truncated"),
        false => corrupt(),
    };
    let binary = bytes.starts_with(BINARY);
    let size = if binary {
        BinaryList::new(bytes)
            .and_then(|list| list.size())
            .ok_or_else(corrupt)?
    } else {
        xml_size(bytes)
    };
    if size.depth > MAX_DEPTH {
        return Err(limit(format!("more than {MAX_DEPTH} nested collections")));
    }
    if size.values > max_values as u64 {
        return Err(limit(format!("more than {max_values} values")));
    }
    if size.bytes > max_bytes {
        return Err(limit(format!("more than {max_bytes} bytes of values")));
    }
    let value = if binary {
        Value::from_reader(Cursor::new(bytes))
    } else {
        let end = memmem::find(bytes, b"</plist>").map_or(bytes.len(), |at| at + b"</plist>".len());
        Value::from_reader_xml(Cursor::new(&bytes[..end]))
    };
    value.map_err(broken)
}

/// An upper bound of the tree of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TreeSize {
    values: u64,
    bytes: u64,
    depth: usize,
}

impl TreeSize {
    fn of(bytes: usize) -> Self {
        Self {
            values: 1,
            bytes: VALUE + bytes as u64,
            depth: 0,
        }
    }

    fn add(&mut self, part: Self) {
        self.values = self.values.saturating_add(part.values);
        self.bytes = self.bytes.saturating_add(part.bytes);
        self.depth = self.depth.max(part.depth + 1);
    }
}

/// Counts tags, and how deep those of collections are nested. Tags in comments count, too.
fn xml_size(bytes: &[u8]) -> TreeSize {
    let mut size = TreeSize::of(bytes.len());
    let (mut depth, mut rest) = (0_usize, bytes);
    while let Some(at) = memchr(b'<', rest) {
        let end = memchr(b'>', &rest[at..]).map_or(rest.len(), |end| at + end);
        let tag = &rest[at + 1..end];
        rest = &rest[end..];
        size.values += 1;
        if tag.starts_with(b"/array") || tag.starts_with(b"/dict") {
            depth = depth.saturating_sub(1);
        } else if (tag.starts_with(b"array") || tag.starts_with(b"dict")) && !tag.ends_with(b"/") {
            depth += 1;
            size.depth = size.depth.max(depth);
        }
    }
    size
}

/// The objects of a binary list.
struct BinaryList<'a> {
    bytes: &'a [u8],
    offsets: Vec<usize>,
    reference_size: usize,
    root: usize,
}

impl<'a> BinaryList<'a> {
    /// Reads the trailer and the table of offsets.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let (body, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
        let (offset_size, reference_size) = (usize::from(trailer[6]), usize::from(trailer[7]));
        let [count, root, table] = [8, 16, 24]
            .map(|at| number(&trailer[at..at + 8]).and_then(|n| usize::try_from(n).ok()));
        let (count, root, table) = (count?, root?, table?);
        if !(1..=8).contains(&offset_size) || !(1..=8).contains(&reference_size) {
            return None;
        }
        let table = body.get(table..table.checked_add(count.checked_mul(offset_size)?)?)?;
        let offsets: Option<Vec<usize>> = table
            .chunks_exact(offset_size)
            .map(|bytes| number(bytes).and_then(|n| usize::try_from(n).ok()))
            .collect();
        Some(Self {
            bytes: body,
            offsets: offsets?,
            reference_size,
            root,
        })
    }

    /// Measures the tree of the root. `None` if an object is malformed, or contains itself.
    fn size(&self) -> Option<TreeSize> {
        self.size_of(self.root, 0, &mut vec![None; self.offsets.len()])
    }

    fn size_of(
        &self,
        object: usize,
        depth: usize,
        known: &mut [Option<TreeSize>],
    ) -> Option<TreeSize> {
        if let Some(size) = *known.get(object)? {
            return Some(size);
        }
        let mut size;
        if depth > MAX_DEPTH {
            // Deeper than allowed, perhaps endless: not measured further.
            return Some(TreeSize {
                depth: 1,
                ..TreeSize::of(0)
            });
        }
        let at = *self.offsets.get(object)?;
        let marker = *self.bytes.get(at)?;
        let small = 1_usize << (marker & 0xF);
        match marker >> 4 {
            0x0 => size = TreeSize::of(0),
            0x1..=0x3 => size = TreeSize::of(self.bytes.get(at + 1..)?.get(..small)?.len()),
            0x8 => size = TreeSize::of(usize::from(marker & 0xF) + 1),
            kind @ (0x4..=0x6 | 0xA | 0xD) => {
                let (count, start) = self.count(at)?;
                let unit = match kind {
                    0x4 | 0x5 => 1,
                    0x6 => 2,
                    0xA => self.reference_size,
                    _ => 2 * self.reference_size,
                };
                let contents = self.bytes.get(start..)?.get(..count.checked_mul(unit)?)?;
                // UTF-16 takes at most three bytes of UTF-8 for two of its own.
                size = TreeSize::of(contents.len().saturating_mul(2));
                if kind >= 0xA {
                    for reference in contents.chunks_exact(self.reference_size) {
                        let part = usize::try_from(number(reference)?).ok()?;
                        size.add(self.size_of(part, depth + 1, known)?);
                    }
                }
            }
            _ => return None,
        }
        *known.get_mut(object)? = Some(size);
        Some(size)
    }

    /// Returns the number of elements of the object at `at`, and where they begin.
    fn count(&self, at: usize) -> Option<(usize, usize)> {
        let marker = *self.bytes.get(at)? & 0xF;
        if marker != 0xF {
            return Some((usize::from(marker), at + 1));
        }
        let of_count = *self.bytes.get(at + 1)?;
        let len = 1_usize << (of_count & 0xF);
        if of_count >> 4 != 1 || len > 8 {
            return None;
        }
        let count = number(self.bytes.get(at + 2..)?.get(..len)?)?;
        Some((usize::try_from(count).ok()?, at + 2 + len))
    }
}

/// Returns a big-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> Option<u64> {
    (bytes.len() <= 8).then(|| {
        bytes
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Dictionary> {
        parse("test", bytes, 4096, 1 << 20)
    }

    fn kind(bytes: &[u8]) -> Kind {
        read(bytes).unwrap_err().kind()
    }

    fn xml(body: &str) -> Vec<u8> {
        format!("<?xml version=\"1.0\"?><plist version=\"1.0\">{body}</plist>").into_bytes()
    }

    /// A binary list of `objects`, with one byte for each offset and reference.
    fn binary(objects: &[&[u8]]) -> Vec<u8> {
        let mut list = b"bplist00".to_vec();
        let mut offsets = Vec::new();
        for object in objects {
            offsets.push(list.len() as u8);
            list.extend_from_slice(object);
        }
        let table = list.len() as u8;
        list.extend_from_slice(&offsets);
        list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 1]);
        for number in [objects.len() as u8, 0, table] {
            list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, number]);
        }
        list
    }

    #[test]
    fn lists_become_text() {
        let mut list = Vec::new();
        let root = plist::Value::Array(vec!["a<b".into(), true.into()]);
        root.to_writer_binary(&mut list).unwrap();
        let text = property_list_xml(&list).unwrap();
        assert!(text.contains("<string>a&lt;b</string>") && text.contains("<true/>"));
        assert_eq!(
            property_list_xml(b"text").unwrap_err().kind(),
            Kind::Corrupt
        );
        let deep = format!("<plist>{}</plist>", "<array>".repeat(100_000));
        let refused = property_list_xml(deep.as_bytes()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Limit);
    }

    #[test]
    fn both_forms_give_the_dictionary() {
        let text = xml("<dict><key>size</key><integer>7</integer></dict>");
        for list in [
            text.clone(),
            [&text[..], b"\0\0<more"].concat(),
            binary(&[&[0xD1, 1, 2], b"\x54size", &[0x10, 7]]),
        ] {
            let found = read(&list).unwrap();
            assert_eq!(
                found.get("size").and_then(Value::as_unsigned_integer),
                Some(7)
            );
        }
    }

    #[test]
    fn other_roots_and_other_files_are_refused() {
        for list in [
            xml("<array/>"),
            xml("<dict>"),
            b"{ size = 7; }".to_vec(),
            Vec::new(),
            binary(&[&[0xA0]]),
        ] {
            assert_eq!(kind(&list), Kind::Corrupt);
        }
    }

    #[test]
    fn deep_lists_are_refused_and_empty_collections_are_not_deep() {
        let deep = "<array>".repeat(100_000);
        assert_eq!(kind(&xml(&deep)), Kind::Limit);
        let flat = format!(
            "<dict><key>a</key><array>{}</array></dict>",
            "<array/>".repeat(1000)
        );
        assert!(read(&xml(&flat)).is_ok());
        assert_eq!(
            kind(&xml(&format!(
                "<dict>{}</dict>",
                "<key>a</key><true/>".repeat(2000)
            ))),
            Kind::Limit
        );
    }

    #[test]
    fn an_array_that_contains_itself_is_refused() {
        assert_eq!(
            kind(&binary(&[&[0xD1, 1, 2], b"\x51a", &[0xA1, 2]])),
            Kind::Limit
        );
    }

    /// Each array holds the next one ten times: 10^9 values in 150 bytes; and 1000 times 2 KiB.
    #[test]
    fn shared_objects_count_each_time() {
        let arrays: Vec<Vec<u8>> = (0..9)
            .map(|n| [vec![0xAA], vec![n + 3; 10]].concat())
            .chain([vec![0x10, 1]])
            .collect();
        let mut objects: Vec<&[u8]> = vec![&[0xD1, 1, 2], b"\x51a"];
        objects.extend(arrays.iter().map(Vec::as_slice));
        assert_eq!(kind(&binary(&objects)), Kind::Limit);
        let data = [&[0x4F, 0x11, 8, 0][..], &[7; 2048]].concat();
        let array = [&[0xAF, 0x11, 3, 0xE8][..], &[3; 1000]].concat();
        let mut list = b"bplist00".to_vec();
        let mut offsets = Vec::new();
        for object in [&[0xD1, 1, 2][..], b"\x51a", &array, &data] {
            offsets.extend_from_slice(&(list.len() as u16).to_be_bytes());
            list.extend_from_slice(object);
        }
        let table = list.len() as u16;
        list.extend_from_slice(&offsets);
        list.extend_from_slice(&[0, 0, 0, 0, 0, 0, 2, 1]);
        for number in [4, 0, table] {
            list.extend_from_slice(&u64::from(number).to_be_bytes());
        }
        assert_eq!(kind(&list), Kind::Limit);
        assert!(parse("test", &list, 4096, 8 << 20).is_ok());
    }

    proptest! {
        /// No bytes lead to a panic, and a tree is never larger than it was measured.
        #[test]
        fn any_change_of_a_binary_list_is_survived(at in 0usize..200, to in any::<u8>(), cut in 0usize..200) {
            let mut dictionary = Dictionary::new();
            dictionary.insert("size".to_owned(), Value::Integer(7.into()));
            dictionary.insert("list".to_owned(), Value::Array(vec![Value::Data(vec![1; 30]), Value::String("ä".repeat(20))]));
            let mut list = Vec::new();
            Value::Dictionary(dictionary).to_writer_binary(&mut list).unwrap();
            let at = at % list.len();
            list[at] = to;
            let _ = read(&list);
            let _ = read(&list[..cut.min(list.len())]);
        }
    }
}
