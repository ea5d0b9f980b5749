//! exFAT, the file system of large memory cards and of drives that several systems share.
//!
//! [`ExFatVolume::open`] reads the boot region and the entries of the root directory for the volume's own
//! structures; the table and the directories are read on demand. Sections of `docs/formats/exfat.md` are
//! cited as §n throughout.

pub mod build;
mod check;
mod directory;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
pub mod fixture;
mod free;
mod layout;
#[cfg(test)]
mod tests;
mod upcase;
mod write;

use std::sync::{Arc, OnceLock};

use zerocopy::{FromZeros, IntoBytes};

pub use check::check;
pub use free::free_map;
pub use write::open_mut;

use self::directory::{DirectoryItem, Items};
use self::layout::{Boot, BootRaw, EntryRaw, MAX_DIRECTORY, SUMMED_SECTORS, boot_sum};
use self::upcase::UpcaseTable;
use crate::clusters::{AllocationTable, ClusterSpace, DirectoryPlace, EntryWidth};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

/// The layer in errors.
const LAYER: &str = "exfat volume";
/// Maximum length of an up-case table in bytes: one without runs.
const MAX_UPCASE: u64 = 2 << 16;
/// The first bytes of a volume.
pub const MAGIC: (u64, &[u8]) = (3, b"EXFAT   ");

/// An open exFAT volume, read-only.
#[derive(Debug)]
pub struct ExFatVolume {
    space: ClusterSpace,
    boot: Boot,
    root: DirectoryPlace,
    name: String,
    upcase: OnceLock<UpcaseTable>,
    upcase_entry: EntryRaw,
    /// Free bytes, counted when they are asked for.
    free: OnceLock<u64>,
}

impl ExFatVolume {
    /// Opens the volume on all of `device`, clean or not.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let boot = read_boot(&*device, device.info().len)?;
        check_sum(&*device, &boot, 0)?;
        let space = space_of(device, &boot);
        let found = Structures::read(&space, &boot, true)?;
        Ok(Self {
            root: root_of(&boot),
            name: found.name,
            upcase: OnceLock::new(),
            upcase_entry: found.upcase,
            free: OnceLock::new(),
            space,
            boot,
        })
    }

    /// Returns the table by which names are compared; the recommended one if that of the volume cannot be
    /// read.
    fn upcase(&self) -> &UpcaseTable {
        self.upcase.get_or_init(|| {
            read_upcase(&self.space, &self.upcase_entry)
                .and_then(|bytes| UpcaseTable::decode(&bytes))
                .unwrap_or_else(|_| UpcaseTable::recommended())
        })
    }
}

/// The entries of the root directory for the volume's own structures.
struct Structures {
    bitmap: EntryRaw,
    upcase: EntryRaw,
    name: String,
}

impl Structures {
    /// Reads the root directory until all are found; with `name` also until the volume's name is.
    fn read(space: &ClusterSpace, boot: &Boot, wants_name: bool) -> Result<Self> {
        let mut items = Items::new(space, &root_of(boot))?;
        let (mut bitmap, mut upcase, mut label) = (None, None, None);
        loop {
            if let (Some(bitmap), Some(upcase)) = (bitmap, upcase)
                && (label.is_some() || !wants_name)
            {
                let name = label.unwrap_or_default();
                return Ok(Self {
                    bitmap,
                    upcase,
                    name,
                });
            }
            let item = match items.read_next() {
                Ok(item) => item,
                // The name may be missing, the structures may not.
                Err(error) if error.kind() == Kind::Corrupt && bitmap.is_some() => None,
                Err(error) => return Err(error),
            };
            match item {
                // The first of two bitmaps is that of the first table.
                Some(DirectoryItem::Bitmap(raw)) => bitmap = bitmap.or(Some(raw)),
                Some(DirectoryItem::Upcase(raw)) => upcase = upcase.or(Some(raw)),
                Some(DirectoryItem::Label(raw)) => {
                    let count = usize::from(raw.count).min(raw.units.len());
                    let units: Vec<u16> = raw.units.iter().map(|unit| unit.get()).collect();
                    label = Some(String::from_utf16_lossy(&units[..count]));
                }
                Some(_) => {}
                None if label.is_none() && bitmap.is_some() && upcase.is_some() => {
                    label = Some(String::new());
                }
                None => {
                    return Err(Error::corrupt(
                        LAYER,
                        space.offset(boot.root),
                        "the root directory has no bitmap or no upper-case table",
                    ));
                }
            }
        }
    }
}

fn read_boot(device: &dyn BlockDevice, len: u64) -> Result<Boot> {
    let mut raw = BootRaw::new_zeroed();
    device.info().check(LAYER, 0, size_of::<BootRaw>() as u64)?;
    device.read_at(0, raw.as_mut_bytes())?;
    Boot::parse(&raw, len)
}

/// Checks the checksum of the boot region that begins with a sector: 0, or that of the copy.
fn check_sum(device: &dyn BlockDevice, boot: &Boot, first: u64) -> Result<()> {
    // At most 4096 bytes per sector, and the table begins behind sector 23.
    let sector = to_usize(boot.sector);
    let start = first * boot.sector;
    let bytes = device.read_vec(start, (SUMMED_SECTORS + 1) * sector)?;
    let (summed, sums) = bytes.split_at(SUMMED_SECTORS * sector);
    let sum = boot_sum(summed);
    if sums
        .chunks_exact(4)
        .all(|recorded| recorded == sum.to_le_bytes())
    {
        return Ok(());
    }
    let what = match first {
        0 => "boot sectors",
        _ => "copy of the boot sectors",
    };
    let place = start + (SUMMED_SECTORS * sector) as u64;
    let message = format!("checksum mismatch of the {what}: expected {sum:#010x}");
    Err(Error::corrupt(LAYER, place, message))
}

fn space_of(device: Arc<dyn BlockDevice>, boot: &Boot) -> ClusterSpace {
    let table = AllocationTable::new(
        device.clone(),
        boot.table_at,
        EntryWidth::Bits32,
        boot.clusters,
    );
    ClusterSpace {
        device,
        layer: LAYER,
        start: boot.heap_at,
        cluster_size: boot.cluster_size,
        clusters: boot.clusters,
        table: Arc::new(table),
    }
}

/// Returns the place of the root directory, which has no entry with its length.
fn root_of(boot: &Boot) -> DirectoryPlace {
    DirectoryPlace::Chain {
        first: boot.root,
        max: MAX_DIRECTORY,
    }
}

/// Returns the bytes of the up-case table.
fn read_upcase(space: &ClusterSpace, raw: &EntryRaw) -> Result<Vec<u8>> {
    let len = raw.len.get();
    if len == 0 || !len.is_multiple_of(2) || len > MAX_UPCASE {
        let message = format!("the up-case table has {len} bytes");
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    let runs = space.chain(raw.first.get().into(), space.clusters_for(len))?;
    crate::clusters::ClusterContents::new(space, runs, len, len).read_vec(0, to_usize(len))
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

/// Returns the error about an object that does not exist.
fn missing(node: u64) -> Error {
    Error::not_found(LAYER, format!("object {node}"))
}
