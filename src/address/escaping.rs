//! Escapes in addresses: `\` takes a character of a name literally, `%3A` encodes one in URLs.

use std::borrow::Cow;

use super::invalid;
use crate::Result;

/// Decodes `%` escapes of a URL: `%3A` to `:`. `None` if a `%` is not followed by two hexadecimal
/// digits.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?)
            .ok()
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

/// Returns the offset of the first `what` whose first character is not escaped by a `\`.
pub(super) fn find_bare(text: &str, what: &str) -> Option<usize> {
    let mut literal = false;
    text.char_indices().find_map(|(at, c)| {
        let bare = !literal;
        literal = bare && c == '\\';
        (bare && text[at..].starts_with(what)).then_some(at)
    })
}

/// Escapes a name for use in an address.
pub(super) fn escape(name: &str) -> Cow<'_, str> {
    let special = |at: usize, c: char| matches!(c, '\\' | '@' | '/') || (at == 0 && c == '#');
    if !name.char_indices().any(|(at, c)| special(at, c)) {
        return name.into();
    }
    let mut escaped = String::with_capacity(name.len() + 4);
    for (at, c) in name.char_indices() {
        if special(at, c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped.into()
}

/// Removes the escapes of `part`, a name in the address `text`.
pub(super) fn unescape(text: &str, part: &str) -> Result<String> {
    let mut name = String::with_capacity(part.len());
    let mut chars = part.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                name.push(chars.next().ok_or_else(|| {
                    invalid(text, "expected a character after the `\\` at the end")
                })?)
            }
            '/' => {
                return Err(invalid(
                    text,
                    "expected `:/` before a path; escape a `/` in the name of a volume or \
                     snapshot as \\/",
                ));
            }
            c => name.push(c),
        }
    }
    Ok(name)
}
