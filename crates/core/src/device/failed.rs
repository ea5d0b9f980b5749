//! A sticky error flag.

use std::io;
use std::sync::OnceLock;

use crate::{Error, Kind, Result};

/// Set if a change of metadata, or a flush, has failed. The state on disk is then unknown, and the
/// device refuses changes until it is opened again; reads continue.
#[derive(Debug, Default)]
pub struct FailureFlag(OnceLock<FirstFailure>);

#[derive(Debug)]
struct FirstFailure {
    message: String,
    is_host_full: bool,
}

impl FailureFlag {
    /// Fails if an error was recorded, which is then the cause. A full disk of the host stays
    /// [one](Error::is_host_full).
    pub fn check(&self, layer: &'static str) -> Result<()> {
        let Some(first) = self.0.get() else {
            return Ok(());
        };
        let cause = first.message.clone();
        Err(if first.is_host_full {
            let refused = "an earlier change of the tables failed for lack of room on the host's \
                           disk, and may be incomplete; free some space there, then open the image \
                           again to change it";
            let full = io::Error::new(io::ErrorKind::StorageFull, cause);
            Error::new(Kind::Io, layer, refused).caused_by(full)
        } else {
            let refused = "an earlier change of the tables failed and may be incomplete; open the \
                           image again to change it";
            Error::new(Kind::Io, layer, refused).caused_by(cause)
        })
    }

    /// Records whether `result` is an error, and returns it. The first error counts.
    pub fn record<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.0.get_or_init(|| FirstFailure {
                message: error.to_string(),
                is_host_full: error.is_host_full(),
            });
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_counts_and_a_full_disk_stays_its_cause() {
        let full = || Error::io("file", "write", io::Error::from(io::ErrorKind::StorageFull));
        let flag = FailureFlag::default();
        assert!(flag.check("test").is_ok());
        flag.record(Ok(())).unwrap();
        assert!(flag.check("test").is_ok());
        let deep = Error::new(Kind::Io, "journal", "cannot be written").caused_by(full());
        flag.record::<()>(Err(deep)).unwrap_err();
        flag.record::<()>(Err(Error::corrupt("test", 0, "x")))
            .unwrap_err();
        let refused = flag.check("test").unwrap_err();
        assert!(refused.is_host_full(), "{refused}");
        assert!(refused.message().contains("free some space"), "{refused}");

        let flag = FailureFlag::default();
        flag.record::<()>(Err(Error::corrupt("test", 0, "first")))
            .unwrap_err();
        flag.record::<()>(Err(full())).unwrap_err();
        let refused = flag.check("test").unwrap_err();
        assert!(!refused.is_host_full(), "{refused}");
        assert!(refused.to_string().contains("first"), "{refused}");
        assert!(!refused.message().contains("first"), "{refused}");
    }
}
