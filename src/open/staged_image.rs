//! An image in a staged view, which operations can open, try out and change without its file.

use std::sync::Arc;

use super::{LAYER, StoredImage};
use crate::store::{Open, Staged, Store};
use crate::{Error, Result};

/// The stored bytes of an image in a staged view: changes do not reach the image.
#[derive(Debug, Clone)]
pub(crate) struct StagedImage(StoredImage);

impl StagedImage {
    /// Returns the bytes of the file named `file` in `staged`, or of the bundle that it holds.
    pub(crate) fn of(staged: &Staged, file: Option<&str>) -> Result<Self> {
        Ok(Self(match file {
            None => StoredImage::Folder(Arc::new(staged.clone())),
            Some(name) => StoredImage::File(
                staged
                    .open(name, Open::Write)?
                    .ok_or_else(|| Error::not_found(LAYER, name))?,
            ),
        }))
    }

    pub(crate) fn bytes(&self) -> StoredImage {
        self.0.clone()
    }
}
