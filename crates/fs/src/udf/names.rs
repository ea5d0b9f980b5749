//! Names in OSTA Compressed Unicode: the first byte is the number of bits of each character.

/// Returns the text in the bytes of a name. An unknown number of bits counts as 8.
pub(super) fn decode(bytes: &[u8]) -> String {
    let Some((bits, text)) = bytes.split_first() else {
        return String::new();
    };
    match bits {
        // The second is that of deleted names.
        16 | 255 => {
            let units = text.chunks_exact(2).map(|pair| {
                pair.iter()
                    .fold(0, |unit, &byte| unit << 8 | u16::from(byte))
            });
            char::decode_utf16(units)
                .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
                .collect()
        }
        _ => text.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Returns the text of a field of fixed length, whose last byte is the number of bytes that are used.
pub(super) fn decode_field(bytes: &[u8]) -> String {
    let Some((&len, text)) = bytes.split_last() else {
        return String::new();
    };
    let used = text.get(..len.into()).unwrap_or(text);
    decode(used).trim_end_matches('\0').to_owned()
}

/// Returns a name as macOS shows it. One that would mean another place gets a line in front.
pub(super) fn shown(name: &str) -> String {
    match name {
        "" | "." | ".." => format!("_{name}"),
        _ if name.contains(['/', '\0']) => name.replace('/', ":").replace('\0', "\u{FFFD}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_characters_of_8_or_16_bits() {
        for (bytes, expected) in [
            (&b"\x08a\xe9"[..], "a\u{E9}"),
            (
                b"\x10\0a\x20\xAC\xD8\x3D\xDE\x00\xDC\x00b",
                "a\u{20AC}\u{1F600}\u{FFFD}",
            ),
            (b"\xFEold", "old"),
            (b"\xFF\0o", "o"),
            (b"\x08", ""),
            (b"", ""),
        ] {
            assert_eq!(decode(bytes), expected, "{bytes:?}");
        }
        let mut field = [0; 32];
        field[..6].copy_from_slice(b"\x08Disc1");
        field[31] = 5;
        assert_eq!(decode_field(&field), "Disc");
        field[31] = 255;
        assert_eq!(decode_field(&field), "Disc1");
        assert_eq!(decode_field(&[]), "");
    }

    #[test]
    fn names_stay_in_their_folder() {
        for (name, expected) in [
            ("..", "_.."),
            (".", "_."),
            ("", "_"),
            ("a/b", "a:b"),
            ("a\0", "a\u{FFFD}"),
            ("...", "..."),
        ] {
            assert_eq!(shown(name), expected);
        }
    }
}
