//! Partition maps: the location of the volumes of a disk.
//!
//! [`probe`] recognizes GPT, Apple's partition map and MBR, in this order: a GPT disk has an MBR
//! too, and a hybrid CD may have all three. A partition can then be opened as a
//! [`Slice`](crate::device::Slice) of the disk.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod apm;
mod areas;
mod check;
pub mod gpt;
mod kind;
mod layout;
mod mbr;
mod resize;
#[cfg(test)]
pub(crate) mod samples;
pub mod single;

use std::fmt;
use std::ops::Range;

use uuid::Uuid;
use zerocopy::FromBytes;

use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

pub use areas::{Area, areas};
pub use check::{check, check_with};
pub use kind::{APPLE_APFS, APPLE_HFS, BASIC_DATA, EFI_SYSTEM, MBR_HFS, TypeId};
use layout::MbrRaw;
pub(crate) use resize::Resizable;

/// The map of a disk.
#[derive(Debug)]
pub struct Map {
    /// Kind of the map.
    pub scheme: Scheme,
    /// Block size of the map in bytes: 512, 2048 or 4096.
    pub block: u32,
    /// GUID of the disk (GPT).
    pub disk_guid: Option<Uuid>,
    /// The partitions within the disk, in the order of their numbers.
    pub partitions: Vec<Partition>,
    /// Problems of a readable map: a damaged copy, partitions that overlap or are outside of the
    /// disk (the latter are omitted from `partitions`; [`Kind::OutOfRange`]).
    pub problems: Vec<Error>,
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Number as in macOS's `disk1s2`: the index in the map, from 1. Logical partitions of an MBR
    /// count from 5.
    pub number: u32,
    /// Byte range, within the disk.
    pub range: Range<u64>,
    /// Name; empty if it has none.
    pub name: String,
    /// Type by name: `Apple_HFS`, `Apple_APFS`, `EFI System`, ...
    pub kind: String,
    /// Type in the terms of the map.
    pub type_id: TypeId,
    /// GUID of the partition itself (GPT).
    pub guid: Option<Uuid>,
    /// Flags of the map: attributes (GPT), status.
    pub flags: u64,
}

impl Partition {
    fn new(number: u32, range: Range<u64>, name: String, type_id: TypeId) -> Self {
        let kind = type_id.kind().into_owned();
        Self {
            number,
            range,
            name,
            kind,
            type_id,
            guid: None,
            flags: 0,
        }
    }
}

/// A kind of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Apple partition map.
    Apm,
    /// Master boot record.
    Mbr,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Apm => "APM",
            Self::Mbr => "MBR",
        })
    }
}

/// Returns the map of `disk`; `None` if it has none (a file system may begin at byte 0).
///
/// Fails with [`Kind::Corrupt`] if a map is recognized but cannot be used. Nothing is written.
pub fn probe(disk: &dyn BlockDevice) -> Result<Option<Map>> {
    probe_with(disk, gpt::Search::Announced)
}

/// Like [`probe`], with this search for a GPT.
pub fn probe_with(disk: &dyn BlockDevice, search: gpt::Search) -> Result<Option<Map>> {
    if disk.info().len < size_of::<MbrRaw>() as u64 {
        return Ok(None);
    }
    let mbr = read::<MbrRaw>(disk, 0)?;
    let map = match gpt::probe(disk, &mbr, search)? {
        Some(map) => Some(map),
        None => match apm::probe(disk)? {
            Some(map) => Some(map),
            None => mbr::probe(disk, &mbr)?,
        },
    };
    Ok(map.map(|mut map| {
        let overlaps = overlaps(&map.partitions);
        map.problems.extend(overlaps);
        map
    }))
}

/// Reads a structure at byte `offset` of the disk.
fn read<T: FromBytes + zerocopy::IntoBytes>(disk: &dyn BlockDevice, offset: u64) -> Result<T> {
    let mut raw = T::new_zeroed();
    disk.read_at(offset, raw.as_mut_bytes())?;
    Ok(raw)
}

/// Returns the byte range of `count` blocks from `first`, or the reason why it cannot be a
/// partition of a disk of `len` bytes.
fn block_range(
    layer: &'static str,
    number: u32,
    first: u64,
    count: u64,
    block: u32,
    len: u64,
) -> Result<Range<u64>> {
    let bytes = |blocks: u64| blocks.checked_mul(u64::from(block));
    let range = bytes(first)
        .zip(first.checked_add(count).and_then(bytes))
        .map(|(start, end)| start..end);
    range.filter(|range| count > 0 && range.end <= len).ok_or_else(|| {
        let what = format!(
            "partition {number}, {count} blocks of {block} bytes from block {first}, is not within the disk of {len} bytes"
        );
        // If the disk was truncated, the map is right and the disk is wrong; an empty partition is
        // an error of the map.
        let kind = if count > 0 { Kind::OutOfRange } else { Kind::Corrupt };
        Error::new(kind, layer, what)
    })
}

/// Returns one problem for each partition that begins before the end of another.
fn overlaps(partitions: &[Partition]) -> Vec<Error> {
    let mut sorted: Vec<_> = partitions
        .iter()
        .filter(|partition| partition.type_id.may_hold_volume())
        .collect();
    sorted.sort_by_key(|partition| partition.range.start);
    let mut problems = Vec::new();
    let mut reaching_furthest: Option<&Partition> = None;
    for partition in sorted {
        match reaching_furthest {
            Some(other) if partition.range.start < other.range.end => {
                let what = format!(
                    "partitions {} and {} overlap",
                    other.number, partition.number
                );
                problems.push(Error::corrupt("partition map", partition.range.start, what));
            }
            _ => {}
        }
        if reaching_furthest.is_none_or(|other| partition.range.end > other.range.end) {
            reaching_furthest = Some(partition);
        }
    }
    problems
}

/// Decodes text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
