//! exFAT: the boot sector (§1), the entries of directories (§3) and their checksums. Source: Microsoft's
//! "exFAT file system specification", sections 3, 6 and 7.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Timestamp;
use crate::clusters::DosDate;
use bandsaw_core::{Error, Result};

const LAYER: &str = "exfat boot sector";
/// Number of sectors of the boot region, of which there is a copy.
pub(crate) const REGION_SECTORS: u64 = 12;
/// Number of sectors that the checksum covers; it fills the next sector.
pub(crate) const SUMMED_SECTORS: usize = 11;

/// Bits of [`BootRaw::flags`].
pub(crate) mod flags {
    /// The volume is in use or was not cleanly unmounted.
    pub(crate) const DIRTY: u16 = 2;
    /// Some sectors could not be read or written.
    pub(crate) const FAILED: u16 = 4;
}

/// The beginning of the first sector.
///
/// Source: Microsoft, exFAT file system specification, 3.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BootRaw {
    /*00*/ pub(crate) jump: [u8; 3],
    /*03*/ pub(crate) name: [u8; 8], // "EXFAT   "
    /*0B*/ pub(crate) zeros: [u8; 53],
    /*40*/ pub(crate) partition: U64,
    /*48*/ pub(crate) sectors: U64,
    /*50*/ pub(crate) table: U32, // sector
    /*54*/ pub(crate) table_len: U32, // sectors
    /*58*/ pub(crate) heap: U32, // sector of cluster 2
    /*5C*/ pub(crate) clusters: U32,
    /*60*/ pub(crate) root: U32, // cluster
    /*64*/ pub(crate) serial: U32,
    /*68*/ pub(crate) revision: U16, // major in the upper byte: 1
    /*6A*/ pub(crate) flags: U16, // flags
    /*6C*/ pub(crate) sector_shift: u8,
    /*6D*/ pub(crate) cluster_shift: u8, // sectors of a cluster
    /*6E*/ pub(crate) tables: u8,
    /*6F*/ pub(crate) drive: u8,
    /*70*/ pub(crate) percent_used: u8,
    /*71*/ pub(crate) reserved: [u8; 7],
}
const _: () = assert!(size_of::<BootRaw>() == 0x78);

/// Bytes of a [`BootRaw`] that change while the volume is in use: its flags, and its share of used clusters.
/// Checksums do not cover them, and they are up to date in the first boot region only.
pub(crate) const CHANGING: [std::ops::Range<usize>; 2] = [
    offset_of!(BootRaw, flags)..offset_of!(BootRaw, sector_shift),
    offset_of!(BootRaw, percent_used)..offset_of!(BootRaw, reserved),
];
/// Offset of [`BOOT_SIGNATURE`] in the boot sector, in bytes.
pub(crate) const BOOT_SIGNATURE_AT: usize = 510;
/// The signature at the end of the first 512 bytes, and of the extended boot sectors.
pub(crate) const BOOT_SIGNATURE: [u8; 2] = [0x55, 0xAA];

/// An entry of the root directory for a structure of the volume.
///
/// Source: Microsoft, exFAT file system specification, 7.1 and 7.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct EntryRaw {
    /*00*/ pub(crate) kind: u8, // entry
    /*01*/ pub(crate) flags: u8,
    /*02*/ pub(crate) reserved: [u8; 18],
    /*14*/ pub(crate) first: U32, // cluster
    /*18*/ pub(crate) len: U64, // bytes
}
const _: () = assert!(size_of::<EntryRaw>() == 32);

impl EntryRaw {
    /// Returns the checksum of the up-case table, which only its entry has.
    pub(crate) fn upcase_sum(&self) -> u32 {
        self.reserved
            .get(2..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Sets the checksum of the up-case table.
    pub(crate) fn set_upcase_sum(&mut self, sum: u32) {
        if let Some(place) = self
            .reserved
            .get_mut(2..)
            .and_then(|rest| rest.first_chunk_mut())
        {
            *place = sum.to_le_bytes();
        }
    }
}

/// The first entry of a file or folder.
///
/// Source: Microsoft, exFAT file system specification, 7.4.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct FileRaw {
    /*00*/ pub(crate) kind: u8, // entry::FILE
    /*01*/ pub(crate) others: u8, // entries that follow
    /*02*/ pub(crate) sum: U16, // of all entries
    /*04*/ pub(crate) attributes: U16, // attributes
    /*06*/ pub(crate) reserved: U16,
    /*08*/ pub(crate) created: U32,
    /*0C*/ pub(crate) modified: U32,
    /*10*/ pub(crate) accessed: U32,
    /*14*/ pub(crate) created_hundredths: u8, // 0 to 199
    /*15*/ pub(crate) modified_hundredths: u8,
    /*16*/ pub(crate) created_zone: u8,
    /*17*/ pub(crate) modified_zone: u8,
    /*18*/ pub(crate) accessed_zone: u8,
    /*19*/ pub(crate) reserved_2: [u8; 7],
}
const _: () = assert!(size_of::<FileRaw>() == 32);

/// The second entry of a file or folder.
///
/// Source: Microsoft, exFAT file system specification, 7.6.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct StreamRaw {
    /*00*/ pub(crate) kind: u8, // entry::STREAM
    /*01*/ pub(crate) flags: u8, // stream_flags
    /*02*/ pub(crate) reserved: u8,
    /*03*/ pub(crate) name_len: u8, // units of UTF-16
    /*04*/ pub(crate) name_hash: U16,
    /*06*/ pub(crate) reserved_2: U16,
    /*08*/ pub(crate) valid_len: U64, // bytes; those after them read as zeros
    /*10*/ pub(crate) reserved_3: U32,
    /*14*/ pub(crate) first: U32, // cluster
    /*18*/ pub(crate) len: U64, // bytes
}
const _: () = assert!(size_of::<StreamRaw>() == 32);

/// A part of a name, 15 units of UTF-16.
///
/// Source: Microsoft, exFAT file system specification, 7.7.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct NameRaw {
    /*00*/ pub(crate) kind: u8, // entry::NAME
    /*01*/ pub(crate) flags: u8,
    /*02*/ pub(crate) units: [U16; UNITS_PER_ENTRY],
}
const _: () = assert!(size_of::<NameRaw>() == 32);

/// The name of the volume.
///
/// Source: Microsoft, exFAT file system specification, 7.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LabelRaw {
    /*00*/
    pub(crate) kind: u8, // entry::LABEL, without entry::IN_USE if there is no name
    /*01*/ pub(crate) count: u8, // units of UTF-16
    /*02*/ pub(crate) units: [U16; 11],
    /*18*/ pub(crate) reserved: [u8; 8],
}
const _: () = assert!(size_of::<LabelRaw>() == 32);

/// Units of a name in an entry.
pub(crate) const UNITS_PER_ENTRY: usize = 15;
/// Maximum length of a directory in bytes.
pub(crate) const MAX_DIRECTORY: u64 = 256 << 20;

/// Values of the first byte of an entry.
pub(crate) mod entry {
    /// No entry follows.
    pub(crate) const END: u8 = 0x00;
    /// The allocation bitmap.
    pub(crate) const BITMAP: u8 = 0x81;
    /// The up-case table.
    pub(crate) const UPCASE: u8 = 0x82;
    /// The name of the volume.
    pub(crate) const LABEL: u8 = 0x83;
    /// A file or folder.
    pub(crate) const FILE: u8 = 0x85;
    /// The length and the clusters of a file.
    pub(crate) const STREAM: u8 = 0xC0;
    /// A part of a name.
    pub(crate) const NAME: u8 = 0xC1;
    /// Clusters of an extension by a vendor.
    pub(crate) const VENDOR_CLUSTERS: u8 = 0xE1;
    /// Bit: the entry is in use.
    pub(crate) const IN_USE: u8 = 0x80;
    /// Bit: the entry belongs to the first one before it without this bit.
    pub(crate) const SECONDARY: u8 = 0x40;
    /// Bit: readers that do not know the entry may ignore it.
    pub(crate) const BENIGN: u8 = 0x20;
}

/// Bits of [`FileRaw::attributes`].
pub(crate) mod attributes {
    pub(crate) const READ_ONLY: u16 = 0x01;
    pub(crate) const HIDDEN: u16 = 0x02;
    pub(crate) const DIRECTORY: u16 = 0x10;
    /// Changed since the last backup.
    pub(crate) const ARCHIVE: u16 = 0x20;
}

/// Bits of [`StreamRaw::flags`].
pub(crate) mod stream_flags {
    /// It can have clusters.
    pub(crate) const ALLOCATABLE: u8 = 1;
    /// Its clusters are contiguous, and the table does not link them.
    pub(crate) const CONTIGUOUS: u8 = 2;
}

/// Bit of a field for a time zone: the rest is the offset in quarters of an hour, in two's complement.
pub(crate) const ZONE_IS_KNOWN: u8 = 0x80;

/// Returns the time of a field: the time of day in the lower half, the date in the upper one. A time
/// without a zone is taken for UTC. `None`: not a date.
pub(crate) fn timestamp(field: U32, hundredths: u8, zone: u8) -> Option<Timestamp> {
    let [a, b, c, d] = field.to_bytes();
    let local = DosDate {
        date: u16::from_le_bytes([c, d]),
        time: u16::from_le_bytes([a, b]),
        hundredths,
    }
    .timestamp()?;
    let quarters = match zone & ZONE_IS_KNOWN {
        0 => 0,
        _ => match i64::from(zone & !ZONE_IS_KNOWN) {
            east @ ..64 => east,
            west => west - 128,
        },
    };
    Some(Timestamp {
        seconds: local.seconds - quarters * 900,
        ..local
    })
}

/// Returns the field for a time in UTC, and its hundredths.
pub(crate) fn stored_time(time: Timestamp) -> (U32, u8) {
    let stored = DosDate::of(time);
    let field = u32::from(stored.date) << 16 | u32::from(stored.time);
    (field.into(), stored.hundredths)
}

/// Adds the bytes of an entry to the checksum of a set; `is_first` for the entry that holds it.
pub(crate) fn set_sum(sum: u16, bytes: &[u8], is_first: bool) -> u16 {
    let counted = bytes
        .iter()
        .enumerate()
        .filter(|(at, _)| !is_first || !matches!(at, 2 | 3));
    counted.fold(sum, |sum, (_, &byte)| {
        sum.rotate_right(1).wrapping_add(byte.into())
    })
}

/// Returns the checksum of the up-case table.
pub(crate) fn table_sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, &byte| {
        sum.rotate_right(1).wrapping_add(byte.into())
    })
}

/// Returns the hash of a name whose letters are in upper case.
pub(crate) fn name_hash(units: impl IntoIterator<Item = u16>) -> u16 {
    units
        .into_iter()
        .flat_map(u16::to_le_bytes)
        .fold(0, |sum: u16, byte| {
            sum.rotate_right(1).wrapping_add(byte.into())
        })
}

/// The checked fields of the boot sector.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    pub(crate) sector: u64,
    /// Length of the volume in bytes.
    pub(crate) len: u64,
    pub(crate) cluster_size: u64,
    /// Number of clusters; the first one has number 2.
    pub(crate) clusters: u64,
    /// Offset of the table on the volume, in bytes.
    pub(crate) table_at: u64,
    /// Offset of cluster 2 on the volume, in bytes.
    pub(crate) heap_at: u64,
    pub(crate) root: u64,
    /// Bits of `flags`.
    pub(crate) flags: u16,
}

impl Boot {
    /// Parses the boot sector of a volume of `len` bytes.
    pub(crate) fn parse(raw: &BootRaw, len: u64) -> Result<Self> {
        let wrong = |message: String| Error::corrupt(LAYER, 0, message);
        if raw.name != *b"EXFAT   " || raw.revision.get() >> 8 != 1 {
            return Err(wrong(format!(
                "unsupported version {:#06x}: expected exFAT 1.0",
                raw.revision.get()
            )));
        }
        let (shift, cluster_shift) = (u32::from(raw.sector_shift), u32::from(raw.cluster_shift));
        let power = |shift: u32| 1_u64.checked_shl(shift);
        let sector = power(shift).filter(|_| (9..=12).contains(&shift));
        let per_cluster = power(cluster_shift).filter(|_| shift + cluster_shift <= 25);
        let Some((sector, per_cluster)) = sector.zip(per_cluster) else {
            return Err(wrong(format!(
                "invalid cluster size: 2^{cluster_shift} sectors of 2^{shift} bytes"
            )));
        };
        if raw.tables != 1 {
            return Err(Error::unsupported(
                LAYER,
                format!("unsupported: exFAT with {} tables (TexFAT)", raw.tables),
            ));
        }
        let (table, table_len) = (u64::from(raw.table.get()), u64::from(raw.table_len.get()));
        let (heap, clusters, sectors) = (
            u64::from(raw.heap.get()),
            u64::from(raw.clusters.get()),
            raw.sectors.get(),
        );
        let ends = heap + clusters * per_cluster;
        if table < 24
            || table + table_len > heap
            || ends > sectors
            || sectors.checked_mul(sector).is_none_or(|end| end > len)
        {
            let message = format!(
                "invalid layout: table of {table_len} sectors from {table}, {clusters} clusters \
                 from sector {heap}, {sectors} sectors of {sector} bytes, on {len} bytes"
            );
            return Err(wrong(message));
        }
        let root = u64::from(raw.root.get());
        if clusters == 0
            || (clusters + 2) * 4 > table_len * sector
            || !(2..clusters + 2).contains(&root)
        {
            let message = format!(
                "invalid layout: {clusters} clusters, root directory in {root}, table of \
                 {table_len} sectors of {sector} bytes"
            );
            return Err(wrong(message));
        }
        Ok(Self {
            sector,
            len: sectors * sector,
            cluster_size: per_cluster * sector,
            clusters,
            table_at: table * sector,
            heap_at: heap * sector,
            root,
            flags: raw.flags.get(),
        })
    }
}

/// Returns the checksum of the first sectors, without the fields that are [changing](CHANGING).
pub(crate) fn boot_sum(bytes: &[u8]) -> u32 {
    let counted = bytes
        .iter()
        .enumerate()
        .filter(|(at, _)| !CHANGING.iter().any(|range| range.contains(at)));
    counted.fold(0, |sum: u32, (_, &byte)| {
        sum.rotate_right(1).wrapping_add(byte.into())
    })
}
