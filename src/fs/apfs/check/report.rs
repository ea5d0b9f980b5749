//! What a check found, each finding with the volume's place in the image.

use crate::problem::{Problems, Severity};
use crate::{Error, Kind, Result};

/// The findings, as they go to whoever asked for the check.
#[derive(Debug)]
pub(super) struct Report<'a> {
    problems: &'a mut Problems,
    /// Where the container is, in words.
    place: &'a str,
}

impl<'a> Report<'a> {
    pub(super) fn new(problems: &'a mut Problems, place: &'a str) -> Self {
        Self { problems, place }
    }

    /// Contents are lost or in doubt.
    pub(super) fn damage(&mut self, error: Error) {
        self.add(Severity::Damage, error);
    }

    /// Wrong, though every reader gets along with it.
    pub(super) fn warning(&mut self, error: Error) {
        self.add(Severity::Warning, error);
    }

    /// Unusual.
    pub(super) fn note(&mut self, error: Error) {
        self.add(Severity::Note, error);
    }

    fn add(&mut self, severity: Severity, error: Error) {
        self.problems.add(severity, error.in_file(self.place));
    }

    /// The value, or `None` once the error has been noted as damage. What is no damage ends the
    /// check.
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

/// A finding about what lies at no single byte.
pub(super) fn wrong(layer: &'static str, message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, layer, message.into())
}
