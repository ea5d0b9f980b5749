//! Moving the end of a primary partition of an MBR, which is a write of one sector.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::LAYER;
use crate::device::BlockDevice;
use crate::partition::layout::MbrRaw;
use crate::partition::read;
use crate::{Error, Result};

/// Placeholder for the last cylinder, head and sector, which are obsolete.
const NO_CHS: [u8; 3] = [0xfe, 0xff, 0xff];

/// Returns the maximum end of partition `number` on a disk of `disk_len` bytes, as a byte offset.
pub(in crate::partition) fn last_end(
    disk: &dyn BlockDevice,
    number: u32,
    disk_len: u64,
) -> Result<u64> {
    let (mbr, index) = read_primary(disk, number)?;
    let block = u64::from(disk.info().block);
    let most = u64::from(mbr.entries[index].first.get()) + u64::from(u32::MAX);
    Ok((disk_len / block).min(most) * block)
}

/// Moves the end of partition `number` to `range.end`. Nothing else in the map changes.
pub(in crate::partition) fn change(
    disk: &dyn BlockDevice,
    number: u32,
    range: &Range<u64>,
) -> Result<()> {
    disk.info().check_writable(LAYER)?;
    let (mut mbr, index) = read_primary(disk, number)?;
    let block = u64::from(disk.info().block);
    let entry = &mut mbr.entries[index];
    let first = u64::from(entry.first.get());
    if range.start != first * block || range.end <= range.start || !range.end.is_multiple_of(block)
    {
        let message = format!(
            "invalid range {range:?} of partition {number}: expected whole blocks of {block} from \
             block {first}"
        );
        return Err(Error::invalid(LAYER, message));
    }
    let blocks = u32::try_from(range.end / block - first).map_err(|_| {
        Error::limit(
            LAYER,
            format!("partition {number} would have too many blocks for the map"),
        )
    })?;
    if entry.blocks.get() == blocks {
        return Ok(());
    }
    (entry.blocks, entry.last_chs) = (blocks.into(), NO_CHS);
    disk.write_at(0, mbr.as_bytes())?;
    disk.flush()
}

/// Reads the map, and returns the index of a primary partition in it.
fn read_primary(disk: &dyn BlockDevice, number: u32) -> Result<(MbrRaw, usize)> {
    let mbr = read::<MbrRaw>(disk, 0)?;
    let index = (number as usize).wrapping_sub(1);
    match mbr.entries.get(index) {
        Some(entry) if entry.is_used() => Ok((mbr, index)),
        None if number > 4 => {
            let message = "cannot resize a logical partition; copy its files to a new image";
            Err(Error::unsupported(LAYER, message).named(format!("partition {number}")))
        }
        _ => Err(Error::not_found(LAYER, format!("partition {number}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::device::Memory;
    use crate::partition::samples::mbr;
    use crate::partition::{MBR_HFS, probe};

    const LEN: u64 = 1 << 20;

    #[test]
    fn one_entry_changes() {
        let disk = Memory::zeros(LEN as usize);
        mbr(
            &disk,
            &[(1024..64 << 10, 0x0b), (64 << 10..512 << 10, MBR_HFS)],
        );
        let before = disk.to_vec();
        assert_eq!(last_end(&disk, 2, LEN).unwrap(), LEN);
        change(&disk, 2, &(64 << 10..LEN)).unwrap();
        let map = probe(&disk).unwrap().unwrap();
        let found: Vec<_> = map
            .partitions
            .iter()
            .map(|partition| partition.range.clone())
            .collect();
        assert_eq!(found, [1024..64 << 10, 64 << 10..LEN]);
        change(&disk, 2, &(64 << 10..512 << 10)).unwrap();
        let after = disk.to_vec();
        let differ = |at: &usize| before[*at] != after[*at];
        assert!(
            (0..LEN as usize)
                .filter(differ)
                .all(|at| (0x1d3..0x1d6).contains(&at)),
            "only the end by cylinders"
        );
        for (number, range, kind) in [
            (2, 64 << 10..(512 << 10) + 1, Kind::Invalid),
            (2, 0..512 << 10, Kind::Invalid),
            (3, 64 << 10..512 << 10, Kind::NotFound),
            (0, 64 << 10..512 << 10, Kind::NotFound),
            (5, 64 << 10..512 << 10, Kind::Unsupported),
        ] {
            let error = change(&disk, number, &range).unwrap_err();
            assert_eq!(error.kind(), kind, "{number}, {range:?}: {error}");
        }
    }
}
