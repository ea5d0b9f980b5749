//! The partition maps of a logical volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::contents::UdfContents;
use super::extents::open_contents;
use super::icb::UdfFile;
use super::layout::{
    MapHeadRaw, MetadataMapRaw, PlainMapRaw, SparableMapRaw, SparingEntryRaw, SparingTableRaw,
    TypedMapRaw, file_type, tag_id,
};
use super::sequence::VolumeDescriptors;
use super::space::{BlockAddress, BlockSpace, MappedPartition, PartitionRange};
use super::tag::check_tag;
use super::virtual_partition::{self, VirtualTable};

/// Maximum number of partition maps.
const MAX_MAPS: usize = 64;
/// Maximum length of a sparing table in bytes: that of 65,535 entries.
const MAX_SPARING: u32 = 1 << 20;
/// The first of the numbers that are no packet in a sparing table.
const NO_PACKET: u32 = 0xFFFF_FFF0;
/// The block of the bitmap of a metadata partition that has none.
const NO_BITMAP: u32 = u32::MAX;
/// The flag of a metadata partition whose mirror has blocks of its own.
const OWN_MIRROR: u8 = 1;

/// A map as it is in the logical volume descriptor.
enum FoundMap {
    Plain(u16),
    Virtual(u16),
    Sparable(SparableMapRaw),
    Metadata(MetadataMapRaw),
}

/// The partitions of a volume, and what its virtual allocation table says of it.
#[derive(Debug)]
pub(super) struct MappedVolume {
    pub(super) space: BlockSpace,
    pub(super) table: Option<VirtualTable>,
    /// Copies of structures that cannot be read, while others can.
    pub(super) faults: Vec<Error>,
    /// ICBs of files that no directory names, in which the partitions are stored.
    pub(super) files: Vec<BlockAddress>,
    /// ICBs of further file entries of these files.
    pub(super) mirrors: Vec<BlockAddress>,
}

/// Opens the partitions of a logical volume.
pub(super) fn open_partitions(
    device: &Arc<dyn BlockDevice>,
    sector_size: u64,
    block_size: u64,
    found: &VolumeDescriptors,
) -> Result<MappedVolume> {
    let maps = parse_maps(found)?;
    let mut volume = MappedVolume {
        space: BlockSpace {
            device: device.clone(),
            block_size,
            partitions: Vec::new(),
        },
        table: None,
        faults: Vec::new(),
        files: Vec::new(),
        mirrors: Vec::new(),
    };
    let range = |number: u16| {
        let raw = found.partitions.get(&number);
        let raw = raw.ok_or_else(|| corrupt(format!("partition {number} has no descriptor")))?;
        let blocks = u64::from(raw.len.get()) * sector_size / block_size;
        Ok(PartitionRange {
            number,
            start: u64::from(raw.start.get()) * sector_size,
            // A block is not shorter than a sector.
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
        })
    };
    for map in &maps {
        let partition = match map {
            FoundMap::Plain(number) => MappedPartition::Plain(range(*number)?),
            FoundMap::Sparable(raw) => {
                let range = range(raw.common.partition.get())?;
                sparable(&mut volume, sector_size, range, raw)?
            }
            FoundMap::Virtual(_) | FoundMap::Metadata(_) => MappedPartition::Unresolved,
        };
        volume.space.partitions.push(partition);
    }
    // These are stored in the others.
    for (index, map) in maps.iter().enumerate() {
        let partition = match map {
            FoundMap::Virtual(number) => {
                let base = base_of(&volume.space, *number)?;
                let table = virtual_partition::find(&volume.space, base)?;
                let partition = MappedPartition::Virtual {
                    base,
                    table: table.contents.clone(),
                    first: table.first,
                    entries: table.entries,
                };
                volume.files.push(table.icb);
                volume.table = Some(table);
                partition
            }
            FoundMap::Metadata(raw) => {
                let base = base_of(&volume.space, raw.common.partition.get())?;
                metadata(&mut volume, base, raw)?
            }
            FoundMap::Plain(_) | FoundMap::Sparable(_) => continue,
        };
        if let Some(place) = volume.space.partitions.get_mut(index) {
            *place = partition;
        }
    }
    Ok(volume)
}

fn parse_maps(found: &VolumeDescriptors) -> Result<Vec<FoundMap>> {
    let Some(logical) = &found.logical else {
        return Err(corrupt("the logical volume descriptor is missing"));
    };
    let malformed = || corrupt("the partition maps are malformed");
    let len = usize::try_from(logical.raw.maps_len.get()).map_err(|_| malformed())?;
    let mut rest = logical.maps.get(..len).ok_or_else(malformed)?;
    let count = usize::try_from(logical.raw.maps.get()).map_err(|_| malformed())?;
    if count == 0 || count > MAX_MAPS {
        return Err(corrupt(format!("the volume has {count} partition maps")));
    }
    let mut maps = Vec::new();
    for _ in 0..count {
        let (head, _) = MapHeadRaw::read_from_prefix(rest).map_err(|_| malformed())?;
        let len = usize::from(head.len).max(size_of::<MapHeadRaw>());
        let (map, after) = rest.split_at_checked(len).ok_or_else(malformed)?;
        rest = after;
        maps.push(parse_map(map, head.kind).ok_or_else(malformed)??);
    }
    Ok(maps)
}

/// Parses a map. `None`: it is malformed.
fn parse_map(map: &[u8], kind: u8) -> Option<Result<FoundMap>> {
    if kind == 1 {
        let (raw, _) = PlainMapRaw::read_from_prefix(map).ok()?;
        return Some(Ok(FoundMap::Plain(raw.partition.get())));
    }
    if kind != 2 {
        let message = format!("partition maps of type {kind} are not supported");
        return Some(Err(Error::unsupported(LAYER, message)));
    }
    let (raw, _) = TypedMapRaw::read_from_prefix(map).ok()?;
    Some(Ok(if raw.kind.is(b"*UDF Virtual Partition") {
        FoundMap::Virtual(raw.partition.get())
    } else if raw.kind.is(b"*UDF Sparable Partition") {
        FoundMap::Sparable(SparableMapRaw::read_from_prefix(map).ok()?.0)
    } else if raw.kind.is(b"*UDF Metadata Partition") {
        FoundMap::Metadata(MetadataMapRaw::read_from_prefix(map).ok()?.0)
    } else {
        let message = format!("partition maps of {} are not supported", raw.kind.shown());
        return Some(Err(Error::unsupported(LAYER, message)));
    }))
}

/// Returns the index of the map of a partition whose blocks are on the device.
fn base_of(space: &BlockSpace, number: u16) -> Result<u16> {
    let is_base = |partition: &MappedPartition| {
        partition
            .range()
            .is_some_and(|range| range.number == number)
    };
    let index = space.partitions.iter().position(is_base);
    index
        .and_then(|index| u16::try_from(index).ok())
        .ok_or_else(|| corrupt(format!("no map places the blocks of partition {number}")))
}

/// Opens a partition with a sparing table: that with the greatest number of those that can be read.
fn sparable(
    volume: &mut MappedVolume,
    sector_size: u64,
    range: PartitionRange,
    raw: &SparableMapRaw,
) -> Result<MappedPartition> {
    let packet = u32::from(raw.packet.get());
    if packet == 0 {
        return Err(corrupt("the packets of a partition have no blocks"));
    }
    let mut newest: Option<(u32, Vec<SparingEntryRaw>)> = None;
    let count = usize::from(raw.tables).min(raw.sectors.len());
    for sector in &raw.sectors[..count] {
        let device = &*volume.space.device;
        match sparing_table(device, sector_size, sector.get(), raw.table_len.get())? {
            Ok((sequence, entries)) => {
                if newest.as_ref().is_none_or(|(known, _)| sequence > *known) {
                    newest = Some((sequence, entries));
                }
            }
            Err(fault) => volume.faults.push(fault),
        }
    }
    let Some((_, entries)) = newest else {
        let known = volume.faults.pop();
        return Err(known.unwrap_or_else(|| corrupt("a partition has no sparing table")));
    };
    let spared = entries
        .iter()
        .filter(|entry| entry.original.get() < NO_PACKET)
        .map(|entry| {
            let place = u64::from(entry.mapped.get()) * sector_size;
            (entry.original.get(), place)
        })
        .collect::<BTreeMap<_, _>>();
    Ok(MappedPartition::Sparable {
        range,
        packet,
        spared,
    })
}

/// Reads a sparing table. The inner error says why it cannot be used.
#[allow(clippy::type_complexity, reason = "a table, or one of two errors")]
fn sparing_table(
    device: &dyn BlockDevice,
    sector_size: u64,
    sector: u32,
    len: u32,
) -> Result<Result<(u32, Vec<SparingEntryRaw>), Error>> {
    let at = u64::from(sector) * sector_size;
    let damaged = |why: &dyn std::fmt::Display| {
        let message = format!("the sparing table in sector {sector} is damaged: {why}");
        Error::corrupt(LAYER, at, message)
    };
    let len = u64::from(len.min(MAX_SPARING)).next_multiple_of(sector_size);
    if len == 0 || at + len > device.info().len {
        return Ok(Err(damaged(&"it is past the end of the volume")));
    }
    let bytes = device.read_vec(at, to_usize(len))?;
    let tag = match check_tag(&bytes, sector) {
        Ok(tag) => tag,
        Err(fault) => return Ok(Err(damaged(&fault))),
    };
    let Ok((raw, rest)) = SparingTableRaw::read_from_prefix(&bytes) else {
        return Ok(Err(damaged(&"it is truncated")));
    };
    if tag.identifier.get() != tag_id::SPARING_TABLE || !raw.kind.is(b"*UDF Sparing Table") {
        return Ok(Err(damaged(&"another structure is there")));
    }
    let count = usize::from(raw.entries.get());
    match <[SparingEntryRaw]>::ref_from_prefix_with_elems(rest, count) {
        Ok((entries, _)) => Ok(Ok((raw.sequence.get(), entries.to_vec()))),
        Err(_) => Ok(Err(damaged(&"it is truncated"))),
    }
}

/// Opens a metadata partition by its file, or by the mirror of that if it is damaged.
fn metadata(volume: &mut MappedVolume, base: u16, raw: &MetadataMapRaw) -> Result<MappedPartition> {
    let mut copies = Vec::new();
    for (block, kind, what) in [
        (raw.file.get(), file_type::METADATA, "metadata file"),
        (
            raw.mirror.get(),
            file_type::METADATA_MIRROR,
            "metadata mirror file",
        ),
    ] {
        let at = BlockAddress {
            partition: base,
            block,
        };
        match metadata_file(&volume.space, at, kind) {
            Ok(contents) => {
                let is_copy = raw.flags & OWN_MIRROR == 0 && !copies.is_empty();
                match is_copy {
                    true => volume.mirrors.push(at),
                    false => volume.files.push(at),
                }
                copies.push(contents);
            }
            Err(error) if error.kind() == Kind::Corrupt => {
                let message = format!("the {what} cannot be used: {}", error.message());
                volume.faults.push(corrupt(message).caused_by(error));
            }
            Err(error) => return Err(error),
        }
    }
    if copies.is_empty() {
        let known = volume.faults.pop();
        return Err(known.unwrap_or_else(|| corrupt("a partition has no metadata file")));
    }
    if raw.bitmap.get() != NO_BITMAP {
        volume.files.push(BlockAddress {
            partition: base,
            block: raw.bitmap.get(),
        });
    }
    // Both files have the same blocks, so that the second is no other copy.
    if raw.flags & OWN_MIRROR == 0 {
        copies.truncate(1);
    }
    Ok(MappedPartition::Metadata { copies })
}

fn metadata_file(space: &BlockSpace, at: BlockAddress, kind: u8) -> Result<UdfContents> {
    let file = UdfFile::read(space, at)?;
    if file.icb.kind != kind {
        let message = format!(
            "expected a file of type {kind}, found type {}",
            file.icb.kind
        );
        return Err(Error::corrupt(LAYER, file.offset, message));
    }
    open_contents(space, &file)
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message.into())
}
