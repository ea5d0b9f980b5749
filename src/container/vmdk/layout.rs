//! On-disk structures of VMDK. Little-endian.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// [`ExtentRaw::magic`].
pub(super) const MAGIC: [u8; 4] = *b"KDMV";

/// The header of a sparse extent; in stream-optimized files also before the end.
///
/// Source: VMware, Virtual Disk Format 5.0, "SparseExtentHeader".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ExtentRaw {
    /*000*/ pub(super) magic: [u8; 4], // MAGIC
    /*004*/ pub(super) version: U32, // 1 to 3
    /*008*/ pub(super) flags: U32, // ZERO_GRAINS, ...
    /*00c*/ pub(super) capacity: U64, // sectors
    /*014*/ pub(super) grain_size: U64, // sectors
    /*01c*/ pub(super) descriptor_at: U64, // sectors
    /*024*/ pub(super) descriptor_size: U64, // sectors
    /*02c*/ pub(super) table_entries: U32,
    /*030*/ pub(super) copy_at: U64, // sectors, of the copy of the directory
    /*038*/ pub(super) directory_at: U64, // sectors; AT_END
    /*040*/ pub(super) overhead: U64,
    /*048*/ pub(super) is_unclean: u8,
    /*049*/ pub(super) line_ends: [u8; 4],
    /*04d*/ pub(super) compression: U16, // 0 none, DEFLATE
    /*04f*/ pub(super) padding: [u8; 433],
}
const _: () = assert!(size_of::<ExtentRaw>() == 512);

/// [`ExtentRaw::flags`]: an entry of 1 is a grain of zeros.
pub(super) const ZERO_GRAINS: u32 = 1 << 2;
/// Grains are compressed.
pub(super) const COMPRESSED: u32 = 1 << 16;
/// [`ExtentRaw::compression`] of compressed grains.
pub(super) const DEFLATE: u16 = 1;
/// [`ExtentRaw::directory_at`]: in the header before the end of the file.
pub(super) const AT_END: u64 = u64::MAX;

/// The header of a compressed grain.
///
/// Source: VMware, Virtual Disk Format 5.0, "Grain Marker".
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct GrainRaw {
    /*0*/ pub(super) sector: U64, // on the disk
    /*8*/ pub(super) length: U32, // bytes of the zlib stream
}
const _: () = assert!(size_of::<GrainRaw>() == 12);
