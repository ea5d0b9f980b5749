//! Finding the volume header: behind an old wrapper, or the alternate where the first is damaged
//! (§1, §2.5).

use std::sync::Arc;

use super::layout::{
    HEADER_OFFSET, MasterDirectoryBlockRaw, NodeDescriptorRaw, SIGNATURE_HFS, SIGNATURE_HFS_PLUS,
    SIGNATURE_HFSX, TreeHeaderRaw, VERSION_HFS_PLUS, VERSION_HFSX, VolumeHeader, VolumeHeaderRaw,
};
use super::read_structure;
use crate::device::{BlockDevice, Slice};
use crate::{Error, Kind, Result};

const LAYER: &str = "hfs+ volume header";
/// The first header and the alternate do not fit in less.
const MIN_VOLUME: u64 = 2 * (HEADER_OFFSET + size_of::<VolumeHeaderRaw>() as u64);

/// What [`probe`] recognises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// HFS Plus.
    HfsPlus,
    /// HFSX.
    Hfsx,
    /// HFS Plus in a wrapper for systems before Mac OS 8.1.
    Wrapped,
    /// HFS, which is recognised by name only.
    Hfs,
}

/// Returns whether a volume of this family begins at the first byte of `device`. Reads two sectors
/// at most.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<Found>> {
    Ok(match probe_front(device)? {
        None => probe_copy(device)?,
        found => found,
    })
}

/// The same by what stands at the front alone.
pub fn probe_front(device: &dyn BlockDevice) -> Result<Option<Found>> {
    if device.info().len < MIN_VOLUME {
        return Ok(None);
    }
    let block: MasterDirectoryBlockRaw = read_structure(device, HEADER_OFFSET)?;
    if is_hfs(&block) {
        return Ok(Some(if block.embedded().is_some() {
            Found::Wrapped
        } else {
            Found::Hfs
        }));
    }
    Ok(signed(&read_structure(device, HEADER_OFFSET)?))
}

/// The same by the copy of the volume header at the end, which may be that of a volume that was
/// there before. It has to tell the length of `device`: at the end of a disk whose partition map is
/// damaged stands the copy of the last partition.
pub fn probe_copy(device: &dyn BlockDevice) -> Result<Option<Found>> {
    let len = device.info().len;
    if len < MIN_VOLUME {
        return Ok(None);
    }
    let header: VolumeHeaderRaw = read_structure(device, len - HEADER_OFFSET)?;
    let block_size = u64::from(header.block_size.get());
    let rest = len.checked_sub(u64::from(header.total_blocks.get()) * block_size);
    Ok(signed(&header).filter(|_| rest.is_some_and(|rest| rest < block_size)))
}

/// The file records that the header of the volume on `device` counts (the first header, or the
/// alternate if the first is damaged), and the records that the header of its catalog counts.
/// `None` where these cannot be read.
pub(crate) fn recorded_counts(device: &Arc<dyn BlockDevice>) -> Option<(u64, Option<u64>)> {
    let Located { device, header, .. } = locate(device.clone()).ok()?;
    let [first, ..] = &header.raw.catalog_file.extents;
    let start = u64::from(first.start_block.get()) * u64::from(header.block_size);
    let tree =
        read_structure::<TreeHeaderRaw>(&*device, start + size_of::<NodeDescriptorRaw>() as u64);
    Some((
        header.raw.file_count.get().into(),
        tree.ok().map(|tree| tree.leaf_records.get().into()),
    ))
}

/// Two letters are little to go by; a block size that can be one is a second sign.
fn is_hfs(block: &MasterDirectoryBlockRaw) -> bool {
    let size = block.allocation_block_size.get();
    block.signature == SIGNATURE_HFS && size != 0 && size.is_multiple_of(512)
}

/// What a volume header says by signature and version.
fn signed(header: &VolumeHeaderRaw) -> Option<Found> {
    match (header.signature.get(), header.version.get()) {
        (SIGNATURE_HFS_PLUS, VERSION_HFS_PLUS) => Some(Found::HfsPlus),
        (SIGNATURE_HFSX, VERSION_HFSX) => Some(Found::Hfsx),
        _ => None,
    }
}

/// A volume header and the bytes it speaks of.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) device: Arc<dyn BlockDevice>,
    /// Where they begin in what was looked at: behind the wrapper.
    pub(super) start: u64,
    pub(super) header: VolumeHeader,
    /// What was wrong on the way, though not wrong enough to stop.
    pub(super) problems: Vec<Error>,
}

/// Finds the volume header of the volume on `device`.
pub(super) fn locate(device: Arc<dyn BlockDevice>) -> Result<Located> {
    let len = device.info().len;
    if len < MIN_VOLUME {
        let message = format!("a volume of at least {MIN_VOLUME} bytes expected, {len} found");
        return Err(Error::corrupt(LAYER, HEADER_OFFSET, message));
    }
    let block: MasterDirectoryBlockRaw = read_structure(&*device, HEADER_OFFSET)?;
    if !is_hfs(&block) {
        return unwrapped(device);
    }
    let Some(embedded) = block.embedded() else {
        let message = "this is plain HFS (Mac OS Standard), not HFS+, and is not read";
        return Err(Error::unsupported("hfs", message).at(HEADER_OFFSET));
    };
    if embedded.end > len || embedded.end - embedded.start < MIN_VOLUME {
        let message = format!(
            "the HFS+ volume within, bytes {embedded:?}, does not fit the wrapper of {len} bytes"
        );
        return Err(Error::corrupt("hfs wrapper", HEADER_OFFSET, message));
    }
    let start = embedded.start;
    Ok(Located {
        start,
        ..unwrapped(Arc::new(Slice::new(device, embedded)?))?
    })
}

/// The first header if it makes sense, else the alternate if that does.
pub(super) fn unwrapped(device: Arc<dyn BlockDevice>) -> Result<Located> {
    let len = device.info().len;
    let parse = |offset| VolumeHeader::parse(&read_structure(&*device, offset)?, offset, len);
    let (header, problems) = match parse(HEADER_OFFSET) {
        Ok(header) => (header, Vec::new()),
        Err(problem) if matches!(problem.kind(), Kind::Corrupt | Kind::Unsupported) => {
            match parse(len - HEADER_OFFSET) {
                Ok(header) => (header, vec![problem]),
                Err(_) => return Err(problem),
            }
        }
        Err(error) => return Err(error),
    };
    Ok(Located {
        device,
        start: 0,
        header,
        problems,
    })
}
