//! Check of the volume header and its alternate (§2, §17).

use super::report::{Report, wrong};
use crate::hfsplus::LAYER as VOLUME;
use crate::hfsplus::header::{self, AlternateHeader};
use crate::hfsplus::layout::{HEADER_OFFSET, VolumeHeader, volume_attributes};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Result};

const LAYER: &str = "hfs+ volume header";
/// Mark of macOS for a volume whose journal it could not replay.
const REPLAY_FAILED: &[u8; 4] = b"FSK!";

/// Checks the fields of the header on their own.
pub(super) fn check_header(header: &VolumeHeader, report: &mut Report) {
    let raw = &header.raw;
    if header.has(volume_attributes::INCONSISTENT) {
        report.warning(wrong(
            VOLUME,
            "marked as damaged by the last system that mounted it",
        ));
    }
    if raw.last_mounted_version == *REPLAY_FAILED {
        report.warning(wrong(
            VOLUME,
            "marked as having a journal that could not be replayed",
        ));
    }
    if !header.has(volume_attributes::UNMOUNTED) {
        report.warning(wrong(VOLUME, "not unmounted cleanly"));
    }
    let at = |message: String| Error::corrupt(LAYER, HEADER_OFFSET, message);
    if header.total_blocks < 4 {
        report.damage(at(format!(
            "the header records {} blocks: the minimum is 4",
            header.total_blocks
        )));
    }
    if raw.free_blocks.get() > header.total_blocks {
        report.warning(at(format!(
            "the header records {} free blocks, more than the {} blocks of the volume",
            raw.free_blocks, header.total_blocks
        )));
    }
    if raw.next_allocation.get() >= header.total_blocks {
        report.warning(at(format!(
            "the next block to allocate is recorded as {}, past the end of the volume ({} blocks)",
            raw.next_allocation, header.total_blocks
        )));
    }
    for (what, clump) in [
        ("data", raw.data_clump_size),
        ("resource", raw.rsrc_clump_size),
    ] {
        if !header.is_fork_clump(clump.get()) {
            report.warning(at(format!(
                "the clump size of {what} forks is {clump} bytes, expected a multiple of the block \
                 size up to 1 MiB"
            )));
        }
    }
    for (what, fork) in [
        ("extents", &raw.extents_file),
        ("catalog", &raw.catalog_file),
        ("allocation", &raw.allocation_file),
    ] {
        if !header.is_file_clump(fork.clump_size.get()) {
            report.warning(at(format!(
                "the clump size of the {what} file is {} bytes, expected a multiple of the block \
                 size up to a quarter of the volume",
                fork.clump_size
            )));
        }
    }
    let attributes = &raw.attributes_file;
    let clump = attributes.clump_size.get();
    if attributes.total_blocks.get() != 0 && (clump == 0 || !header.is_file_clump(clump)) {
        let problem = at(format!(
            "the clump size of the attributes file is {clump} bytes, which fsck_hfs changes"
        ));
        // A volume made by macOS has one that is too large for its checker, never a part of a block.
        match clump.is_multiple_of(header.block_size) {
            true => report.note(problem),
            false => report.warning(problem),
        }
    }
}

/// Checks the fields of the alternate header that must agree. Its counts are outdated on every
/// healthy volume (§2.5).
pub(super) fn check_alternate(
    device: &dyn BlockDevice,
    header: &VolumeHeader,
    report: &mut Report,
) -> Result<()> {
    let AlternateHeader {
        offset,
        header: alternate,
        is_at_end,
    } = header::alternate(device, header)?;
    let alternate = match alternate {
        Ok(alternate) => alternate,
        Err(error) => {
            report.warning(error);
            return Ok(());
        }
    };
    if !is_at_end {
        report.warning(Error::corrupt(
            LAYER,
            offset,
            "the alternate header is not at the end of the space of the volume: a change of its \
             size was interrupted",
        ));
    }
    let (raw, first) = (&alternate.raw, &header.raw);
    let same = (
        alternate.variant,
        alternate.block_size,
        raw.create_date,
        raw.total_blocks,
    ) == (
        header.variant,
        header.block_size,
        first.create_date,
        first.total_blocks,
    );
    if !same {
        report.warning(Error::corrupt(
            LAYER,
            offset,
            "the alternate header is of another volume than the primary",
        ));
        return Ok(());
    }
    let forks = [
        (
            "allocation file",
            raw.allocation_file,
            first.allocation_file,
        ),
        ("extents file", raw.extents_file, first.extents_file),
        ("catalog file", raw.catalog_file, first.catalog_file),
        (
            "attributes file",
            raw.attributes_file,
            first.attributes_file,
        ),
        ("startup file", raw.startup_file, first.startup_file),
    ];
    for (name, _, _) in forks
        .into_iter()
        .filter(|(_, alternate, first)| alternate != first)
    {
        report.warning(Error::corrupt(
            LAYER,
            offset,
            format!("the alternate header has another location of the {name} than the primary"),
        ));
    }
    Ok(())
}
