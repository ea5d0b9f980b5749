//! The problems that a check finds.

use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

/// Maximum number of problems that are returned.
const MAX_PROBLEMS: usize = 1000;

/// The problems so far.
#[allow(
    missing_debug_implementations,
    reason = "a `Progress` need not have one"
)]
pub(crate) struct ClusterFindings<'a> {
    layer: &'static str,
    problems: Vec<Problem>,
    progress: &'a dyn Progress,
}

impl<'a> ClusterFindings<'a> {
    pub(crate) fn new(layer: &'static str, progress: &'a dyn Progress) -> Self {
        Self {
            layer,
            problems: Vec::new(),
            progress,
        }
    }

    /// Records an error. Those of reading end the check.
    pub(crate) fn add(&mut self, severity: Severity, error: Error) -> Result<()> {
        if matches!(error.kind(), Kind::Io | Kind::Cancelled) {
            return Err(error);
        }
        if !self.is_full() {
            self.problems.push(Problem { severity, error });
        }
        Ok(())
    }

    /// Records what is wrong with the volume.
    pub(crate) fn of_volume(
        &mut self,
        severity: Severity,
        message: impl Into<String>,
    ) -> Result<()> {
        self.add(severity, self.error(message))
    }

    /// Records what is wrong with a file or folder.
    pub(crate) fn of_path(
        &mut self,
        severity: Severity,
        path: &str,
        message: impl Into<String>,
    ) -> Result<()> {
        let error = self.error(message).about(Subject::Path(path.to_owned()));
        self.add(severity, error)
    }

    /// Records an error about a file or folder.
    pub(crate) fn failed(&mut self, path: &str, error: Error) -> Result<()> {
        self.add(
            Severity::Damage,
            error.about(Subject::Path(path.to_owned())),
        )
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, self.layer, message.into())
    }

    /// Returns true if no more problems are listed.
    pub(crate) fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    /// Reports a folder that was checked.
    pub(crate) fn advance(&self) -> Result<()> {
        self.progress.advance(1);
        self.progress.check()
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

/// Returns the path of an entry of a folder.
pub(crate) fn path_of(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}
