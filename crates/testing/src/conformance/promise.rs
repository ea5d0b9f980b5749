//! The assertions of the checks of all suites.

use std::fmt::Display;

use bandsaw_core::{Error, Kind, Result};

/// One check of a suite, on one fresh device or store.
pub trait Promise {
    /// Returns the checked property, with which messages begin.
    fn promise(&self) -> &'static str;

    /// Returns what an operation returned. Panics if it failed; `doing` names the operation.
    #[track_caller]
    fn must<T>(&self, doing: impl Display, result: Result<T>) -> T {
        result.unwrap_or_else(|error| panic!("{}: {doing}: {error}", self.promise()))
    }

    /// Returns the error of an operation. Panics unless it failed with an error of `kind`.
    #[track_caller]
    fn must_refuse<T>(&self, doing: impl Display, kind: Kind, result: Result<T>) -> Error {
        let promise = self.promise();
        match result {
            Ok(_) => panic!("{promise}: {doing}: expected {kind:?}, but it was done"),
            Err(error) if error.kind() == kind => error,
            Err(error) => panic!("{promise}: {doing}: expected {kind:?}, got {error:?}"),
        }
    }

    /// Panics unless `holds`.
    #[track_caller]
    fn claim(&self, holds: bool, claim: impl Display) {
        assert!(holds, "{}: {claim}", self.promise());
    }
}
