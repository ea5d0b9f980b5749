//! NTFS: the boot sector, records of the master file table, their attributes, and the first pages
//! of the log (§4). Sources: the headers of the Linux kernel's driver, `fs/ntfs/layout.h` and
//! `fs/ntfs/logfile.h`, and those of ntfs-3g, `layout.h`, `logfile.h`.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::power;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};

const LAYER: &str = "ntfs boot sector";
/// The name in the boot sector, [`BootRaw::name`].
pub const NAME: [u8; 8] = *b"NTFS    ";
/// Maximum number of clusters of a volume.
const MAX_CLUSTERS: u64 = u32::MAX as u64;
/// Length of the units in a record or log page whose last two bytes are replaced by fixups.
pub(crate) const STRIDE: usize = 512;

/// The beginning of the first sector.
///
/// Source: Linux (until 6.8), fs/ntfs/layout.h, NTFS_BOOT_SECTOR.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct BootRaw {
    /*00*/ pub(crate) jump: [u8; 3],
    /*03*/ pub(crate) name: [u8; 8], // NAME
    /*0B*/ pub(crate) sector_size: U16,
    /*0D*/ pub(crate) sectors_per_cluster: u8, // above 0x80: minus its power of two
    /*0E*/ pub(crate) unused: [u8; 26],
    /*28*/ pub(crate) sectors: U64,
    /*30*/ pub(crate) table: U64, // cluster of $MFT
    /*38*/ pub(crate) table_copy: U64, // cluster of $MFTMirr
    /*40*/
    pub(crate) record: u8, // clusters; above 0x7F: minus the power of two of its bytes
    /*41*/ pub(crate) rest: [u8; 15],
}
const _: () = assert!(size_of::<BootRaw>() == 0x50);

/// Numbers of the records that are read.
pub(crate) mod record {
    /// The table itself, $MFT.
    pub(crate) const TABLE: u64 = 0;
    /// A copy of its first records, $MFTMirr.
    pub(crate) const TABLE_COPY: u64 = 1;
    /// The log, $LogFile.
    pub(crate) const LOG: u64 = 2;
    /// The volume's properties, $Volume.
    pub(crate) const VOLUME: u64 = 3;
    /// The cluster bitmap, $Bitmap.
    pub(crate) const BITMAP: u64 = 6;
}

/// The head of a record.
///
/// Source: Linux (until 6.8), fs/ntfs/layout.h, MFT_RECORD.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RecordRaw {
    /*00*/ pub(crate) magic: [u8; 4], // "FILE"
    /*04*/ pub(crate) fixups: U16, // where the array of what was replaced is
    /*06*/
    pub(crate) fixup_count: U16, // its entries: the mark, then one for each STRIDE
    /*08*/ pub(crate) lsn: U64,
    /*10*/ pub(crate) sequence: U16,
    /*12*/ pub(crate) links: U16,
    /*14*/ pub(crate) attributes: U16, // where the first one is
    /*16*/ pub(crate) flags: U16, // 1: in use
    /*18*/ pub(crate) used: U32, // bytes
    /*1C*/ pub(crate) allocated: U32,
    /*20*/ pub(crate) base: U64, // of which record this goes on
    /*28*/ pub(crate) next_instance: U16,
}
const _: () = assert!(size_of::<RecordRaw>() == 0x2A);
/// In [`RecordRaw::flags`].
pub(crate) const IN_USE: u16 = 1;

/// The head of an attribute.
///
/// Source: Linux (until 6.8), fs/ntfs/layout.h, ATTR_RECORD.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct AttributeRaw {
    /*00*/ pub(crate) kind: U32, // attribute
    /*04*/ pub(crate) len: U32, // head, name and value: a multiple of 8
    /*08*/ pub(crate) non_resident: u8,
    /*09*/ pub(crate) name_len: u8,
    /*0A*/ pub(crate) name: U16,
    /*0C*/ pub(crate) flags: U16, // compressed, encrypted, sparse
    /*0E*/ pub(crate) instance: U16,
}
const _: () = assert!(size_of::<AttributeRaw>() == 0x10);

/// Values of [`AttributeRaw::kind`].
pub(crate) mod attribute {
    /// A list of attributes that are in other records.
    pub(crate) const LIST: u32 = 0x20;
    /// Version and flags of the volume.
    pub(crate) const VOLUME_INFORMATION: u32 = 0x70;
    /// Contents of a file.
    pub(crate) const DATA: u32 = 0x80;
    /// No attribute follows.
    pub(crate) const END: u32 = 0xFFFF_FFFF;
}

/// The part that follows the head of a resident attribute, whose value is in the record.
///
/// Source: Linux (until 6.8), fs/ntfs/layout.h, ATTR_RECORD.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct ResidentRaw {
    /*10*/ pub(crate) len: U32,
    /*14*/ pub(crate) at: U16, // from the head on
    /*16*/ pub(crate) flags: U16,
}
const _: () = assert!(size_of::<ResidentRaw>() == 8);

/// The part that follows the head of a non-resident attribute, whose value is in clusters.
///
/// Source: Linux (until 6.8), fs/ntfs/layout.h, ATTR_RECORD.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct NonResidentRaw {
    /*10*/ pub(crate) first: U64, // of the value's clusters that are described here
    /*18*/ pub(crate) last: U64,
    /*20*/ pub(crate) runs: U16, // from the head on
    /*22*/ pub(crate) compression: U16,
    /*24*/ pub(crate) reserved: U32,
    /*28*/ pub(crate) allocated: U64, // bytes
    /*30*/ pub(crate) len: U64, // bytes
    /*38*/ pub(crate) initialised: U64, // bytes; zeros follow
}
const _: () = assert!(size_of::<NonResidentRaw>() == 0x30);

/// The value of VOLUME_INFORMATION.
///
/// Source: Linux (until 6.8), fs/ntfs/layout.h, VOLUME_INFORMATION.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct VolumeInformationRaw {
    /*0*/ pub(crate) reserved: U64,
    /*8*/ pub(crate) major: u8,
    /*9*/ pub(crate) minor: u8,
    /*A*/ pub(crate) flags: U16, // volume_flags
}
const _: () = assert!(size_of::<VolumeInformationRaw>() == 12);

/// Bits of [`VolumeInformationRaw::flags`].
pub(crate) mod volume_flags {
    /// The volume must be checked.
    pub(crate) const DIRTY: u16 = 0x1;
    /// A check has begun.
    pub(crate) const CHECKING: u16 = 0x4000;
}

/// The restart pages of the log: its first two pages, in system pages.
///
/// Source: Linux (until 6.8), fs/ntfs/logfile.h, RESTART_PAGE_HEADER.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RestartPageRaw {
    /*00*/ pub(crate) magic: [u8; 4], // "RSTR"
    /*04*/ pub(crate) fixups: U16,
    /*06*/ pub(crate) fixup_count: U16,
    /*08*/ pub(crate) check_lsn: U64,
    /*10*/ pub(crate) system_page: U32, // bytes
    /*14*/ pub(crate) log_page: U32,
    /*18*/ pub(crate) area: U16, // where RestartAreaRaw is
    /*1A*/ pub(crate) minor: U16,
    /*1C*/
    pub(crate) major: U16, // 1; 2 while Windows 8 and later have the volume mounted
}
const _: () = assert!(size_of::<RestartPageRaw>() == 0x1E);

/// The state of the log, in a restart page.
///
/// Source: Linux (until 6.8), fs/ntfs/logfile.h, RESTART_AREA.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RestartAreaRaw {
    /*00*/ pub(crate) lsn: U64,
    /*08*/ pub(crate) clients: U16,
    /*0A*/ pub(crate) free_client: U16,
    /*0C*/ pub(crate) client_in_use: U16, // NO_CLIENT
    /*0E*/ pub(crate) flags: U16, // 2: the volume is clean
}
const _: () = assert!(size_of::<RestartAreaRaw>() == 0x10);
/// In [`RestartAreaRaw::client_in_use`]: no client.
pub(crate) const NO_CLIENT: u16 = 0xFFFF;
/// In [`RestartAreaRaw::flags`]: the volume is clean.
pub(crate) const VOLUME_IS_CLEAN: u16 = 2;

/// The checked fields of the boot sector.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    pub(crate) cluster_size: u64,
    pub(crate) clusters: u64,
    /// First cluster of the table, and that of the copy of its first records.
    pub(crate) table: u64,
    pub(crate) table_copy: u64,
    /// Length of a record in bytes.
    pub(crate) record_size: usize,
}

impl Boot {
    /// Parses the boot sector of a volume of `len` bytes.
    pub(crate) fn parse(raw: &BootRaw, len: u64) -> Result<Self> {
        let wrong = |message: String| Error::corrupt(LAYER, 0, message);
        let (sector, code) = (u64::from(raw.sector_size.get()), raw.sectors_per_cluster);
        let per_cluster = if code > 0x80 {
            power(256 - u32::from(code))
        } else {
            Some(code.into())
        };
        let cluster_size = per_cluster.and_then(|sectors| sectors.checked_mul(sector));
        let cluster_size =
            cluster_size.filter(|size| size.is_power_of_two() && (512..=2 << 20).contains(size));
        let Some(cluster_size) =
            cluster_size.filter(|_| matches!(sector, 512 | 1024 | 2048 | 4096))
        else {
            return Err(wrong(format!(
                "invalid cluster size: {code:#04x} sectors of {sector} bytes"
            )));
        };
        let bytes = raw
            .sectors
            .get()
            .checked_mul(sector)
            .filter(|bytes| *bytes <= len);
        let clusters = bytes.map_or(0, |bytes| bytes / cluster_size);
        if clusters > MAX_CLUSTERS {
            return Err(Error::unsupported(
                LAYER,
                format!("too many clusters: {clusters} (limit {MAX_CLUSTERS})"),
            ));
        }
        let (table, table_copy) = (raw.table.get(), raw.table_copy.get());
        if table >= clusters || table_copy >= clusters {
            let message = format!(
                "invalid layout: {} sectors of {sector} bytes, master file table in clusters \
                 {table} and {table_copy}, on {len} bytes",
                raw.sectors.get()
            );
            return Err(wrong(message));
        }
        let record = if raw.record > 0x7F {
            power(256 - u32::from(raw.record))
        } else {
            Some(u64::from(raw.record) * cluster_size)
        };
        match record.filter(|size| size.is_power_of_two() && (512..=16384).contains(size)) {
            Some(record) => Ok(Self {
                cluster_size,
                clusters,
                table,
                table_copy,
                record_size: to_usize(record),
            }),
            None => Err(wrong(format!("invalid record size {:#04x}", raw.record))),
        }
    }
}
