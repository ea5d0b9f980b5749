//! ISO 9660, the file system of CDs and DVDs and of the images made for them, read-only: with Rock
//! Ridge, Joliet, files of several extents, and Apple's types, creators and resource forks.
//!
//! One of up to three trees of names is read: that of Rock Ridge if there is one, then that of Joliet,
//! then the plain one. Source: docs/formats/iso9660.md.

mod apple;
mod check;
mod contents;
mod descriptors;
mod directory;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod layout;
mod names;
mod rock_ridge;
mod system_use;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

use crate::VolumeInfo;
use descriptors::Descriptors;
use layout::DescriptorRaw;
use names::Naming;

pub use check::check;
pub use descriptors::stated_len;

/// The layer in errors.
const LAYER: &str = "iso 9660";

/// An ISO 9660 volume.
#[derive(Debug)]
pub struct IsoVolume {
    space: Space,
    naming: Naming,
    /// Bytes of a system use field before the first entry of Rock Ridge.
    skip: usize,
    /// The byte at which the root directory begins.
    root: u64,
    info: VolumeInfo,
}

/// The blocks of a volume.
#[derive(Debug, Clone)]
struct Space {
    device: Arc<dyn BlockDevice>,
    /// In bytes.
    block_size: u64,
}

impl IsoVolume {
    /// Opens the volume that begins at the first byte of `device`.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let found = Descriptors::read(&*device)?;
        let primary = Self::of_tree(&device, &found.primary, &found.primary)?;
        if let Some(skip) = primary.rock_ridge_skip()? {
            let naming = Naming::RockRidge;
            return Ok(Self {
                info: volume_info(
                    &found.primary,
                    &found.primary,
                    naming,
                    primary.space.block_size,
                ),
                naming,
                skip,
                ..primary
            });
        }
        let Some(joliet) = found.joliet else {
            return Ok(primary);
        };
        let naming = Naming::Joliet;
        match Self::of_tree(&device, &joliet, &found.primary) {
            Ok(tree) => Ok(Self {
                info: volume_info(&found.primary, &joliet, naming, tree.space.block_size),
                naming,
                ..tree
            }),
            // The plain tree has the same files.
            Err(error) if error.kind() == Kind::Corrupt => Ok(primary),
            Err(error) => Err(error),
        }
    }

    /// Opens the tree of a descriptor, with plain names. Its root directory must be readable.
    fn of_tree(
        device: &Arc<dyn BlockDevice>,
        descriptor: &DescriptorRaw,
        primary: &DescriptorRaw,
    ) -> Result<Self> {
        let block_size = descriptor.block_size().ok_or_else(|| {
            let size = descriptor.block_size.get();
            let message = format!("block size of {size} bytes: expected 512, 1024 or 2048");
            Error::corrupt(LAYER, Descriptors::START, message)
        })?;
        if !descriptor.root.agrees() {
            let message = "the place of the root directory differs between the byte orders";
            return Err(Error::corrupt(LAYER, Descriptors::START, message));
        }
        let space = Space {
            device: device.clone(),
            block_size,
        };
        let volume = Self {
            root: descriptor.root.first_block() * block_size,
            info: volume_info(primary, descriptor, Naming::Plain, block_size),
            naming: Naming::Plain,
            skip: 0,
            space,
        };
        volume.directory(volume.root)?;
        Ok(volume)
    }
}

/// Returns the properties of a volume by its primary descriptor and that of the tree which is read.
fn volume_info(
    primary: &DescriptorRaw,
    tree: &DescriptorRaw,
    naming: Naming,
    block_size: u64,
) -> VolumeInfo {
    VolumeInfo {
        format: "ISO 9660",
        name: naming.volume_name(&tree.name),
        case_sensitive: naming.is_case_sensitive(),
        clean: true,
        block_size: u32::from(tree.block_size.get()),
        total: u64::from(primary.blocks.get()) * block_size,
        created: layout::long_date(primary.created),
        modified: layout::long_date(primary.modified),
        ..VolumeInfo::default()
    }
}
