//! Names, sizes and dates in readable form.

use std::borrow::Cow;
use std::fmt::Write as _;

use bandsaw::error::is_deceptive;
use bandsaw::fs::Timestamp;
pub(crate) use bandsaw::size::{counted, grouped};

/// Escapes characters that could control a terminal, or reorder its text. Names in an image are not
/// trustworthy.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => shown.extend(c.escape_default()),
            c if c.is_ascii() && is_deceptive(c) => drop(write!(shown, "\\x{:02x}", u32::from(c))),
            c if is_deceptive(c) => drop(write!(shown, "\\u{{{:x}}}", u32::from(c))),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// The quoting style of names, as in GNU's `ls --quoting-style`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Quoting {
    /// Print names unchanged
    Literal,
    /// Escape control characters and backslashes, as \\n, \\x1b and \\\\
    Escape,
    /// Quote names as strings of C
    C,
    /// Quote names if a shell requires it
    Shell,
    /// Quote as shell does, with control characters as $'\\n'
    ShellEscape,
}

impl Quoting {
    /// Returns `name` in this style.
    pub(crate) fn write(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::Literal => Cow::Borrowed(name),
            Self::Escape => escaped(name, None),
            Self::C => Cow::Owned(format!("\"{}\"", escaped(name, Some('"')))),
            Self::Shell | Self::ShellEscape if !needs_quotes(name) => Cow::Borrowed(name),
            Self::ShellEscape if name.chars().any(is_deceptive) => {
                Cow::Owned(format!("$'{}'", escaped(name, Some('\''))))
            }
            Self::Shell | Self::ShellEscape => {
                Cow::Owned(format!("'{}'", name.replace('\'', "'\\''")))
            }
        }
    }
}

/// Escapes backslashes, `quote` and control characters as in a string of C and in `$'…'` of a
/// shell.
fn escaped(text: &str, quote: Option<char>) -> Cow<'_, str> {
    let is_special = |c: char| c == '\\' || Some(c) == quote || is_deceptive(c);
    if !text.contains(is_special) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => shown.extend(c.escape_default()),
            c if is_deceptive(c) => {
                // Octal bytes have a fixed length, so they cannot absorb the next character.
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(shown, "\\{byte:03o}");
                }
            }
            c if is_special(c) => shown.extend(['\\', c]),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns true if a shell would not read `name` as one word.
fn needs_quotes(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-^]}".contains(c);
    name.is_empty() || !name.chars().all(is_plain)
}

/// `3 files, 1 of them compressed; 2 folders`.
pub(crate) fn counted_files(files: u64, compressed: u64, folders: u64) -> String {
    format!(
        "{}, {} of them compressed; {}",
        counted(files, "file", "files"),
        grouped(compressed),
        counted(folders, "folder", "folders")
    )
}

/// Formats a time as RFC 3339, `2024-03-01T12:34:56Z`, with nine decimals if needed.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.to_string()
}

/// A table of left- or right-aligned columns; the last column is never padded.
pub(crate) struct Table<const N: usize> {
    right: [bool; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Creates a table whose columns are right-aligned if `right` is true.
    pub(crate) fn new(right: [bool; N]) -> Self {
        Self {
            right,
            rows: Vec::new(),
        }
    }

    /// Adds a row. Text from an image must be escaped by [`printable`] first, and belongs in the
    /// last column.
    pub(crate) fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Returns the lines, each after `indent`.
    pub(crate) fn lines(&self, indent: &str) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from(indent);
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
                line.push_str(if column > 0 { "  " } else { "" });
                line.push_str(if self.right[column] { &pad } else { "" });
                line.push_str(cell);
                line.push_str(if self.right[column] { "" } else { &pad });
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Parses permissions in octal.
pub(crate) fn mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("expected permissions in octal, 0 to 7777".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable("plain näme"), "plain näme");
        assert_eq!(printable("a\x1b[31mred"), "a\\x1b[31mred");
        assert_eq!(printable("two\nlines\r\t"), "two\\nlines\\r\\t");
        assert_eq!(printable("csi\u{9b}31m del\x7f"), "csi\\u{9b}31m del\\x7f");
        assert_eq!(printable("fdp.\u{202e}exe"), "fdp.\\u{202e}exe");
    }

    #[test]
    fn names_are_quoted_as_ls_does() {
        let all = [
            Quoting::Literal,
            Quoting::Escape,
            Quoting::C,
            Quoting::Shell,
            Quoting::ShellEscape,
        ];
        let quoted = |name: &str| all.map(|how| how.write(name).into_owned());
        assert_eq!(
            quoted("plain"),
            ["plain", "plain", "\"plain\"", "plain", "plain"]
        );
        assert_eq!(quoted("a b"), ["a b", "a b", "\"a b\"", "'a b'", "'a b'"]);
        assert_eq!(
            quoted("it's"),
            ["it's", "it's", "\"it's\"", "'it'\\''s'", "'it'\\''s'"]
        );
        assert_eq!(quoted("a\"\\b")[1..3], ["a\"\\\\b", "\"a\\\"\\\\b\""]);
        let steering = "a\x1b[31m\n'b\u{202e}";
        assert_eq!(
            Quoting::Escape.write(steering),
            "a\\033[31m\\n'b\\342\\200\\256"
        );
        assert_eq!(
            Quoting::ShellEscape.write(steering),
            "$'a\\033[31m\\n\\'b\\342\\200\\256'"
        );
        assert_eq!(Quoting::Shell.write("")[..], *"''");
    }

    #[test]
    fn dates_are_civil() {
        let at = |seconds| rfc3339(Timestamp::from_seconds(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(-2_082_844_800), "1904-01-01T00:00:00Z");
        assert_eq!(at(4_294_967_295 - 2_082_844_800), "2040-02-06T06:28:15Z");
        assert_eq!(
            rfc3339(Timestamp {
                seconds: 1_709_296_496,
                nanos: 5
            }),
            "2024-03-01T12:34:56.000000005Z"
        );
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            ["0", "999", "1,000", "1,234,567"].map(String::from),
            [0, 999, 1000, 1_234_567].map(grouped)
        );
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(2000, "file", "files"), "2,000 files");
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::new([true, false]);
        table.row(["7".into(), "a".into()]);
        table.row(["12".into(), "long".into()]);
        assert_eq!(table.lines("  "), "   7  a\n  12  long\n");
    }
}
