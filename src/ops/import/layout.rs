//! On-disk structures of the extended attributes in AppleDouble files. Big-endian. Those of the files
//! are in `container::fork_file`.
//!
//! Source: Apple's published `copyfile.c` and `vfs_xattr.c`.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The filler of an AppleDouble header, as macOS writes it.
pub(super) const FILLER: [u8; 16] = *b"Mac OS X        ";
/// [`AttributesRaw::magic`].
pub(super) const ATTRIBUTES_MAGIC: [u8; 4] = *b"ATTR";
/// Entry of the FinderInfo, followed by the attributes.
pub(super) const ENTRY_FINDER_INFO: u32 = 9;
/// Length of the FinderInfo, in bytes.
pub(super) const FINDER_INFO: usize = 32;
/// Bytes between the start of the FinderInfo and the attributes that follow it, with padding.
pub(super) const ATTRIBUTES_AT: usize = FINDER_INFO + 2;

/// Header of the attributes, at [`ATTRIBUTES_AT`] of the entry of the FinderInfo.
///
/// Source: Apple xnu, bsd/vfs/vfs_xattr.c, attr_header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AttributesRaw {
    /*00*/ pub(super) magic: [u8; 4],
    /*04*/ pub(super) tag: U32,
    /*08*/ pub(super) total_size: U32,
    /*12*/ pub(super) data_start: U32,
    /*16*/ pub(super) data_length: U32,
    /*20*/ pub(super) reserved: [U32; 3],
    /*32*/ pub(super) flags: U16,
    /*34*/ pub(super) count: U16,
}
const _: () = assert!(size_of::<AttributesRaw>() == 36);

/// One attribute, followed by its name with a zero byte, padded to a multiple of four.
///
/// Source: Apple xnu, bsd/vfs/vfs_xattr.c, attr_entry.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AttributeRaw {
    /*00*/ pub(super) offset: U32, // of the value, from the beginning of the file
    /*04*/ pub(super) length: U32,
    /*08*/ pub(super) flags: U16,
    /*10*/ pub(super) name_length: u8, // with the zero byte
}
const _: () = assert!(size_of::<AttributeRaw>() == 11);
