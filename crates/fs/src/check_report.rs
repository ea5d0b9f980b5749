//! The findings of a check of HFS or HFS+, limited in number.

use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind};

/// Maximum number of findings stored. A badly damaged volume can have as many as it has records.
const KEPT: usize = 1000;

/// The findings so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    problems: Vec<Problem>,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

impl Report {
    /// Reports that contents are lost or in doubt.
    pub(crate) fn damage(&mut self, error: Error) {
        self.push(Severity::Damage, error);
    }

    /// Reports an error that every reader tolerates.
    pub(crate) fn warning(&mut self, error: Error) {
        self.push(Severity::Warning, error);
    }

    /// Reports something unusual.
    pub(crate) fn note(&mut self, error: Error) {
        self.push(Severity::Note, error);
    }

    /// Adds a finding.
    pub(crate) fn push(&mut self, severity: Severity, error: Error) {
        if self.problems.len() < KEPT {
            self.problems.push(Problem { severity, error });
        } else {
            self.dropped += 1;
            self.worst_dropped = self.worst_dropped.max(Some(severity));
        }
    }

    /// Returns the number of findings so far.
    pub(crate) fn len(&self) -> u64 {
        self.problems.len() as u64 + self.dropped
    }

    /// Returns the paths of the objects that the findings after the first `before` are about.
    pub(crate) fn paths_since(&self, before: u64) -> Vec<String> {
        let problems = self.problems.iter().skip(to_usize(before));
        let subjects = problems.flat_map(|problem| problem.error.subjects());
        let path = |subject: &Subject| match subject {
            Subject::Path(path) => Some(path.clone()),
            Subject::Number(_) | Subject::Entry(..) => None,
        };
        subjects.filter_map(path).collect()
    }

    /// Returns the objects that the findings are about.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.problems
            .iter()
            .flat_map(|problem| problem.error.subjects())
    }

    /// Replaces objects that the findings are about by the paths that `path` returns.
    pub(crate) fn resolve_subjects(&mut self, mut path: impl FnMut(&Subject) -> Option<String>) {
        for problem in &mut self.problems {
            problem.error.resolve_subjects(&mut path);
        }
    }

    /// Returns all findings of a check with the name `layer`; those above the limit are only counted.
    pub(crate) fn into_problems(mut self, layer: &'static str) -> Vec<Problem> {
        if let Some(severity) = self.worst_dropped {
            let message = format!("{} more findings are not listed", self.dropped);
            self.problems.push(Problem {
                severity,
                error: Error::new(Kind::Corrupt, layer, message),
            });
        }
        self.problems
    }
}

/// Returns a finding that concerns no particular byte.
pub(crate) fn wrong(layer: &'static str, message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, layer, message.into())
}
