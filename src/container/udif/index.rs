//! Loading of the trailer, of the resources that it refers to, and of the block tables in them.

use super::chunks::Chunks;
use super::layout::{KOLY_SIZE, Koly, KolyRaw, MAX_SECTORS, Table, koly_field};
use super::resources::{self, BLOCK_TABLE, Resource};
use super::{LAYER, SECTOR};
use crate::codec::Codec;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;
use crate::{Error, Result};

/// Bytes of a chunk, packed or plain, at most; hdiutil's chunks are 512 KiB or 1 MiB.
const MAX_CHUNK: u64 = 2 << 20;

pub(super) fn read_trailer(file: &dyn BlockDevice) -> Result<(KolyRaw, Koly)> {
    let len = file.info().len;
    let at = len.checked_sub(KOLY_SIZE).ok_or_else(|| {
        Error::corrupt(
            LAYER,
            0,
            format!("the file has {len} bytes, fewer than the trailer of {KOLY_SIZE}"),
        )
    })?;
    let raw: KolyRaw = zerocopy::transmute!(file.read_array::<{ to_usize(KOLY_SIZE) }>(at)?);
    let koly = Koly::parse(&raw, at)?;
    Ok((raw, koly))
}

pub(super) fn read_resources(file: &dyn BlockDevice, koly: &Koly) -> Result<Vec<Resource>> {
    let (place, xml) = if koly.xml.is_empty() {
        (&koly.resource_fork, false)
    } else {
        (&koly.xml, true)
    };
    let length = place.end - place.start;
    if length > resources::MAX_BYTES {
        let message = format!(
            "resources of {length} bytes are too large: at most {} are supported",
            resources::MAX_BYTES
        );
        return Err(Error::limit(LAYER, message).at(place.start));
    }
    if length == 0 {
        return Err(Error::corrupt(
            LAYER,
            koly.xml.start,
            "the trailer has neither a property list nor a resource fork",
        ));
    }
    let bytes = file.read_vec(place.start, to_usize(length))?;
    let found = if xml {
        resources::from_plist(&bytes)
    } else {
        resources::from_fork(&bytes)
    };
    let mut found = found.map_err(|error| {
        Error::corrupt(LAYER, place.start, "the resources cannot be read").caused_by(error)
    })?;
    if xml && !koly.resource_fork.is_empty() {
        add_from_fork(&mut found, file, koly);
    }
    Ok(found)
}

/// Adds the resources that only the fork has: older images have both a list and a fork. An
/// unreadable fork is ignored.
fn add_from_fork(resources: &mut Vec<Resource>, file: &dyn BlockDevice, koly: &Koly) {
    let length = koly.resource_fork.end - koly.resource_fork.start;
    if length > resources::MAX_BYTES {
        return;
    }
    let bytes = file.read_vec(koly.resource_fork.start, to_usize(length));
    for resource in bytes
        .and_then(|bytes| resources::from_fork(&bytes))
        .unwrap_or_default()
    {
        let known = resources
            .iter()
            .any(|other| other.kind == resource.kind && other.id == resource.id);
        if !known && resource.kind != BLOCK_TABLE {
            resources.push(resource);
        }
    }
}

pub(super) fn parse_tables(resources: &[Resource], koly: &Koly) -> Result<Vec<Table>> {
    let tables = resources
        .iter()
        .filter(|resource| resource.kind == BLOCK_TABLE);
    let tables: Vec<_> = tables
        .map(|table| Table::parse(&table.data, &table.name))
        .collect::<Result<_>>()?;
    if tables.is_empty() && koly.sector_count > 0 {
        let message = format!(
            "none of {} resources is a block table, for a disk of {} sectors",
            resources.len(),
            koly.sector_count
        );
        return Err(Error::corrupt(LAYER, koly.xml.start, message));
    }
    Ok(tables)
}

/// Returns the length of the disk in bytes from the trailer's sector count; if that is 0, as other
/// programs write it, the end of the last chunk.
pub(super) fn disk_len(koly: &Koly, chunks: &Chunks) -> Result<u64> {
    let sectors = if koly.sector_count == 0 {
        chunks.end() / SECTOR
    } else {
        koly.sector_count
    };
    if sectors > MAX_SECTORS || sectors * SECTOR < chunks.end() {
        let message = format!(
            "the disk has {sectors} sectors, but its last chunk ends at byte {}",
            chunks.end()
        );
        return Err(Error::corrupt(LAYER, koly_field::SECTOR_COUNT, message));
    }
    Ok(sectors * SECTOR)
}

/// Returns true if `file` begins with a compressed chunk, as a UDZO or UDBZ image does: a stream of
/// whole sectors. A file without a trailer that does was truncated.
pub(crate) fn begins_with_chunk(file: &dyn BlockDevice) -> Result<bool> {
    let len = file.info().len;
    let codec = match file.read_vec(0, 3.min(to_usize(len)))?.as_slice() {
        [0x78, ..] => Codec::Zlib,
        b"BZh" => Codec::Bzip2,
        _ => return Ok(false),
    };
    let start = file.read_vec(0, to_usize(MAX_CHUNK.min(len)))?;
    let Some((plain, read)) = codec.decode_start(&start, MAX_CHUNK) else {
        return Ok(false);
    };
    let holds_sectors = !plain.is_empty() && plain.len().is_multiple_of(512);
    // A file that is compressed by `bzip2` as a whole has nothing after its one stream.
    Ok(holds_sectors && (codec == Codec::Zlib || read < len))
}
