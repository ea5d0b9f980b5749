//! The findings of a check, each with the volume's place in the image.

use bandsaw_core::error::Subject;
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

    /// Returns the number of listed findings.
    pub(super) fn listed(&self) -> usize {
        self.problems.listed().len()
    }

    /// Returns true if a finding, from number `first` on, is about an object without a path.
    pub(super) fn has_subjects(&self, first: usize) -> bool {
        let mut found = self.problems.listed().iter().skip(first);
        found.any(|problem| problem.error.subjects().len() > problem.error.paths().count())
    }

    /// Replaces objects that the findings, from number `first` on, are about by the paths that
    /// `path` returns.
    pub(super) fn resolve_subjects(
        &mut self,
        first: usize,
        path: impl FnMut(&Subject) -> Option<String>,
    ) {
        self.problems.resolve_subjects(first, path);
    }

    /// Returns the value, or `None` after reporting the error as damage. Errors of other kinds,
    /// such as I/O errors, are returned and end the check.
    pub(super) fn value_or_damage<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
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

/// Returns the object with this number as the subject of a finding.
pub(super) fn numbered(id: u64) -> Subject {
    Subject::Number(id)
}

/// Returns the entry `name` of a folder as the subject of a finding.
pub(super) fn entry_in(folder: u64, name: &str) -> Subject {
    Subject::Entry(folder, name.replace('/', ":"))
}
