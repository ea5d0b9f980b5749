//! FAT12, FAT16 and FAT32: a file allocation table with an entry per cluster, zero for a free
//! cluster, and mostly a second copy of it. A cluster counts as free only if it is free in all
//! tables that are maintained.

use std::borrow::Cow;
use std::sync::Arc;

use super::layout::{Boot, Width, boot_flags};
use super::{read_boot, table_of};
use crate::bitmap::set_bits;
use crate::block_map::{BlockFreeMap, BlockMap, MapEntry, MapReader};
use crate::clusters::{AllocationTable, FIRST};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Result};

const LAYER: &str = "fat table";
/// Number of clusters whose entries are read at a time; even, so that no FAT12 entry is split.
const PER_PIECE: u64 = 1 << 16;

/// Opens the free map of the volume on all of `device`, clean or not.
pub fn free_map(device: Arc<dyn BlockDevice>) -> Result<BlockFreeMap> {
    let boot = read_boot(&*device, device.info().len)?;
    let tables = boot.tables.clone();
    let fat = Fat {
        tables: tables
            .map(|number| table_of(device.clone(), &boot, number))
            .collect(),
        boot,
    };
    let boot = &fat.boot;
    let geometry = BlockMap {
        start: boot.clusters_at,
        block_size: boot.cluster_size,
        blocks: boot.clusters,
        per_piece: PER_PIECE,
    };
    let disorder = fat.disorder()?;
    Ok(BlockFreeMap::new(
        LAYER,
        geometry,
        fat,
        disorder.map(Cow::Borrowed),
    ))
}

#[derive(Debug)]
struct Fat {
    boot: Boot,
    /// The tables that are maintained.
    tables: Vec<AllocationTable>,
}

impl Fat {
    /// Returns the reason if the volume is not clean, by the flags of the boot sector and those of
    /// entry 1, which FAT12 does not have.
    fn disorder(&self) -> Result<Option<&'static str>> {
        let mut flags = self.boot.flags;
        for table in &self.tables {
            let Some((clean, sound)) = state_bits(self.boot.width) else {
                continue;
            };
            let entry = first_of(table, 1)?;
            for (bit, flag) in [(clean, boot_flags::DIRTY), (sound, boot_flags::FAILED)] {
                if entry & bit == 0 {
                    flags |= flag;
                }
            }
        }
        Ok(if flags & boot_flags::DIRTY != 0 {
            Some("not cleanly unmounted")
        } else if flags & boot_flags::FAILED != 0 {
            Some("the volume records an error of the medium")
        } else {
            None
        })
    }
}

/// Returns the bits of entry 1 that are set on a clean volume, and on one without errors of the medium.
pub(super) fn state_bits(width: Width) -> Option<(u32, u32)> {
    match width {
        Width::Fat12 => None,
        Width::Fat16 => Some((1 << 15, 1 << 14)),
        Width::Fat32 => Some((1 << 27, 1 << 26)),
    }
}

/// Returns an entry before those of clusters.
pub(super) fn first_of(table: &AllocationTable, entry: u64) -> Result<u32> {
    Ok(table
        .entries(entry, 1)?
        .first()
        .copied()
        .unwrap_or_default())
}

impl MapReader for Fat {
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
        let mut bits = bandsaw_core::device::zeros(count.div_ceil(8))?;
        for table in &self.tables {
            let entries = table.entries(FIRST + index * PER_PIECE, count)?;
            (0..)
                .zip(entries)
                .filter(|(_, entry)| *entry != 0)
                .for_each(|(at, _)| set_bits(&mut bits, at..at + 1));
        }
        Ok(MapEntry::Bits(bits))
    }

    fn check(&self, map: &BlockFreeMap) -> Result<()> {
        for (number, table) in self.boot.tables.clone().zip(&self.tables) {
            let entry = first_of(table, 0)?;
            if entry & 0xFF != u32::from(self.boot.media) {
                let message = format!(
                    "table {number} begins with {:#04x}, but the boot sector with {:#04x}; run \
                     `fsck.vfat`",
                    entry & 0xFF,
                    self.boot.media
                );
                let at = self.boot.tables_at + number * self.boot.table_len;
                return Err(Error::corrupt(LAYER, at, message));
            }
        }
        match self.boot.root {
            Some(root) => map.check_used(root - FIRST, 1, "root directory"),
            None => Ok(()),
        }
    }
}
