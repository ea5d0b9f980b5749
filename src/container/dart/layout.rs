//! On-disk structures of DART. Big-endian.

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header of a DART image. The lengths of its blocks follow, 16 bits each: 40, or 72 of a disk of
/// 1440 KB.
///
/// Source: Apple, DartIntf.h 1.5.3, SrcInfoRec and HDSrcInfoRec.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DartRaw {
    /*00*/ pub(super) compression: u8,
    /*01*/ pub(super) disk_type: u8,
    /*02*/ pub(super) disk_size: U16, // KiB
}
const _: () = assert!(size_of::<DartRaw>() == 4);

/// Blocks without compression in a compressed image.
pub(super) const STORED: u16 = 0xFFFF;
