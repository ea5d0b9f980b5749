//! exFAT: the boot sector and the entries of directories that name the volume's own structures
//! (§3). Source: Microsoft's "exFAT file system specification", sections 3.1, 3.4, 7.1 and 7.2.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::power;
use bandsaw_core::{Error, Result};

const LAYER: &str = "exfat boot sector";
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

/// Values of [`EntryRaw::kind`].
pub(crate) mod entry {
    /// No entry follows.
    pub(crate) const END: u8 = 0x00;
    /// The allocation bitmap.
    pub(crate) const BITMAP: u8 = 0x81;
    /// The up-case table.
    pub(crate) const UPCASE: u8 = 0x82;
}

/// The checked fields of the boot sector.
#[derive(Debug, Clone)]
pub(crate) struct Boot {
    pub(crate) sector: u64,
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
            cluster_size: per_cluster * sector,
            clusters,
            table_at: table * sector,
            heap_at: heap * sector,
            root,
            flags: raw.flags.get(),
        })
    }
}

/// Returns the checksum of the first sectors, without the fields that change while the volume is in
/// use.
pub(crate) fn boot_sum(bytes: &[u8]) -> u32 {
    let counted = bytes
        .iter()
        .enumerate()
        .filter(|(at, _)| !matches!(at, 0x6A | 0x6B | 0x70));
    counted.fold(0, |sum: u32, (_, &byte)| {
        sum.rotate_right(1).wrapping_add(byte.into())
    })
}
