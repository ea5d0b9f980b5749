//! A line of bash up to the cursor.

/// The words of a line, and how candidates for the last one are written.
pub(super) struct Line {
    /// The words without their quotes. Words after the last `;`, `|` or `&` count.
    pub(super) words: Vec<String>,
    /// The quote that is open at the end.
    quote: Option<char>,
    /// The characters of the last word that bash does not replace: those up to the last break.
    kept: usize,
}

impl Line {
    /// Splits a line. `breaks` are the characters that end a word for bash, as `COMP_WORDBREAKS`
    /// has them; within quotes they do not.
    pub(super) fn new(text: &str, breaks: &str) -> Self {
        let mut line = Self {
            words: vec![String::new()],
            quote: None,
            kept: 0,
        };
        let (mut is_empty, mut characters) = (true, text.chars());
        while let Some(character) = characters.next() {
            let Some(word) = line.words.last_mut() else {
                break;
            };
            match (line.quote, character) {
                (Some(quote), character) if character == quote => line.quote = None,
                (None | Some('"'), '\\') => word.extend(characters.next()),
                (Some(_), character) => word.push(character),
                (None, '\'' | '"') => {
                    line.quote = Some(character);
                    is_empty = false;
                }
                (None, ' ' | '\t' | '\n') => {
                    if !is_empty || !word.is_empty() {
                        line.words.push(String::new());
                    }
                    is_empty = true;
                    line.kept = 0;
                }
                (None, ';' | '|' | '&') => {
                    line.words = vec![String::new()];
                    is_empty = true;
                    line.kept = 0;
                }
                (None, character) => {
                    word.push(character);
                    if breaks.contains(character) {
                        line.kept = word.len();
                    }
                }
            }
        }
        line
    }

    /// Returns a candidate for the last word as bash wants it: what follows the last break, with
    /// quotes.
    pub(super) fn written(&self, candidate: &str) -> String {
        let rest = candidate.get(self.kept..).unwrap_or(candidate);
        match self.quote {
            // Bash keeps the open quote before the word.
            Some('\'') => rest.replace('\'', "'\\''"),
            Some(_) => escaped(rest, "\"\\$`"),
            None => escaped(rest, " \t\"'\\$`&|;<>()*?[]{}!#~"),
        }
    }
}

/// Puts a backslash before each of these characters.
fn escaped(text: &str, special: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for character in text.chars() {
        if special.contains(character) {
            written.push('\\');
        }
        written.push(character);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_bash_does() {
        let words = |text: &str| Line::new(text, ":=").words;
        assert_eq!(
            words("bandsaw ls a.img:/Do"),
            ["bandsaw", "ls", "a.img:/Do"]
        );
        assert_eq!(words("bandsaw ls "), ["bandsaw", "ls", ""]);
        assert_eq!(
            words(r"bandsaw ls a\ b.img:/x"),
            ["bandsaw", "ls", "a b.img:/x"]
        );
        assert_eq!(
            words("bandsaw ls 'a b.img:/My F"),
            ["bandsaw", "ls", "a b.img:/My F"]
        );
        assert_eq!(words("true; bandsaw  ls"), ["bandsaw", "ls"]);
        assert_eq!(words("bandsaw ls '' x"), ["bandsaw", "ls", "", "x"]);
    }

    #[test]
    fn candidates_begin_after_the_last_break() {
        let written = |text: &str, candidate: &str| Line::new(text, ":=").written(candidate);
        assert_eq!(written("bandsaw ls a.img:/D", "a.img:/Docs/"), "/Docs/");
        assert_eq!(written("bandsaw ls a.img:/D", "a.img:/D x/"), r"/D\ x/");
        assert_eq!(
            written("bandsaw ls 'a.img:/D", "a.img:/D x/"),
            "a.img:/D x/"
        );
        assert_eq!(written("bandsaw create --fs=h", "--fs=hfs+"), "hfs+");
        assert_eq!(written("bandsaw in", "info"), "info");
    }
}
