//! An error is not forgotten.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Kind, Result};

/// Whether a change of metadata, or a flush, has failed. From then on what is on disk is not known,
/// and the device refuses to change anything until it is opened anew; reads go on.
#[derive(Debug, Default)]
pub(crate) struct Failed(AtomicBool);

impl Failed {
    /// Refuses once something has failed.
    pub(crate) fn check(&self, layer: &'static str) -> Result<()> {
        if self.0.load(Ordering::Acquire) {
            let refused = "an earlier change of its tables failed and may be half done; open it anew to change it";
            return Err(Error::new(Kind::Io, layer, refused));
        }
        Ok(())
    }

    /// Takes note if `result` is an error.
    pub(crate) fn note<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.0.store(true, Ordering::Release);
        }
        result
    }
}
