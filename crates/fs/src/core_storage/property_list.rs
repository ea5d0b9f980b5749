//! Property lists as the kernel of macOS writes them: XML in which a value with an `ID` may occur
//! again as a `reference`, and integers are hexadecimal.
//!
//! Everything is bounded: the length, the depth, the number of values, the length of a text. A value
//! that is referred to is shared, not copied.

use std::collections::HashMap;
use std::sync::Arc;

use bandsaw_core::{Error, Kind, Result};
use base64::Engine;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::GeneralPurposeConfig;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::LAYER;

/// Maximum length of a property list in bytes.
pub(super) const MAX_LEN: usize = 1 << 20;
const MAX_DEPTH: usize = 16;
const MAX_VALUES: usize = 16 << 10;
/// Maximum length of a text or key in bytes.
const MAX_TEXT: usize = 1 << 10;

/// Base64 as in these lists, with any padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

/// A value of a property list.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Dict(Arc<Vec<(Arc<str>, Value)>>),
    Array(Arc<Vec<Value>>),
    Text(Arc<str>),
    Integer(u64),
    Data(Arc<[u8]>),
    /// A truth value, a date or a number with a fraction, which nothing here needs.
    Other,
}

impl Value {
    /// Parses a property list. Zeros and white space after it are ignored.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_LEN {
            return Err(Error::limit(
                LAYER,
                format!("the property list is longer than {MAX_LEN} bytes"),
            ));
        }
        let end = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let text =
            std::str::from_utf8(&bytes[..end]).map_err(|_| invalid("its text is not UTF-8"))?;
        Parser {
            reader: Reader::from_str(text),
            known: HashMap::new(),
            values: 0,
        }
        .document()
    }

    /// Returns the value of a key of a dictionary.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Dict(entries) => entries
                .iter()
                .find(|(key, _)| **key == *name)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the elements of an array.
    pub(super) fn array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the text.
    pub(super) fn text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer.
    pub(super) fn integer(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the bytes.
    pub(super) fn data(&self) -> Option<&[u8]> {
        match self {
            Self::Data(bytes) => Some(bytes),
            _ => None,
        }
    }
}

fn invalid(why: &'static str) -> Error {
    Error::new(
        Kind::Corrupt,
        LAYER,
        format!("invalid property list: {why}"),
    )
}

struct Parser<'a> {
    reader: Reader<&'a [u8]>,
    /// Values by their ID.
    known: HashMap<String, Value>,
    values: usize,
}

impl Parser<'_> {
    fn document(&mut self) -> Result<Value> {
        loop {
            match self.event()? {
                Event::Start(start) if start.name().as_ref() == "plist" => {}
                Event::Start(start) => return self.value(&start, false, 0),
                Event::Empty(start) => return self.value(&start, true, 0),
                Event::Eof => return Err(invalid("it is empty")),
                _ => {}
            }
        }
    }

    fn event(&mut self) -> Result<Event<'static>> {
        self.reader
            .read_event()
            .map(Event::into_owned)
            .map_err(|error| invalid("malformed XML").caused_by(error))
    }

    /// Reads the value that begins with this tag.
    fn value(&mut self, start: &BytesStart<'_>, is_empty: bool, depth: usize) -> Result<Value> {
        self.values += 1;
        if depth > MAX_DEPTH || self.values > MAX_VALUES {
            return Err(Error::limit(LAYER, "the property list has too many values"));
        }
        let name = start.name().as_ref().to_owned();
        let value = match &*name {
            "dict" => Value::Dict(Arc::new(self.dict(is_empty, depth)?)),
            "array" => Value::Array(Arc::new(self.array(is_empty, depth)?)),
            "reference" => {
                self.content(is_empty, 0)?;
                let id = attribute(start, "IDREF").unwrap_or_default();
                // Values share their contents, so that references to references stay short in memory.
                let known = self.known.get(&id).cloned();
                return known.ok_or_else(|| invalid("a reference to a value that does not exist"));
            }
            "string" => Value::Text(self.content(is_empty, MAX_TEXT)?.into()),
            "integer" => Value::Integer(integer(self.content(is_empty, 64)?.trim())?),
            "data" => {
                let mut text = self.content(is_empty, MAX_LEN)?;
                text.retain(|sign| !sign.is_ascii_whitespace());
                let bytes = BASE64.decode(text).map_err(|_| invalid("invalid Base64"))?;
                Value::Data(bytes.into())
            }
            "true" | "false" | "date" | "real" => {
                self.content(is_empty, MAX_TEXT)?;
                Value::Other
            }
            _ => return Err(invalid("an unknown element")),
        };
        if let Some(id) = attribute(start, "ID") {
            self.known.insert(id, value.clone());
        }
        Ok(value)
    }

    fn dict(&mut self, is_empty: bool, depth: usize) -> Result<Vec<(Arc<str>, Value)>> {
        let mut entries = Vec::new();
        let mut key: Option<Arc<str>> = None;
        if is_empty {
            return Ok(entries);
        }
        loop {
            let (start, closed) = match self.event()? {
                Event::Start(start) => (start, false),
                Event::Empty(start) => (start, true),
                Event::End(_) => break,
                Event::Eof => return Err(invalid("it ends early")),
                _ => continue,
            };
            match key.take() {
                None if start.name().as_ref() == "key" => {
                    key = Some(self.content(closed, MAX_TEXT)?.into());
                }
                None => return Err(invalid("a value without a key")),
                Some(key) => entries.push((key, self.value(&start, closed, depth + 1)?)),
            }
        }
        Ok(entries)
    }

    fn array(&mut self, is_empty: bool, depth: usize) -> Result<Vec<Value>> {
        let mut elements = Vec::new();
        if is_empty {
            return Ok(elements);
        }
        loop {
            match self.event()? {
                Event::Start(start) => elements.push(self.value(&start, false, depth + 1)?),
                Event::Empty(start) => elements.push(self.value(&start, true, depth + 1)?),
                Event::End(_) => break,
                Event::Eof => return Err(invalid("it ends early")),
                _ => {}
            }
        }
        Ok(elements)
    }

    /// Reads text of at most `most` bytes up to the end of the element.
    fn content(&mut self, is_empty: bool, most: usize) -> Result<String> {
        let mut text = String::new();
        if is_empty {
            return Ok(text);
        }
        loop {
            match self.event()? {
                Event::Text(part) => text.push_str(&part.xml10_content()),
                Event::CData(part) => text.push_str(&part.xml10_content()),
                Event::GeneralRef(part) => match part.resolve_char_ref() {
                    Ok(Some(sign)) => text.push(sign),
                    Ok(None) => match resolve_predefined_entity(&part.xml10_content()) {
                        Some(signs) => text.push_str(signs),
                        None => return Err(invalid("an unknown entity")),
                    },
                    Err(_) => return Err(invalid("an invalid character")),
                },
                Event::End(_) => break,
                Event::Comment(_) => {}
                Event::Eof => return Err(invalid("it ends early")),
                _ => return Err(invalid("an element within a text")),
            }
            if text.len() > most {
                return Err(Error::limit(
                    LAYER,
                    format!("a text of the property list is longer than {most} bytes"),
                ));
            }
        }
        Ok(text)
    }
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = start.try_get_attribute(name).ok().flatten()?;
    Some(found.value.chars().take(16).collect())
}

fn integer(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| invalid("an invalid integer"))
}

#[cfg(any(test, feature = "testing"))]
pub(super) fn base64_of(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_share_what_they_refer_to() {
        let list = Value::parse(
            b"<dict ID=\"0\"><key>a</key><string ID=\"1\">x &amp; y&#33;</string><key>b</key>\
              <reference IDREF=\"1\"/><key>n</key><integer size=\"32\" ID=\"2\">0x1f</integer>\
              <key>d</key><data ID=\"3\">AQID</data><key>l</key><array><reference IDREF=\"2\"/>\
              </array><key>t</key><true/></dict>\0\0",
        )
        .unwrap();
        assert_eq!(&**list.get("b").unwrap().text().unwrap(), "x & y!");
        let text = |key| list.get(key).unwrap().text().unwrap();
        assert!(Arc::ptr_eq(text("a"), text("b")));
        assert_eq!(list.get("n").unwrap().integer(), Some(31));
        assert_eq!(list.get("d").unwrap().data(), Some(&[1, 2, 3][..]));
        let elements = list.get("l").unwrap().array().unwrap();
        assert_eq!(elements[0].integer(), Some(31));
    }

    #[test]
    fn a_usual_property_list_is_one_too() {
        let list = Value::parse(
            b"<?xml version=\"1.0\"?><!DOCTYPE plist PUBLIC \"x\" \"y\"><plist version=\"1.0\">\
              <dict><key>n</key><integer>12</integer></dict></plist>",
        )
        .unwrap();
        assert_eq!(list.get("n").unwrap().integer(), Some(12));
    }

    #[test]
    fn malformed_lists_are_refused() {
        for list in [
            "",
            "<dict>",
            "<dict><key>a</key>",
            "<dict><string>a</string></dict>",
            "<reference IDREF=\"1\"/>",
            "<integer>x</integer>",
            "<data>*</data>",
            "<string>&unknown;</string>",
            "<string>a<b/></string>",
            "<other/>",
            "<dict></array>",
        ] {
            let error = Value::parse(list.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{list}");
        }
    }

    #[test]
    fn everything_is_bounded() {
        let nested = "<array>".repeat(100);
        let many = format!("<array>{}</array>", "<true/>".repeat(MAX_VALUES));
        let long = format!("<string>{}</string>", "x".repeat(MAX_TEXT + 1));
        let signs = format!("<string>{}</string>", "&amp;".repeat(MAX_LEN / 8));
        let references = format!(
            "<array><string ID=\"1\">{}</string>{}</array>",
            "x".repeat(MAX_TEXT),
            "<reference IDREF=\"1\"/>".repeat(MAX_VALUES)
        );
        for list in [
            nested,
            many,
            long,
            signs,
            references,
            "x".repeat(MAX_LEN + 1),
        ] {
            let error = Value::parse(list.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), Kind::Limit, "{}", &list[..20]);
        }
    }
}
