//! New volumes, made from a tree of files in one pass.
//!
//! The entries and clusters of all files are planned before the first byte is written. Then several threads
//! write contents in place, the volume's own structures and the directories are written, and the boot sector
//! when all of that is durable. Each file and folder has contiguous clusters, which the table does not link.

mod directories;
mod geometry;

use zerocopy::{FromZeros, IntoBytes};

use self::directories::Directories;
use self::geometry::{ExFatGeometry, TABLE_SECTOR};
use super::layout::{
    BOOT_SIGNATURE, BOOT_SIGNATURE_AT, BootRaw, EntryRaw, REGION_SECTORS, SUMMED_SECTORS, boot_sum,
    entry, table_sum,
};
use super::upcase::UpcaseTable;
use crate::Timestamp;
use crate::bitmap::set_bits;
use crate::build::output::Output;
use crate::clusters::FIRST;
use crate::clusters::build::{Allotment, check_tree, clusters_of};
use crate::clusters::plan::{ClusterPlan, LaidOutClusters};
use crate::source::Tree;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Result};

const LAYER: &str = "exfat builder";

/// Properties of a new volume.
#[derive(Debug, Clone)]
pub struct ExFatOptions {
    /// The volume's name, at most 11 units of UTF-16.
    pub name: String,
    /// Size of a cluster in bytes, a power of two from 512 to 32 MiB. `None`: as Microsoft's formatter
    /// chooses.
    pub block_size: Option<u32>,
    /// Creation date of the volume.
    pub created: Timestamp,
    /// Upper limit of all dates on the volume, for reproducible volumes.
    pub latest: Option<Timestamp>,
    /// The volume's serial number; should be a random number.
    pub serial: u32,
}

/// The plan of a volume to be created.
#[derive(Debug)]
pub struct ExFatPlan {
    tree: Tree,
    options: ExFatOptions,
    directories: Directories,
    upcase: Vec<u8>,
}

impl ExFatPlan {
    /// Plans a volume that holds `tree`. Fails, naming the file, if the volume cannot hold one.
    pub fn new(tree: Tree, options: ExFatOptions) -> Result<Self> {
        check_tree(&tree, LAYER, "exFAT", u64::MAX >> 1)?;
        let upcase = UpcaseTable::recommended();
        Ok(Self {
            directories: Directories::new(&tree, &upcase, &options.name)?,
            upcase: upcase.encode(),
            tree,
            options,
        })
    }

    fn wanted_cluster(&self) -> Option<u64> {
        self.options.block_size.map(u64::from)
    }

    /// Returns the clusters of the bitmap, of the up-case table, and of all folders and files.
    fn needs(&self, geometry: &ExFatGeometry) -> [u64; 3] {
        let size = geometry.cluster_size;
        [
            geometry.clusters.div_ceil(8).div_ceil(size),
            (self.upcase.len() as u64).div_ceil(size),
            clusters_of(&self.tree, &self.directories.lens(size), size),
        ]
    }

    /// Returns the sectors of a boot region.
    fn boot_region(&self, laid: &LaidOut) -> Vec<u8> {
        let geometry = &laid.geometry;
        let sector = to_usize(geometry.sector);
        let used = laid.allotment.end - FIRST;
        let raw = BootRaw {
            jump: [0xEB, 0x76, 0x90],
            name: *b"EXFAT   ",
            zeros: [0; 53],
            // Unknown: the place in a partition map is ignored then.
            partition: 0.into(),
            sectors: geometry.sectors.into(),
            table: TABLE_SECTOR.into(),
            table_len: narrow::<u32>(geometry.table).into(),
            heap: narrow::<u32>(geometry.heap).into(),
            clusters: narrow::<u32>(geometry.clusters).into(),
            root: laid
                .allotment
                .first
                .first()
                .copied()
                .unwrap_or_default()
                .into(),
            serial: self.options.serial.into(),
            revision: 0x100.into(),
            flags: 0.into(),
            sector_shift: narrow(geometry.sector.trailing_zeros()),
            cluster_shift: narrow((geometry.cluster_size / geometry.sector).trailing_zeros()),
            tables: 1,
            drive: 0x80,
            percent_used: narrow(used * 100 / geometry.clusters),
            reserved: [0; 7],
        };
        let mut bytes = vec![0; to_usize(REGION_SECTORS) * sector];
        // Code that does nothing, as the specification recommends.
        bytes[size_of::<BootRaw>()..BOOT_SIGNATURE_AT].fill(0xF4);
        bytes[..size_of::<BootRaw>()].copy_from_slice(raw.as_bytes());
        bytes[BOOT_SIGNATURE_AT..][..BOOT_SIGNATURE.len()].copy_from_slice(&BOOT_SIGNATURE);
        for extended in 1..9 {
            bytes[(extended + 1) * sector - BOOT_SIGNATURE.len()..][..BOOT_SIGNATURE.len()]
                .copy_from_slice(&BOOT_SIGNATURE);
        }
        let (summed, sums) = bytes.split_at_mut(SUMMED_SECTORS * sector);
        let sum = boot_sum(summed).to_le_bytes();
        sums.chunks_exact_mut(4)
            .for_each(|place| place.copy_from_slice(&sum));
        bytes
    }
}

/// The parts of a volume, and the clusters of its files.
pub(crate) struct LaidOut {
    geometry: ExFatGeometry,
    /// Lengths of folders in bytes, whole clusters; 0 for files.
    lens: Vec<u64>,
    allotment: Allotment,
    /// First cluster of the up-case table, behind the bitmap.
    upcase: u64,
    /// First cluster behind the up-case table.
    own: u64,
}

impl ClusterPlan for ExFatPlan {
    const LAYER: &'static str = LAYER;
    type LaidOut = LaidOut;

    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn len_with(&self, room: impl Fn(u64) -> u64) -> Result<u64> {
        const SECTOR: u64 = 512;
        let mut len = geometry::MIN_LEN.max(self.wanted_cluster().unwrap_or(0).saturating_mul(8));
        loop {
            let geometry = ExFatGeometry::new(len, SECTOR, self.wanted_cluster())?;
            let needed = self
                .needs(&geometry)
                .into_iter()
                .fold(0, u64::saturating_add);
            let missing = needed.saturating_sub(geometry.clusters);
            if missing == 0 {
                break;
            }
            len = missing
                .checked_mul(geometry.cluster_size)
                .and_then(|more| len.checked_add(more.next_multiple_of(4096)))
                .ok_or_else(|| {
                    Error::limit(LAYER, "the files need a volume of more than 2^64 bytes")
                })?;
        }
        let wanted = (len + room(len)).next_multiple_of(4096);
        // The larger volume has larger clusters, in which the files may need more.
        match self.lay_out(wanted, SECTOR) {
            Ok(_) => Ok(wanted),
            Err(_) if wanted > len => Ok(len),
            Err(error) => Err(error),
        }
    }

    fn lay_out(&self, len: u64, sector: u64) -> Result<LaidOut> {
        let geometry = ExFatGeometry::new(len, sector, self.wanted_cluster())?;
        let needs = self.needs(&geometry);
        let needed = needs.into_iter().fold(0, u64::saturating_add);
        if needed > geometry.clusters {
            let message = format!(
                "no room: the files need {needed} clusters of {} bytes, a volume of {len} bytes has \
                 {}",
                geometry.cluster_size, geometry.clusters
            );
            return Err(Error::limit(LAYER, message));
        }
        let [bitmap, upcase, _] = needs;
        let lens = self.directories.lens(geometry.cluster_size);
        let own = FIRST + bitmap + upcase;
        let allotment = Allotment::new(&self.tree, &lens, geometry.cluster_size, own);
        Ok(LaidOut {
            geometry,
            lens,
            allotment,
            upcase: FIRST + bitmap,
            own,
        })
    }

    fn clusters<'a>(&self, laid: &'a LaidOut) -> LaidOutClusters<'a> {
        LaidOutClusters {
            allotment: &laid.allotment,
            start: laid.geometry.offset(FIRST),
            size: laid.geometry.cluster_size,
            count: laid.geometry.clusters,
        }
    }

    fn write_metadata(&self, device: &dyn BlockDevice, laid: &LaidOut) -> Result<()> {
        let LaidOut {
            geometry,
            allotment,
            ..
        } = laid;
        // Bits and entries of clusters in use, which are the first ones.
        let used = allotment.end - FIRST;
        let bitmap_len = geometry.clusters.div_ceil(8);
        let mut out = Output::new(device, geometry.offset(FIRST));
        let mut rest = used;
        while rest > 0 {
            let count = rest.min(8 << 16);
            let mut bits = vec![0; to_usize(count.div_ceil(8))];
            set_bits(&mut bits, 0..to_usize(count));
            out.append(&bits)?;
            rest -= count;
        }
        out.seek(geometry.offset(laid.upcase))?;
        out.append(&self.upcase)?;
        out.flush()?;
        // Only the volume's own structures are linked. The root folder is the first of the tree.
        let root = u64::from(allotment.first.first().copied().unwrap_or_default());
        let root_len = laid.lens.first().copied().unwrap_or_default();
        let root_end = root + root_len.div_ceil(geometry.cluster_size);
        out.seek(u64::from(TABLE_SECTOR) * geometry.sector)?;
        out.append(&0xFFFF_FFF8_u32.to_le_bytes())?;
        out.append(&u32::MAX.to_le_bytes())?;
        for clusters in [FIRST..laid.upcase, laid.upcase..laid.own, root..root_end] {
            for next in clusters.start + 1..clusters.end {
                out.append(&narrow::<u32>(next).to_le_bytes())?;
            }
            out.append(&u32::MAX.to_le_bytes())?;
        }
        out.flush()?;
        let structure = |kind, first: u64, len: u64| EntryRaw {
            kind,
            first: narrow::<u32>(first).into(),
            len: len.into(),
            ..EntryRaw::new_zeroed()
        };
        let bitmap = structure(entry::BITMAP, FIRST, bitmap_len);
        let mut upcase = structure(entry::UPCASE, laid.upcase, self.upcase.len() as u64);
        upcase.set_upcase_sum(table_sum(&self.upcase));
        let style = directories::EntryStyle {
            structures: [bitmap, upcase],
            latest: self.options.latest,
        };
        self.directories.write(&self.tree, laid, &style, device)?;
        let region = self.boot_region(laid);
        device.write_at(REGION_SECTORS * geometry.sector, &region)?;
        let (_, others) = region.split_at(to_usize(geometry.sector));
        device.write_at(geometry.sector, others)
    }

    fn boot_sector(&self, laid: &LaidOut) -> Vec<u8> {
        self.boot_region(laid)[..to_usize(laid.geometry.sector)].to_vec()
    }
}
