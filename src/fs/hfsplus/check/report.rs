//! What a check found, kept within bounds.

use crate::problem::{Problem, Severity};
use crate::{Error, Kind};

/// Findings kept one by one; a volume that is all wrong has as many as it has records.
const KEPT: usize = 1000;

/// The findings so far.
#[derive(Debug, Default)]
pub(in crate::fs::hfsplus) struct Report {
    problems: Vec<Problem>,
    dropped: u64,
    worst_dropped: Option<Severity>,
}

impl Report {
    /// Contents are lost or in doubt.
    pub(super) fn damage(&mut self, error: Error) {
        self.push(Severity::Damage, error);
    }

    /// Wrong, though every reader gets along with it.
    pub(super) fn warning(&mut self, error: Error) {
        self.push(Severity::Warning, error);
    }

    /// Unusual.
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

    /// Returns how many findings there are so far.
    pub(in crate::fs::hfsplus) fn len(&self) -> u64 {
        self.problems.len() as u64 + self.dropped
    }

    /// All of it; what was too much to keep is counted.
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

/// A finding about what lies at no single byte.
pub(super) fn wrong(layer: &'static str, message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, layer, message.into())
}
