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

/// [`DartRaw::compression`]: runs of words of 16 bits.
pub(super) const FAST: u8 = 0;
/// LZHUF.
pub(super) const BEST: u8 = 1;
/// No compression.
pub(super) const PLAIN: u8 = 2;

/// [`DartRaw::disk_type`] and [`DartRaw::disk_size`] of the disks, with their names.
pub(super) const DISKS: [(u8, u16, &str); 8] = [
    (1, 400, "400 KB Macintosh diskette"),
    (1, 800, "800 KB Macintosh diskette"),
    (2, 400, "400 KB Lisa diskette"),
    (3, 400, "400 KB Apple II diskette"),
    (3, 800, "800 KB Apple II diskette"),
    (16, 1440, "1440 KB Macintosh diskette"),
    (17, 720, "720 KB MS-DOS diskette"),
    (18, 1440, "1440 KB MS-DOS diskette"),
];
