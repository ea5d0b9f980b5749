//! Other file systems, whose free space is read so that a trim can discard it: ext2, ext3 and ext4, NTFS.
//!
//! Only the superblock or boot sector, the free map, and the state of the volume (clean or dirty)
//! are read. Unsupported variants are rejected with an error that names them. The formats are
//! described in `docs/formats/foreign.md`.

mod crc16;
mod ext;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod layout;
mod ntfs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use layout::ext::is_ext;
pub use layout::mfs::is_mfs;
pub use layout::ntfs::NAME as NTFS_NAME;

use crate::block_map::BlockFreeMap;
use bandsaw_core::Result;
use bandsaw_core::device::BlockDevice;

/// A family of file systems whose free map can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// ext2, ext3 and ext4.
    Ext,
    /// NTFS.
    Ntfs,
}

impl Foreign {
    /// Opens the free map of the volume on all of `device`, clean or not. Call
    /// [`BlockFreeMap::trusted`] before relying on it.
    pub fn free_map(self, device: Arc<dyn BlockDevice>) -> Result<BlockFreeMap> {
        match self {
            Self::Ext => ext::open(device),
            Self::Ntfs => ntfs::open(device),
        }
    }
}
