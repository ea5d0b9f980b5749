//! FAT12, FAT16, FAT32.

use zerocopy::{FromZeros, IntoBytes};

use super::super::layout::fat::{BootRaw, Width};
use super::put;

const SECTOR: usize = 512;

/// A volume whose clusters of these numbers, all below 100, are in use; that of the root directory
/// is 2 on FAT32.
pub(crate) fn fat(width: Width, used: std::ops::Range<usize>) -> Vec<u8> {
    let (sectors, reserved, table, root_entries, per_cluster) = match width {
        Width::Fat12 => (2048, 1, 2, 512, 4),
        // So many that there are more clusters than FAT12 can have.
        Width::Fat16 => (8192, 1, 32, 512, 1),
        Width::Fat32 => (2048, 32, 16, 0, 1),
    };
    let mut raw = BootRaw::new_zeroed();
    (raw.jump, raw.sector_size, raw.sectors_per_cluster) =
        ([0xEB, 0x3C, 0x90], (SECTOR as u16).into(), per_cluster);
    (raw.reserved, raw.tables, raw.root_entries, raw.media) =
        (reserved.into(), 2, root_entries.into(), 0xF8);
    raw.sectors = sectors.into();
    match width {
        Width::Fat32 => (raw.tail.table, raw.tail.root) = (u32::from(table).into(), 2.into()),
        _ => raw.table = table.into(),
    }
    let mut bytes = vec![0; usize::from(sectors) * SECTOR];
    put(&mut bytes, 0, raw.as_bytes());
    put(&mut bytes, 510, &[0x55, 0xAA]);
    let mut entries = vec![0; 100];
    entries[..2].copy_from_slice(&[0x0FFF_FFF8, 0x0FFF_FFFF]);
    entries[used].fill(0x0FFF_FFFF);
    for copy in 0..2 {
        let at = (usize::from(reserved) + copy * usize::from(table)) * SECTOR;
        put(&mut bytes, at, &packed(width, &entries));
    }
    bytes
}

fn packed(width: Width, entries: &[u32]) -> Vec<u8> {
    match width {
        Width::Fat12 => entries
            .chunks_exact(2)
            .flat_map(|pair| {
                ((pair[0] & 0xFFF) | (pair[1] & 0xFFF) << 12)
                    .to_le_bytes()
                    .into_iter()
                    .take(3)
            })
            .collect(),
        Width::Fat16 => entries
            .iter()
            .flat_map(|entry| (*entry as u16).to_le_bytes())
            .collect(),
        Width::Fat32 => entries
            .iter()
            .flat_map(|entry| entry.to_le_bytes())
            .collect(),
    }
}
