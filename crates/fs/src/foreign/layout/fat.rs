//! FAT12, FAT16, FAT32: the boot sector (§2). Source: Microsoft's "FAT: General Overview of On-Disk
//! Format", 1.03, sections "Boot Sector and BPB" and "FAT Data Structure"; the flags of the boot
//! sector are those of the Linux kernel's `include/uapi/linux/msdos_fs.h`.
#![allow(missing_docs, reason = "the variants are the format's own")]

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use bandsaw_core::{Error, Result};

const LAYER: &str = "fat boot sector";

/// The first bytes of the boot sector, common to all three variants.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "Boot Sector and BPB".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BootRaw {
    /*00*/ pub(crate) jump: [u8; 3],
    /*03*/ pub(crate) maker: [u8; 8],
    /*0B*/ pub(crate) sector_size: U16,
    /*0D*/ pub(crate) sectors_per_cluster: u8,
    /*0E*/ pub(crate) reserved: U16, // sectors before the first table
    /*10*/ pub(crate) tables: u8,
    /*11*/ pub(crate) root_entries: U16, // of 32 bytes; 0 on FAT32
    /*13*/ pub(crate) sectors: U16, // 0: in sectors_long
    /*15*/ pub(crate) media: u8,
    /*16*/ pub(crate) table: U16, // sectors of a table; 0 on FAT32
    /*18*/ pub(crate) geometry: [u8; 8],
    /*20*/ pub(crate) sectors_long: U32,
    /*24*/ pub(crate) tail: TailRaw,
}
const _: () = assert!(size_of::<BootRaw>() == 0x5A);

/// The bytes that follow on FAT32. FAT12 and FAT16 have a shorter tail, of which only the flags are
/// read.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "Boot Sector and BPB".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TailRaw {
    /*24*/
    pub(crate) table: U32, // sectors of a table; on FAT12 and FAT16 the second byte has the flags
    /*28*/
    pub(crate) mirroring: U16, // bit 7: only the table of the lowest bits is kept
    /*2A*/ pub(crate) version: U16, // 0
    /*2C*/ pub(crate) root: U32, // its first cluster
    /*30*/ pub(crate) info_sector: U16,
    /*32*/ pub(crate) boot_copy: U16,
    /*34*/ pub(crate) reserved: [u8; 12],
    /*40*/ pub(crate) drive: u8,
    /*41*/ pub(crate) flags: u8, // boot_flags
    /*42*/ pub(crate) label: [u8; 24],
}

/// Bits of the boot sector's flags.
pub(crate) mod boot_flags {
    /// The volume is in use or was not cleanly unmounted.
    pub(crate) const DIRTY: u8 = 1;
    /// Some sectors could not be read.
    pub(crate) const FAILED: u8 = 2;
}

/// The width of a table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "testing"),
    allow(unreachable_pub, reason = "a part of samples for tests")
)]
pub enum Width {
    Fat12,
    Fat16,
    Fat32,
}

/// The checked fields of the boot sector.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    pub(crate) width: Width,
    pub(crate) cluster_size: u64,
    /// Number of clusters; the first one has number 2.
    pub(crate) clusters: u64,
    /// Offset of the first table on the volume, in bytes; the others follow.
    pub(crate) tables_at: u64,
    pub(crate) table_len: u64,
    /// Indices of the tables that are maintained.
    pub(crate) tables: std::ops::Range<u64>,
    /// Offset of cluster 2 on the volume, in bytes.
    pub(crate) clusters_at: u64,
    /// First cluster of the root directory on FAT32.
    pub(crate) root: Option<u64>,
    pub(crate) media: u8,
    /// Bits of `boot_flags`.
    pub(crate) flags: u8,
}

impl Boot {
    /// Parses the boot sector of a volume of `len` bytes.
    pub(crate) fn parse(raw: &BootRaw, len: u64) -> Result<Self> {
        let wrong = |message: String| Error::corrupt(LAYER, 0, message);
        let (sector, per_cluster) = (
            u64::from(raw.sector_size.get()),
            u64::from(raw.sectors_per_cluster),
        );
        if !matches!(sector, 512 | 1024 | 2048 | 4096) || !per_cluster.is_power_of_two() {
            return Err(wrong(format!(
                "invalid cluster size: {per_cluster} sectors of {sector} bytes"
            )));
        }
        let short = |short: U16, long: U32| {
            if short.get() > 0 {
                u64::from(short.get())
            } else {
                long.get().into()
            }
        };
        // Only FAT32 has a long field for the tables, and leaves the short one zero.
        let is_32 = raw.table.get() == 0;
        let (sectors, table) = (
            short(raw.sectors, raw.sectors_long),
            short(raw.table, raw.tail.table),
        );
        let (count, reserved) = (u64::from(raw.tables), u64::from(raw.reserved.get()));
        let root = (u64::from(raw.root_entries.get()) * 32).div_ceil(sector);
        let head = reserved + count * table + root;
        if !(1..=2).contains(&count)
            || reserved == 0
            || table == 0
            || head >= sectors
            || sectors * sector > len
        {
            let message = format!(
                "invalid layout: {reserved} reserved sectors, {count} tables of {table}, {root} \
                 of the root directory, {sectors} sectors of {sector} bytes, on {len} bytes"
            );
            return Err(wrong(message));
        }
        // The number of clusters alone tells FAT12 from FAT16, by Microsoft's definition.
        let clusters = (sectors - head) / per_cluster;
        let width = match clusters {
            _ if is_32 => Width::Fat32,
            ..4085 => Width::Fat12,
            _ => Width::Fat16,
        };
        let most = match width {
            Width::Fat12 => 4084,
            Width::Fat16 => 65524,
            Width::Fat32 => 0x0FFF_FFF5,
        };
        let needed = match width {
            Width::Fat12 => ((clusters + 2) * 3).div_ceil(2),
            Width::Fat16 => (clusters + 2) * 2,
            Width::Fat32 => (clusters + 2) * 4,
        };
        if !(1..=most).contains(&clusters) || needed > table * sector {
            return Err(wrong(format!(
                "the table has {} bytes for {clusters} clusters, expected {needed}",
                table * sector
            )));
        }
        if is_32 && raw.tail.version.get() != 0 {
            return Err(Error::unsupported(
                LAYER,
                format!("unsupported FAT32 version {:#06x}", raw.tail.version.get()),
            ));
        }
        // FAT32 may keep only one of its tables; the others are outdated then.
        let (mirroring, kept) = (
            raw.tail.mirroring.get(),
            u64::from(raw.tail.mirroring.get() & 0xF),
        );
        let tables = if is_32 && mirroring & 0x80 != 0 {
            kept..kept + 1
        } else {
            0..count
        };
        if tables.end > count {
            return Err(wrong(format!(
                "unsupported: only table {kept} of {count} is active"
            )));
        }
        let root = is_32.then(|| u64::from(raw.tail.root.get()));
        if root.is_some_and(|root| !(2..clusters + 2).contains(&root)) {
            return Err(wrong(format!(
                "invalid first cluster {root:?} of the root directory: the volume has {clusters}"
            )));
        }
        Ok(Self {
            width,
            cluster_size: per_cluster * sector,
            clusters,
            tables_at: reserved * sector,
            table_len: table * sector,
            tables,
            clusters_at: head * sector,
            root,
            media: raw.media,
            flags: if is_32 {
                raw.tail.flags
            } else {
                raw.tail.table.as_bytes()[1]
            },
        })
    }
}
