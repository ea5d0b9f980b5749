//! HFS, the file system of Mac OS from 1985 to 1998 ("Mac OS Standard"), read and checked.
//!
//! [`HfsVolume::open`] reads the master directory block and the headers of the two trees; nodes are
//! read and checked on demand. Sections of `docs/formats/hfs.md` are cited as §n throughout.

mod btree;
mod catalog;
mod check;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod fork;
mod layout;
mod names;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use self::btree::RecordTree;
use self::catalog::HfsCatalog;
pub use self::check::check;
use self::fork::{BlockSpace, ForkOwner};
use self::layout::{
    ExtentKey, ExtentsRaw, FileRaw, LAYER, MDB_OFFSET, MasterDirectoryBlock,
    MasterDirectoryBlockRaw, Object, cnid, extents_of, fork_type,
};
use crate::extent_device::ExtentDevice;
use crate::{Fork, NodeId};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

/// The layer in errors about the extents-overflow tree.
const EXTENTS_LAYER: &str = "hfs extents tree";

/// An open HFS volume, read-only.
#[derive(Debug)]
pub struct HfsVolume {
    space: BlockSpace,
    header: MasterDirectoryBlock,
    catalog: HfsCatalog,
    overflow: RecordTree,
}

impl HfsVolume {
    /// Opens the volume that begins at the first byte of `device`.
    ///
    /// The device may be truncated: files whose blocks are missing fail when they are opened. The wrapper
    /// of an HFS+ volume opens as the small volume that systems before Mac OS 8.1 see.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let header = read_header(&*device)?;
        let space = BlockSpace {
            device,
            start: header.start(),
            block_size: header.block_size,
            total_blocks: header.total_blocks,
        };
        let raw = &header.raw;
        // All extents of this file are in the master directory block.
        let extents_file = space.fork(
            &raw.extents_file,
            raw.extents_file_size.get(),
            ForkOwner::Volume("extents file"),
            &mut |_| Ok(None),
        )?;
        let overflow = RecordTree::open(extents_file, EXTENTS_LAYER)?;
        let catalog_file = space.fork(
            &raw.catalog_file,
            raw.catalog_file_size.get(),
            ForkOwner::Volume("catalog file"),
            &mut |block| extents_from(&overflow, cnid::CATALOG, fork_type::DATA, block),
        )?;
        let objects = u64::from(raw.file_count.get()) + u64::from(raw.folder_count.get());
        let catalog = HfsCatalog::new(RecordTree::open(catalog_file, catalog::LAYER)?, objects);
        if !matches!(catalog.by_id(cnid::ROOT)?, Some(Object::Folder(_))) {
            let message = "the catalog has no root folder";
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        Ok(Self {
            space,
            header,
            catalog,
            overflow,
        })
    }

    /// Returns the object with a number.
    fn object(&self, node: NodeId) -> Result<Object> {
        let missing = || Error::not_found(LAYER, format!("object {}", node.0));
        let id = u32::try_from(node.0).map_err(|_| missing())?;
        self.catalog.by_id(id)?.ok_or_else(missing)
    }

    /// Returns the file with a number.
    fn file(&self, node: NodeId) -> Result<FileRaw> {
        match self.object(node)? {
            Object::File(file) => Ok(file),
            Object::Folder(_) => {
                let message = "is a folder, expected a file";
                Err(Error::invalid(LAYER, message).named(format!("object {}", node.0)))
            }
        }
    }

    /// Opens a fork of a file.
    fn fork(&self, file: &FileRaw, fork: Fork) -> Result<ExtentDevice> {
        let id = file.file_id.get();
        let (raw, extents, owner, kind) = match fork {
            Fork::Data => (
                &file.data,
                &file.data_extents,
                ForkOwner::Data(id),
                fork_type::DATA,
            ),
            Fork::Resource => (
                &file.resource,
                &file.resource_extents,
                ForkOwner::Resource(id),
                fork_type::RESOURCE,
            ),
        };
        self.space
            .fork(extents, raw.logical_size.get(), owner, &mut |block| {
                extents_from(&self.overflow, id, kind, block)
            })
    }
}

fn read_header(device: &dyn BlockDevice) -> Result<MasterDirectoryBlock> {
    let len = device.info().len;
    let mut raw = MasterDirectoryBlockRaw::new_zeroed();
    if len < MDB_OFFSET + size_of_val(&raw) as u64 {
        let message = format!("a volume of {len} bytes is too small");
        return Err(Error::corrupt(LAYER, MDB_OFFSET, message));
    }
    device.read_at(MDB_OFFSET, raw.as_mut_bytes())?;
    MasterDirectoryBlock::parse(&raw)
}

/// Returns the end of the allocation blocks in bytes by the header of the volume on `device`, even if
/// the device is shorter. `None`: no valid header.
pub fn stated_len(device: &dyn BlockDevice) -> Result<Option<u64>> {
    match read_header(device) {
        Ok(header) => Ok(Some(header.end())),
        Err(error) if error.kind() == Kind::Corrupt => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the extents of a fork from a block on, if the extents-overflow tree has a record for it.
fn extents_from(
    overflow: &RecordTree,
    file: u32,
    fork_type: u8,
    start_block: u16,
) -> Result<Option<ExtentsRaw>> {
    let wanted = ExtentKey {
        file,
        fork_type,
        start_block,
    };
    let mut cursor = overflow.seek(&|record| Some(ExtentKey::of(record)?.cmp(&wanted)))?;
    if !cursor.advance()? {
        return Ok(None);
    }
    let record = cursor.record().unwrap_or_default();
    if ExtentKey::of(record) != Some(wanted) {
        return Ok(None);
    }
    match extents_of(record) {
        Some(extents) => Ok(Some(extents)),
        None => Err(overflow.corrupt(cursor.leaf(), "truncated record")),
    }
}
