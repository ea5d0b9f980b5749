//! File systems that Apple's are not, of which only the map of free space is read, so that what is
//! freed in them returns to the host: ext2, ext3 and ext4, FAT12, FAT16 and FAT32, exFAT, NTFS.
//!
//! Of each no more is read than the superblock or boot sector, the map, and what tells whether the
//! volume was left in order. What on disk is of a kind not known here is refused by name. The
//! formats are in `docs/formats/foreign.md`.

mod exfat;
mod ext;
mod fat;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fixture;
mod layout;
mod map;
mod ntfs;
mod sums;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use map::ForeignFree;

use crate::Result;
use crate::device::BlockDevice;

/// A family of file systems whose free space is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// ext2, ext3 and ext4.
    Ext,
    /// FAT12, FAT16 and FAT32.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS.
    Ntfs,
}

impl Foreign {
    /// The free map of the volume on all of `device`, whatever state it is in:
    /// [`ForeignFree::trusted`] says whether to go by it.
    pub fn free_map(self, device: Arc<dyn BlockDevice>) -> Result<ForeignFree> {
        match self {
            Self::Ext => ext::open(device),
            Self::Fat => fat::open(device),
            Self::ExFat => exfat::open(device),
            Self::Ntfs => ntfs::open(device),
        }
    }
}
