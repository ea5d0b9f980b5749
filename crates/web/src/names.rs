//! Names of files for people, and for downloads.

use std::fmt::Write as _;

use bandsaw::error::is_deceptive;

/// Maximum length of a name of a download in bytes.
const MAX_NAME: usize = 120;

/// Returns a name in which each deceptive character is an escape as `\u{202E}`.
pub(crate) fn visible(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for c in name.chars() {
        match is_deceptive(c) {
            true => {
                let _ = write!(shown, "{}", c.escape_unicode());
            }
            false => shown.push(c),
        }
    }
    shown
}

/// Returns a name of the host; bytes that are not UTF-8 are `\xFF`.
pub(crate) fn visible_bytes(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        shown.push_str(&visible(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02X}");
        }
    }
    shown
}

/// Returns the value of `Content-Disposition` for a download of this name. It contains no separator
/// of any system, no control character, and does not begin with a dot.
pub(crate) fn disposition(name: &str) -> String {
    let mut safe = String::new();
    for c in name.chars() {
        let c = match c {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' | '%' => '_',
            c if is_deceptive(c) => '_',
            c => c,
        };
        if safe.len() + c.len_utf8() > MAX_NAME {
            break;
        }
        safe.push(c);
    }
    let safe = safe.trim_matches([' ', '.']);
    let safe = if safe.is_empty() { "download" } else { safe };
    let ascii = |c: char| if c.is_ascii() && c != ';' { c } else { '_' };
    let plain: String = safe.chars().map(ascii).collect();
    let encoded = percent_encoding::utf8_percent_encode(safe, percent_encoding::NON_ALPHANUMERIC);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_visible() {
        assert_eq!(visible("a\u{202E}gpj.exe"), "a\\u{202e}gpj.exe");
        assert_eq!(visible("a\nb\u{0}"), "a\\u{a}b\\u{0}");
        assert_eq!(visible("مرحبا é"), "مرحبا é");
        assert_eq!(visible_bytes(b"a\xFFb"), "a\\xFFb");
    }

    #[test]
    fn names_of_downloads_are_safe() {
        for (name, plain) in [
            ("a.txt", "a.txt"),
            ("../../.bashrc", "_.._.bashrc"),
            ("a\"; filename=\"b", "a__ filename=_b"),
            ("a\r\nSet-Cookie: x", "a__Set-Cookie_ x"),
            ("...", "download"),
            ("\u{202E}gpj.exe", "_gpj.exe"),
        ] {
            let value = disposition(name);
            assert!(
                value.starts_with(&format!("attachment; filename=\"{plain}\";")),
                "{value}"
            );
            assert!(value.is_ascii() && !value.contains(['\r', '\n']));
        }
        assert!(disposition(&"ä".repeat(1000)).len() < 1000);
    }
}
