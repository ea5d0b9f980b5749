//! The findings of a check, each with the volume's place in the image.

use bandsaw_core::problem::{Problems, Severity};
use bandsaw_core::{Error, Kind, Result};

/// A collector of findings.
#[derive(Debug)]
pub(super) struct Report<'a> {
    problems: &'a mut Problems,
    /// Location of the container, in words.
    place: &'a str,
}

impl<'a> Report<'a> {
    pub(super) fn new(problems: &'a mut Problems, place: &'a str) -> Self {
        Self { problems, place }
    }

    /// Adds a finding of damage: contents are lost or in doubt.
    pub(super) fn damage(&mut self, error: Error) {
        self.add(Severity::Damage, error);
    }

    /// Adds a warning: a deviation that readers tolerate.
    pub(super) fn warning(&mut self, error: Error) {
        self.add(Severity::Warning, error);
    }

    /// Adds a note about something unusual.
    pub(super) fn note(&mut self, error: Error) {
        self.add(Severity::Note, error);
    }

    fn add(&mut self, severity: Severity, error: Error) {
        self.problems.add(severity, error.in_file(self.place));
    }

    /// Returns the value, or `None` after reporting the error as damage. Errors of other kinds,
    /// such as I/O errors, are returned and end the check.
    pub(super) fn keep<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(value) => Ok(Some(value)),
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Corrupt | Kind::OutOfRange | Kind::Limit | Kind::NotFound
                ) =>
            {
                self.damage(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns an error about something without a single offset.
pub(super) fn wrong(layer: &'static str, message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, layer, message.into())
}
