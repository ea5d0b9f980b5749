//! FAT12, FAT16 and FAT32, the file systems of MS-DOS and of memory cards.
//!
//! [`FatVolume::open`] reads the boot sector; the table and the directories are read on demand. Sections
//! of `docs/formats/fat.md` are cited as §n throughout.

pub mod build;
mod check;
mod directory;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod free;
mod layout;
mod names;
mod short_names;
#[cfg(test)]
mod tests;
mod write;

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub use check::check;
pub use free::free_map;
pub use write::open_mut;

use self::directory::{DirectoryItem, FatEntry, Items};
use self::layout::{BOOT_SIGNATURE, Boot, BootRaw, MAX_DIRECTORY};
use crate::clusters::{AllocationTable, ClusterSpace, DirectoryPlace};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

/// The layer in errors.
const LAYER: &str = "fat volume";

/// An open FAT volume, read-only.
#[derive(Debug)]
pub struct FatVolume {
    space: ClusterSpace,
    boot: Boot,
    root: DirectoryPlace,
    name: String,
    /// Free bytes, and true if the volume is clean; counted when they are asked for.
    usage: OnceLock<(u64, bool)>,
}

impl FatVolume {
    /// Opens the volume on all of `device`, clean or not.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let boot = read_boot(&*device, device.info().len)?;
        let space = space_of(device, &boot);
        let root = match boot.root {
            Some(first) => DirectoryPlace::Chain {
                first,
                max: MAX_DIRECTORY,
            },
            None => DirectoryPlace::Fixed(boot.root_range.clone()),
        };
        let mut volume = Self {
            space,
            root,
            name: boot.label.map(names::label).unwrap_or_default(),
            usage: OnceLock::new(),
            boot,
        };
        if let Some(label) = volume.read_label()? {
            volume.name = label;
        }
        Ok(volume)
    }

    /// Returns the label in the root directory, which counts before that of the boot sector.
    fn read_label(&self) -> Result<Option<String>> {
        let mut items = Items::new(&self.space, &self.root)?;
        loop {
            match items.read_next() {
                Ok(Some(DirectoryItem::Label(raw))) => return Ok(Some(names::label(raw.name))),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                // The files before the damage can be read.
                Err(error) if error.kind() == Kind::Corrupt => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the place of the directory that an entry names.
    fn place_of(&self, entry: &FatEntry) -> Result<DirectoryPlace> {
        let first = entry.raw.first(self.boot.width);
        self.space
            .checked(first)
            .map_err(|error| error.at(entry.offset))?;
        Ok(DirectoryPlace::Chain {
            first,
            max: MAX_DIRECTORY,
        })
    }

    /// Calls `each` for every entry of a directory, without `.` and `..`.
    fn walk(
        &self,
        place: &DirectoryPlace,
        each: &mut dyn FnMut(FatEntry) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut items = Items::new(&self.space, place)?;
        while let Some(item) = items.read_next()? {
            if let DirectoryItem::Entry(entry) = item
                && each(entry)?.is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

fn read_boot(device: &dyn BlockDevice, len: u64) -> Result<Boot> {
    let mut raw = BootRaw::new_zeroed();
    device.info().check(LAYER, 0, size_of::<BootRaw>() as u64)?;
    device.read_at(0, raw.as_mut_bytes())?;
    Boot::parse(&raw, len)
}

/// Returns the clusters of a volume, by the first table that is maintained.
fn space_of(device: Arc<dyn BlockDevice>, boot: &Boot) -> ClusterSpace {
    let table = table_of(device.clone(), boot, boot.tables.start);
    ClusterSpace {
        device,
        layer: LAYER,
        start: boot.clusters_at,
        cluster_size: boot.cluster_size,
        clusters: boot.clusters,
        table: Arc::new(table),
    }
}

/// Returns one of the tables of a volume.
fn table_of(device: Arc<dyn BlockDevice>, boot: &Boot, number: u64) -> AllocationTable {
    let at = boot.tables_at + number * boot.table_len;
    AllocationTable::new(device, at, boot.width.entry(), boot.clusters)
}

/// Returns the length of the volume in bytes by its boot sector, even if the device is shorter. `None`: no
/// valid boot sector.
pub fn stated_len(device: &dyn BlockDevice) -> Result<Option<u64>> {
    if device.info().len < size_of::<BootRaw>() as u64 {
        return Ok(None);
    }
    match read_boot(device, u64::MAX) {
        Ok(boot) => Ok(Some(boot.len)),
        Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Unsupported) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true for the first 512 bytes of a FAT volume, which has no magic of its own, by consistent
/// fields.
pub fn is_boot_sector(bytes: &[u8]) -> bool {
    let Some(sector) = bytes.first_chunk::<512>() else {
        return false;
    };
    let Ok((boot, _)) = BootRaw::ref_from_prefix(sector) else {
        return false;
    };
    sector.ends_with(&BOOT_SIGNATURE)
        && matches!(boot.jump[0], 0xeb | 0xe9)
        && matches!(boot.sector_size.get(), 512 | 1024 | 2048 | 4096)
        && boot.sectors_per_cluster.is_power_of_two()
        && boot.reserved.get() > 0
        && matches!(boot.tables, 1 | 2)
        && boot.media >= 0xf0
}

/// Returns the error about an object that does not exist.
fn missing(node: u64) -> Error {
    Error::not_found(LAYER, format!("object {node}"))
}
