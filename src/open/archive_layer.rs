//! The layer of an encrypted archive.

use std::sync::Arc;

use crate::crypt::aea::{Archive, ArchiveDescription};

/// An encrypted or signed archive that contains an image.
#[derive(Debug, Clone)]
pub struct ArchiveLayer {
    /// The properties, as far as they are known.
    pub description: ArchiveDescription,
    /// The contents; `None`: the archive is locked.
    pub contents: Option<Arc<Archive>>,
}
