//! Patterns of names.

/// A pattern of names: `*` stands for any characters, `?` for one, and `[a-z]` for one of several;
/// `[!a-z]` for one of all others. Everything else stands for itself.
#[derive(Debug, Clone)]
pub struct Glob {
    parts: Vec<Part>,
    folds: bool,
}

/// Ranges of characters, both ends included.
type Ranges = Vec<(char, char)>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Char(char),
    Set(Ranges, bool),
}

impl Glob {
    /// Parses a pattern. If `folds` is true, upper and lower case are the same.
    pub fn new(pattern: &str, folds: bool) -> Self {
        let folded = |c: char| if folds { fold(c) } else { c };
        let mut parts = Vec::new();
        let chars: Vec<char> = pattern.chars().collect();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            parts.push(match c {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::One,
                '[' => match set(&chars[at..]) {
                    Some((ranges, negated, len)) => {
                        at += len;
                        let ranges = ranges.into_iter().map(|(a, b)| (folded(a), folded(b)));
                        Part::Set(ranges.collect(), negated)
                    }
                    None => Part::Char(c),
                },
                '\\' if at < chars.len() => {
                    at += 1;
                    Part::Char(folded(chars[at - 1]))
                }
                c => Part::Char(folded(c)),
            });
        }
        Self { parts, folds }
    }

    /// Returns true if the pattern stands for `name`. Takes time in proportion to the product of both
    /// lengths at most.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name
            .chars()
            .map(|c| if self.folds { fold(c) } else { c })
            .collect();
        let (mut part, mut at) = (0, 0);
        // The last `*`, and the end of what it stands for.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(one) if one.is(name[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => match star {
                    Some((any, end)) => {
                        star = Some((any, end + 1));
                        part = any + 1;
                        at = end + 1;
                    }
                    None => return false,
                },
            }
        }
        self.parts[part..].iter().all(|part| *part == Part::Any)
    }
}

impl Part {
    fn is(&self, c: char) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Char(own) => *own == c,
            Self::Set(ranges, negated) => {
                ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *negated
            }
        }
    }
}

/// Parses the ranges after `[`; returns their length with the `]`.
fn set(chars: &[char]) -> Option<(Ranges, bool, usize)> {
    let negated = matches!(chars.first(), Some('!' | '^'));
    let first = usize::from(negated);
    // A `]` at the beginning stands for itself.
    let end = chars.iter().skip(first + 1).position(|&c| c == ']')? + first + 1;
    let mut ranges = Vec::new();
    let mut at = first;
    while at < end {
        match (chars.get(at + 1), chars.get(at + 2)) {
            (Some('-'), Some(&to)) if at + 2 < end => {
                ranges.push((chars[at], to));
                at += 3;
            }
            _ => {
                ranges.push((chars[at], chars[at]));
                at += 1;
            }
        }
    }
    Some((ranges, negated, end + 1))
}

fn fold(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, name, expected) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt.gz", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "ä", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[", "[", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("", "a", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(
                Glob::new(pattern, false).matches(name),
                expected,
                "{pattern} {name}"
            );
        }
        assert!(Glob::new("LETTER*", true).matches("letter.txt"));
        assert!(Glob::new("[A-Z]1", true).matches("b1"));
        assert!(!Glob::new("LETTER*", false).matches("letter.txt"));
        // No exponential time.
        assert!(!Glob::new(&"a*".repeat(50), false).matches(&format!("{}b", "c".repeat(5000))));
    }
}
