//! The words of AppleScript.

use super::super::refused;
use crate::failure::Outcome;

/// A word of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name or a keyword, as it is written.
    Word(String),
    Text(String),
    Number(f64),
    /// An operator, a bracket or a comma.
    Sign(char),
}

impl Token {
    /// Returns true for this word, in any case, or this sign.
    pub(super) fn is(&self, what: &str) -> bool {
        match self {
            Self::Word(word) => word.eq_ignore_ascii_case(what),
            Self::Sign(sign) => what.chars().eq([*sign]),
            Self::Text(_) | Self::Number(_) => false,
        }
    }
}

/// A statement with the number of its first line.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) tokens: Vec<Token>,
}

/// Splits a script into statements.
pub(super) fn lines(script: &str) -> Outcome<Vec<Line>> {
    let mut all = Vec::new();
    let mut rest = script.char_indices().peekable();
    let mut tokens = Vec::new();
    let (mut number, mut first, mut start) = (1, 1, 0);
    let mut comments = 0_u32;
    loop {
        let next = rest.next();
        if tokens.is_empty() {
            (first, start) = (number, next.map_or(script.len(), |(at, _)| at));
        }
        let Some((at, letter)) = next else { break };
        let after = rest.peek().map(|(_, letter)| *letter);
        match letter {
            '(' if after == Some('*') => {
                rest.next();
                comments += 1;
            }
            '*' if comments > 0 && after == Some(')') => {
                rest.next();
                comments -= 1;
            }
            '\n' => {
                number += 1;
                if comments == 0 && !tokens.is_empty() {
                    all.push(line(first, &script[start..at], std::mem::take(&mut tokens)));
                }
            }
            _ if comments > 0 => {}
            // The statement goes on in the next line.
            '\u{ac}' => {
                while rest.next_if(|(_, letter)| *letter != '\n').is_some() {}
                rest.next();
                number += 1;
            }
            '-' if after == Some('-') => {
                while rest.next_if(|(_, letter)| *letter != '\n').is_some() {}
            }
            '#' => while rest.next_if(|(_, letter)| *letter != '\n').is_some() {},
            letter if letter.is_whitespace() => {}
            '"' => {
                let mut text = String::new();
                loop {
                    match rest.next() {
                        None => return Err(refused(format!("line {number}: a text has no end"))),
                        Some((_, '"')) => break,
                        Some((_, '\\')) => text.push(match rest.next() {
                            Some((_, 'n')) => '\n',
                            Some((_, 't')) => '\t',
                            Some((_, 'r')) => '\r',
                            Some((_, letter)) => letter,
                            None => '\\',
                        }),
                        Some((_, letter)) => {
                            number += usize::from(letter == '\n');
                            text.push(letter);
                        }
                    }
                }
                tokens.push(Token::Text(text));
            }
            letter if letter.is_ascii_digit() => {
                let mut digits = String::from(letter);
                while let Some((_, digit)) =
                    rest.next_if(|(_, letter)| letter.is_ascii_digit() || *letter == '.')
                {
                    digits.push(digit);
                }
                let number = digits
                    .parse()
                    .map_err(|_| refused(format!("line {number}: {digits} is no number")))?;
                tokens.push(Token::Number(number));
            }
            letter if letter.is_alphabetic() || letter == '_' => {
                let mut word = String::from(letter);
                while let Some((_, letter)) =
                    rest.next_if(|(_, letter)| letter.is_alphanumeric() || *letter == '_')
                {
                    word.push(letter);
                }
                tokens.push(Token::Word(word));
            }
            sign => tokens.push(Token::Sign(sign)),
        }
    }
    if !tokens.is_empty() {
        all.push(line(first, &script[start..], tokens));
    }
    Ok(all)
}

fn line(number: usize, text: &str, tokens: Vec<Token>) -> Line {
    Line {
        number,
        text: text.trim().to_owned(),
        tokens,
    }
}

/// The words of a statement, read one after the other.
#[derive(Debug)]
pub(super) struct Words<'a> {
    pub(super) tokens: &'a [Token],
    /// The number of the next one.
    pub(super) at: usize,
}

impl<'a> Words<'a> {
    /// Returns those that are left.
    pub(super) fn rest(&self) -> &'a [Token] {
        &self.tokens[self.at.min(self.tokens.len())..]
    }

    pub(super) fn next(&mut self) -> Option<&'a Token> {
        let next = self.tokens.get(self.at);
        self.at += 1;
        next
    }

    /// Takes these words, if they are next.
    pub(super) fn takes(&mut self, what: &str) -> bool {
        let count = what.split(' ').count();
        let rest = self.rest();
        let is_next = rest.len() >= count
            && what
                .split(' ')
                .zip(rest)
                .all(|(word, token)| token.is(word));
        if is_next {
            self.at += count;
        }
        is_next
    }

    /// Takes these words. Fails if others are next.
    pub(super) fn expect(&mut self, what: &str) -> Outcome {
        match self.takes(what) {
            true => Ok(()),
            false => Err(refused(format!("expected {what}"))),
        }
    }

    /// Takes a name.
    pub(super) fn name(&mut self) -> Outcome<String> {
        match self.next() {
            Some(Token::Word(name)) => Ok(name.clone()),
            _ => Err(refused("expected a name")),
        }
    }

    /// Fails if a word is left.
    pub(super) fn end(&self) -> Outcome {
        match self.rest() {
            [] => Ok(()),
            rest => Err(refused(format!("{:?} is not supported", rest[0]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_with_their_lines() {
        let script =
            "-- none\nset a to \u{ac}\n  {1.5, \"b\\\"c\"} -- rest\n(* no\nthing *)\n\nopen";
        let lines = lines(script).unwrap();
        let found: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.tokens.len(), line.tokens[0].is("SET")))
            .collect();
        assert_eq!(found, [(2, 8, true), (7, 1, false)]);
        assert_eq!(lines[0].tokens[6], Token::Text("b\"c".to_owned()));
        assert_eq!(lines[1].text, "open");
        assert!(super::lines("\"").is_err());
    }
}
