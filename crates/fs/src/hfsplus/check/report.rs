//! The findings of a check, limited in number.

use zerocopy::big_endian::U16;

use crate::hfsplus::layout::Cnid;
use crate::hfsplus::unicode::decode_name;
use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind};

/// Maximum number of findings stored. A badly damaged volume can have as many as it has records.
const KEPT: usize = 1000;

/// The findings so far.
#[derive(Debug, Default)]
pub(in crate::hfsplus) struct Report {
    problems: Vec<Problem>,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

impl Report {
    /// Reports that contents are lost or in doubt.
    pub(super) fn damage(&mut self, error: Error) {
        self.push(Severity::Damage, error);
    }

    /// Reports an error that every reader tolerates.
    pub(super) fn warning(&mut self, error: Error) {
        self.push(Severity::Warning, error);
    }

    /// Reports something unusual.
    pub(super) fn note(&mut self, error: Error) {
        self.push(Severity::Note, error);
    }

    fn push(&mut self, severity: Severity, error: Error) {
        if self.problems.len() < KEPT {
            self.problems.push(Problem { severity, error });
        } else {
            self.dropped += 1;
            self.worst_dropped = self.worst_dropped.max(Some(severity));
        }
    }

    /// Returns the number of findings so far.
    pub(in crate::hfsplus) fn len(&self) -> u64 {
        self.problems.len() as u64 + self.dropped
    }

    /// Returns the paths of the objects that the findings after the first `before` are about.
    pub(super) fn paths_since(&self, before: u64) -> Vec<String> {
        let problems = self.problems.iter().skip(to_usize(before));
        let subjects = problems.flat_map(|problem| problem.error.subjects());
        let path = |subject: &Subject| match subject {
            Subject::Path(path) => Some(path.clone()),
            Subject::Number(_) | Subject::Entry(..) => None,
        };
        subjects.filter_map(path).collect()
    }

    /// Returns the objects that the findings are about.
    pub(super) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.problems
            .iter()
            .flat_map(|problem| problem.error.subjects())
    }

    /// Replaces objects that the findings are about by the paths that `path` returns.
    pub(super) fn resolve_subjects(&mut self, mut path: impl FnMut(&Subject) -> Option<String>) {
        for problem in &mut self.problems {
            problem.error.resolve_subjects(&mut path);
        }
    }

    /// Returns all findings; those above the limit are only counted.
    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        if let Some(severity) = self.worst_dropped {
            let message = format!("{} more findings are not listed", self.dropped);
            self.problems.push(Problem {
                severity,
                error: Error::new(Kind::Corrupt, "hfs+ check", message),
            });
        }
        self.problems
    }
}

/// Returns a finding that concerns no particular byte.
pub(super) fn wrong(layer: &'static str, message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, layer, message.into())
}

/// Returns the object with this number as the subject of a finding.
pub(super) fn numbered(id: Cnid) -> Subject {
    Subject::Number(id.0.into())
}

/// Returns the entry `name` of a folder as the subject of a finding.
pub(super) fn entry_in(folder: Cnid, name: &[U16]) -> Subject {
    Subject::Entry(folder.0.into(), decode_name(name))
}
