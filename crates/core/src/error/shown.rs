//! Host paths as text, and characters that deceive in text.

use std::ffi::OsStr;
use std::fmt::Write as _;

/// Returns a host path as text for people and for JSON. A byte that is not part of UTF-8 is written
/// as `\xFF`; everything else is unchanged, so that the text of a path in UTF-8 is the path.
pub fn shown(path: impl AsRef<OsStr>) -> String {
    let bytes = path.as_ref().as_encoded_bytes();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02X}");
        }
    }
    text
}

/// Returns true for characters that are not shown, or that change how others are shown: controls,
/// spaces without a width, ends of lines and paragraphs, and marks that set the direction of text.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{2028}' | '\u{2029}' | '\u{FEFF}'
            | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn only_bytes_outside_utf8_are_escaped() {
        let shown = |bytes| shown(OsStr::from_bytes(bytes));
        assert_eq!(shown(b"a\\x\xc3\xa4\n"), "a\\xä\n");
        assert_eq!(shown(b"b\xff\xc3.img"), "b\\xFF\\xC3.img");
    }
}
