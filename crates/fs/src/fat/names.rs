//! Short names, which are in a code page, and long names in UTF-16.

use zerocopy::FromZeros;

use super::layout::{
    LAST_PART, LongEntryRaw, ShortEntryRaw, UNITS_PER_PART, attributes, case, first_byte,
};
use crate::clusters::shown;

/// The upper half of code page 437, which volumes do not record: short names in another are garbled.
const UPPER_HALF: &str = "\
    ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒ\
    áíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
    └┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀\
    αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Returns a character of code page 437.
fn decoded(byte: u8) -> char {
    match byte.checked_sub(0x80) {
        None => char::from(byte),
        Some(upper) => UPPER_HALF
            .chars()
            .nth(upper.into())
            .unwrap_or(char::REPLACEMENT_CHARACTER),
    }
}

/// Returns the byte of a character in code page 437.
pub(super) fn encoded(char: char) -> Option<u8> {
    match u8::try_from(char) {
        Ok(byte) if byte.is_ascii() => Some(byte),
        _ => {
            let at = UPPER_HALF.chars().position(|other| other == char)?;
            u8::try_from(at + 0x80).ok()
        }
    }
}

fn decode(bytes: &[u8], is_lower: bool) -> String {
    let text: String = bytes.iter().map(|&byte| decoded(byte)).collect();
    match is_lower {
        true => text.to_lowercase(),
        false => text,
    }
}

/// Returns the short name as it is shown where there is no long one.
pub(super) fn short(raw: &ShortEntryRaw) -> String {
    let mut bytes = raw.name;
    if bytes[0] == first_byte::KANJI {
        bytes[0] = 0xE5;
    }
    let (name, extension) = bytes.split_at(8);
    let name = decode(name.trim_ascii_end(), raw.case & case::NAME != 0);
    let extension = decode(extension.trim_ascii_end(), raw.case & case::EXTENSION != 0);
    shown(&match extension.is_empty() {
        true => name,
        false => format!("{name}.{extension}"),
    })
}

/// Returns the name of a volume by its label.
pub(super) fn label(bytes: [u8; 11]) -> String {
    let mut bytes = bytes;
    if bytes[0] == first_byte::KANJI {
        bytes[0] = 0xE5;
    }
    decode(&bytes, false)
        .trim_end_matches([' ', '\0'])
        .to_owned()
}

/// Returns a long name, which ends with a zero if its last part is not full.
pub(super) fn long(units: &[u16]) -> String {
    let end = units.iter().position(|&unit| unit == 0);
    let units = units.get(..end.unwrap_or(units.len())).unwrap_or_default();
    shown(&String::from_utf16_lossy(units))
}

/// Returns the entries for a long name in the order in which they are stored, the last part first.
/// `checksum` is that of the short name.
pub(super) fn long_entries(units: &[u16], checksum: u8) -> Vec<LongEntryRaw> {
    let count = units.len().div_ceil(UNITS_PER_PART);
    let parts = (1_u8..).zip(units.chunks(UNITS_PER_PART));
    let mut entries: Vec<_> = parts
        .map(|(number, part)| {
            // A zero ends a name that does not fill its last part, all ones follow.
            let mut padded = [u16::MAX; UNITS_PER_PART];
            padded[..part.len()].copy_from_slice(part);
            if let Some(end) = padded.get_mut(part.len()) {
                *end = 0;
            }
            let is_last = usize::from(number) == count;
            let mut long = LongEntryRaw {
                order: number | if is_last { LAST_PART } else { 0 },
                attributes: attributes::LONG_NAME,
                checksum,
                ..LongEntryRaw::new_zeroed()
            };
            long.set_units(&padded);
            long
        })
        .collect();
    entries.reverse();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &[u8; 11], case: u8) -> String {
        short(&ShortEntryRaw {
            name: *name,
            case,
            ..ShortEntryRaw::new_zeroed()
        })
    }

    #[test]
    fn short_names_have_case_and_characters_of_the_code_page() {
        assert_eq!(named(b"README  TXT", 0), "README.TXT");
        assert_eq!(named(b"README  TXT", case::NAME), "readme.TXT");
        assert_eq!(named(b"README  TXT", case::EXTENSION), "README.txt");
        assert_eq!(named(b"A B        ", 0), "A B");
        assert_eq!(named(b"\x9aBER    \xe1  ", 0), "\u{dc}BER.\u{df}");
        assert_eq!(named(b"\x05X         ", 0), "\u{3c3}X");
        assert_eq!(named(b"           ", 0), "_");
        assert_eq!(named(b"A/B        ", 0), "A:B");
        for byte in 0..=255 {
            assert_eq!(encoded(decoded(byte)), Some(byte));
        }
        assert_eq!(encoded('\u{20ac}'), None);
        assert_eq!(label(*b"MY DISK    "), "MY DISK");
    }

    #[test]
    fn long_names_end_with_a_zero() {
        let units: Vec<u16> = "a\u{1F600}b\0\u{ffff}".encode_utf16().collect();
        assert_eq!(long(&units), "a\u{1F600}b");
        assert_eq!(long(&[0xD800, 0x61]), "\u{FFFD}a");
        assert_eq!(long(&[]), "_");
    }
}
