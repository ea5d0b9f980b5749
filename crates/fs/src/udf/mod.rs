//! UDF, the file system of DVDs, of Blu-ray discs and of the images made for them, read-only: revisions
//! 1.02 to 2.60, with discs that are written once or packet by packet, and metadata partitions.
//!
//! Source: docs/formats/udf.md.

mod attributes;
mod check;
mod contents;
mod directory;
mod extents;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod icb;
mod integrity;
mod layout;
mod names;
mod owners;
mod partition_map;
mod recognition;
mod sequence;
mod space;
mod space_bitmap;
mod symlink;
mod tag;
#[cfg(test)]
mod tests;
mod virtual_partition;

use std::sync::Arc;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

use crate::VolumeInfo;
use icb::{UdfFile, icb_of};
use integrity::Integrity;
use layout::{FileSetRaw, LongAdRaw, file_type, tag_id};
use names::decode_field;
use partition_map::{MappedVolume, open_partitions};
use recognition::{Anchor, find_anchor, no_anchor};
use sequence::VolumeDescriptors;
use space::{BlockAddress, BlockSpace};

pub use check::check;
pub use recognition::is_recognized;

/// The layer in errors.
const LAYER: &str = "udf";
/// The newest revision whose volumes are read, in BCD.
const MAX_REVISION: u16 = 0x0260;
/// Maximum number of file set descriptors that are read.
const MAX_FILE_SETS: usize = 64;

/// A UDF volume.
#[derive(Debug)]
pub struct UdfVolume {
    space: BlockSpace,
    /// The ICB of the root directory.
    root: BlockAddress,
    /// The ICB of the directory of the volume's own streams.
    system_streams: Option<BlockAddress>,
    info: VolumeInfo,
}

/// The structures of a volume, before its files.
#[derive(Debug)]
struct VolumeStructures {
    anchor: Anchor,
    /// Of both sequences, if the main one is damaged.
    descriptors: VolumeDescriptors,
    mapped: MappedVolume,
    integrity: Option<Integrity>,
}

impl UdfVolume {
    /// Opens the volume that begins at the first byte of `device`.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        Self::from_structures(VolumeStructures::read(&device)?)
    }

    fn from_structures(found: VolumeStructures) -> Result<Self> {
        let logical = found.descriptors.logical.as_ref();
        let Some(raw) = logical.map(|logical| logical.raw) else {
            return Err(Error::new(Kind::Corrupt, LAYER, NO_LOGICAL_VOLUME));
        };
        let set = read_file_set(&found.mapped.space, &raw.file_set)?;
        let Some(root) = icb_of(&set.root) else {
            let message = "the file set has no root directory";
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        };
        let file = UdfFile::read(&found.mapped.space, root)?;
        if file.icb.kind != file_type::DIRECTORY {
            let message = format!("the root directory is a file of type {}", file.icb.kind);
            return Err(Error::corrupt(LAYER, file.offset, message));
        }
        let info = volume_info(&found, &decode_field(&raw.name), &set);
        Ok(Self {
            space: found.mapped.space,
            root,
            system_streams: icb_of(&set.streams),
            info,
        })
    }
}

const NO_LOGICAL_VOLUME: &str = "the logical volume descriptor is missing in both sequences";

impl VolumeStructures {
    fn read(device: &Arc<dyn BlockDevice>) -> Result<Self> {
        let Some(anchor) = find_anchor(&**device)? else {
            return Err(no_anchor(&**device));
        };
        let sector_size = anchor.sector_size;
        let mut descriptors = VolumeDescriptors::read(&**device, sector_size, anchor.raw.main)?;
        if descriptors.is_incomplete() {
            let reserve = VolumeDescriptors::read(&**device, sector_size, anchor.raw.reserve)?;
            descriptors.complete_by(reserve);
        }
        let Some(logical) = &descriptors.logical else {
            let error = Error::new(Kind::Corrupt, LAYER, NO_LOGICAL_VOLUME);
            return Err(error.at(u64::from(anchor.raw.main.sector.get()) * sector_size));
        };
        let block_size = u64::from(logical.raw.block_size.get());
        if !block_size.is_power_of_two() || !(sector_size..=1 << 15).contains(&block_size) {
            let message = format!(
                "block size of {block_size} bytes: expected a power of 2 from {sector_size} to 32768"
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        let integrity = Integrity::read(&**device, sector_size, logical.raw.integrity)?;
        let min_read = integrity.as_ref().and_then(|found| found.counts);
        let min_read = min_read.map_or(0, |counts| counts.min_read.get());
        if min_read > MAX_REVISION {
            let message = format!(
                "a reader of UDF {:x}.{:02x} is needed; revisions up to 2.60 are supported",
                min_read >> 8,
                min_read & 0xFF
            );
            return Err(Error::unsupported(LAYER, message));
        }
        let mapped = open_partitions(device, sector_size, block_size, &descriptors)?;
        Ok(Self {
            anchor,
            descriptors,
            mapped,
            integrity,
        })
    }

    /// Returns the end of the partitions in bytes. `None`: the disc is written once, and not to its end.
    fn stated_len(&self) -> Option<u64> {
        let space = &self.mapped.space;
        let ends = space
            .partitions
            .iter()
            .filter_map(|partition| partition.range())
            .map(|range| range.start + u64::from(range.blocks) * space.block_size);
        ends.max().filter(|_| self.mapped.table.is_none())
    }
}

/// Returns the length of the volume in bytes: the end of its last partition, which may be followed by
/// copies of structures. `None`: it has no structures that can be read, or it is a disc that is written
/// once.
pub fn stated_len(device: &Arc<dyn BlockDevice>) -> Result<Option<u64>> {
    match VolumeStructures::read(device) {
        Ok(found) => Ok(found.stated_len()),
        Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Reads the last of the file set descriptors that begin with an extent.
fn read_file_set(space: &BlockSpace, extent: &LongAdRaw) -> Result<FileSetRaw> {
    let mut next = icb_of(extent);
    let (mut last, mut failed) = (None, None);
    for _ in 0..MAX_FILE_SETS {
        let Some(at) = next else { break };
        let found = space.descriptor(at, &[tag_id::FILE_SET], "file set descriptor");
        match found {
            Ok(found) => {
                let Ok((raw, _)) = FileSetRaw::read_from_prefix(&found.bytes) else {
                    break;
                };
                next = icb_of(&raw.next);
                last = Some(raw);
            }
            Err(error) if error.kind() == Kind::Corrupt => {
                failed = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    last.ok_or_else(|| {
        failed.unwrap_or_else(|| {
            Error::new(
                Kind::Corrupt,
                LAYER,
                "the volume has no file set descriptor",
            )
        })
    })
}

/// Returns the properties of a volume.
fn volume_info(found: &VolumeStructures, name: &str, set: &FileSetRaw) -> VolumeInfo {
    let MappedVolume { space, table, .. } = &found.mapped;
    let facts = table.as_ref().and_then(|table| table.facts.clone());
    let integrity = found.integrity.as_ref();
    let counts = integrity.and_then(|integrity| integrity.counts);
    let (name, files, folders) = facts.unwrap_or_else(|| {
        let count = counts.map(|counts| (counts.files.get(), counts.folders.get()));
        let (files, folders) = count.unwrap_or_default();
        (name.to_owned(), files.into(), folders.into())
    });
    let mut info = VolumeInfo {
        format: "UDF",
        name,
        case_sensitive: true,
        // A disc that is written once is closed by its table.
        clean: table.is_some() || integrity.is_none_or(|integrity| integrity.is_closed),
        holes: true,
        block_size: narrow(space.block_size),
        files,
        folders,
        created: set.recorded.get(),
        modified: integrity.and_then(|integrity| integrity.recorded),
        ..VolumeInfo::default()
    };
    for (index, partition) in space.partitions.iter().enumerate() {
        let Some(range) = partition.range() else {
            continue;
        };
        info.total += u64::from(range.blocks) * space.block_size;
        let free = integrity.and_then(|integrity| integrity.free.get(index).copied().flatten());
        info.free += u64::from(free.unwrap_or(0).min(range.blocks)) * space.block_size;
    }
    info
}
