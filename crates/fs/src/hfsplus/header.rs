//! Location of the volume header: inside an HFS wrapper, or the alternate if the primary is damaged
//! (§1, §2.5).

use std::ops::Range;
use std::sync::Arc;

use super::layout::{
    HEADER_OFFSET, MasterDirectoryBlockRaw, NodeDescriptorRaw, SIGNATURE_HFS, SIGNATURE_HFS_PLUS,
    SIGNATURE_HFSX, VERSION_HFS_PLUS, VERSION_HFSX, VolumeHeader, VolumeHeaderRaw, node_kind,
    volume_attributes,
};
use super::read_structure;
use bandsaw_core::device::{BlockDevice, Slice};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::{FromBytes, IntoBytes};

const LAYER: &str = "hfs+ volume header";
/// Minimum length that holds the primary and the alternate header.
const MIN_VOLUME: u64 = 2 * (HEADER_OFFSET + size_of::<VolumeHeaderRaw>() as u64);

/// A format recognized by [`probe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundHeader {
    /// HFS Plus.
    HfsPlus,
    /// HFSX.
    Hfsx,
    /// HFS Plus in a wrapper for systems before Mac OS 8.1.
    Wrapped,
    /// HFS without HFS Plus in it, which [`crate::hfs`] reads.
    Hfs,
}

/// Returns the format of the volume that begins at the first byte of `device`, `None` if it is not
/// of this family. Reads at most two sectors.
pub fn probe(device: &dyn BlockDevice) -> Result<Option<FoundHeader>> {
    Ok(match probe_front(device)? {
        None => probe_copy(device)?,
        found => found,
    })
}

/// Returns the number of writes that the header of an HFS+ volume counts, and the time of the last
/// change in seconds since 1904. As long as both are the same, no system has changed the volume.
/// `None`: `device` begins with no such header, or the volume is in use or was not unmounted.
pub fn last_change(device: &dyn BlockDevice) -> Result<Option<(u32, u32)>> {
    let header: VolumeHeaderRaw = read_structure(device, HEADER_OFFSET)?;
    let is_header = matches!(header.signature.get(), SIGNATURE_HFS_PLUS | SIGNATURE_HFSX);
    let was_unmounted = header.attributes.get() & volume_attributes::UNMOUNTED != 0;
    Ok((is_header && was_unmounted).then(|| (header.write_count.get(), header.modify_date.get())))
}

/// Returns the format of the volume, judging only by the structures at the beginning of `device`.
pub fn probe_front(device: &dyn BlockDevice) -> Result<Option<FoundHeader>> {
    if device.info().len < MIN_VOLUME {
        return Ok(None);
    }
    let block: MasterDirectoryBlockRaw = read_structure(device, HEADER_OFFSET)?;
    if is_hfs(&block) {
        return Ok(Some(if block.embedded().is_some() {
            FoundHeader::Wrapped
        } else {
            FoundHeader::Hfs
        }));
    }
    Ok(signed(&read_structure(device, HEADER_OFFSET)?))
}

/// Returns the format that the signature of a volume states which begins at `start`, even if nothing
/// else of its header is valid. A wrapper is not distinguished from HFS.
pub fn signature_at(device: &dyn BlockDevice, start: u64) -> Result<Option<FoundHeader>> {
    let mut signature = [0; 2];
    let at = start.saturating_add(HEADER_OFFSET);
    if device.info().len < at.saturating_add(signature.len() as u64) {
        return Ok(None);
    }
    device.read_at(at, &mut signature)?;
    Ok(match u16::from_be_bytes(signature) {
        SIGNATURE_HFS_PLUS => Some(FoundHeader::HfsPlus),
        SIGNATURE_HFSX => Some(FoundHeader::Hfsx),
        SIGNATURE_HFS => Some(FoundHeader::Hfs),
        _ => None,
    })
}

/// Returns the format of the volume, judging only by the alternate header at the end of `device`,
/// which may be left over from a former volume. It must state the length of `device`, because the
/// end of a disk with a damaged partition map holds the alternate header of the last partition.
pub fn probe_copy(device: &dyn BlockDevice) -> Result<Option<FoundHeader>> {
    let len = device.info().len;
    if len < MIN_VOLUME {
        return Ok(None);
    }
    let header: VolumeHeaderRaw = read_structure(device, len - HEADER_OFFSET)?;
    let block_size = u64::from(header.block_size.get());
    let rest = len.checked_sub(u64::from(header.total_blocks.get()) * block_size);
    Ok(signed(&header).filter(|_| rest.is_some_and(|rest| rest < block_size)))
}

/// Returns the length in bytes that the header at the beginning of `device` states, even if that is
/// longer than the device, unless the alternate header is valid for the device. `None`: no such
/// header.
pub fn stated_len(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let len = device.info().len;
    if len < MIN_VOLUME {
        return Ok(None);
    }
    let header: VolumeHeaderRaw = read_structure(device, HEADER_OFFSET)?;
    let block_size = header.block_size.get();
    if signed(&header).is_none() || !block_size.is_power_of_two() {
        return Ok(None);
    }
    let stated = u64::from(header.total_blocks.get()) * u64::from(block_size);
    if stated > len && probe_copy(device)?.is_some() {
        return Ok(None);
    }
    Ok(Some(stated))
}

/// Returns the bytes of the volume to which the header in `sector`, at byte `offset` of `disk`, belongs:
/// as its header if possible, else as its alternate. `None`: no valid header, or its volume exceeds the
/// disk.
pub fn volume_around(
    disk: &Arc<dyn BlockDevice>,
    offset: u64,
    sector: &[u8],
) -> Result<Option<Range<u64>>> {
    let Ok((header, _)) = VolumeHeaderRaw::ref_from_prefix(sector) else {
        return Ok(None);
    };
    if signed(header).is_none() {
        return Ok(None);
    }
    let Some(start) = offset.checked_sub(HEADER_OFFSET) else {
        return Ok(None);
    };
    let len = disk.info().len;
    // The alternate of a volume counts if it is valid for the rest of the disk.
    let rest = Slice::new(disk.clone(), start..len)?;
    let Some(stated) = stated_len(&rest)?.filter(|&stated| stated > 2 * HEADER_OFFSET) else {
        return Ok(None);
    };
    let as_primary = start..start.saturating_add(stated);
    let end = offset + HEADER_OFFSET;
    let as_alternate = end.checked_sub(stated).map(|start| start..end);
    let catalog = u64::from(header.catalog_file.extents[0].start_block.get())
        * u64::from(header.block_size.get());
    // Both headers have the same fields. Only the first node of the catalog, whose place is relative to the
    // start of the volume, tells one from the other.
    let has_catalog = |range: &Range<u64>| {
        let node = range.start.checked_add(catalog)?;
        let node: NodeDescriptorRaw = read_structure(&**disk, node).ok()?;
        (node.kind == node_kind::HEADER).then_some(())
    };
    let found = [Some(as_primary.clone()), as_alternate]
        .into_iter()
        .flatten()
        .find(|range| range.end <= len && has_catalog(range).is_some());
    Ok(found.or_else(|| (as_primary.end <= len).then_some(as_primary)))
}

/// The signature has only two letters, so a valid block size is required as a second indication.
fn is_hfs(block: &MasterDirectoryBlockRaw) -> bool {
    let size = block.allocation_block_size.get();
    block.signature == SIGNATURE_HFS && size != 0 && size.is_multiple_of(512)
}

/// Returns the format that a volume header states by signature and version.
fn signed(header: &VolumeHeaderRaw) -> Option<FoundHeader> {
    match (header.signature.get(), header.version.get()) {
        (SIGNATURE_HFS_PLUS, VERSION_HFS_PLUS) => Some(FoundHeader::HfsPlus),
        (SIGNATURE_HFSX, VERSION_HFSX) => Some(FoundHeader::Hfsx),
        _ => None,
    }
}

/// A volume header and the device that it describes.
#[derive(Debug)]
pub(super) struct LocatedHeader {
    pub(super) device: Arc<dyn BlockDevice>,
    /// Offset of the volume in the device that was searched, in bytes; not 0 inside a wrapper.
    pub(super) start: u64,
    pub(super) header: VolumeHeader,
    /// Problems that did not prevent the location of the header.
    pub(super) problems: Vec<Error>,
}

/// Locates the volume header of the volume on `device`.
pub(super) fn locate(device: Arc<dyn BlockDevice>) -> Result<LocatedHeader> {
    let len = device.info().len;
    if len < MIN_VOLUME {
        let message = format!("volume of {len} bytes is too small: the minimum is {MIN_VOLUME}");
        return Err(Error::corrupt(LAYER, HEADER_OFFSET, message));
    }
    let block: MasterDirectoryBlockRaw = read_structure(&*device, HEADER_OFFSET)?;
    if !is_hfs(&block) {
        return unwrapped(device);
    }
    let Some(embedded) = block.embedded() else {
        let message = "unsupported: plain HFS (Mac OS Standard)";
        return Err(Error::unsupported("hfs", message).at(HEADER_OFFSET));
    };
    if embedded.end > len || embedded.end - embedded.start < MIN_VOLUME {
        let message = format!(
            "the embedded HFS+ volume, bytes {embedded:?}, exceeds the wrapper of {len} bytes"
        );
        return Err(Error::corrupt("hfs wrapper", HEADER_OFFSET, message));
    }
    let start = embedded.start;
    Ok(LocatedHeader {
        start,
        ..unwrapped(Arc::new(Slice::new(device, embedded)?))?
    })
}

/// An alternate header with its place.
#[derive(Debug)]
pub(super) struct AlternateHeader {
    /// Offset in bytes.
    pub(super) offset: u64,
    pub(super) header: Result<VolumeHeader>,
    /// False if it is at the end of the volume, and the device is longer.
    pub(super) is_at_end: bool,
}

/// Finds the alternate of the volume with `header`, at the end of `device`. If there is none of the
/// same size, or a newer one, it may be at the end of the volume, where an interrupted resize has left it.
pub(super) fn alternate(
    device: &dyn BlockDevice,
    header: &VolumeHeader,
) -> Result<AlternateHeader> {
    let is_own = |other: &VolumeHeader| {
        let key = |header: &VolumeHeader| {
            let VolumeHeader {
                variant,
                block_size,
                total_blocks,
                ..
            } = *header;
            (variant, block_size, total_blocks, header.raw.create_date)
        };
        key(other) == key(header)
    };
    let len = device.info().len;
    let at = |offset| -> Result<_> {
        let raw = read_structure(device, offset)?;
        Ok(VolumeHeader::parse(&raw, offset, len))
    };
    let last = len - HEADER_OFFSET;
    let found = at(last)?;
    let is_newer = |other: &VolumeHeader| other.raw.write_count > header.raw.write_count;
    if !found
        .as_ref()
        .is_ok_and(|other| is_own(other) || is_newer(other))
    {
        let block_size = u64::from(header.block_size);
        let end = u64::from(header.total_blocks) * block_size;
        let places = end.saturating_sub(HEADER_OFFSET)..(end + block_size).min(last);
        for offset in places.step_by(size_of::<VolumeHeaderRaw>()) {
            if let Ok(header) = at(offset)?
                && is_own(&header)
            {
                return Ok(AlternateHeader {
                    offset,
                    header: Ok(header),
                    is_at_end: false,
                });
            }
        }
    }
    Ok(AlternateHeader {
        offset: last,
        header: found,
        is_at_end: true,
    })
}

/// Writes the alternate header of the volume on `device` to its end if an interrupted resize has left
/// it elsewhere. Returns true if it did.
pub fn move_alternate(device: &Arc<dyn BlockDevice>) -> Result<bool> {
    let located = locate(device.clone())?;
    let found = alternate(&*located.device, &located.header)?;
    let (false, Ok(header)) = (found.is_at_end, found.header) else {
        return Ok(false);
    };
    let end = located.device.info().len - HEADER_OFFSET;
    located.device.write_at(end, header.raw.as_bytes())?;
    Ok(true)
}

/// Reads the primary header, or the alternate if the primary is invalid and the alternate is valid.
pub(super) fn unwrapped(device: Arc<dyn BlockDevice>) -> Result<LocatedHeader> {
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
    Ok(LocatedHeader {
        device,
        start: 0,
        header,
        problems,
    })
}
