//! The contents of a disk: the search for its partition map and volumes, and the verdict on them.

use std::sync::Arc;

use super::volume::{self, Volume};
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind, Slice, is_zero};
use crate::partition::{self, Map, Partition, gpt::Search};
use crate::size::to_usize;
use crate::{Error, Reason, Result};

/// The use of a disk, as far as it is recognized. Every verb that judges a disk uses this verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// A volume of a supported format, perhaps beside others.
    Volumes,
    /// Zeros, or partitions of zeros with zeros between them.
    Blank,
    /// File systems and other uses that are recognized but not supported, each with its place.
    /// Nothing in them is checked.
    Foreign(Vec<String>),
    /// Other bytes than zeros, and nothing that is recognized: the contents of another program, or
    /// a disk whose structures are lost.
    Unknown,
}

/// Bytes read per call when checking for all zeros.
const PIECE: usize = 1 << 20;

/// Types of partitions whose contents no magic shows.
const KNOWN_BY_TYPE: [&str; 9] = [
    "Apple_Boot",
    "Apple_CoreStorage",
    "Apple_RAID",
    "Apple_UFS",
    "BIOS Boot",
    "EFI System",
    "Linux LVM",
    "Linux Swap",
    "Microsoft Reserved",
];

impl Contents {
    /// Returns the verdict on a disk with this map and these volumes. Blank places are read until
    /// the first byte that is not zero; holes are not read.
    pub(crate) fn of(
        disk: &Arc<dyn BlockDevice>,
        map: Option<&Map>,
        volumes: &[Volume],
    ) -> Result<Self> {
        if volumes.iter().any(|volume| volume.format.is_supported()) {
            return Ok(Self::Volumes);
        }
        let mut foreign: Vec<_> = volumes
            .iter()
            .map(|volume| format!("{} on {}", volume.format, volume.place()))
            .collect();
        let Some(map) = map else {
            return Ok(match foreign.is_empty() {
                false => Self::Foreign(foreign),
                true if is_blank(&**disk)? => Self::Blank,
                true => Self::Unknown,
            });
        };
        for partition in map.partitions.iter().filter(|partition| {
            partition.type_id.may_hold_volume() && !holds_volume(partition, volumes)
        }) {
            if KNOWN_BY_TYPE.contains(&&*partition.kind) {
                foreign.push(format!(
                    "{} in partition {}",
                    partition.kind, partition.number
                ));
            } else if !is_partition_blank(disk, partition)? {
                return Ok(Self::Unknown);
            }
        }
        if !foreign.is_empty() {
            return Ok(Self::Foreign(foreign));
        }
        // The entry of a partition may be lost.
        let (_, areas) = partition::areas(&**disk, Some(map))?;
        for area in areas.into_iter().filter(partition::Area::is_free) {
            if !is_blank(&Slice::new(disk.clone(), area.range)?)? {
                return Ok(Self::Unknown);
            }
        }
        Ok(Self::Blank)
    }

    /// Returns the stable name for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Blank => "blank",
            Self::Foreign(_) => "foreign",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns the error for a disk of unknown contents.
pub(super) fn unknown() -> Error {
    const UNKNOWN: &str = "unknown contents: the disk is not blank, but no known file system was \
                           found";
    Error::unsupported("disk", UNKNOWN).because(Reason::UnknownContents)
}

fn holds_volume(partition: &Partition, volumes: &[Volume]) -> bool {
    volumes
        .iter()
        .any(|volume| volume.partition == Some(partition.number))
}

/// Returns true if all bytes of a partition are zero.
pub(super) fn is_partition_blank(
    disk: &Arc<dyn BlockDevice>,
    partition: &Partition,
) -> Result<bool> {
    is_blank(&Slice::new(disk.clone(), partition.range.clone())?)
}

/// Returns the partition map and the volumes of a disk.
pub(crate) fn find(disk: &Arc<dyn BlockDevice>) -> Result<(Option<Map>, Vec<Volume>)> {
    find_with(disk, |search| partition::probe_with(&**disk, search))
}

/// Like [`find`], with the function that reads or checks the map. A GPT that block 0 does not
/// announce is looked for only if nothing else is found: file systems leave block 0 and the end of a
/// disk as they were, so that remains of a former map are common there.
pub(crate) fn find_with(
    disk: &Arc<dyn BlockDevice>,
    mut read_map: impl FnMut(Search) -> Result<Option<Map>>,
) -> Result<(Option<Map>, Vec<Volume>)> {
    for search in [Search::Announced, Search::Everywhere] {
        let map = read_map(search)?;
        let volumes = volume::find(disk, map.as_ref())?;
        if map.is_some() || !volumes.is_empty() {
            return Ok((map, volumes));
        }
    }
    Ok((None, Vec::new()))
}

/// Returns true if a disk of at least a sector is all zeros. Holes are not read, and the first
/// other byte ends the search.
pub(crate) fn is_blank(disk: &dyn BlockDevice) -> Result<bool> {
    let len = disk.info().len;
    if len == 0 {
        return Ok(false);
    }
    // Nonzero data is mostly found at the ends.
    let probe = to_usize(len.min(4096));
    if !is_zero(&disk.read_vec(0, probe)?) || !is_zero(&disk.read_vec(len - probe as u64, probe)?) {
        return Ok(false);
    }
    let mut buf = Vec::new();
    for extent in disk.extents(0..len) {
        let (range, kind) = extent?;
        let mut at = range.start;
        if kind == ExtentKind::Data {
            buf.resize(PIECE.min(usize::try_from(len).unwrap_or(PIECE)), 0);
        }
        while kind == ExtentKind::Data && at < range.end {
            let piece = buf
                .len()
                .min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            disk.read_at(at, &mut buf[..piece])?;
            if !is_zero(&buf[..piece]) {
                return Ok(false);
            }
            at += piece as u64;
        }
    }
    Ok(true)
}
