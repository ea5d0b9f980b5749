//! Who may change a container: one volume at a time, as all of them take from the same free space.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{Error, Kind, Result};

/// The place of the volume that is open for changes. Its clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct VolumeWriter(Arc<Mutex<Weak<Taken>>>);

/// Holds the place for as long as it lives.
#[derive(Debug)]
pub(super) struct Taken;

impl VolumeWriter {
    /// Takes the place. [`Kind::Conflict`] while somebody has it.
    pub(super) fn take(&self) -> Result<Arc<Taken>> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if place.strong_count() > 0 {
            let message = "a volume of this container is open for changes; close it first, volumes share the free space";
            return Err(Error::new(Kind::Conflict, "apfs container", message));
        }
        let taken = Arc::new(Taken);
        *place = Arc::downgrade(&taken);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_taken_once_at_a_time() {
        let writer = VolumeWriter::default();
        let taken = writer.take().unwrap();
        assert_eq!(writer.clone().take().unwrap_err().kind(), Kind::Conflict);
        drop(taken);
        assert!(writer.take().is_ok());
    }
}
