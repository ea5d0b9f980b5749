//! Text in HTML.

use crate::error::is_deceptive;

/// Escapes `text` for HTML and SVG, also within quotes, and replaces deceptive characters by
/// U+FFFD. Names in an image are untrusted.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_deceptive(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text() {
        assert_eq!(
            escape("<script>\"a\" & 'b'\u{202e}\n"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;\u{fffd}\u{fffd}"
        );
    }
}
