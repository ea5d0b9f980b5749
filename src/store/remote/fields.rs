//! A parser of lines of fields from untrusted sources.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::LAYER;
use crate::size::narrow;
use crate::{Error, Result};

/// Escapes spaces, line ends and non-ASCII characters in `text`.
pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    if !text.is_empty() && text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    if text.is_empty() {
        out.push('%'); // an empty field would not be one
    }
    for byte in text.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
    }
    Cow::Owned(out)
}

fn unescaped(text: &str) -> Option<String> {
    if text == "%" {
        return Some(String::new());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(narrow(digit()? * 16 + digit()?));
    }
    String::from_utf8(out).ok()
}

/// An iterator over the lines of a document.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    rest: &'a str,
    at: u64,
}

impl<'a> Lines<'a> {
    /// Verifies the checksum in the last line and returns the other lines.
    pub(super) fn checked(bytes: &'a [u8]) -> Result<Self> {
        let torn = |at: usize, expected: &'static str| Error::corrupt(LAYER, at as u64, expected);
        let text = std::str::from_utf8(bytes)
            .map_err(|error| torn(error.valid_up_to(), "expected text"))?;
        let body = text
            .strip_suffix('\n')
            .ok_or_else(|| torn(text.len(), "expected a line with a checksum at the end"))?;
        let cut = body.rfind('\n').map_or(0, |at| at + 1);
        let (lines, last) = body.split_at(cut);
        let sum = last.strip_prefix("sum ").filter(|digits| digits.len() == 8);
        let sum = sum.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let sum = sum.ok_or_else(|| torn(cut, "expected a line with a checksum at the end"))?;
        let found = crc32fast::hash(lines.as_bytes());
        if sum != found {
            return Err(Error::corrupt(
                LAYER,
                cut as u64,
                format!("expected a checksum of {found:08x}, found {sum:08x}"),
            ));
        }
        Ok(Self { rest: lines, at: 0 })
    }

    /// Skips the first line, which must be `title`.
    pub(super) fn after(mut self, title: &str) -> Result<Self> {
        match self.line() {
            Some((_, line)) if line == title => Ok(self),
            _ => Err(Error::corrupt(LAYER, 0, format!("expected `{title}`"))),
        }
    }

    fn line(&mut self) -> Option<(u64, &'a str)> {
        let (line, rest) = self.rest.split_once('\n')?;
        let at = self.at;
        self.at += line.len() as u64 + 1;
        self.rest = rest;
        Some((at, line))
    }

    /// Returns the fields of the next line.
    pub(super) fn next(&mut self) -> Result<Option<Fields<'a>>> {
        Ok(self.line().map(|(at, line)| Fields {
            rest: Some(line),
            at,
        }))
    }

    /// Returns the fields of the next line after the first one, which must be `word`.
    pub(super) fn expect(&mut self, word: &'static str) -> Result<Fields<'a>> {
        let at = self.at;
        if let Some(mut fields) = self.next()?
            && fields.word()? == word
        {
            return Ok(fields);
        }
        Err(Error::corrupt(
            LAYER,
            at,
            format!("expected a line that begins with `{word}`"),
        ))
    }
}

/// The fields of a line.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    rest: Option<&'a str>,
    at: u64,
}

impl<'a> Fields<'a> {
    /// Returns an error about this line.
    pub(super) fn odd(&self, expected: &'static str) -> Error {
        Error::corrupt(LAYER, self.at, expected)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_none()
    }

    pub(super) fn word(&mut self) -> Result<&'a str> {
        let line = self
            .rest
            .ok_or_else(|| self.odd("expected another word in the line"))?;
        let (word, rest) = line
            .split_once(' ')
            .map_or((line, None), |(word, rest)| (word, Some(rest)));
        self.rest = rest;
        if word.is_empty() {
            Err(self.odd("expected words with one space between them"))
        } else {
            Ok(word)
        }
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let word = self.word()?;
        unescaped(word).ok_or_else(|| self.odd("expected two hexadecimal digits after each %"))
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        self.word()?
            .parse()
            .map_err(|_| self.odd("expected a number"))
    }

    pub(super) fn hex(&mut self) -> Result<u64> {
        let word = self.word()?;
        let number = u64::from_str_radix(word, 16)
            .ok()
            .filter(|_| word.len() == 16);
        number.ok_or_else(|| self.odd("expected 16 hexadecimal digits"))
    }

    pub(super) fn end(&mut self) -> Result<()> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.odd("expected the line to end"))
        }
    }
}
