//! New volumes, made from a tree of files in one pass.
//!
//! The names and clusters of all files are planned before the first byte is written. Then several threads
//! write contents in place, the tables and directories are written, and the boot sector when all of that is
//! durable. Each file and folder has contiguous clusters.

mod directories;
mod geometry;

use std::mem::offset_of;

use zerocopy::{FromZeros, IntoBytes};

use self::directories::Directories;
use self::geometry::{FatGeometry, TABLES, Wanted};
pub use super::layout::Width;
use super::layout::{
    BOOT_SIGNATURE, BootRaw, EXTENDED_SIGNATURE, ExtendedRaw, INFO_LEAD, INFO_SIGNATURE,
    INFO_TRAIL, InfoRaw, TailRaw,
};
use crate::Timestamp;
use crate::build::output::Output;
use crate::clusters::FIRST;
use crate::clusters::build::{Allotment, check_tree, clusters_of};
use crate::clusters::plan::{ClusterPlan, LaidOutClusters};
use crate::source::Tree;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

const LAYER: &str = "fat builder";
/// Maximum length of a file in bytes.
const MAX_FILE: u64 = u32::MAX as u64;
/// The media byte of everything but floppy disks.
const MEDIA: u8 = 0xF8;
/// Sectors of FSInfo and of the copies of the boot sector and of FSInfo on FAT32.
const INFO_SECTOR: u16 = 1;
const COPY_SECTOR: u16 = 6;
/// The program at the start of the volume, for computers that try to start from it: the next disk is tried.
const START: [u8; 4] = [0xCD, 0x18, 0xEB, 0xFE];

/// Properties of a new volume.
#[derive(Debug, Clone)]
pub struct FatOptions {
    /// The volume's name, at most 11 characters, which are stored in upper case.
    pub name: String,
    /// The type. `None`: by the length of the volume.
    pub width: Option<Width>,
    /// Size of a cluster in bytes, a power of two up to 64 KiB. `None`: as Microsoft's specification says.
    pub block_size: Option<u32>,
    /// Creation date of the volume.
    pub created: Timestamp,
    /// Upper limit of all dates on the volume, for reproducible volumes.
    pub latest: Option<Timestamp>,
    /// The volume's serial number; should be a random number.
    pub serial: u32,
}

/// Returns the type that is chosen for a volume of `len` bytes.
pub fn width_of(len: u64) -> Width {
    geometry::width_of(len)
}

/// The plan of a volume to be created.
#[derive(Debug)]
pub struct FatPlan {
    tree: Tree,
    options: FatOptions,
    label: [u8; 11],
    directories: Directories,
}

impl FatPlan {
    /// Plans a volume that holds `tree`. Fails, naming the file, if the volume cannot hold one.
    pub fn new(tree: Tree, options: FatOptions) -> Result<Self> {
        check_tree(&tree, LAYER, "FAT", MAX_FILE)?;
        Ok(Self {
            label: directories::label_of(&options.name)?,
            directories: Directories::new(&tree)?,
            tree,
            options,
        })
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            width: self.options.width,
            cluster: self.options.block_size.map(u64::from),
            root_entries: self.directories.lens.first().map_or(0, |len| len / 32),
        }
    }

    /// Returns the lengths of folders in clusters in bytes: the root is elsewhere on FAT12 and FAT16.
    fn folder_lens(&self, width: Width) -> Vec<u64> {
        let mut lens = self.directories.lens.clone();
        if let Some(root) = lens.first_mut()
            && width != Width::Fat32
        {
            *root = 0;
        }
        lens
    }

    fn serial(&self) -> u32 {
        self.options.serial
    }

    fn write_table(&self, device: &dyn BlockDevice, laid: &LaidOut, number: u64) -> Result<()> {
        let geometry = &laid.geometry;
        let width = geometry.width.entry();
        let end = width.end_of_chain();
        let mut out = TableOutput {
            out: Output::new(device, geometry.table_at(number)),
            width: geometry.width,
            half: None,
        };
        // The media byte, then the state: clean.
        out.push(end & !0xFF | u32::from(MEDIA))?;
        out.push(end)?;
        laid.allotment.each(
            &self.tree,
            &laid.lens,
            geometry.cluster_size(),
            &mut |clusters| {
                for next in clusters.start + 1..clusters.end {
                    out.push(narrow(next))?;
                }
                out.push(end)
            },
        )?;
        out.finish()
    }

    fn boot_sector_of(&self, geometry: &FatGeometry) -> Vec<u8> {
        let is_32 = geometry.width == Width::Fat32;
        let extended = ExtendedRaw {
            drive: 0x80,
            flags: 0,
            signature: EXTENDED_SIGNATURE,
            serial: self.serial().into(),
            label: self.label,
            kind: *match geometry.width {
                Width::Fat12 => b"FAT12   ",
                Width::Fat16 => b"FAT16   ",
                Width::Fat32 => b"FAT32   ",
            },
        };
        let mut raw = BootRaw {
            jump: [0xEB, if is_32 { 0x58 } else { 0x3C }, 0x90],
            maker: *b"MSWIN4.1",
            sector_size: narrow::<u16>(geometry.sector).into(),
            sectors_per_cluster: narrow(geometry.per_cluster),
            reserved: narrow::<u16>(geometry.reserved).into(),
            tables: narrow(TABLES),
            root_entries: narrow::<u16>(geometry.root_entries).into(),
            sectors: 0.into(),
            media: MEDIA,
            table: 0.into(),
            // 32 sectors, 255 heads, at sector 0: obsolete, and the place in a partition map is not known.
            geometry: [32, 0, 255, 0, 0, 0, 0, 0],
            sectors_long: 0.into(),
            tail: TailRaw::new_zeroed(),
        };
        match u16::try_from(geometry.sectors) {
            Ok(sectors) if !is_32 => raw.sectors = sectors.into(),
            _ => raw.sectors_long = narrow::<u32>(geometry.sectors).into(),
        }
        let table = geometry.table;
        if is_32 {
            raw.tail.table = narrow::<u32>(table).into();
            raw.tail.root = narrow::<u32>(FIRST).into();
            raw.tail.info_sector = INFO_SECTOR.into();
            raw.tail.boot_copy = COPY_SECTOR.into();
            raw.tail.extended = extended;
        } else {
            raw.table = narrow::<u16>(table).into();
        }
        let mut bytes = vec![0; narrow::<u16>(geometry.sector).into()];
        let tail = offset_of!(BootRaw, tail);
        bytes[..size_of::<BootRaw>()].copy_from_slice(raw.as_bytes());
        let mut code = size_of::<BootRaw>();
        if !is_32 {
            code = tail + size_of::<ExtendedRaw>();
            bytes[tail..code].copy_from_slice(extended.as_bytes());
        }
        bytes[code..code + START.len()].copy_from_slice(&START);
        bytes[512 - BOOT_SIGNATURE.len()..512].copy_from_slice(&BOOT_SIGNATURE);
        bytes
    }
}

/// The parts of a volume, and the clusters of its files.
pub(crate) struct LaidOut {
    geometry: FatGeometry,
    /// Lengths of folders in clusters, in bytes; 0 for files.
    lens: Vec<u64>,
    allotment: Allotment,
}

impl LaidOut {
    fn free_clusters(&self) -> u64 {
        self.geometry.clusters + FIRST - self.allotment.end
    }
}

/// A writer of table entries in order.
struct TableOutput<'a> {
    out: Output<'a>,
    width: Width,
    /// On FAT12 the entry that shares a byte with the next.
    half: Option<u32>,
}

impl TableOutput<'_> {
    fn push(&mut self, entry: u32) -> Result<()> {
        match (self.width, self.half) {
            (Width::Fat12, None) => {
                self.half = Some(entry);
                Ok(())
            }
            (Width::Fat12, Some(first)) => {
                self.half = None;
                let pair = (first & 0xFFF | entry << 12).to_le_bytes();
                self.out.append(&pair[..3])
            }
            (Width::Fat16, _) => self.out.append(&entry.to_le_bytes()[..2]),
            (Width::Fat32, _) => self.out.append(&entry.to_le_bytes()),
        }
    }

    fn finish(mut self) -> Result<()> {
        if self.half.is_some() {
            self.push(0)?;
        }
        self.out.flush()
    }
}

impl ClusterPlan for FatPlan {
    const LAYER: &'static str = LAYER;
    type LaidOut = LaidOut;

    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn len_with(&self, room: impl Fn(u64) -> u64) -> Result<u64> {
        const SECTOR: u64 = 512;
        let wanted = self.wanted();
        let mut len = FatGeometry::least_len(SECTOR, wanted)?.next_multiple_of(4096);
        loop {
            let geometry = FatGeometry::new(len, SECTOR, wanted)?;
            let (size, lens) = (geometry.cluster_size(), self.folder_lens(geometry.width));
            let missing = clusters_of(&self.tree, &lens, size).saturating_sub(geometry.clusters);
            if missing == 0 {
                break;
            }
            len = missing
                .checked_mul(size)
                .and_then(|more| len.checked_add(more.next_multiple_of(4096)))
                .ok_or_else(|| Error::limit(LAYER, "the files are too large for FAT"))?;
        }
        let wanted_len = (len + room(len)).next_multiple_of(4096);
        // The larger volume has larger clusters, in which the files may need more.
        match self.lay_out(wanted_len, SECTOR) {
            Ok(_) => Ok(wanted_len),
            Err(_) if wanted_len > len => Ok(len),
            Err(error) => Err(error),
        }
    }

    fn lay_out(&self, len: u64, sector: u64) -> Result<LaidOut> {
        let geometry = FatGeometry::new(len, sector, self.wanted())?;
        let lens = self.folder_lens(geometry.width);
        let needed = clusters_of(&self.tree, &lens, geometry.cluster_size());
        if needed > geometry.clusters {
            let message = format!(
                "no room: the files need {needed} clusters of {} bytes, a volume of {len} bytes has \
                 {}",
                geometry.cluster_size(),
                geometry.clusters
            );
            return Err(Error::limit(LAYER, message));
        }
        let allotment = Allotment::new(&self.tree, &lens, geometry.cluster_size(), FIRST);
        Ok(LaidOut {
            geometry,
            lens,
            allotment,
        })
    }

    fn clusters<'a>(&self, laid: &'a LaidOut) -> LaidOutClusters<'a> {
        LaidOutClusters {
            allotment: &laid.allotment,
            start: laid.geometry.clusters_at(),
            size: laid.geometry.cluster_size(),
            count: laid.geometry.clusters,
        }
    }

    fn write_metadata(&self, device: &dyn BlockDevice, laid: &LaidOut) -> Result<()> {
        let geometry = &laid.geometry;
        for number in 0..TABLES {
            self.write_table(device, laid, number)?;
        }
        self.directories.write(
            &self.tree,
            laid,
            directories::EntryStyle {
                label: self.label,
                created: self.options.created,
                latest: self.options.latest,
            },
            device,
        )?;
        if geometry.width == Width::Fat32 {
            let info = InfoRaw {
                lead: INFO_LEAD.into(),
                signature: INFO_SIGNATURE.into(),
                free: narrow::<u32>(laid.free_clusters()).into(),
                next: narrow::<u32>(laid.allotment.end.min(geometry.clusters + 1)).into(),
                trail: INFO_TRAIL.into(),
                ..InfoRaw::new_zeroed()
            };
            for sector in [INFO_SECTOR, COPY_SECTOR + INFO_SECTOR] {
                device.write_at(u64::from(sector) * geometry.sector, info.as_bytes())?;
            }
            let copy = u64::from(COPY_SECTOR) * geometry.sector;
            device.write_at(copy, &self.boot_sector_of(geometry))?;
        }
        Ok(())
    }

    fn boot_sector(&self, laid: &LaidOut) -> Vec<u8> {
        self.boot_sector_of(&laid.geometry)
    }
}
