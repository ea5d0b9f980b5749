//! What has been found while volumes are read.

use std::collections::BTreeMap;

use bandsaw::{Error, Result};

use crate::backup::Backup;

/// Maximum number of problems that are kept.
const MAX_PROBLEMS: usize = 1000;

/// The parts of [`Backups`](crate::Backups) while volumes are read.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) list: Vec<Backup>,
    pub(crate) links: BTreeMap<String, String>,
    pub(crate) problems: Vec<Error>,
}

impl Reading {
    pub(crate) fn problem(&mut self, error: Error) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(error);
        }
    }

    /// Returns the value, and keeps an error.
    pub(crate) fn kept<T>(&mut self, done: Result<T>) -> Option<T> {
        done.map_err(|error| self.problem(error)).ok()
    }
}
