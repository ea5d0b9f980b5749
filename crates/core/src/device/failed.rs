//! A sticky error flag.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Kind, Result};

/// True if a change of metadata, or a flush, has failed. The state on disk is then unknown, and the
/// device refuses changes until it is opened again; reads continue.
#[derive(Debug, Default)]
pub struct FailureFlag(AtomicBool);

impl FailureFlag {
    /// Fails if an error was recorded.
    pub fn check(&self, layer: &'static str) -> Result<()> {
        if self.0.load(Ordering::Acquire) {
            let refused = "an earlier change of the tables failed and may be incomplete; open the \
                           image again to change it";
            return Err(Error::new(Kind::Io, layer, refused));
        }
        Ok(())
    }

    /// Records whether `result` is an error, and returns it.
    pub fn note<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.0.store(true, Ordering::Release);
        }
        result
    }
}
