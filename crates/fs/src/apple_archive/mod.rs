//! Apple Archive, the files of `aa` (`.aar`) and its predecessor `yaa`: a tree of files as a stream of
//! entries, read-only. Compression is a matter of the container.
//!
//! The stream has no index. All entries are read when it is opened, and contents where they are.
//! Source: docs/formats/apple-archive.md.

mod check;
mod entry;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod layout;
#[cfg(test)]
mod tests;
mod tree;
mod xattrs;

use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::BlockDevice;

pub use check::check;

use tree::ArchiveTree;

/// The layer in errors.
const LAYER: &str = "apple archive";

/// First bytes of an archive, of the current form and the one before macOS 11.
pub const MAGICS: [[u8; 4]; 2] = layout::MAGICS;

/// The files of an archive.
///
/// Memory: about 300 bytes for each object, of which at most 2^20 are read.
#[derive(Debug)]
pub struct AppleArchive {
    stream: Arc<dyn BlockDevice>,
    tree: ArchiveTree,
}

impl AppleArchive {
    /// Reads all entries of the archive in `stream`. [`Kind::Corrupt`](bandsaw_core::Kind::Corrupt) if one is
    /// damaged, has an unsafe path, or the same as another; [`Kind::Unsupported`](bandsaw_core::Kind::Unsupported)
    /// for an update of system software, whose entries are instructions.
    pub fn open(stream: Arc<dyn BlockDevice>) -> Result<Self> {
        let tree = ArchiveTree::read(&*stream)?;
        Ok(Self { stream, tree })
    }
}
