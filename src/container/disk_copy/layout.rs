//! On-disk structures of Disk Copy 4.2. Big-endian.

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// [`DiskCopyRaw::magic`].
pub(super) const MAGIC: [u8; 2] = [1, 0];

/// The header of an image of Disk Copy 4.2. Data and tags follow.
///
/// Source: Apple II File Type Notes, type $E0, auxiliary type $8005.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DiskCopyRaw {
    /*00*/ pub(super) name_length: u8,
    /*01*/ pub(super) name: [u8; 63],
    /*40*/ pub(super) data_size: U32, // bytes
    /*44*/ pub(super) tag_size: U32, // bytes
    /*48*/ pub(super) data_checksum: U32,
    /*4c*/ pub(super) tag_checksum: U32,
    /*50*/ pub(super) disk_format: u8,
    /*51*/ pub(super) format: u8,
    /*52*/ pub(super) magic: [u8; 2], // MAGIC
}
const _: () = assert!(size_of::<DiskCopyRaw>() == 84);

/// [`DiskCopyRaw::disk_format`] and [`DiskCopyRaw::data_size`] of the disks, with their names.
pub(super) const DISKS: [(u8, u32, &str); 4] = [
    (0, 400 << 10, "400 KB diskette"),
    (1, 800 << 10, "800 KB diskette"),
    (2, 720 << 10, "720 KB diskette"),
    (3, 1440 << 10, "1440 KB diskette"),
];
