//! The write lock of a container: only one volume can be open for changes at a time, because all of
//! them share the free space.

use std::sync::{Arc, Weak};

use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Result};

/// The write lock of a container. Clones share the lock.
#[derive(Debug, Clone, Default)]
pub struct VolumeWriter(Arc<Mutex<Weak<WriteGuard>>>);

/// A guard that holds the lock until it is dropped.
#[derive(Debug)]
pub(super) struct WriteGuard;

impl VolumeWriter {
    /// Acquires the lock; [`Kind::Conflict`](bandsaw_core::Kind) while it is held.
    pub(super) fn acquire(&self) -> Result<Arc<WriteGuard>> {
        let mut place = self.0.lock();
        if place.strong_count() > 0 {
            let message = "another volume of this container is open for writing; close it first";
            return Err(Error::conflict("apfs container", message));
        }
        let taken = Arc::new(WriteGuard);
        *place = Arc::downgrade(&taken);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::Kind;

    #[test]
    fn the_place_is_taken_once_at_a_time() {
        let writer = VolumeWriter::default();
        let taken = writer.acquire().unwrap();
        assert_eq!(writer.clone().acquire().unwrap_err().kind(), Kind::Conflict);
        drop(taken);
        assert!(writer.acquire().is_ok());
    }
}
