//! The values of expressions.

use super::super::refused;
use crate::failure::{Failure, Outcome};

/// The parts of a volume that have properties.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Disk,
    Window,
    ViewOptions,
    /// An entry of the root.
    Item(String),
    EveryItem,
    /// A file by its path, parts separated by colons.
    File(String),
}

/// A value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Text(String),
    Yes(bool),
    List(Vec<Value>),
    /// A constant of the Finder, such as `icon view`.
    Word(&'static str),
    Finder,
    /// A part of a volume, by the volume's number.
    Part(usize, Part),
    /// A file by an absolute path.
    File(String),
    Nothing,
}

/// The constants of the Finder.
pub(super) const CONSTANTS: [&str; 14] = [
    "icon view",
    "list view",
    "column view",
    "flow view",
    "not arranged",
    "snap to grid",
    "arranged by name",
    "arranged by modification date",
    "arranged by creation date",
    "arranged by size",
    "arranged by kind",
    "arranged by label",
    "bottom",
    "right",
];

impl Value {
    /// Returns the text, to which a list of one and a number are converted.
    pub(super) fn text(&self) -> Outcome<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Number(number) => Ok(number.to_string()),
            Self::Yes(yes) => Ok(yes.to_string()),
            Self::List(list) => list.iter().map(Self::text).collect(),
            _ => Err(self.not("a text")),
        }
    }

    /// Returns a number, to which a text is converted.
    pub(super) fn number(&self) -> Outcome<f64> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => text.trim().parse().map_err(|_| self.not("a number")),
            _ => Err(self.not("a number")),
        }
    }

    pub(super) fn yes(&self) -> Outcome<bool> {
        match self {
            Self::Yes(yes) => Ok(*yes),
            _ => Err(self.not("true or false")),
        }
    }

    /// Returns a constant of the Finder's dictionary, such as `icon view`.
    pub(super) fn word(&self) -> Outcome<&'static str> {
        match self {
            Self::Word(word) => Ok(word),
            _ => Err(self.not("a constant of the Finder")),
        }
    }

    /// Returns the path of a file.
    pub(super) fn file(&self) -> Outcome<&str> {
        match self {
            Self::File(path) | Self::Text(path) | Self::Part(_, Part::File(path)) => Ok(path),
            Self::Part(_, Part::Item(name)) => Ok(name),
            _ => Err(self.not("a file")),
        }
    }

    /// Returns a number from 0 to 65,535, rounded.
    pub(super) fn count(&self) -> Outcome<u32> {
        Ok(self.between(0.0, 65535.0)?.round() as u32)
    }

    /// Returns a number. Fails for those below `least` or above `most`.
    pub(super) fn between(&self, least: f64, most: f64) -> Outcome<f64> {
        let number = self.number()?;
        match (least..=most).contains(&number) {
            true => Ok(number),
            false => Err(refused(format!(
                "{number}: expected a number from {least} to {most}"
            ))),
        }
    }

    /// Returns a list of this many such numbers.
    pub(super) fn counts<const N: usize>(&self) -> Outcome<[u32; N]> {
        let wrong = || self.not("a list of that length");
        let Self::List(list) = self else {
            return Err(wrong());
        };
        let numbers: Vec<u32> = list.iter().map(Self::count).collect::<Outcome<_>>()?;
        numbers.try_into().map_err(|_| wrong())
    }

    fn not(&self, expected: &str) -> Failure {
        refused(format!("expected {expected}, found {self:?}"))
    }
}
