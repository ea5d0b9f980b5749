//! Check of the master directory block and its alternate (§1, §8).

use zerocopy::{FromZeros, IntoBytes};

use super::HEADER;
use crate::check_report::{Report, wrong};
use crate::hfs::layout::{
    LAYER, MAX_VOLUME_NAME, MDB_OFFSET, MasterDirectoryBlock, MasterDirectoryBlockRaw, SECTOR,
    volume_attributes,
};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Result};

/// Distance of the alternate master directory block from the end of a volume, in bytes.
const ALTERNATE_FROM_END: u64 = 2 * SECTOR;

/// Checks the fields of the header on their own. The device has `len` bytes.
pub(super) fn check_header(header: &MasterDirectoryBlock, len: u64, report: &mut Report) {
    let raw = &header.raw;
    let attributes = raw.attributes.get();
    if attributes & volume_attributes::INCONSISTENT != 0 {
        report.warning(wrong(
            LAYER,
            "marked as damaged by the last system that mounted it",
        ));
    }
    if !header.is_clean() {
        report.warning(wrong(LAYER, "not unmounted cleanly"));
    }
    let at = |message: String| Error::corrupt(HEADER, MDB_OFFSET, message);
    if header.end() > len {
        report.warning(at(format!(
            "the header records a volume of {} bytes, but only {len} exist",
            header.end()
        )));
    }
    if !(1..=MAX_VOLUME_NAME).contains(&header.name().len()) {
        report.warning(at(format!(
            "the name of the volume has a length of {}, expected 1 to {MAX_VOLUME_NAME}",
            raw.name[0]
        )));
    }
    if raw.next_allocation.get() >= header.total_blocks {
        report.warning(at(format!(
            "the next block to allocate is recorded as {}, past the end of the volume ({} blocks)",
            raw.next_allocation, header.total_blocks
        )));
    }
    for (what, clump) in [
        ("forks", raw.clump_size),
        ("the extents file", raw.extents_clump_size),
        ("the catalog file", raw.catalog_clump_size),
    ] {
        if clump.get() == 0 || !clump.get().is_multiple_of(header.block_size) {
            report.warning(at(format!(
                "the clump size of {what} is {clump} bytes, expected a multiple of the block size"
            )));
        }
    }
}

/// Finds the alternate block, at the end of the device or of the allocation blocks.
fn alternate(
    device: &dyn BlockDevice,
    end: Option<u64>,
) -> Result<Option<(u64, MasterDirectoryBlock)>> {
    let len = device.info().len;
    let at_end = (len / SECTOR * SECTOR).checked_sub(ALTERNATE_FROM_END);
    for offset in at_end.into_iter().chain(end) {
        if offset <= MDB_OFFSET || offset.saturating_add(SECTOR) > len {
            continue;
        }
        let mut raw = MasterDirectoryBlockRaw::new_zeroed();
        device.read_at(offset, raw.as_mut_bytes())?;
        if let Ok(found) = MasterDirectoryBlock::parse(&raw) {
            return Ok(Some((offset, found)));
        }
    }
    Ok(None)
}

/// Compares the fields of the alternate block that must agree. It is written when a tree grows, so that
/// its counts and dates are outdated on every healthy volume.
pub(super) fn check_alternate(
    device: &dyn BlockDevice,
    header: &MasterDirectoryBlock,
    report: &mut Report,
) -> Result<()> {
    let Some((offset, found)) = alternate(device, Some(header.end()))? else {
        let message = "no valid alternate master directory block is at the end of the volume";
        report.warning(wrong(HEADER, message));
        return Ok(());
    };
    let (first, other) = (&header.raw, &found.raw);
    let geometry = |raw: &MasterDirectoryBlockRaw| {
        let places = (raw.bitmap_start, raw.first_block);
        (raw.create_date, raw.block_size, raw.total_blocks, places)
    };
    if geometry(first) != geometry(other) {
        report.warning(Error::corrupt(
            HEADER,
            offset,
            "the alternate master directory block is of another volume than the primary",
        ));
        return Ok(());
    }
    let extents_differ = (first.extents_file_size, first.extents_file)
        != (other.extents_file_size, other.extents_file);
    let catalog_differs = (first.catalog_file_size, first.catalog_file)
        != (other.catalog_file_size, other.catalog_file);
    for (name, _) in [
        ("extents file", extents_differ),
        ("catalog file", catalog_differs),
    ]
    .into_iter()
    .filter(|(_, differs)| *differs)
    {
        let message = format!(
            "the alternate master directory block has another location of the {name} than the primary"
        );
        report.warning(Error::corrupt(HEADER, offset, message));
    }
    Ok(())
}

/// Notes a valid alternate block of a volume whose primary one is damaged.
pub(super) fn note_alternate(device: &dyn BlockDevice, report: &mut Report) -> Result<()> {
    if let Some((offset, _)) = alternate(device, None)? {
        let message = "the alternate master directory block is valid";
        report.note(Error::corrupt(HEADER, offset, message));
    }
    Ok(())
}
