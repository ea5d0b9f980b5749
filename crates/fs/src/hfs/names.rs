//! Names: conversion between UTF-8 and MacRoman, and the comparison of names (§7).
//!
//! Names do not record their encoding. Those of other scripts are shown as if they were MacRoman.

use super::layout::MAX_NAME;
use crate::unicode;

/// The characters of bytes 0x80 to 0xFF.
///
/// Source: Apple, ROMAN.TXT at unicode.org, version c02 (before Mac OS 8.5, 0xDB was ¤).
const MAC_ROMAN: [char; 128] = [
    'Ä', 'Å', 'Ç', 'É', 'Ñ', 'Ö', 'Ü', 'á', 'à', 'â', 'ä', 'ã', 'å', 'ç', 'é', 'è', // 80
    'ê', 'ë', 'í', 'ì', 'î', 'ï', 'ñ', 'ó', 'ò', 'ô', 'ö', 'õ', 'ú', 'ù', 'û', 'ü', // 90
    '†', '°', '¢', '£', '§', '•', '¶', 'ß', '®', '©', '™', '´', '¨', '≠', 'Æ', 'Ø', // a0
    '∞', '±', '≤', '≥', '¥', 'µ', '∂', '∑', '∏', 'π', '∫', 'ª', 'º', 'Ω', 'æ', 'ø', // b0
    '¿', '¡', '¬', '√', 'ƒ', '≈', '∆', '«', '»', '…', '\u{A0}', 'À', 'Ã', 'Õ', 'Œ', 'œ', // c0
    '–', '—', '“', '”', '‘', '’', '÷', '◊', 'ÿ', 'Ÿ', '⁄', '€', '‹', '›', 'ﬁ', 'ﬂ', // d0
    '‡', '·', '‚', '„', '‰', 'Â', 'Ê', 'Á', 'Ë', 'È', 'Í', 'Î', 'Ï', 'Ì', 'Ó', 'Ô', // e0
    '\u{F8FF}', 'Ò', 'Ú', 'Û', 'Ù', 'ı', 'ˆ', '˜', '¯', '˘', '˙', '˚', '¸', '˝', '˛',
    'ˇ', // f0
];

/// Capital letters above 0x7F, each with its small letter.
const CASE_PAIRS: [(u8, u8); 29] = [
    (0x80, 0x8A),
    (0x81, 0x8C),
    (0x82, 0x8D),
    (0x83, 0x8E),
    (0x84, 0x96),
    (0x85, 0x9A),
    (0x86, 0x9F),
    (0xAE, 0xBE),
    (0xAF, 0xBF),
    (0xCB, 0x88),
    (0xCC, 0x8B),
    (0xCD, 0x9B),
    (0xCE, 0xCF),
    (0xD9, 0xD8),
    (0xE5, 0x89),
    (0xE6, 0x90),
    (0xE7, 0x87),
    (0xE8, 0x91),
    (0xE9, 0x8F),
    (0xEA, 0x92),
    (0xEB, 0x94),
    (0xEC, 0x95),
    (0xED, 0x93),
    (0xEE, 0x97),
    (0xEF, 0x99),
    (0xF1, 0x98),
    (0xF2, 0x9C),
    (0xF3, 0x9E),
    (0xF4, 0x9D),
];

/// Replacement for U+0000 in UTF-8.
const NUL_PICTURE: char = '\u{2400}';

fn char_of(byte: u8) -> char {
    match byte.checked_sub(0x80) {
        None => char::from(byte),
        Some(at) => MAC_ROMAN[usize::from(at)],
    }
}

/// Decodes a name to the form that macOS shows: `:` for `/`, U+2400 for U+0000, letters with
/// diacritics decomposed.
pub(super) fn decode(name: &[u8]) -> String {
    let mut decoded = String::with_capacity(name.len());
    for &byte in name {
        match char_of(byte) {
            '/' => decoded.push(':'),
            '\0' => decoded.push(NUL_PICTURE),
            // As on HFS+, symbols such as ≠ keep their form.
            symbol @ '\u{2000}'.. => decoded.push(symbol),
            char => unicode::decompose(char.into(), &mut |code| {
                decoded.extend(char::from_u32(code));
            }),
        }
    }
    decoded
}

/// Returns the on-disk form of a name, composed or not; `None` if there is none.
pub(super) fn encode(name: &str) -> Option<Vec<u8>> {
    // Each byte on disk is at most two characters of four bytes.
    if name.is_empty() || name.len() > 8 * MAX_NAME || name.contains('/') {
        return None;
    }
    let name = name.replace(':', "/").replace(NUL_PICTURE, "\0");
    let codes = unicode::normalize(&name, false);
    let mut rest = codes.as_slice();
    let mut encoded = Vec::with_capacity(MAX_NAME);
    while let Some((&code, after)) = rest.split_first() {
        let (byte, after) = match (composed(rest), u8::try_from(code)) {
            (Some(byte), _) => (byte, &rest[2..]),
            (None, Ok(byte)) if byte.is_ascii() => (byte, after),
            _ => {
                let at = MAC_ROMAN.iter().position(|&char| u32::from(char) == code)?;
                (u8::try_from(0x80 + at).ok()?, after)
            }
        };
        encoded.push(byte);
        rest = after;
    }
    (encoded.len() <= MAX_NAME).then_some(encoded)
}

/// Returns the byte whose decomposition is the first two of `codes`.
fn composed(codes: &[u32]) -> Option<u8> {
    let pair = codes.get(..2).filter(|pair| pair[1] >= 0x300)?;
    let is_pair = |char: char| {
        let (mut pair, mut is_equal) = (pair.iter(), true);
        unicode::decompose(char.into(), &mut |code| {
            is_equal &= pair.next() == Some(&code);
        });
        is_equal && pair.next().is_none()
    };
    (0x80..=0xFF).find(|&byte| is_pair(char_of(byte)))
}

/// Returns true if two names in their on-disk form are equal but for case.
pub(super) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let folded = |name: &[u8]| name.iter().map(|&byte| fold(byte)).collect::<Vec<_>>();
    a.len() == b.len() && (a == b || folded(a) == folded(b))
}

fn fold(byte: u8) -> u8 {
    if byte.is_ascii() {
        return byte.to_ascii_lowercase();
    }
    let pair = CASE_PAIRS.iter().find(|(capital, _)| *capital == byte);
    pair.map_or(byte, |(_, small)| *small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_utf8() {
        for byte in 0..=u8::MAX {
            let name = decode(&[b'x', byte, b'y']);
            if byte == b':' {
                // The separator of paths is not part of a name.
                continue;
            }
            assert_eq!(
                encode(&name).unwrap(),
                [b'x', byte, b'y'],
                "{byte:#x}: {name:?}"
            );
        }
    }

    #[test]
    fn names_are_shown_as_macos_does() {
        assert_eq!(decode(b"R\x8esum\x8e"), "Re\u{301}sume\u{301}");
        assert_eq!(decode(b"1/2\0"), "1:2\u{2400}");
        assert_eq!(decode(b"\xad\xf0\xdb"), "≠\u{F8FF}€");
        assert_eq!(encode("Résumé").unwrap(), b"R\x8esum\x8e");
        assert_eq!(encode("Re\u{301}sume\u{301}").unwrap(), b"R\x8esum\x8e");
        assert_eq!(encode("a:b").unwrap(), b"a/b");
        for name in ["", "a/b", "漢字", "x\u{301}", &"a".repeat(32)] {
            assert_eq!(encode(name), None, "{name}");
        }
        assert_eq!(encode(&"é".repeat(31)).unwrap().len(), 31);
    }

    #[test]
    fn case_is_folded_as_unicode_has_it() {
        for byte in 0..=u8::MAX {
            let lower: Vec<_> = char_of(byte).to_lowercase().collect();
            let expected = (0..=u8::MAX).find(|&other| lower == [char_of(other)]);
            assert_eq!(fold(byte), expected.unwrap_or(byte), "{byte:#x}");
        }
        assert!(is_equal(b"R\x83SUM\x8e", b"r\x8esum\x83"));
        assert!(!is_equal(b"Resume", b"R\x8esum\x8e"));
        assert!(!is_equal(b"a", b"ab"));
    }
}
