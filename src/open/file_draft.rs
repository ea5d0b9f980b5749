//! New files that are written sequentially, and moved to their place when they are finished.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::place::{ImagePlace, NewMode};
use super::{Image, LAYER, OpenOptions, open};
use crate::device::BlockDevice;
use crate::store::LocalFile;
use crate::{Error, Result};

/// A new file under a temporary name beside its place, for formats that are written sequentially
/// rather than changed in place. [`finish`](Self::finish) moves it to its place; if dropped before,
/// it is removed, and an image that it was to replace is unchanged.
#[derive(Debug)]
pub struct FileDraft {
    // Closed before it is removed.
    file: Arc<LocalFile>,
    place: ImagePlace,
}

impl FileDraft {
    /// Creates an empty file that is to be at `path`. Refuses what [`Draft::new`](super::Draft::new) refuses.
    pub fn new(path: &Path, overwrite: bool, mode: NewMode) -> Result<Self> {
        let made = || {
            let place = ImagePlace::claim(path, overwrite, mode)?;
            Ok(Self {
                file: place.create_file()?,
                place,
            })
        };
        made().map_err(|error: Error| error.in_file(path))
    }

    /// Returns the file, to be filled.
    pub fn file(&self) -> &Arc<LocalFile> {
        &self.file
    }

    /// Makes the file durable, moves it to its place, and opens it there.
    pub fn finish(self, options: &OpenOptions<'_>) -> Result<Image> {
        open(&self.persist()?, options)
    }

    /// Makes the file durable, moves it to its place, and returns that path: for a file that is no
    /// image by itself.
    pub fn persist(self) -> Result<PathBuf> {
        let path = self.place.target().to_owned();
        self.close().map_err(|error| error.in_file(&path))?;
        Ok(path)
    }

    /// Makes the file readable and writable by the same users as the one that it replaces.
    pub(super) fn keep_mode(&self) -> Result<()> {
        let failed = |source| Error::io(LAYER, "copy the permissions", source);
        let mode = fs::metadata(self.place.target())
            .map_err(failed)?
            .permissions();
        fs::set_permissions(self.place.aside(), mode).map_err(failed)
    }

    /// Makes the file durable and moves it to its place.
    pub(super) fn close(mut self) -> Result<()> {
        self.file.flush()?;
        self.place.publish()
    }
}
