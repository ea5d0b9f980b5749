//! On-disk structures of the Finder: `.DS_Store`, alias records, and the FinderInfo of a file. Big-endian.
//!
//! Source: docs/formats/ds_store.md, whose sections are cited as §n.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the first block of a `.DS_Store`. Block offsets do not include them.
pub(super) const ALIGNMENT: [u8; 4] = [0, 0, 0, 1];
/// [`StoreHeaderRaw::magic`].
pub(super) const STORE_MAGIC: [u8; 4] = *b"Bud1";
/// [`StoreHeaderRaw::reserved`] as the Finder writes it; readers ignore it.
pub(super) const STORE_RESERVED: [u8; 16] = [
    0, 0, 0x10, 0x0C, 0, 0, 0, 0x87, 0, 0, 0x20, 0x0B, 0, 0, 0, 0,
];
/// Name of the block that holds a [`TreeRaw`].
pub(super) const TREE_NAME: &str = "DSDB";
/// Size of a node of the tree, in bytes.
pub(super) const NODE: usize = 4096;

/// The header of a `.DS_Store`, in its first block of 32 bytes.
///
/// Source: docs/formats/ds_store.md §1.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct StoreHeaderRaw {
    /*00*/ pub(super) magic: [u8; 4],
    /*04*/ pub(super) list_offset: U32, // of block 0, the list of blocks
    /*08*/ pub(super) list_len: U32,
    /*12*/ pub(super) list_offset_again: U32,
    /*16*/ pub(super) reserved: [u8; 16],
}
const _: () = assert!(size_of::<StoreHeaderRaw>() == 32);

/// The tree of records.
///
/// Source: docs/formats/ds_store.md §2.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TreeRaw {
    /*00*/ pub(super) root: U32, // block
    /*04*/ pub(super) levels: U32, // above the leaves
    /*08*/ pub(super) records: U32,
    /*12*/ pub(super) nodes: U32,
    /*16*/ pub(super) node_size: U32, // NODE
}
const _: () = assert!(size_of::<TreeRaw>() == 20);

/// The head of a node. In an inner node a child's block precedes each record.
///
/// Source: docs/formats/ds_store.md §2.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct NodeHeadRaw {
    /*00*/ pub(super) last_child: U32, // block; 0 in a leaf
    /*04*/ pub(super) count: U32, // records
}
const _: () = assert!(size_of::<NodeHeadRaw>() == 8);

/// The value of a record `Iloc`.
///
/// Source: docs/formats/ds_store.md §3.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct IconLocationRaw {
    /*00*/ pub(super) x: U32,
    /*04*/ pub(super) y: U32,
    /*08*/ pub(super) reserved: [u8; 8], // LOCATION_RESERVED
}
const _: () = assert!(size_of::<IconLocationRaw>() == 16);

/// [`IconLocationRaw::reserved`] as the Finder writes it.
pub(super) const LOCATION_RESERVED: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0];

/// The fixed part of an alias record; fields with tags follow.
///
/// Source: docs/formats/ds_store.md §4.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct AliasRaw {
    /*000*/ pub(super) application: [u8; 4], // 0
    /*004*/ pub(super) len: U16, // of the whole record
    /*006*/ pub(super) version: U16, // ALIAS_VERSION
    /*008*/ pub(super) kind: U16, // KIND_FILE
    /*010*/ pub(super) volume: [u8; 28], // a length and a name
    /*038*/ pub(super) volume_created: U32, // seconds since 1904
    /*042*/ pub(super) file_system: [u8; 2], // ALIAS_HFS_PLUS
    /*044*/ pub(super) disk_kind: U16, // EJECTABLE
    /*046*/ pub(super) folder_number: U32,
    /*050*/ pub(super) file: [u8; 64], // a length and a name
    /*114*/ pub(super) file_number: U32,
    /*118*/ pub(super) created: U32, // seconds since 1904
    /*122*/ pub(super) creator: [u8; 4], // 0
    /*126*/ pub(super) file_type: [u8; 4], // 0
    /*130*/ pub(super) levels: [U16; 2], // to a common folder; FFFF: not relative
    /*134*/ pub(super) volume_attributes: U32, // 0
    /*138*/ pub(super) file_system_number: U16, // 0
    /*140*/ pub(super) reserved: [u8; 10],
}
const _: () = assert!(size_of::<AliasRaw>() == 150);

/// [`AliasRaw::version`].
pub(super) const ALIAS_VERSION: u16 = 2;
/// [`AliasRaw::kind`] of a file, not a folder.
pub(super) const KIND_FILE: u16 = 0;
/// [`AliasRaw::file_system`].
pub(super) const ALIAS_HFS_PLUS: [u8; 2] = *b"H+";
/// [`AliasRaw::disk_kind`] of an ejectable disk.
pub(super) const EJECTABLE: u16 = 5;
/// In [`AliasRaw::levels`]: the alias is not relative to another file.
pub(super) const NOT_RELATIVE: u16 = 0xFFFF;

/// The head of a field after the fixed part of an alias record.
///
/// Source: docs/formats/ds_store.md §4.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TagRaw {
    /*0*/ pub(super) tag: U16,
    /*2*/
    pub(super) len: U16, // of the bytes that follow, without padding to an even length
}
const _: () = assert!(size_of::<TagRaw>() == 4);

/// [`TagRaw::tag`].
pub(super) mod tag {
    pub(in super::super) const FOLDER_NAME: u16 = 0;
    pub(in super::super) const FOLDER_NUMBERS: u16 = 1;
    pub(in super::super) const CLASSIC_PATH: u16 = 2;
    pub(in super::super) const UNICODE_NAME: u16 = 14;
    pub(in super::super) const UNICODE_VOLUME: u16 = 15;
    pub(in super::super) const VOLUME_DATE: u16 = 16;
    pub(in super::super) const FILE_DATE: u16 = 17;
    pub(in super::super) const PATH: u16 = 18;
    pub(in super::super) const MOUNT_POINT: u16 = 19;
    pub(in super::super) const END: u16 = 0xFFFF;
}

/// The value of the attribute `com.apple.FinderInfo`.
///
/// Source: Apple, `Finder.h`, FileInfo and FolderInfo with the extended structures behind them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(super) struct FinderInfoRaw {
    /*00*/ pub(super) kind: [u8; 4], // of a file
    /*04*/ pub(super) creator: [u8; 4], // of a file
    /*08*/ pub(super) flags: U16, // of files and folders
    /*10*/ pub(super) rest: [u8; 22], // place in the window, and others
}
const _: () = assert!(size_of::<FinderInfoRaw>() == 32);
