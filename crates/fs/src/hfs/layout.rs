//! The on-disk structures of HFS: conversion between bytes and types, without I/O.
//!
//! All numbers are big-endian. Structures named `…Raw` have the on-disk layout. Source of the facts:
//! `docs/formats/hfs.md`, whose sections are cited as §n.
#![allow(
    dead_code,
    reason = "the whole format is written down; the reader uses a part"
)]

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Timestamp;
use bandsaw_core::{Error, Result};

/// The layer in errors.
pub(super) const LAYER: &str = "hfs";
/// Offset of the master directory block, in bytes from the start of the volume.
pub(super) const MDB_OFFSET: u64 = 1024;
/// `BD`: HFS.
pub(super) const SIGNATURE: u16 = 0x4244;
/// Size of a sector, the unit of offsets outside of allocation blocks, in bytes.
pub(super) const SECTOR: u64 = 512;
/// Size of a node of both trees in bytes.
pub(super) const NODE_SIZE: usize = 512;
/// Maximum length of the name of a file or folder in bytes.
pub(super) const MAX_NAME: usize = 31;
/// Maximum length of the name of a volume in bytes.
pub(super) const MAX_VOLUME_NAME: usize = 27;

/// Numbers of objects (§2).
pub(super) mod cnid {
    /// The parent of the root folder; no such folder exists.
    pub(in crate::hfs) const ROOT_PARENT: u32 = 1;
    /// The root folder.
    pub(in crate::hfs) const ROOT: u32 = 2;
    /// The extents-overflow tree.
    pub(in crate::hfs) const EXTENTS: u32 = 3;
    /// The catalog tree.
    pub(in crate::hfs) const CATALOG: u32 = 4;
    /// The file of bad blocks, which has no record in the catalog.
    pub(in crate::hfs) const BAD_BLOCKS: u32 = 5;
    /// The first number of user files and folders.
    pub(in crate::hfs) const FIRST_USER: u32 = 16;
}

/// Bits of [`MasterDirectoryBlockRaw::attributes`].
pub(super) mod volume_attributes {
    /// The volume was unmounted cleanly.
    pub(in crate::hfs) const UNMOUNTED: u16 = 1 << 8;
    /// A system found damage.
    pub(in crate::hfs) const INCONSISTENT: u16 = 1 << 11;
}

/// A run of allocation blocks.
///
/// Source: Inside Macintosh: Files, chapter 2, ExtDescriptor.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(super) struct ExtentRaw {
    /*00*/ pub(super) start_block: U16,
    /*02*/ pub(super) block_count: U16, // 0 ends a list
}
const _: () = assert!(size_of::<ExtentRaw>() == 4);

/// The extents of a record.
pub(super) type ExtentsRaw = [ExtentRaw; 3];

/// The master directory block (§1), the header of a volume.
///
/// Source: Inside Macintosh: Files, chapter 2, MDB.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MasterDirectoryBlockRaw {
    /*000*/ pub(super) signature: U16, // SIGNATURE
    /*002*/ pub(super) create_date: U32,
    /*006*/ pub(super) modify_date: U32,
    /*010*/ pub(super) attributes: U16, // volume_attributes
    /*012*/ pub(super) root_files: U16,
    /*014*/ pub(super) bitmap_start: U16, // in sectors
    /*016*/ pub(super) next_allocation: U16, // a hint
    /*018*/ pub(super) total_blocks: U16,
    /*020*/ pub(super) block_size: U32, // multiple of 512
    /*024*/ pub(super) clump_size: U32,
    /*028*/ pub(super) first_block: U16, // start of allocation block 0, in sectors
    /*030*/ pub(super) next_catalog_id: U32,
    /*034*/ pub(super) free_blocks: U16,
    /*036*/ pub(super) name: [u8; 28], // length and up to 27 bytes
    /*064*/ pub(super) backup_date: U32,
    /*068*/ pub(super) backup_number: U16,
    /*070*/ pub(super) write_count: U32,
    /*074*/ pub(super) extents_clump_size: U32,
    /*078*/ pub(super) catalog_clump_size: U32,
    /*082*/ pub(super) root_folders: U16,
    /*084*/ pub(super) file_count: U32,
    /*088*/ pub(super) folder_count: U32, // root excluded
    /*092*/ pub(super) finder_info: [U32; 8],
    /*124*/ pub(super) embedded: [U16; 3], // caches; in a wrapper, the HFS+ volume
    /*130*/ pub(super) extents_file_size: U32,
    /*134*/ pub(super) extents_file: ExtentsRaw,
    /*146*/ pub(super) catalog_file_size: U32,
    /*150*/ pub(super) catalog_file: ExtentsRaw,
}
const _: () = assert!(size_of::<MasterDirectoryBlockRaw>() == 162);

/// A master directory block with valid fields.
#[derive(Debug, Clone)]
pub(super) struct MasterDirectoryBlock {
    /// Size of an allocation block in bytes: a multiple of 512.
    pub(super) block_size: u32,
    /// Number of allocation blocks, at least 1.
    pub(super) total_blocks: u16,
    /// Number of free blocks, at most `total_blocks`.
    pub(super) free_blocks: u16,
    /// All fields in their on-disk form.
    pub(super) raw: MasterDirectoryBlockRaw,
}

impl MasterDirectoryBlock {
    /// Parses the block at [`MDB_OFFSET`].
    pub(super) fn parse(raw: &MasterDirectoryBlockRaw) -> Result<Self> {
        let corrupt = |message: String| Err(Error::corrupt(LAYER, MDB_OFFSET, message));
        let (signature, block_size) = (raw.signature.get(), raw.block_size.get());
        if signature != SIGNATURE {
            return corrupt(format!("invalid signature {signature:#06x}: expected BD"));
        }
        if block_size == 0 || !u64::from(block_size).is_multiple_of(SECTOR) {
            return corrupt(format!(
                "invalid block size {block_size}: expected a multiple of 512"
            ));
        }
        let total_blocks = raw.total_blocks.get();
        if total_blocks == 0 {
            return corrupt("the volume has no allocation blocks".to_owned());
        }
        Ok(Self {
            block_size,
            total_blocks,
            free_blocks: raw.free_blocks.get().min(total_blocks),
            raw: *raw,
        })
    }

    /// Returns the name of the volume; empty if its length is invalid.
    pub(super) fn name(&self) -> &[u8] {
        pascal(&self.raw.name).unwrap_or_default()
    }

    /// Returns the offset of allocation block 0 in bytes.
    pub(super) fn start(&self) -> u64 {
        u64::from(self.raw.first_block.get()) * SECTOR
    }

    /// Returns the end of the allocation blocks in bytes.
    pub(super) fn end(&self) -> u64 {
        self.start() + self.bytes(self.total_blocks)
    }

    /// Returns the size of a number of blocks in bytes.
    pub(super) fn bytes(&self, blocks: u16) -> u64 {
        u64::from(blocks) * u64::from(self.block_size)
    }

    /// Returns true if the volume was unmounted cleanly.
    pub(super) fn is_clean(&self) -> bool {
        self.raw.attributes.get() & volume_attributes::UNMOUNTED != 0
    }
}

/// Returns the text of a string that begins with its length; `None` if it is longer than its field.
fn pascal(field: &[u8]) -> Option<&[u8]> {
    let (&len, text) = field.split_first()?;
    text.get(..usize::from(len))
}

/// Splits a record of either tree into the key at its beginning, without its length, and the data,
/// which begins at an even offset.
fn split_key(record: &[u8]) -> Option<(&[u8], &[u8])> {
    let key = pascal(record)?;
    let data = record.get((1 + key.len()).next_multiple_of(2)..)?;
    Some((key, data))
}

/// Returns the node that an index record points to.
pub(super) fn child_of(record: &[u8]) -> Option<u32> {
    let (_, data) = split_key(record)?;
    Some(U32::read_from_prefix(data).ok()?.0.get())
}

/// Minimum and maximum length of a catalog key, without its length field; in index nodes it is the
/// maximum.
pub(super) const CATALOG_KEY_LENGTHS: (u16, u16) = (6, 37);

/// A catalog key: a folder and a name in it (§5). The key of an object's thread is its own number and
/// the empty name.
#[derive(Debug, Clone, Copy)]
pub(super) struct CatalogKey<'a> {
    pub(super) parent: u32,
    /// Name of at most [`MAX_NAME`] bytes.
    pub(super) name: &'a [u8],
}

impl<'a> CatalogKey<'a> {
    /// Splits `record` into the key at its beginning and the data; `None` if the key is invalid.
    pub(super) fn split(record: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (key, data) = split_key(record)?;
        let (parent, name) = U32::read_from_prefix(key.get(1..)?).ok()?; // the first byte is reserved
        let name = pascal(name).filter(|name| name.len() <= MAX_NAME)?;
        let parent = parent.get();
        Some((Self { parent, name }, data))
    }
}

/// Finder information of a file or folder: the first 16 bytes differ, the flags are at one place.
///
/// Source: Inside Macintosh: Macintosh Toolbox Essentials, chapter 7, FInfo and DInfo.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(super) struct FinderInfoRaw {
    /*00*/ pub(super) head: [U32; 2], // file: type, creator; folder: window
    /*08*/ pub(super) flags: U16, // FINDER_INVISIBLE and others
    /*10*/ pub(super) location: [U16; 2],
    /*14*/ pub(super) folder: U16,
}
const _: () = assert!(size_of::<FinderInfoRaw>() == 16);

/// Finder flag: the object is invisible.
pub(super) const FINDER_INVISIBLE: u16 = 0x4000;

/// Dates in seconds since 1904 (§6); 0 for none.
///
/// Source: Inside Macintosh: Files, chapter 2, CatDataRec.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(super) struct DatesRaw {
    /*00*/ pub(super) create: U32,
    /*04*/ pub(super) modify: U32,
    /*08*/ pub(super) backup: U32,
}
const _: () = assert!(size_of::<DatesRaw>() == 12);

/// Types at the beginning of each catalog record.
pub(super) mod record_type {
    pub(in crate::hfs) const FOLDER: u8 = 1;
    pub(in crate::hfs) const FILE: u8 = 2;
    pub(in crate::hfs) const FOLDER_THREAD: u8 = 3;
    pub(in crate::hfs) const FILE_THREAD: u8 = 4;
}

/// Flag of [`FileRaw`]: the file is locked.
pub(super) const FILE_LOCKED: u8 = 0x01;
/// Flag of [`FileRaw`]: the thread record exists.
pub(super) const FILE_HAS_THREAD: u8 = 0x02;

/// Record of a folder (§5).
///
/// Source: Inside Macintosh: Files, chapter 2, CatDataRec.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(super) struct FolderRaw {
    /*00*/ pub(super) record_type: u8, // record_type::FOLDER
    /*01*/ pub(super) reserved: u8,
    /*02*/ pub(super) flags: U16,
    /*04*/ pub(super) valence: U16, // direct children
    /*06*/ pub(super) folder_id: U32,
    /*10*/ pub(super) dates: DatesRaw,
    /*22*/ pub(super) user_info: FinderInfoRaw,
    /*38*/ pub(super) finder_info: [u8; 16],
    /*54*/ pub(super) reserved2: [U32; 4],
}
const _: () = assert!(size_of::<FolderRaw>() == 70);

/// A fork in the record of a file.
///
/// Source: Inside Macintosh: Files, chapter 2, CatDataRec.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(super) struct ForkRaw {
    /*00*/ pub(super) start_block: U16, // unused
    /*02*/ pub(super) logical_size: U32,
    /*06*/ pub(super) physical_size: U32,
}
const _: () = assert!(size_of::<ForkRaw>() == 10);

/// Record of a file (§5).
///
/// Source: Inside Macintosh: Files, chapter 2, CatDataRec.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(super) struct FileRaw {
    /*000*/ pub(super) record_type: u8, // record_type::FILE
    /*001*/ pub(super) reserved: u8,
    /*002*/ pub(super) flags: u8, // FILE_LOCKED, FILE_HAS_THREAD
    /*003*/ pub(super) file_type: u8, // 0
    /*004*/ pub(super) user_info: FinderInfoRaw,
    /*020*/ pub(super) file_id: U32,
    /*024*/ pub(super) data: ForkRaw,
    /*034*/ pub(super) resource: ForkRaw,
    /*044*/ pub(super) dates: DatesRaw,
    /*056*/ pub(super) finder_info: [u8; 16],
    /*072*/ pub(super) clump_size: U16,
    /*074*/ pub(super) data_extents: ExtentsRaw,
    /*086*/ pub(super) resource_extents: ExtentsRaw,
    /*098*/ pub(super) reserved2: U32,
}
const _: () = assert!(size_of::<FileRaw>() == 102);

/// Head of a thread record (§5); the name follows, padded to 32 bytes by most writers.
///
/// Source: Inside Macintosh: Files, chapter 2, CatDataRec.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ThreadHeadRaw {
    /*00*/ pub(super) record_type: u8, // FOLDER_THREAD or FILE_THREAD
    /*01*/ pub(super) reserved: u8,
    /*02*/ pub(super) reserved2: [U32; 2],
    /*10*/ pub(super) parent_id: U32,
}
const _: () = assert!(size_of::<ThreadHeadRaw>() == 14);

/// Returns the name in a thread record; `None` if it is longer than the record.
pub(super) fn thread_name(data: &[u8]) -> Option<&[u8]> {
    pascal(data.get(size_of::<ThreadHeadRaw>()..)?)
}

/// A folder or a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Object {
    Folder(FolderRaw),
    File(FileRaw),
}

impl Object {
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Folder(folder) => folder.folder_id.get(),
            Self::File(file) => file.file_id.get(),
        }
    }

    pub(super) fn dates(&self) -> &DatesRaw {
        match self {
            Self::Folder(folder) => &folder.dates,
            Self::File(file) => &file.dates,
        }
    }

    pub(super) fn finder_flags(&self) -> u16 {
        match self {
            Self::Folder(folder) => folder.user_info.flags.get(),
            Self::File(file) => file.user_info.flags.get(),
        }
    }

    /// Returns the 32 bytes of Finder information in their on-disk form; `None` if all are zero.
    pub(super) fn finder_info(&self) -> Option<[u8; 32]> {
        let (user, extended) = match self {
            Self::Folder(folder) => (&folder.user_info, &folder.finder_info),
            Self::File(file) => (&file.user_info, &file.finder_info),
        };
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(user.as_bytes());
        bytes[16..].copy_from_slice(extended);
        (bytes != [0; 32]).then_some(bytes)
    }
}

/// The data of a catalog leaf record.
#[derive(Debug, Clone, Copy)]
pub(super) enum CatalogRecord {
    Object(Object),
    /// A thread, with the number of the folder that contains the object.
    Thread {
        parent: u32,
        is_folder: bool,
    },
}

impl CatalogRecord {
    /// Parses the record in `data`; `None` if its type is unknown or it is truncated.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        Some(match *data.first()? {
            record_type::FOLDER => {
                Self::Object(Object::Folder(FolderRaw::read_from_prefix(data).ok()?.0))
            }
            record_type::FILE => {
                Self::Object(Object::File(FileRaw::read_from_prefix(data).ok()?.0))
            }
            kind @ (record_type::FOLDER_THREAD | record_type::FILE_THREAD) => Self::Thread {
                parent: ThreadHeadRaw::read_from_prefix(data)
                    .ok()?
                    .0
                    .parent_id
                    .get(),
                is_folder: kind == record_type::FOLDER_THREAD,
            },
            _ => return None,
        })
    }
}

/// Fork types in an extents key.
pub(super) mod fork_type {
    pub(in crate::hfs) const DATA: u8 = 0;
    pub(in crate::hfs) const RESOURCE: u8 = 0xFF;
}

/// Length of an extents key, without its length field.
pub(super) const EXTENT_KEY_LENGTH: u8 = 7;

/// A record of the extents-overflow tree (§4), ordered by file, fork, start block.
///
/// Source: Inside Macintosh: Files, chapter 2, ExtKeyRec and ExtDataRec.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ExtentRecordRaw {
    /*00*/ pub(super) key_length: u8, // EXTENT_KEY_LENGTH
    /*01*/ pub(super) fork_type: u8, // fork_type
    /*02*/ pub(super) file_id: U32,
    /*06*/ pub(super) start_block: U16, // of the fork, not of the volume
    /*08*/ pub(super) extents: ExtentsRaw, // in an index node: child node
}
const _: () = assert!(size_of::<ExtentRecordRaw>() == 20);

/// A key of the extents-overflow tree, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExtentKey {
    pub(super) file: u32,
    pub(super) fork_type: u8,
    /// Block of the fork.
    pub(super) start_block: u16,
}

impl ExtentKey {
    /// Returns the key at the beginning of a record; `None` if it is invalid.
    pub(super) fn of(record: &[u8]) -> Option<Self> {
        let (key, _) = split_key(record)?;
        let (&fork_type, rest) = key.split_first()?;
        let (file, rest) = U32::read_from_prefix(rest).ok()?;
        let (start_block, _) = U16::read_from_prefix(rest).ok()?;
        Some(Self {
            file: file.get(),
            fork_type,
            start_block: start_block.get(),
        })
    }
}

/// Returns the extents of a leaf record of the extents-overflow tree.
pub(super) fn extents_of(record: &[u8]) -> Option<ExtentsRaw> {
    let (_, data) = split_key(record)?;
    Some(ExtentsRaw::read_from_prefix(data).ok()?.0)
}

/// Converts a date, seconds of local time since 1904 (§6). The time zone is not recorded: the result
/// is the reading of the Mac's clock, taken as UTC. 0 means no date.
pub(super) fn timestamp(date: U32) -> Option<Timestamp> {
    /// Seconds from 1904-01-01 to 1970-01-01.
    const MAC_TO_UNIX: i64 = 2_082_844_800;
    let seconds = i64::from(date.get()) - MAC_TO_UNIX;
    (date.get() != 0).then(|| Timestamp::from_seconds(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_split_from_even_data() {
        let record = b"\x09\0\0\0\0\x02\x03abc\x01\x00data";
        let (key, data) = CatalogKey::split(record).unwrap();
        assert_eq!((key.parent, key.name), (2, b"abc".as_slice()));
        assert_eq!(data, b"\x01\0data");
        let index = [&[0x25, 0, 0, 0, 0, 2, 1, b'a'][..], &[0; 30], &[0, 0, 1, 2]].concat();
        assert_eq!(CatalogKey::split(&index).unwrap().0.name, b"a");
        assert_eq!(child_of(&index), Some(0x102));
    }

    #[test]
    fn malformed_keys_are_refused() {
        for bytes in [
            &[][..],
            &[6, 0, 0, 0, 0],
            &[6, 0, 0, 0, 0, 2, 1],
            &[5, 0, 0, 0, 0, 2],
            &[7, 0, 0, 0, 0, 2, 2, b'a'],
            &[[39, 0, 0, 0, 0, 2, 32].as_slice(), &[b'a'; 40]].concat(),
        ] {
            assert!(CatalogKey::split(bytes).is_none(), "{bytes:?}");
        }
        assert_eq!(ExtentKey::of(&[7, 0xFF, 0, 0, 0, 9, 1]), None);
        let key = ExtentKey::of(&[7, 0xFF, 0, 0, 0, 9, 1, 2]);
        let expected = ExtentKey {
            file: 9,
            fork_type: fork_type::RESOURCE,
            start_block: 0x102,
        };
        assert_eq!(key, Some(expected));
    }

    #[test]
    fn dates_count_from_1904() {
        assert_eq!(timestamp(U32::new(0)), None);
        let of = |date| timestamp(U32::new(date)).unwrap().seconds;
        assert_eq!(of(2_082_844_800), 0);
        assert_eq!(of(1), 1 - 2_082_844_800);
    }
}
