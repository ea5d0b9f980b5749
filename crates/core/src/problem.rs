//! Findings of checks.

use std::fmt;

use crate::error::Subject;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// The severity of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Unusual, or waste; nothing is wrong.
    Note,
    /// A deviation that every reader tolerates, the trace of an interrupted change for example.
    Warning,
    /// Contents are lost or in doubt.
    Damage,
}

impl Severity {
    /// Every severity, the mildest first.
    pub const ALL: [Self; 3] = [Self::Note, Self::Warning, Self::Damage];
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Damage => "damage",
        })
    }
}

/// One finding: its severity, and an error with layer, place and what was expected.
#[derive(Debug)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The error, with its place.
    pub error: Error,
}

/// Maximum number of problems of one severity that are listed: a badly damaged structure could
/// produce an unbounded number.
const MAX_REPORTED: u64 = 1000;

/// All findings of checks. A thousand of each severity are listed, all are counted.
#[derive(Debug, Default)]
pub struct Problems {
    listed: Vec<Problem>,
    counts: [u64; Severity::ALL.len()],
    /// The first read error: what could not be read is not known to be damaged.
    unreadable: Option<Error>,
}

impl Problems {
    /// Records a problem.
    pub fn add(&mut self, severity: Severity, error: Error) {
        if error.kind() == Kind::Io && self.unreadable.is_none() {
            self.unreadable = Some(error.duplicate());
        }
        let count = &mut self.counts[severity as usize];
        *count += 1;
        if *count <= MAX_REPORTED {
            self.listed.push(Problem { severity, error });
        }
    }

    /// Fails with the first read error among the problems.
    pub fn check_readable(&self) -> Result<()> {
        self.unreadable
            .as_ref()
            .map_or(Ok(()), |error| Err(error.duplicate()))
    }

    /// Returns the listed problems, in the order in which they were found.
    pub fn listed(&self) -> &[Problem] {
        &self.listed
    }

    /// Replaces subjects of the listed problems, from number `first` on, by the paths that `path`
    /// returns.
    pub fn resolve_subjects(
        &mut self,
        first: usize,
        mut path: impl FnMut(&Subject) -> Option<String>,
    ) {
        for problem in self.listed.iter_mut().skip(first) {
            problem.error.resolve_subjects(&mut path);
        }
    }

    /// Returns the number of problems that are not listed.
    pub fn omitted(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.listed.len() as u64
    }

    /// Returns the number of problems of this severity, listed or not.
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts[severity as usize]
    }

    /// Returns the highest severity. `None`: there are no problems.
    pub fn worst(&self) -> Option<Severity> {
        Severity::ALL
            .into_iter()
            .rfind(|severity| self.count(*severity) > 0)
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.listed.into_iter()
    }
}

/// The receiver of the problems found while reading a structure. Opening stops at the first damage,
/// checking continues.
#[allow(
    missing_debug_implementations,
    reason = "a `Progress` need not have one"
)]
pub enum Findings<'a> {
    /// Ignores everything except damage, which ends the reading.
    Open,
    /// Collects everything; the [`Progress`] may cancel the check.
    Check(&'a mut Problems, &'a dyn Progress),
}

impl Findings<'_> {
    /// Records a problem. An error ends the reading.
    pub fn report(&mut self, severity: Severity, error: Error) -> Result<()> {
        match self {
            Self::Open if severity == Severity::Damage => Err(error),
            Self::Open => Ok(()),
            Self::Check(problems, _) => {
                problems.add(severity, error);
                Ok(())
            }
        }
    }

    /// Returns the value, or `None` after recording the error as damage. A read error ends the
    /// check.
    pub fn value_or_damage<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == Kind::Io => Err(error),
            Err(error) => self.report(Severity::Damage, error).map(|()| None),
        }
    }

    /// Reports `n` completed units of a check, and checks for cancellation.
    pub fn advance(&self, n: u64) -> Result<()> {
        match self {
            Self::Open => Ok(()),
            Self::Check(_, progress) => {
                progress.advance(n);
                progress.check()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_errors_are_kept_apart() {
        let failed = || Error::io("test", "read", std::io::ErrorKind::PermissionDenied);
        let mut problems = Problems::default();
        problems.add(Severity::Damage, Error::corrupt("test", 7, "lost"));
        assert!(problems.check_readable().is_ok());
        problems.add(Severity::Damage, failed());
        assert_eq!(problems.check_readable().unwrap_err().kind(), Kind::Io);
        let kept = Findings::Check(&mut Problems::default(), &crate::progress::Silent)
            .value_or_damage::<()>(Err(failed()));
        assert_eq!(kept.unwrap_err().kind(), Kind::Io);
    }

    #[test]
    fn all_are_counted_and_damage_is_listed_whatever_came_before() {
        let mut problems = Problems::default();
        assert_eq!(problems.worst(), None);
        for at in 0..3000 {
            problems.add(Severity::Note, Error::corrupt("test", at, "odd"));
        }
        assert_eq!(problems.worst(), Some(Severity::Note));
        problems.add(Severity::Damage, Error::corrupt("test", 7, "lost"));
        assert_eq!(
            (
                problems.count(Severity::Note),
                problems.count(Severity::Damage)
            ),
            (3000, 1)
        );
        assert_eq!((problems.listed().len(), problems.omitted()), (1001, 2000));
        assert_eq!(problems.worst(), Some(Severity::Damage));
        assert_eq!(
            problems.into_iter().last().map(|problem| problem.severity),
            Some(Severity::Damage)
        );
    }
}
