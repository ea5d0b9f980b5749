//! What a check of a structure finds.

use std::fmt;

use crate::progress::Progress;
use crate::{Error, Result};

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Unusual, or waste; nothing is wrong.
    Note,
    /// Something is wrong that every reader gets along with, the trace of an interrupted change for
    /// example.
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

/// One finding: how bad, and an error that tells layer, place and what was expected.
#[derive(Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What and where.
    pub error: Error,
}

/// Problems of one severity that are told one by one: a structure that is all wrong has no end of
/// them.
const TOLD: u64 = 1000;

/// Everything that checks have found. A thousand of each severity are told one by one, all are
/// counted.
#[derive(Debug, Default)]
pub struct Problems {
    listed: Vec<Problem>,
    counts: [u64; Severity::ALL.len()],
}

impl Problems {
    /// Takes note of a problem.
    pub fn add(&mut self, severity: Severity, error: Error) {
        let count = &mut self.counts[severity as usize];
        *count += 1;
        if *count <= TOLD {
            self.listed.push(Problem { severity, error });
        }
    }

    /// Those told one by one, in the order they were found in.
    pub fn listed(&self) -> &[Problem] {
        &self.listed
    }

    /// Returns how many more there are than told.
    pub fn omitted(&self) -> u64 {
        self.counts.iter().sum::<u64>() - self.listed.len() as u64
    }

    /// Returns how many are of this severity, told or not.
    pub fn count(&self, severity: Severity) -> u64 {
        self.counts[severity as usize]
    }

    /// The severity of the worst. `None`: there are none.
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

/// Where a walk through a structure reports to. Whoever opens stops at the first damage, whoever
/// checks goes on.
pub(crate) enum Findings<'a> {
    /// Nothing but damage matters, and that ends the walk.
    Open,
    /// Everything is collected, and the watcher may end the walk.
    Check(&'a mut Problems, &'a dyn Progress),
}

impl Findings<'_> {
    /// Takes note of a problem. An error ends the walk.
    pub(crate) fn report(&mut self, severity: Severity, error: Error) -> Result<()> {
        match self {
            Self::Open if severity == Severity::Damage => Err(error),
            Self::Open => Ok(()),
            Self::Check(problems, _) => {
                problems.add(severity, error);
                Ok(())
            }
        }
    }

    /// The same for what failed: its value, or `None` once the error has been noted as damage.
    pub(crate) fn keep<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.report(Severity::Damage, error).map(|()| None),
        }
    }

    /// Tells the watcher of a check that `n` more units are done, and asks whether to go on.
    pub(crate) fn advance(&self, n: u64) -> Result<()> {
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
    fn all_are_counted_and_damage_is_told_whatever_came_before() {
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
