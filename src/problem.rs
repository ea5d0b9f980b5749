//! What a check of a structure finds.

use crate::{Error, Result};

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Unusual, or waste; nothing is wrong.
    Note,
    /// Something is wrong that every reader gets along with, the trace of an interrupted change for example.
    Warning,
    /// Contents are lost or in doubt.
    Damage,
}

/// One finding: how bad, and an error that tells layer, place and what was expected.
#[derive(Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What and where.
    pub error: Error,
}

/// Findings kept: a structure that is all wrong would otherwise be reported entry by entry without end.
const KEPT: usize = 1000;

/// Where a walk through a structure reports to. Whoever opens stops at the first damage, whoever checks goes on.
#[derive(Debug)]
pub(crate) enum Findings {
    /// Nothing but damage matters, and that ends the walk.
    Open,
    /// Everything is collected.
    Check(Vec<Problem>),
}

impl Findings {
    /// Takes note of a problem. An error ends the walk.
    pub(crate) fn report(&mut self, severity: Severity, error: Error) -> Result<()> {
        match self {
            Self::Open if severity == Severity::Damage => Err(error),
            Self::Open => Ok(()),
            Self::Check(found) if found.len() >= KEPT => Err(error),
            Self::Check(found) => {
                found.push(Problem { severity, error });
                Ok(())
            }
        }
    }

    /// What was found, the error that ended the walk included.
    pub(crate) fn into_problems<T>(self, walked: Result<T>) -> Vec<Problem> {
        let mut found = match self {
            Self::Open => Vec::new(),
            Self::Check(found) => found,
        };
        found.extend(walked.err().map(|error| Problem { severity: Severity::Damage, error }));
        found
    }
}
