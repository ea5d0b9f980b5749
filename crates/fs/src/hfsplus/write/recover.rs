//! Recovery of a volume before it is changed: replay of its journal, and completion of an
//! interrupted mount.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::bitmap::Bitmap;
use super::{LAYER, log::Log};
use crate::hfsplus::extents::Owner;
use crate::hfsplus::header::{LocatedHeader, locate, unwrapped};
use crate::hfsplus::journal::{self, Journal};
use crate::hfsplus::layout::{
    AllocBlock, Cnid, Extent, HEADER_OFFSET, JournalInfoBlockRaw, VolumeHeader, fork_type,
    volume_attributes,
};
use crate::hfsplus::{HfsPlus, read_structure};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

/// `lastMountedVersion` in the header while a mount allocates the blocks of its transient journal
/// or frees them; no other operation is in progress then.
pub(super) const OPENING: [u8; 4] = *b"bsw~";

/// A volume whose journal is empty.
#[derive(Debug)]
pub(super) struct RecoveredVolume {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) header: VolumeHeader,
    /// The transient journal of an interrupted mount.
    pub(super) unfinished: Option<Log>,
}

/// Replays the journal of the volume on `device`, or frees the blocks of an interrupted mount.
pub(super) fn recover(device: Arc<dyn BlockDevice>) -> Result<RecoveredVolume> {
    let LocatedHeader {
        device,
        header,
        problems,
        ..
    } = locate(device)?;
    if let Some(problem) = problems.into_iter().next() {
        let message = "read-only: the volume header is damaged; repair the volume first";
        return Err(Error::new(Kind::Corrupt, LAYER, message).caused_by(problem));
    }
    if header.has(volume_attributes::JOURNALED) {
        return replay(device, header);
    }
    if is_opening(&*device, &header) {
        free_leftover_blocks(&device, header)?;
        let header = unwrapped(device.clone())?.header;
        return Ok(RecoveredVolume {
            device,
            header,
            unfinished: None,
        });
    }
    Ok(RecoveredVolume {
        device,
        header,
        unfinished: None,
    })
}

/// Returns true if a mount was interrupted while it allocated the blocks of its journal or freed
/// them.
pub(in crate::hfsplus) fn is_opening(device: &dyn BlockDevice, header: &VolumeHeader) -> bool {
    let journaled = header.has(volume_attributes::JOURNALED);
    !journaled
        && header.raw.last_mounted_version == OPENING
        && journal::is_transient(device, header)
}

/// Replays the journal in place.
fn replay(device: Arc<dyn BlockDevice>, header: VolumeHeader) -> Result<RecoveredVolume> {
    let Some(mut journal) = Journal::find(&device, &header)? else {
        return Ok(RecoveredVolume {
            device,
            header,
            unfinished: None,
        });
    };
    journal.apply()?;
    let mut header = unwrapped(device.clone())?.header;
    if journal::is_transient(&*device, &header) {
        let transient = Some(places(&*device, &header)?);
        return Ok(RecoveredVolume {
            device,
            header,
            unfinished: Some(Log { journal, transient }),
        });
    }
    if !header.has(volume_attributes::UNMOUNTED) && !header.has(volume_attributes::INCONSISTENT) {
        // All changes went through the journal, so the volume is consistent.
        header.raw.attributes = (header.raw.attributes.get() | volume_attributes::UNMOUNTED).into();
        device.write_at(HEADER_OFFSET, header.raw.as_bytes())?;
        device.flush()?;
    }
    Ok(RecoveredVolume {
        device,
        header,
        unfinished: None,
    })
}

/// Frees the blocks of a transient journal, whose allocation or removal was interrupted.
pub(in crate::hfsplus) fn free_leftover_blocks(
    device: &Arc<dyn BlockDevice>,
    mut header: VolumeHeader,
) -> Result<()> {
    let read = HfsPlus::open(device.clone())?;
    let map = read.space.fork(
        &header.raw.allocation_file,
        &Owner::Special("allocation file"),
        &mut |block| read.overflow.get(Cnid::ALLOCATION, fork_type::DATA, block),
    )?;
    let bitmap = Bitmap::new(map, header.total_blocks)?;
    for place in places(&**device, &header)? {
        bitmap.set(place, false)?;
    }
    device.flush()?;
    header.raw.journal_info_block = 0.into();
    header.raw.last_mounted_version = crate::hfsplus::MADE_BY;
    header.raw.attributes = (header.raw.attributes.get() | volume_attributes::UNMOUNTED).into();
    device.write_at(HEADER_OFFSET, header.raw.as_bytes())?;
    device.flush()
}

/// Returns the extents of a journal and its info block.
pub(super) fn places(device: &dyn BlockDevice, header: &VolumeHeader) -> Result<Vec<Extent>> {
    let head = AllocBlock(header.raw.journal_info_block.get());
    let info: JournalInfoBlockRaw = read_structure(device, head.offset(header.block_size))?;
    let block_size = u64::from(header.block_size);
    let (start, count) = (
        info.offset.get() / block_size,
        info.size.get().div_ceil(block_size),
    );
    match (u32::try_from(start), u32::try_from(count)) {
        (Ok(start), Ok(count)) => Ok(vec![
            Extent {
                start: head,
                count: 1,
            },
            Extent {
                start: AllocBlock(start),
                count,
            },
        ]),
        _ => Err(Error::corrupt(
            LAYER,
            head.offset(header.block_size),
            "the journal is not on the volume",
        )),
    }
}
