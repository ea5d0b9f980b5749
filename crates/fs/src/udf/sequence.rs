//! The volume descriptor sequences: a main one, and a copy for the case that it is damaged.

use std::collections::BTreeMap;

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use zerocopy::{FromBytes, IntoBytes};

use super::layout::{
    LogicalVolumeRaw, PartitionRaw, PointerRaw, PrimaryRaw, SectorExtentRaw, TagRaw, tag_id,
};
use super::tag::{TagFault, check_tag};

/// Maximum number of sectors that are read of a sequence.
const MAX_SECTORS: u64 = 1024;
/// Maximum number of partitions.
const MAX_PARTITIONS: usize = 256;

/// The logical volume descriptor with its partition maps.
#[derive(Debug, Clone)]
pub(super) struct LogicalVolume {
    pub(super) raw: LogicalVolumeRaw,
    pub(super) maps: Vec<u8>,
}

/// The prevailing descriptors of a sequence: of each kind that with the greatest number.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeDescriptors {
    pub(super) primary: Option<PrimaryRaw>,
    pub(super) logical: Option<LogicalVolume>,
    /// By number.
    pub(super) partitions: BTreeMap<u16, PartitionRaw>,
    /// The byte and the fault of each sector that is no descriptor.
    pub(super) faults: Vec<(u64, TagFault)>,
}

impl VolumeDescriptors {
    /// Reads the sequence that begins with an extent.
    pub(super) fn read(
        device: &dyn BlockDevice,
        sector_size: u64,
        extent: SectorExtentRaw,
    ) -> Result<Self> {
        let mut found = Self::default();
        let mut next = Some(extent);
        let mut left = MAX_SECTORS;
        while let Some(extent) = next.take() {
            let first = extent.sector.get();
            for number in 0..u64::from(extent.len.get()) / sector_size {
                let sector = u64::from(first) + number;
                let at = sector * sector_size;
                let (Ok(location), Some(rest)) = (u32::try_from(sector), left.checked_sub(1))
                else {
                    return Ok(found);
                };
                left = rest;
                if at + sector_size > device.info().len {
                    found.faults.push((at, TagFault::Truncated));
                    return Ok(found);
                }
                let bytes = device.read_vec(at, to_usize(sector_size))?;
                match check_tag(&bytes, location) {
                    Ok(tag) if tag.identifier.get() == tag_id::TERMINATOR => break,
                    Ok(tag) => {
                        if let Some(pointer) = found.add(&tag, &bytes) {
                            next = Some(pointer);
                        }
                    }
                    // Sectors that were never recorded end a sequence, too.
                    Err(TagFault::Blank) => break,
                    Err(fault) => found.faults.push((at, fault)),
                }
            }
        }
        Ok(found)
    }

    /// Adds a descriptor. Returns the place of the next extent if it is that.
    fn add(&mut self, tag: &TagRaw, bytes: &[u8]) -> Option<SectorExtentRaw> {
        match tag.identifier.get() {
            tag_id::PRIMARY => {
                let (raw, _) = PrimaryRaw::read_from_prefix(bytes).ok()?;
                self.add_primary(raw);
            }
            tag_id::PARTITION => {
                let (raw, _) = PartitionRaw::read_from_prefix(bytes).ok()?;
                self.add_partition(raw);
            }
            tag_id::LOGICAL_VOLUME => {
                let (raw, maps) = LogicalVolumeRaw::read_from_prefix(bytes).ok()?;
                self.add_logical(LogicalVolume {
                    raw,
                    maps: maps.to_vec(),
                });
            }
            tag_id::POINTER => {
                let (raw, _) = PointerRaw::read_from_prefix(bytes).ok()?;
                return Some(raw.next);
            }
            _ => {}
        }
        None
    }

    fn add_primary(&mut self, raw: PrimaryRaw) {
        let known = self.primary.map(|known| known.sequence.get());
        if known.is_none_or(|known| raw.sequence.get() > known) {
            self.primary = Some(raw);
        }
    }

    fn add_partition(&mut self, raw: PartitionRaw) {
        let known = self.partitions.get(&raw.number.get());
        let is_newer = known.is_none_or(|known| raw.sequence.get() > known.sequence.get());
        if is_newer && (known.is_some() || self.partitions.len() < MAX_PARTITIONS) {
            self.partitions.insert(raw.number.get(), raw);
        }
    }

    fn add_logical(&mut self, new: LogicalVolume) {
        let known = self.logical.as_ref().map(|known| known.raw.sequence.get());
        if known.is_none_or(|known| new.raw.sequence.get() > known) {
            self.logical = Some(new);
        }
    }

    /// Returns true if a part of the sequence could not be read, or a volume needs more than it has.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.faults.is_empty() || self.logical.is_none() || self.partitions.is_empty()
    }

    /// Adds the descriptors of the other sequence that are newer, or missing here.
    pub(super) fn complete_by(&mut self, other: Self) {
        other
            .primary
            .into_iter()
            .for_each(|raw| self.add_primary(raw));
        other
            .logical
            .into_iter()
            .for_each(|new| self.add_logical(new));
        for raw in other.partitions.into_values() {
            self.add_partition(raw);
        }
    }

    /// Returns true if both have the same descriptors, in whatever place.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let partitions = |of: &Self| -> Vec<Vec<u8>> {
            of.partitions
                .values()
                .map(|raw| contents(raw.as_bytes()))
                .collect()
        };
        let logical = |of: &Self| {
            let found = of.logical.as_ref();
            found.map(|found| (contents(found.raw.as_bytes()), found.maps.clone()))
        };
        partitions(self) == partitions(other) && logical(self) == logical(other)
    }
}

/// Returns the bytes of a descriptor after its tag.
fn contents(bytes: &[u8]) -> Vec<u8> {
    bytes
        .get(size_of::<TagRaw>()..)
        .unwrap_or_default()
        .to_vec()
}
