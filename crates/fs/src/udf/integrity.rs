//! The logical volume integrity sequence: whether the volume was closed, and what it counts.

use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::layout::{IntegrityRaw, IntegrityUseRaw, SectorExtentRaw, tag_id};
use super::tag::check_tag;
use crate::Timestamp;

/// Maximum number of sectors that are read.
const MAX_SECTORS: u64 = 1 << 16;
/// A table entry whose number is not known.
const UNKNOWN: u32 = u32::MAX;
/// The type of a volume that was closed after its last change.
const CLOSED: u32 = 1;

/// The last descriptor of the sequence.
#[derive(Debug, Clone)]
pub(super) struct Integrity {
    pub(super) is_closed: bool,
    pub(super) recorded: Option<Timestamp>,
    /// Free blocks of each partition map, if they are known.
    pub(super) free: Vec<Option<u32>>,
    /// The fields that UDF adds to the descriptor of ECMA-167.
    pub(super) counts: Option<IntegrityUseRaw>,
}

impl Integrity {
    /// Reads the sequence that begins with an extent. `None`: it has no descriptor.
    pub(super) fn read(
        device: &dyn BlockDevice,
        sector_size: u64,
        extent: SectorExtentRaw,
    ) -> Result<Option<Self>> {
        let (mut last, mut next) = (None, Some(extent));
        let mut left = MAX_SECTORS;
        while let Some(extent) = next.take() {
            for number in 0..u64::from(extent.len.get()) / sector_size {
                let sector = u64::from(extent.sector.get()) + number;
                let (Ok(location), Some(rest)) = (u32::try_from(sector), left.checked_sub(1))
                else {
                    return Ok(last);
                };
                left = rest;
                let at = sector * sector_size;
                if at + sector_size > device.info().len {
                    return Ok(last);
                }
                let bytes = device.read_vec(at, to_usize(sector_size))?;
                let is_integrity = check_tag(&bytes, location)
                    .is_ok_and(|tag| tag.identifier.get() == tag_id::INTEGRITY);
                let Some((found, after)) = Self::parse(&bytes).filter(|_| is_integrity) else {
                    break;
                };
                last = Some(found);
                if after.len.get() > 0 {
                    next = Some(after);
                    break;
                }
            }
        }
        Ok(last)
    }

    /// Parses a descriptor. Returns it with the place of the next extent.
    fn parse(bytes: &[u8]) -> Option<(Self, SectorExtentRaw)> {
        let (raw, rest) = IntegrityRaw::read_from_prefix(bytes).ok()?;
        let count = usize::try_from(raw.partitions.get()).ok()?;
        let (free, rest) = <[U32]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let (_, rest) = <[U32]>::ref_from_prefix_with_elems(rest, count).ok()?;
        let counts = IntegrityUseRaw::read_from_prefix(rest).ok();
        let has_counts = to_usize(raw.use_len.get().into()) >= size_of::<IntegrityUseRaw>();
        let found = Self {
            is_closed: raw.kind.get() == CLOSED,
            recorded: raw.recorded.get(),
            free: free
                .iter()
                .map(|blocks| Some(blocks.get()).filter(|&blocks| blocks != UNKNOWN))
                .collect(),
            counts: counts.map(|(raw, _)| raw).filter(|_| has_counts),
        };
        Some((found, raw.next))
    }
}
