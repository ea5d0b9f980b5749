//! Mac Roman, the text encoding of classic Mac OS: ASCII and 128 more characters.

/// The characters of the bytes from 0x80 on. 0xF0 is Apple's logo, a private-use character in
/// Unicode.
const UPPER: &str = "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü†°¢£§•¶ß®©™´¨≠ÆØ∞±≤≥¥µ∂∑∏π∫ªºΩæø¿¡¬√ƒ≈∆«»…\u{a0}ÀÃÕŒœ–—“”‘’÷◊ÿŸ⁄€‹›ﬁﬂ‡·‚„‰ÂÊÁËÈÍÎÏÌÓÔ\u{f8ff}ÒÚÛÙıˆ˜¯˘˙˚¸˝˛ˇ";

/// Decodes text in Mac Roman; all bytes are valid.
pub fn decode(bytes: &[u8]) -> String {
    let upper = |byte: u8| {
        UPPER
            .chars()
            .nth(usize::from(byte - 0x80))
            .unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    bytes
        .iter()
        .map(|&byte| {
            if byte.is_ascii() {
                char::from(byte)
            } else {
                upper(byte)
            }
        })
        .collect()
}

/// Encodes text in Mac Roman. Returns `None` if that lacks a character.
pub fn encode(text: &str) -> Option<Vec<u8>> {
    let byte = |c: char| match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() => Some(byte),
        _ => UPPER
            .chars()
            .position(|other| other == c)
            .and_then(|at| u8::try_from(0x80 + at).ok()),
    };
    text.chars().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_character_of_its_own() {
        let all: Vec<u8> = (0..=255).collect();
        let text = decode(&all);
        assert_eq!(text.chars().count(), 256);
        assert_eq!(encode(&text), Some(all));
        assert_eq!(decode(b"Save\xc9 \x8e \xdb"), "Save… é €");
        assert_eq!(encode("日本"), None);
    }
}
