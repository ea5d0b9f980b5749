//! Creation of a GPT with the layout of hdiutil's `GPTSPUD`. Source: docs/formats/raw.md §2.1.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::{FromZeros, IntoBytes};

use super::{Copy, Header, LAYER, PRIMARY};
use crate::device::BlockDevice;
use crate::partition::kind::PROTECTIVE;
use crate::partition::layout::{GptEntryRaw, MBR_SIGNATURE, MbrEntryRaw, MbrRaw};
use crate::{Error, Result};

/// Alignment of partitions in bytes.
const ALIGN: u64 = 4096;

const ENTRY_COUNT: u32 = 128;
const ENTRY_SIZE: u32 = 128;
const _: () = assert!(size_of::<GptEntryRaw>() == ENTRY_SIZE as usize);

/// Maximum length of a partition's name in UTF-16 units.
const NAME_UNITS: usize = 36;

/// Name that hdiutil gives the only partition of an image.
const NAME: &str = "disk image";

/// The layout of a disk of a certain length with a new GPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapGeometry {
    block: u32,
    blocks: u64,
}

impl MapGeometry {
    /// Returns the layout of a disk of `disk_len` bytes in blocks of 512 or 4096; an incomplete
    /// last block is not used. Fails with [`Kind::Invalid`](crate::Kind) if there is no room for a partition.
    pub fn of(disk_len: u64, block: u32) -> Result<Self> {
        if !matches!(block, 512 | 4096) {
            return Err(Error::invalid(
                LAYER,
                format!("invalid block size {block}: expected 512 or 4096"),
            ));
        }
        let smallest = Self::around(ALIGN, block).disk_len();
        if disk_len < smallest {
            let what = format!(
                "disk of {disk_len} bytes is too small for a GPT and a partition: the minimum is \
                 {smallest}"
            );
            return Err(Error::invalid(LAYER, what));
        }
        Ok(Self {
            block,
            blocks: disk_len / u64::from(block),
        })
    }

    /// Returns the layout of the smallest disk whose partition has room for a volume of
    /// `volume_len` bytes, at least one.
    pub fn holding(volume_len: u64, block: u32) -> Result<Self> {
        let volume_len = volume_len
            .max(1)
            .checked_next_multiple_of(ALIGN)
            .filter(|&len| len < 1 << 63); // so that the blocks of the map can be added
        let volume_len = volume_len
            .ok_or_else(|| Error::limit(LAYER, "the volume is too large: the limit is 8 EiB"))?;
        Self::of(Self::around(volume_len, block).disk_len(), block)
    }

    fn around(volume_len: u64, block: u32) -> Self {
        let mut geometry = Self { block, blocks: 0 };
        // The backup at the end: its table, and its header in the last block.
        geometry.blocks = (geometry.partition_start() + volume_len) / u64::from(block)
            + geometry.table_blocks()
            + 1;
        geometry
    }

    /// Returns the length of the disk in bytes, in whole blocks.
    pub fn disk_len(&self) -> u64 {
        self.blocks * u64::from(self.block)
    }

    /// Returns the block size in bytes.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Returns the byte range of a single partition that fills the disk, aligned to 4096 at both
    /// ends.
    pub fn partition(&self) -> Range<u64> {
        let end = (self.last_usable() + 1) * u64::from(self.block);
        self.partition_start()..end - end % ALIGN
    }

    fn partition_start(&self) -> u64 {
        (self.first_usable() * u64::from(self.block)).next_multiple_of(ALIGN)
    }

    fn table_blocks(&self) -> u64 {
        u64::from(ENTRY_COUNT * ENTRY_SIZE / self.block)
    }

    fn first_usable(&self) -> u64 {
        PRIMARY + 1 + self.table_blocks()
    }

    fn last_usable(&self) -> u64 {
        self.last() - self.table_blocks() - 1
    }

    fn last(&self) -> u64 {
        self.blocks - 1
    }
}

/// A partition to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPartition {
    /// Byte range, in whole blocks.
    pub range: Range<u64>,
    /// Partition type, such as [`APPLE_HFS`](crate::partition::APPLE_HFS).
    pub type_guid: Uuid,
    /// GUID of the partition itself.
    pub guid: Uuid,
    /// Name of at most 36 UTF-16 units.
    pub name: String,
}

/// The GUIDs of a disk with one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guids {
    /// GUID of the disk.
    pub disk: Uuid,
    /// GUID of the partition.
    pub partition: Uuid,
}

impl Guids {
    /// Returns random GUIDs, as every disk should have.
    pub fn random() -> Self {
        Self {
            disk: Uuid::new_v4(),
            partition: Uuid::new_v4(),
        }
    }

    /// Returns GUIDs that depend only on `seed`, for reproducible images.
    pub fn derived(seed: &str) -> Self {
        let derive = |what: &str| {
            Uuid::new_v5(
                &Uuid::NAMESPACE_OID,
                format!("bandsaw gpt {what}\0{seed}").as_bytes(),
            )
        };
        Self {
            disk: derive("disk"),
            partition: derive("partition"),
        }
    }
}

/// Writes a GPT with one partition over the whole of `disk`, in hdiutil's layout `GPTSPUD`; returns
/// the partition's byte range.
pub fn create_single(
    disk: &dyn BlockDevice,
    block: u32,
    type_guid: Uuid,
    guids: Guids,
) -> Result<Range<u64>> {
    let range = MapGeometry::of(disk.info().len, block)?.partition();
    let partition = NewPartition {
        range: range.clone(),
        type_guid,
        guid: guids.partition,
        name: NAME.to_owned(),
    };
    create(disk, block, guids.disk, &[partition])?;
    Ok(range)
}

/// Writes a GPT with these partitions, numbered in this order, replacing any map of `disk`. Nothing
/// is written outside of the map's own blocks; the backup is durable before the primary is
/// overwritten.
///
/// Fails with [`Kind::Invalid`](crate::Kind) if partitions overlap, or are not whole blocks within the usable
/// range of the map.
pub fn create(
    disk: &dyn BlockDevice,
    block: u32,
    disk_guid: Uuid,
    partitions: &[NewPartition],
) -> Result<()> {
    disk.info().check_writable(LAYER)?;
    let geometry = MapGeometry::of(disk.info().len, block)?;
    check_partitions(&geometry, partitions)?;
    let table = table(&geometry, partitions);
    let header = Header {
        block,
        my_lba: PRIMARY,
        alternate_lba: geometry.last(),
        first_usable: geometry.first_usable(),
        last_usable: geometry.last_usable(),
        disk_guid,
        entries_lba: PRIMARY + 1,
        entry_count: ENTRY_COUNT,
        entry_size: ENTRY_SIZE,
        entries_crc: crc32fast::hash(&table),
    };
    let primary = Copy { header, table };
    primary.backup()?.write(disk)?;
    primary.write(disk)?;
    disk.write_at(0, protective_mbr(geometry.blocks).as_bytes())?;
    disk.flush()
}

impl Copy {
    /// Returns the backup that belongs to this primary: the header in the block that the primary
    /// states, the table before it.
    pub(super) fn backup(&self) -> Result<Self> {
        let primary = &self.header;
        let end = self.taken().end;
        let entries_lba = primary
            .alternate_lba
            .checked_sub(primary.table_blocks())
            .filter(|&at| at >= end);
        let entries_lba = entries_lba.ok_or_else(|| {
            let what = format!(
                "no room for the backup's table between block {end} and {}",
                primary.alternate_lba
            );
            Error::unsupported(LAYER, what)
        })?;
        Ok(self.moved(primary.alternate_lba, primary.my_lba, entries_lba))
    }

    /// Returns the same map at another place.
    pub(super) fn moved(&self, my_lba: u64, alternate_lba: u64, entries_lba: u64) -> Self {
        let header = Header {
            my_lba,
            alternate_lba,
            entries_lba,
            ..self.header.clone()
        };
        Self {
            header,
            table: self.table.clone(),
        }
    }

    /// Writes table and header, and makes them durable. The header comes last: the copy is not
    /// valid before it is written.
    pub(super) fn write(&self, disk: &dyn BlockDevice) -> Result<()> {
        let block = u64::from(self.header.block);
        disk.write_at(self.header.entries_lba * block, &self.table)?;
        disk.flush()?;
        disk.write_at(self.header.my_lba * block, &self.header.to_block())?;
        disk.flush()
    }
}

/// Returns a protective MBR, which marks the whole disk as used.
pub(super) fn protective_mbr(blocks: u64) -> MbrRaw {
    let mut mbr = MbrRaw::new_zeroed();
    // UEFI: the largest number stands for all disks that are larger.
    let all_but_this = u32::try_from(blocks - 1).unwrap_or(u32::MAX);
    mbr.entries[0] = MbrEntryRaw {
        status: 0,
        first_chs: [0xfe, 0xff, 0xff],
        kind: PROTECTIVE,
        last_chs: [0xfe, 0xff, 0xff],
        first: 1.into(),
        blocks: all_but_this.into(),
    };
    mbr.signature = MBR_SIGNATURE;
    mbr
}

fn check_partitions(geometry: &MapGeometry, partitions: &[NewPartition]) -> Result<()> {
    let invalid = |what: String| Err(Error::invalid(LAYER, what));
    if partitions.len() > ENTRY_COUNT as usize {
        return invalid(format!(
            "too many partitions: {} (limit {ENTRY_COUNT})",
            partitions.len()
        ));
    }
    let block = u64::from(geometry.block);
    let free = geometry.first_usable() * block..(geometry.last_usable() + 1) * block;
    for (number, NewPartition { range, name, .. }) in (1..).zip(partitions) {
        if range.is_empty() || range.start < free.start || range.end > free.end {
            return invalid(format!(
                "partition {number} at bytes {range:?} is not within {free:?}"
            ));
        }
        if range.start % block != 0 || range.end % block != 0 {
            return invalid(format!(
                "partition {number} at bytes {range:?} is not a whole number of blocks of {block}"
            ));
        }
        if name.encode_utf16().count() > NAME_UNITS {
            return invalid(format!(
                "the name of partition {number} is longer than {NAME_UNITS} units of UTF-16"
            ));
        }
    }
    // The caller determines the order of the entries, which need not be that on the disk.
    let mut ranges: Vec<_> = partitions
        .iter()
        .map(|partition| &partition.range)
        .collect();
    ranges.sort_by_key(|range| range.start);
    match ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => invalid(format!(
            "partitions at bytes {:?} and {:?} overlap",
            pair[0], pair[1]
        )),
        None => Ok(()),
    }
}

/// Returns the bytes of the table, with unused entries zero.
fn table(geometry: &MapGeometry, partitions: &[NewPartition]) -> Vec<u8> {
    let block = u64::from(geometry.block);
    let mut table = Vec::with_capacity((ENTRY_COUNT * ENTRY_SIZE) as usize);
    for partition in partitions {
        let mut entry = GptEntryRaw::new_zeroed();
        entry.type_guid = partition.type_guid.to_bytes_le();
        entry.guid = partition.guid.to_bytes_le();
        entry.first = (partition.range.start / block).into();
        entry.last = (partition.range.end / block - 1).into();
        entry
            .name
            .iter_mut()
            .zip(partition.name.encode_utf16())
            .for_each(|(slot, unit)| *slot = unit.into());
        table.extend_from_slice(entry.as_bytes());
    }
    table.resize((ENTRY_COUNT * ENTRY_SIZE) as usize, 0);
    table
}
