//! FAT12, FAT16, FAT32: the boot sector (§1), FSInfo (§2) and the entries of directories (§3). Source:
//! Microsoft's "FAT: General Overview of On-Disk Format", 1.03; the flags of the boot sector are those of
//! the Linux kernel's `include/uapi/linux/msdos_fs.h`.
#![allow(missing_docs, reason = "the variants are the format's own")]

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use std::ops::Range;

use crate::Timestamp;
use crate::clusters::{DosDate, EntryWidth};
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

/// The bytes that follow on FAT32. FAT12 and FAT16 have only an [`ExtendedRaw`] there.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "Boot Sector and BPB".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct TailRaw {
    /*24*/
    pub(crate) table: U32, // sectors of a table
    /*28*/
    pub(crate) mirroring: U16, // bit 7: only the table of the lowest bits is kept
    /*2A*/ pub(crate) version: U16, // 0
    /*2C*/ pub(crate) root: U32, // its first cluster
    /*30*/ pub(crate) info_sector: U16,
    /*32*/ pub(crate) boot_copy: U16,
    /*34*/ pub(crate) reserved: [u8; 12],
    /*40*/ pub(crate) extended: ExtendedRaw,
}

/// The last fields of the boot sector, which begin at 0x24 on FAT12 and FAT16 and at 0x40 on FAT32.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "Boot Sector and BPB".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ExtendedRaw {
    /*00*/ pub(crate) drive: u8, // 0x80 for a hard disk
    /*01*/ pub(crate) flags: u8, // boot_flags
    /*02*/ pub(crate) signature: u8, // 0x29: the rest is there
    /*03*/ pub(crate) serial: U32,
    /*07*/ pub(crate) label: [u8; 11],
    /*12*/ pub(crate) kind: [u8; 8], // for people
}
const _: () = assert!(size_of::<ExtendedRaw>() == 26);

/// The last two bytes of the 512 that a boot sector begins with.
pub(crate) const BOOT_SIGNATURE: [u8; 2] = [0x55, 0xAA];
/// Value of [`ExtendedRaw::signature`].
pub(crate) const EXTENDED_SIGNATURE: u8 = 0x29;
/// The label of a volume without one.
pub(crate) const NO_LABEL: [u8; 11] = *b"NO NAME    ";

/// The sector with counts of FAT32.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "FAT32 FSInfo Sector Structure".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct InfoRaw {
    /*000*/ pub(crate) lead: U32, // INFO_LEAD
    /*004*/ pub(crate) reserved: [u8; 480],
    /*1E4*/ pub(crate) signature: U32, // INFO_SIGNATURE
    /*1E8*/ pub(crate) free: U32, // clusters; all ones: unknown
    /*1EC*/ pub(crate) next: U32, // where to look for a free one
    /*1F0*/ pub(crate) reserved_2: [u8; 12],
    /*1FC*/ pub(crate) trail: U32, // INFO_TRAIL
}
const _: () = assert!(size_of::<InfoRaw>() == 512);

pub(crate) const INFO_LEAD: u32 = 0x4161_5252;
pub(crate) const INFO_SIGNATURE: u32 = 0x6141_7272;
pub(crate) const INFO_TRAIL: u32 = 0xAA55_0000;

/// An entry of a directory.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "FAT Directory Structure"; the case
/// bits are Windows NT's, as in the Linux kernel's `fs/fat/fat.h`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ShortEntryRaw {
    /*00*/ pub(crate) name: [u8; 11],
    /*0B*/ pub(crate) attributes: u8, // attributes
    /*0C*/ pub(crate) case: u8, // case
    /*0D*/ pub(crate) created_hundredths: u8, // 0 to 199
    /*0E*/ pub(crate) created_time: U16,
    /*10*/ pub(crate) created_date: U16,
    /*12*/ pub(crate) accessed_date: U16,
    /*14*/ pub(crate) first_high: U16, // FAT32 only
    /*16*/ pub(crate) modified_time: U16,
    /*18*/ pub(crate) modified_date: U16,
    /*1A*/ pub(crate) first_low: U16,
    /*1C*/ pub(crate) size: U32, // 0 for a directory
}
const _: () = assert!(size_of::<ShortEntryRaw>() == 32);

/// A part of a long name, 13 units of UTF-16.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "FAT Long Directory Entries".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LongEntryRaw {
    /*00*/ pub(crate) order: u8, // from 1; LAST_PART is set in the first that is stored
    /*01*/ pub(crate) name_1: [U16; 5],
    /*0B*/ pub(crate) attributes: u8, // LONG_NAME
    /*0C*/ pub(crate) kind: u8, // 0
    /*0D*/ pub(crate) checksum: u8, // of the short name
    /*0E*/ pub(crate) name_2: [U16; 6],
    /*1A*/ pub(crate) first: U16, // 0
    /*1C*/ pub(crate) name_3: [U16; 2],
}
const _: () = assert!(size_of::<LongEntryRaw>() == 32);

/// Bits of [`ShortEntryRaw::attributes`].
pub(crate) mod attributes {
    pub(crate) const READ_ONLY: u8 = 0x01;
    pub(crate) const HIDDEN: u8 = 0x02;
    pub(crate) const LABEL: u8 = 0x08;
    pub(crate) const DIRECTORY: u8 = 0x10;
    /// Changed since the last backup.
    pub(crate) const ARCHIVE: u8 = 0x20;
    /// A part of a long name, if just these of the lower six bits are set.
    pub(crate) const LONG_NAME: u8 = 0x0F;
    pub(crate) const LONG_NAME_MASK: u8 = 0x3F;
}

/// Bits of [`ShortEntryRaw::case`].
pub(crate) mod case {
    /// The name is in lower case.
    pub(crate) const NAME: u8 = 0x08;
    /// The extension is in lower case.
    pub(crate) const EXTENSION: u8 = 0x10;
}

/// First bytes of [`ShortEntryRaw::name`] with a meaning.
pub(crate) mod first_byte {
    /// No entry follows.
    pub(crate) const END: u8 = 0x00;
    pub(crate) const DELETED: u8 = 0xE5;
    /// Stands for 0xE5.
    pub(crate) const KANJI: u8 = 0x05;
}

/// Bit of [`LongEntryRaw::order`] in the last part of a name, which is stored first.
pub(crate) const LAST_PART: u8 = 0x40;
/// Units of a long name in an entry.
pub(crate) const UNITS_PER_PART: usize = 13;
/// Maximum number of parts of a long name.
pub(crate) const MAX_PARTS: u8 = 20;
/// Maximum length of a directory in bytes: 65536 entries.
pub(crate) const MAX_DIRECTORY: u64 = 2 << 20;

impl ShortEntryRaw {
    /// Returns the first cluster; 0 for an empty file, and for the root directory in an entry `..`.
    pub(crate) fn first(&self, width: Width) -> u64 {
        let high = match width {
            Width::Fat32 => u64::from(self.first_high.get()) << 16,
            _ => 0,
        };
        high | u64::from(self.first_low.get())
    }

    /// Sets the first cluster. On FAT12 and FAT16 the upper half is 0.
    pub(crate) fn set_first(&mut self, cluster: u32) {
        let [a, b, c, d] = cluster.to_le_bytes();
        self.first_low = U16::from_bytes([a, b]);
        self.first_high = U16::from_bytes([c, d]);
    }

    /// Returns the times of creation, change and access. Time zones are not recorded: they are taken for UTC.
    pub(crate) fn times(&self) -> [Option<Timestamp>; 3] {
        let time = |date: U16, time: U16, hundredths| {
            DosDate {
                date: date.get(),
                time: time.get(),
                hundredths,
            }
            .timestamp()
        };
        [
            time(
                self.created_date,
                self.created_time,
                self.created_hundredths,
            ),
            time(self.modified_date, self.modified_time, 0),
            time(self.accessed_date, U16::ZERO, 0),
        ]
    }

    /// Sets the times of creation, change and access.
    pub(crate) fn set_times(
        &mut self,
        created: Timestamp,
        modified: Timestamp,
        accessed: Timestamp,
    ) {
        let [created, modified, accessed] = [created, modified, accessed].map(DosDate::of);
        (self.created_date, self.created_time) = (created.date.into(), created.time.into());
        self.created_hundredths = created.hundredths;
        (self.modified_date, self.modified_time) = (modified.date.into(), modified.time.into());
        self.accessed_date = accessed.date.into();
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.attributes & attributes::DIRECTORY != 0
    }

    /// Returns true for a part of a long name.
    pub(crate) fn is_long(&self) -> bool {
        self.attributes & attributes::LONG_NAME_MASK == attributes::LONG_NAME
    }

    /// Returns true for the entries `.` and `..`.
    pub(crate) fn is_dot(&self) -> bool {
        matches!(&self.name, b".          " | b"..         ")
    }

    /// Returns the checksum of the short name, which parts of its long name have.
    pub(crate) fn checksum(&self) -> u8 {
        self.name
            .iter()
            .fold(0, |sum: u8, &byte| sum.rotate_right(1).wrapping_add(byte))
    }
}

impl LongEntryRaw {
    /// Returns the units, of which those after a zero are padding.
    pub(crate) fn units(&self) -> [u16; UNITS_PER_PART] {
        let mut all = self.name_1.iter().chain(&self.name_2).chain(&self.name_3);
        std::array::from_fn(|_| all.next().map_or(0, |unit| unit.get()))
    }

    /// Sets the units.
    pub(crate) fn set_units(&mut self, units: &[u16; UNITS_PER_PART]) {
        let places = self.name_1.iter_mut();
        let places = places.chain(&mut self.name_2).chain(&mut self.name_3);
        for (place, unit) in places.zip(units) {
            place.set(*unit);
        }
    }
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

impl Width {
    /// Returns the width of an entry of the table.
    pub(crate) const fn entry(self) -> EntryWidth {
        match self {
            Self::Fat12 => EntryWidth::Bits12,
            Self::Fat16 => EntryWidth::Bits16,
            Self::Fat32 => EntryWidth::Bits28,
        }
    }

    /// Returns the name of the format.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fat12 => "FAT12",
            Self::Fat16 => "FAT16",
            Self::Fat32 => "FAT32",
        }
    }

    /// Returns the maximum number of clusters.
    pub(crate) const fn max_clusters(self) -> u64 {
        match self {
            Self::Fat12 => 4084,
            Self::Fat16 => 65524,
            Self::Fat32 => 0x0FFF_FFF5,
        }
    }
}

/// The checked fields of the boot sector.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    pub(crate) width: Width,
    /// Length of the volume in bytes.
    pub(crate) len: u64,
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
    /// The bytes of the root directory on FAT12 and FAT16; empty on FAT32.
    pub(crate) root_range: Range<u64>,
    /// Offsets of FSInfo and of the copy of the boot sector in bytes, on FAT32.
    pub(crate) info_at: Option<u64>,
    pub(crate) copy_at: Option<u64>,
    pub(crate) label: Option<[u8; 11]>,
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
        let root_sectors = (u64::from(raw.root_entries.get()) * 32).div_ceil(sector);
        let head = reserved + count * table + root_sectors;
        if !(1..=2).contains(&count)
            || reserved == 0
            || table == 0
            || head >= sectors
            || sectors * sector > len
        {
            let message = format!(
                "invalid layout: {reserved} reserved sectors, {count} tables of {table}, {root_sectors} \
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
        let most = width.max_clusters();
        let needed = width.entry().bytes(clusters + 2);
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
        let extended = match is_32 {
            true => raw.tail.extended,
            false => ExtendedRaw::read_from_prefix(raw.tail.as_bytes())
                .map_or(raw.tail.extended, |(extended, _)| extended),
        };
        let in_reserved = |number: U16| {
            let number = u64::from(number.get());
            (is_32 && number > 0 && number < reserved).then_some(number * sector)
        };
        let has_label = extended.signature == EXTENDED_SIGNATURE && extended.label != NO_LABEL;
        Ok(Self {
            width,
            len: sectors * sector,
            root_range: (head - root_sectors) * sector..head * sector,
            info_at: in_reserved(raw.tail.info_sector),
            copy_at: in_reserved(raw.tail.boot_copy),
            label: has_label.then_some(extended.label),
            cluster_size: per_cluster * sector,
            clusters,
            tables_at: reserved * sector,
            table_len: table * sector,
            tables,
            clusters_at: head * sector,
            root,
            media: raw.media,
            flags: extended.flags,
        })
    }
}
