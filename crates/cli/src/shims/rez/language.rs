//! The language of Rez, as far as licenses and icons need it: `data`, `read`, and `resource` of
//! strings. Every other statement is an error that names it.

use std::path::Path;

use bandsaw::Error;
use bandsaw::container::udif::Resource;

use super::{LAYER, name, roman};
use crate::commands::resources::add::read as read_file;
use crate::failure::{Failure, Outcome};

/// Headers of the system, which declare the types that are known here.
const HEADERS: [&str; 6] = [
    "Carbon/Carbon.r",
    "CoreServices/CoreServices.r",
    "Carbon.r",
    "MacTypes.r",
    "SysTypes.r",
    "Types.r",
];
/// Words for bits of the attributes, and for bits that are off.
const ATTRIBUTES: [(&str, u32); 10] = [
    ("preload", 0x04),
    ("protected", 0x08),
    ("locked", 0x10),
    ("purgeable", 0x20),
    ("sysheap", 0x40),
    ("nonpreload", 0),
    ("unprotected", 0),
    ("unlocked", 0),
    ("nonpurgeable", 0),
    ("appheap", 0),
];

/// Returns the resources that the file describes: none for a header of the system that is not at its path.
pub(super) fn read(path: &Path) -> Outcome<Vec<Resource>> {
    if path.to_str().is_some_and(|name| HEADERS.contains(&name)) && !path.exists() {
        return Ok(Vec::new());
    }
    let text = roman(&read_file(path)?, path)?;
    let mut parser = Parser {
        text: &text,
        at: 0,
        path,
    };
    let mut resources = Vec::new();
    while parser.more()? {
        if let Some(resource) = parser.statement()? {
            resources.push(resource);
        }
    }
    Ok(resources)
}

/// A reader of text in Mac Roman.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    path: &'a Path,
}

impl Parser<'_> {
    fn statement(&mut self) -> Outcome<Option<Resource>> {
        if self.takes(b'#') {
            self.include()?;
            return Ok(None);
        }
        let word = self.word()?;
        let body: fn(&mut Self, &str) -> Outcome<Vec<u8>> = match &*word {
            "data" => Self::bytes,
            "read" => Self::contents,
            "resource" => Self::strings,
            _ => return Err(self.wrong(&format!("the statement {word} is not supported"))),
        };
        let mut resource = self.head()?;
        resource.data = match &*resource.kind {
            "STR#" | "STR " => body(self, &resource.kind)?,
            kind if word == "resource" => {
                let message = format!("the form of {kind} is not known: use data '{kind}'");
                return Err(self.wrong(&message));
            }
            kind => body(self, kind)?,
        };
        self.expect(b';')?;
        Ok(Some(resource))
    }

    /// Reads the rest of `#include`. The headers of the system declare what is known already.
    fn include(&mut self) -> Outcome {
        let word = self.word()?;
        if word != "include" {
            return Err(self.wrong(&format!("#{word} is not supported")));
        }
        self.space()?;
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let line = name(&rest[..end.unwrap_or(rest.len())]);
        let header = line.trim().trim_matches(['<', '>', '"']);
        if !HEADERS.contains(&header) {
            return Err(self.wrong(&format!("#include {header} is not supported")));
        }
        self.at += end.unwrap_or(rest.len());
        Ok(())
    }

    /// Reads the type, and in parentheses number, name and attributes.
    fn head(&mut self) -> Outcome<Resource> {
        let kind = self.quoted(b'\'')?;
        if kind.len() != 4 {
            return Err(self.wrong("a type has four characters"));
        }
        self.expect(b'(')?;
        let id = self.number()?;
        let (mut title, mut attributes) = (Vec::new(), 0);
        while self.takes(b',') {
            self.space()?;
            match self.peek() {
                Some(b'"') => title = self.quoted(b'"')?,
                Some(b'$' | b'0'..=b'9') => attributes |= self.number()?,
                _ => {
                    let word = self.word()?;
                    let known = ATTRIBUTES.iter().find(|(known, _)| *known == word);
                    let known = known.ok_or_else(|| self.wrong(&format!("{word} is no attribute")));
                    attributes |= i64::from(known?.1);
                }
            }
        }
        self.expect(b')')?;
        if i16::try_from(id).is_err() {
            return Err(self.wrong("the number of a resource is from -32768 to 32767"));
        }
        Ok(Resource {
            kind: name(&kind),
            id: id.to_string(),
            name: name(&title),
            attributes: format!("{:#06x}", attributes & 0xFF),
            data: Vec::new(),
            cf_name: None,
        })
    }

    /// Reads the body of `data`: strings and hexadecimal strings.
    fn bytes(&mut self, _: &str) -> Outcome<Vec<u8>> {
        self.expect(b'{')?;
        let mut data = Vec::new();
        while !self.takes(b'}') {
            data.extend(self.string()?);
            // A separator is possible, and means nothing.
            let _ = self.takes(b',') || self.takes(b';');
        }
        Ok(data)
    }

    /// Reads the body of `read`: the name of a file with the data.
    fn contents(&mut self, _: &str) -> Outcome<Vec<u8>> {
        let path = name(&self.quoted(b'"')?);
        read_file(Path::new(&path))
    }

    /// Reads the body of `resource`: a string, or a list of strings with their lengths before them.
    fn strings(&mut self, kind: &str) -> Outcome<Vec<u8>> {
        self.expect(b'{')?;
        let is_list = kind == "STR#";
        let braced = is_list && self.takes(b'{');
        let (mut count, mut data) = (0_u16, Vec::new());
        loop {
            self.space()?;
            if self.peek() == Some(b'}') {
                break;
            }
            let mut text = self.string()?;
            // Strings in a row are one.
            loop {
                self.space()?;
                match self.peek() {
                    Some(b'"' | b'$') => text.extend(self.string()?),
                    _ => break,
                }
            }
            let len = u8::try_from(text.len());
            data.push(len.map_err(|_| self.wrong("a string exceeds 255 characters"))?);
            data.extend(text);
            count = count
                .checked_add(1)
                .ok_or_else(|| self.wrong("too many strings"))?;
            if !(self.takes(b',') || self.takes(b';')) {
                break;
            }
        }
        if braced {
            self.expect(b'}')?;
            let _ = self.takes(b';');
        }
        self.expect(b'}')?;
        match is_list {
            true => Ok([&count.to_be_bytes()[..], &data].concat()),
            false if count == 1 => Ok(data),
            false => Err(self.wrong("expected one string")),
        }
    }

    /// Reads `"text"` or `$"hexadecimal digits"`.
    fn string(&mut self) -> Outcome<Vec<u8>> {
        if !self.takes(b'$') {
            return self.quoted(b'"');
        }
        let mut digits = Vec::new();
        self.expect(b'"')?;
        loop {
            match self.next()? {
                b'"' => break,
                byte if byte.is_ascii_whitespace() => {}
                byte => digits.push(self.digit(byte)?),
            }
        }
        match digits.len() % 2 {
            0 => Ok(digits
                .chunks(2)
                .map(|pair| pair[0] << 4 | pair[1])
                .collect()),
            _ => Err(self.wrong("an odd number of hexadecimal digits")),
        }
    }

    /// Reads a string with its escapes.
    fn quoted(&mut self, mark: u8) -> Outcome<Vec<u8>> {
        self.expect(mark)?;
        let mut text = Vec::new();
        loop {
            match self.next()? {
                byte if byte == mark => return Ok(text),
                b'\\' => text.push(self.escape()?),
                byte => text.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Outcome<u8> {
        Ok(match self.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 0x08,
            b'f' => 0x0C,
            b'v' => 0x0B,
            b'?' => 0x7F,
            byte @ (b'"' | b'\'' | b'\\') => byte,
            b'$' => self.hexadecimal()?,
            b'0' if matches!(self.peek(), Some(b'x' | b'X')) => {
                self.at += 1;
                self.hexadecimal()?
            }
            first @ b'0'..=b'3' => {
                let mut value = first - b'0';
                for _ in 0..2 {
                    match self.next()? {
                        digit @ b'0'..=b'7' => value = value << 3 | (digit - b'0'),
                        _ => return Err(self.wrong("expected three octal digits")),
                    }
                }
                value
            }
            _ => return Err(self.wrong("an unknown escape in a string")),
        })
    }

    fn hexadecimal(&mut self) -> Outcome<u8> {
        let mut value = 0;
        for _ in 0..2 {
            let byte = self.next()?;
            value = value << 4 | self.digit(byte)?;
        }
        Ok(value)
    }

    fn digit(&self, byte: u8) -> Outcome<u8> {
        let digit = char::from(byte).to_digit(16).map(|digit| digit as u8);
        digit.ok_or_else(|| self.wrong("expected hexadecimal digits"))
    }

    /// Reads a number: decimal, or hexadecimal after `$` or `0x`.
    fn number(&mut self) -> Outcome<i64> {
        self.space()?;
        let is_negative = self.takes(b'-');
        let text = match self.takes(b'$') {
            true => format!("0x{}", self.word()?),
            false => self.word()?,
        };
        let value = match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let value: i64 = value.ok_or_else(|| self.wrong(&format!("{text} is no number")))?;
        Ok(if is_negative { -value } else { value })
    }

    /// Reads letters and digits, in lower case.
    fn word(&mut self) -> Outcome<String> {
        self.space()?;
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let len = rest.iter().take_while(|byte| is_part(byte)).count();
        if len == 0 {
            return Err(self.wrong("expected a word"));
        }
        let word = name(&rest[..len]).to_ascii_lowercase();
        self.at += len;
        Ok(word)
    }

    fn expect(&mut self, byte: u8) -> Outcome {
        self.space()?;
        match self.takes(byte) {
            true => Ok(()),
            false => Err(self.wrong(&format!("expected {}", char::from(byte)))),
        }
    }

    /// Skips this byte, and white space before it, if it is there.
    fn takes(&mut self, byte: u8) -> bool {
        let before = self.at;
        let is_there = self.space().is_ok() && self.peek() == Some(byte);
        self.at = if is_there { self.at + 1 } else { before };
        is_there
    }

    /// Returns true if anything but white space follows.
    fn more(&mut self) -> Outcome<bool> {
        self.space()?;
        Ok(self.peek().is_some())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Outcome<u8> {
        let byte = self
            .peek()
            .ok_or_else(|| self.wrong("the file ends too early"))?;
        self.at += 1;
        Ok(byte)
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Outcome {
        loop {
            let rest = &self.text[self.at..];
            let skipped = match rest {
                [b'/', b'*', inside @ ..] => {
                    let end = inside.windows(2).position(|pair| pair == b"*/");
                    end.ok_or_else(|| self.wrong("a comment has no end"))? + 4
                }
                [b'/', b'/', ..] => {
                    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
                    rest.iter().position(is_end).unwrap_or(rest.len())
                }
                [byte, ..] if byte.is_ascii_whitespace() => 1,
                _ => return Ok(()),
            };
            self.at += skipped;
        }
    }

    fn wrong(&self, message: &str) -> Failure {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = format!("line {line}: {message}");
        Error::invalid(LAYER, message).in_file(self.path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Outcome<Vec<Resource>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.r");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn licenses_are_read() {
        let text = "\
#include <CoreServices/CoreServices.r>
/* the languages */ data 'LPic' (5000) { $\"0000 0001\"  $\"0000 0000 0000\" };
resource 'STR#' (5000, \"English\", purgeable) { { // six
    /* [1] */ \"English\", \"Ag\" \"ree\"; \"Sa\\0xC9\\$22\\n\" } };
data 'TEXT' (5000, \"Caf\u{e9}\", $20) { \"be\\t\" \"n\u{ee}ce\" };
DATA 'styl' (-5) {};
";
        let all = parsed(text).unwrap();
        let facts: Vec<_> = all
            .iter()
            .map(|one| {
                (
                    &*one.kind,
                    &*one.id,
                    &*one.name,
                    &*one.attributes,
                    &*one.data,
                )
            })
            .collect();
        let strings = b"\0\x03\x07English\x05Agree\x05Sa\xc9\"\n";
        assert_eq!(
            facts,
            [
                (
                    "LPic",
                    "5000",
                    "",
                    "0x0000",
                    &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..]
                ),
                ("STR#", "5000", "English", "0x0020", strings),
                ("TEXT", "5000", "Caf\u{e9}", "0x0020", b"be\tn\x94ce"),
                ("styl", "-5", "", "0x0000", b""),
            ]
        );
    }

    #[test]
    fn invalid_and_unsupported_statements_are_named() {
        for (text, said) in [
            ("\n\ntype 'x' {};", "line 3: the statement type"),
            ("#define X 1", "#define"),
            ("#include \"mine.r\"", "#include mine.r"),
            ("resource 'LPic' (1) { 0 };", "use data 'LPic'"),
            ("data 'LONGER' (1) {};", "four characters"),
            ("data 'TEXT' (40000) {};", "32767"),
            ("data 'TEXT' (1, shiny) {};", "shiny"),
            ("data 'TEXT' (1) { $\"0\" };", "odd"),
            ("data 'TEXT' (1) { $\"0g\" };", "hexadecimal"),
            ("data 'TEXT' (1) { \"\\q\" };", "escape"),
            ("data 'TEXT' (1) { \"", "ends too early"),
            ("data 'TEXT' (1) {}", "expected ;"),
            ("/* ", "no end"),
            ("data 'TEXT' (1) { \"\u{8a31}\" };", "Mac Roman"),
        ] {
            let message = parsed(text).unwrap_err().message();
            assert!(message.contains(said), "{text}: {message}");
        }
    }
}
