//! FAT12, FAT16 and FAT32: a file allocation table with an entry per cluster, zero for a free
//! cluster, and mostly a second copy of it. A cluster counts as free only if it is free in all
//! tables that are maintained.

use std::borrow::Cow;
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use super::layout::fat::{Boot, BootRaw, Width, boot_flags};
use super::map::{BlockMap, ForeignFree, MapEntry, MapReader};
use crate::bitmap::set_bits;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::{Error, Result};

const LAYER: &str = "fat table";
/// Number of clusters whose entries are read at a time; even, so that no FAT12 entry is split.
const PER_PIECE: u64 = 1 << 16;
/// Number of the first cluster, and of the entries before its entry.
const FIRST: u64 = 2;

/// Opens the free map of the volume on all of `device`.
pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<ForeignFree> {
    let mut raw = BootRaw::new_zeroed();
    device.info().check(LAYER, 0, size_of::<BootRaw>() as u64)?;
    device.read_at(0, raw.as_mut_bytes())?;
    let fat = Fat {
        boot: Boot::parse(&raw, device.info().len)?,
        device,
    };
    let boot = &fat.boot;
    let geometry = BlockMap {
        start: boot.clusters_at,
        block_size: boot.cluster_size,
        blocks: boot.clusters,
        per_piece: PER_PIECE,
    };
    let disorder = fat.disorder()?;
    Ok(ForeignFree::new(
        LAYER,
        geometry,
        fat,
        disorder.map(Cow::Borrowed),
    ))
}

#[derive(Debug)]
struct Fat {
    device: Arc<dyn BlockDevice>,
    boot: Boot,
}

impl Fat {
    /// Returns the reason if the volume is not clean, by the flags of the boot sector and those of
    /// entry 1, which FAT12 does not have.
    fn disorder(&self) -> Result<Option<&'static str>> {
        let mut flags = self.boot.flags;
        for table in self.boot.tables.clone() {
            let (clean, sound) = match self.boot.width {
                Width::Fat12 => continue,
                Width::Fat16 => (1 << 15, 1 << 14),
                Width::Fat32 => (1 << 27, 1 << 26),
            };
            let entry = self.entries(table, 1, 1)?.next().unwrap_or_default();
            flags |= if entry & clean == 0 {
                boot_flags::DIRTY
            } else {
                0
            };
            flags |= if entry & sound == 0 {
                boot_flags::FAILED
            } else {
                0
            };
        }
        Ok(if flags & boot_flags::DIRTY != 0 {
            Some("not cleanly unmounted")
        } else if flags & boot_flags::FAILED != 0 {
            Some("the volume records an error of the medium")
        } else {
            None
        })
    }

    /// Returns `count` entries of a table, beginning with entry `first`. They must be within it.
    fn entries(
        &self,
        table: u64,
        first: u64,
        count: usize,
    ) -> Result<impl Iterator<Item = u32> + use<>> {
        let width = self.boot.width;
        let start = match width {
            Width::Fat12 => first / 2 * 3,
            Width::Fat16 => first * 2,
            Width::Fat32 => first * 4,
        };
        let odd = if width == Width::Fat12 {
            (first % 2) as usize
        } else {
            0
        };
        let len = match width {
            Width::Fat12 => ((odd + count) * 3).div_ceil(2),
            Width::Fat16 => count * 2,
            Width::Fat32 => count * 4,
        };
        let at = self.boot.tables_at + table * self.boot.table_len + start;
        let bytes = self.device.read_vec(at, len)?;
        Ok((odd..odd + count).map(move |index| {
            let byte = |at: usize| bytes.get(at).copied().map_or(0, u32::from);
            match width {
                Width::Fat12 => {
                    let at = index / 2 * 3 + index % 2;
                    let pair = byte(at) | byte(at + 1) << 8;
                    if index % 2 == 0 {
                        pair & 0xFFF
                    } else {
                        pair >> 4
                    }
                }
                Width::Fat16 => byte(2 * index) | byte(2 * index + 1) << 8,
                // The four highest bits are reserved.
                Width::Fat32 => {
                    let at = 4 * index;
                    byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | (byte(at + 3) & 0xF) << 24
                }
            }
        }))
    }
}

impl MapReader for Fat {
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
        let mut bits = bandsaw_core::device::zeros(count.div_ceil(8))?;
        for table in self.boot.tables.clone() {
            let entries = self.entries(table, FIRST + index * PER_PIECE, count)?;
            entries
                .enumerate()
                .filter(|(_, entry)| *entry != 0)
                .for_each(|(at, _)| set_bits(&mut bits, at..at + 1));
        }
        Ok(MapEntry::Bits(bits))
    }

    fn check(&self, map: &ForeignFree) -> Result<()> {
        for table in self.boot.tables.clone() {
            let entry = self.entries(table, 0, 1)?.next().unwrap_or_default();
            if entry & 0xFF != u32::from(self.boot.media) {
                let message = format!(
                    "table {table} begins with {:#04x}, but the boot sector with {:#04x}; run \
                     `fsck.vfat`",
                    entry & 0xFF,
                    self.boot.media
                );
                return Err(Error::corrupt(
                    LAYER,
                    self.boot.tables_at + table * self.boot.table_len,
                    message,
                ));
            }
        }
        match self.boot.root {
            Some(root) => map.check_used(root - FIRST, 1, "root directory"),
            None => Ok(()),
        }
    }
}
