//! Names: conversion between UTF-8 and MacRoman, and the comparison of names (§7).
//!
//! Names do not record their encoding. Those of other scripts are shown as if they were MacRoman.

use std::cmp::Ordering;

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

/// The rank of each byte in the order in which Mac OS sorts names; equal letters have the same.
///
/// Source: machfs 1.3 and hfsutils 3.2.6, whose tables give the same order (§7).
#[rustfmt::skip]
const SORT_RANKS: [u8; 256] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, // 0_
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x1F, // 1_
    0x20, 0x21, 0x22, 0x27, 0x28, 0x29, 0x2A, 0x2B, 0x2E, 0x2F, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, // 2_
    0x36, 0x37, 0x38, 0x39, 0x3A, 0x3B, 0x3C, 0x3D, 0x3E, 0x3F, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, // 3_
    0x46, 0x47, 0x51, 0x52, 0x54, 0x55, 0x5A, 0x5B, 0x5C, 0x5D, 0x62, 0x63, 0x64, 0x65, 0x66, 0x68, // 4_
    0x71, 0x72, 0x73, 0x74, 0x76, 0x77, 0x7C, 0x7D, 0x7E, 0x7F, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, // 5_
    0x4D, 0x47, 0x51, 0x52, 0x54, 0x55, 0x5A, 0x5B, 0x5C, 0x5D, 0x62, 0x63, 0x64, 0x65, 0x66, 0x68, // 6_
    0x71, 0x72, 0x73, 0x74, 0x76, 0x77, 0x7C, 0x7D, 0x7E, 0x7F, 0x81, 0x87, 0x88, 0x89, 0x8A, 0x8B, // 7_
    0x49, 0x4B, 0x53, 0x56, 0x67, 0x69, 0x78, 0x4E, 0x48, 0x4F, 0x49, 0x4A, 0x4B, 0x53, 0x56, 0x57, // 8_
    0x58, 0x59, 0x5E, 0x5F, 0x60, 0x61, 0x67, 0x6D, 0x6E, 0x6F, 0x69, 0x6A, 0x79, 0x7A, 0x7B, 0x78, // 9_
    0x8C, 0x8D, 0x8E, 0x8F, 0x90, 0x91, 0x92, 0x75, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x4C, 0x6B, // a_
    0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2, 0xA3, 0x50, 0x70, 0xA4, 0x4C, 0x6B, // b_
    0xA5, 0xA6, 0xA7, 0xA8, 0xA9, 0xAA, 0xAB, 0x25, 0x26, 0xAC, 0x20, 0x48, 0x4A, 0x6A, 0x6C, 0x6C, // c_
    0xAD, 0xAE, 0x23, 0x24, 0x2C, 0x2D, 0xAF, 0xB0, 0x80, 0xB1, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB7, // d_
    0xB8, 0xB9, 0xBA, 0xBB, 0xBC, 0xBD, 0xBE, 0xBF, 0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC5, 0xC6, 0xC7, // e_
    0xC8, 0xC9, 0xCA, 0xCB, 0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD1, 0xD2, 0xD3, 0xD4, 0xD5, 0xD6, 0xD7, // f_
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

/// Compares two names in their on-disk form in the order in which Mac OS sorts them.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let rank = |byte: &u8| SORT_RANKS[usize::from(*byte)];
    a.iter().map(rank).cmp(b.iter().map(rank))
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
    fn names_sort_as_on_mac_os() {
        let sorted: [&[u8]; 9] = [
            b"", b"1", b"a", b"A b", b"\x88", b"B", b"b\xca", b"bc", b"[",
        ];
        for pair in sorted.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:x?}");
        }
        assert_eq!(compare(b"README\xca", b"ReadMe "), Ordering::Equal);
        // Letters that sort alike differ in case only.
        for (a, b) in (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).map(move |b| (a, b))) {
            let is_space = [a, b].iter().all(|byte| [b' ', 0xCA].contains(byte));
            if compare(&[a], &[b]).is_eq() && !is_space {
                assert_eq!(fold(a), fold(b), "{a:#x} {b:#x}");
            }
        }
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
