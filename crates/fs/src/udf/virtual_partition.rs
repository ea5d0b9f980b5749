//! The virtual allocation table (VAT) of discs that are written once: the places of blocks, which the
//! last file entry on the disc refers to.

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, is_zero};
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::contents::UdfContents;
use super::extents::open_contents;
use super::icb::UdfFile;
use super::layout::{VatHeaderRaw, VatTrailerRaw, file_type};
use super::names::decode_field;
use super::space::{BlockAddress, BlockSpace, MappedPartition};

/// Maximum number of blocks without zeros, from the end of the device backwards, in which the table is
/// looked for: a program may have written more after it, or padded the image.
const MAX_BLOCKS: u64 = 512;
/// Maximum number of bytes that are read while zeros at the end are skipped.
const MAX_BLANK: u64 = 64 << 20;
/// Bytes that are compared with zeros in one call.
const PIECE: u64 = 64 << 10;

/// A virtual allocation table.
#[derive(Debug)]
pub(super) struct VirtualTable {
    /// Its ICB.
    pub(super) icb: BlockAddress,
    pub(super) contents: UdfContents,
    /// Offset of the first entry, in bytes.
    pub(super) first: u64,
    /// Number of entries.
    pub(super) entries: u32,
    /// Name of the volume, and its numbers of files and folders, from UDF 2.00 on.
    pub(super) facts: Option<(String, u64, u64)>,
}

/// Finds the last table in the partition `base`.
pub(super) fn find(space: &BlockSpace, base: u16) -> Result<VirtualTable> {
    let partition = space.partitions.get(usize::from(base));
    let Some(range) = partition.and_then(MappedPartition::range) else {
        return Err(missing());
    };
    let end = recorded_end(&*space.device, range.start)?;
    let blocks = end.saturating_sub(range.start).div_ceil(space.block_size);
    let blocks = blocks.min(range.blocks.into());
    let first = blocks.saturating_sub(MAX_BLOCKS);
    for block in (first..blocks).rev() {
        let at = BlockAddress {
            partition: base,
            block: narrow(block),
        };
        match UdfFile::read(space, at) {
            Ok(file) => {
                if let Some(table) = open_table(space, &file)? {
                    return Ok(table);
                }
            }
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => {}
            Err(error) => return Err(error),
        }
    }
    Err(missing())
}

/// Returns the end of the last bytes of a device that are not zero, after `start`. Only a part of a
/// device is searched.
fn recorded_end(device: &dyn BlockDevice, start: u64) -> Result<u64> {
    let mut end = device.info().len;
    let mut left = MAX_BLANK;
    while end > start && left > 0 {
        let from = end.saturating_sub(PIECE).max(start);
        let bytes = device.read_vec(from, to_usize(end - from))?;
        if !is_zero(&bytes) {
            let used = bytes.iter().rposition(|&byte| byte != 0);
            return Ok(from + used.map_or(0, |last| last as u64 + 1));
        }
        left = left.saturating_sub(end - from);
        end = from;
    }
    Ok(end)
}

/// Opens the table in a file. `None`: it is another file.
fn open_table(space: &BlockSpace, file: &UdfFile) -> Result<Option<VirtualTable>> {
    let kind = file.icb.kind;
    if kind != file_type::VAT && kind != file_type::UNKNOWN {
        return Ok(None);
    }
    let contents = open_contents(space, file)?;
    contents.check_places()?;
    // Each block of the device has at most one entry.
    let max = space.device.info().len / space.block_size * 4 + (1 << 17);
    if file.len > max {
        let message = format!("a virtual allocation table has {} bytes", file.len);
        return Err(Error::corrupt(LAYER, file.offset, message));
    }
    if kind == file_type::UNKNOWN {
        const TRAILER: u64 = size_of::<VatTrailerRaw>() as u64;
        let Some(entries_len) = file.len.checked_sub(TRAILER) else {
            return Ok(None);
        };
        let bytes = contents.read_vec(entries_len, size_of::<VatTrailerRaw>())?;
        let trailer = VatTrailerRaw::read_from_bytes(&bytes).ok();
        return Ok(trailer
            .filter(|raw| raw.kind.is(b"*UDF Virtual Alloc Tbl"))
            .map(|_| VirtualTable {
                icb: file.address,
                contents,
                first: 0,
                entries: narrow(entries_len / 4),
                facts: None,
            }));
    }
    let malformed = || {
        let message = "the header of the virtual allocation table is malformed";
        Error::corrupt(LAYER, file.offset, message)
    };
    if file.len < size_of::<VatHeaderRaw>() as u64 {
        return Err(malformed());
    }
    let bytes = contents.read_vec(0, size_of::<VatHeaderRaw>())?;
    let raw = VatHeaderRaw::read_from_bytes(&bytes).map_err(|_| malformed())?;
    let first = u64::from(raw.len.get());
    if first < size_of::<VatHeaderRaw>() as u64 || first > file.len {
        return Err(malformed());
    }
    Ok(Some(VirtualTable {
        icb: file.address,
        contents,
        first,
        entries: narrow((file.len - first) / 4),
        facts: Some((
            decode_field(&raw.name),
            raw.files.get().into(),
            raw.folders.get().into(),
        )),
    }))
}

fn missing() -> Error {
    let message = "no virtual allocation table at the end of the disc: it may be truncated";
    Error::new(Kind::Corrupt, LAYER, message)
}
