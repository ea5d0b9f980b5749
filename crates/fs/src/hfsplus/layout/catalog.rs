//! Keys and records of the catalog and the extents-overflow tree (§6.9, §7).

use std::mem::offset_of;

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::mode_type;
use super::{Cnid, ExtentsRaw, ForkRaw};

/// Maximum number of UTF-16 units in a name.
pub(crate) const MAX_NAME_UNITS: usize = 255;
/// Maximum length of a catalog key, without its length field.
pub(crate) const CATALOG_MAX_KEY_LENGTH: u16 = 516;
/// Length of a catalog key without its name.
pub(crate) const CATALOG_MIN_KEY_LENGTH: u16 = 6;
/// Length of every extents key, without its length field.
pub(crate) const EXTENTS_KEY_LENGTH: u16 = 10;

/// Types at the beginning of each catalog record.
pub(crate) mod record_type {
    /// [`super::FolderRaw`].
    pub(crate) const FOLDER: u16 = 1;
    /// [`super::FileRaw`].
    pub(crate) const FILE: u16 = 2;
    /// A thread that refers to a folder's record.
    pub(crate) const FOLDER_THREAD: u16 = 3;
    /// A thread that refers to a file's record.
    pub(crate) const FILE_THREAD: u16 = 4;
}

/// Bits of a catalog record's flags (§7.4).
pub(crate) mod record_flags {
    /// Files: the thread record exists. 0 on folders.
    pub(crate) const THREAD_EXISTS: u16 = 0x0002;
    /// Records in the attributes tree exist.
    pub(crate) const HAS_ATTRIBUTES: u16 = 0x0004;
    /// `com.apple.system.Security` exists.
    pub(crate) const HAS_SECURITY: u16 = 0x0008;
    /// [`super::FolderRaw::folder_count`] is valid.
    pub(crate) const HAS_FOLDER_COUNT: u16 = 0x0010;
    /// A link or an indirect node with a chain of links.
    pub(crate) const HAS_LINK_CHAIN: u16 = 0x0020;
    /// A descendant is a hard link to a folder.
    pub(crate) const HAS_CHILD_LINK: u16 = 0x0040;
    /// [`super::ExtendedInfoRaw::date_added`] is valid.
    pub(crate) const HAS_DATE_ADDED: u16 = 0x0080;
    /// Dates are seconds since 1970.
    pub(crate) const EXPANDED_TIMES: u16 = 0x1000;
}

/// Bits of the Finder flags.
pub(crate) mod finder_flags {
    /// The Finder has seen the object.
    pub(crate) const INITED: u16 = 0x0100;
    /// Hidden: `UF_HIDDEN` is stored here.
    pub(crate) const INVISIBLE: u16 = 0x4000;
    /// The name must not change.
    pub(crate) const NAME_LOCKED: u16 = 0x1000;
    /// An alias; also every hard link to a folder.
    pub(crate) const ALIAS: u16 = 0x8000;
}

/// Type and creator of a symbolic link.
pub(crate) const SYMLINK_TYPE: ([u8; 4], [u8; 4]) = (*b"slnk", *b"rhap");
/// Type and creator of a hard link to a file.
pub(crate) const FILE_LINK_TYPE: ([u8; 4], [u8; 4]) = (*b"hlnk", *b"hfs+");
/// Type and creator of a hard link to a folder.
pub(crate) const FOLDER_LINK_TYPE: ([u8; 4], [u8; 4]) = (*b"fdrp", *b"MACS");
/// Type and creator of the journal's two files.
pub(crate) const JOURNAL_TYPE: ([u8; 4], [u8; 4]) = (*b"jrnl", *b"hfs+");

/// Owner, permissions and the field with several meanings (§7.5).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusBSDInfo.
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
pub(crate) struct BsdInfoRaw {
    /*00*/ pub(crate) owner_id: U32, // of a hard link: the previous link
    /*04*/ pub(crate) group_id: U32, // of a hard link: the next link
    /*08*/ pub(crate) admin_flags: u8, // SF_* >> 16
    /*09*/ pub(crate) owner_flags: u8, // UF_*
    /*10*/ pub(crate) file_mode: U16, // type and permissions; 0: none recorded
    /*12*/ pub(crate) special: U32, // link count, link reference or device number
}
const _: () = assert!(size_of::<BsdInfoRaw>() == 16);

impl BsdInfoRaw {
    /// Returns the type bits: one of [`mode_type`] if the mode is valid.
    pub(crate) fn mode_type(&self) -> u16 {
        self.file_mode.get() & mode_type::MASK
    }
}

/// First half of the Finder information of a file.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, FndrFileInfo.
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
pub(crate) struct FileInfoRaw {
    /*00*/ pub(crate) file_type: [u8; 4],
    /*04*/ pub(crate) creator: [u8; 4],
    /*08*/ pub(crate) finder_flags: U16,
    /*10*/ pub(crate) location: [U16; 2], // v, h
    /*14*/ pub(crate) opaque: U16,
}
const _: () = assert!(size_of::<FileInfoRaw>() == 16);

/// First half of the Finder information of a folder.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, FndrDirInfo.
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
pub(crate) struct FolderInfoRaw {
    /*00*/ pub(crate) window: [U16; 4], // top, left, bottom, right
    /*08*/ pub(crate) finder_flags: U16,
    /*10*/ pub(crate) location: [U16; 2], // v, h
    /*14*/ pub(crate) opaque: U16,
}
const _: () = assert!(size_of::<FolderInfoRaw>() == 16);

/// Second half of the Finder information.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, FndrExtendedFileInfo and FndrExtendedDirInfo.
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
pub(crate) struct ExtendedInfoRaw {
    /*00*/ pub(crate) document_id: U32,
    /*04*/ pub(crate) date_added: U32, // since 1970, with HAS_DATE_ADDED
    /*08*/ pub(crate) extended_flags: U16,
    /*10*/ pub(crate) reserved: U16,
    /*12*/ pub(crate) write_generation: U32,
}
const _: () = assert!(size_of::<ExtendedInfoRaw>() == 16);

/// Fields common to folder and file records after their first twelve bytes.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusCatalogFolder and HFSPlusCatalogFile.
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
pub(crate) struct DatesRaw {
    /*00*/ pub(crate) create: U32,
    /*04*/ pub(crate) content_mod: U32,
    /*08*/ pub(crate) attribute_mod: U32,
    /*12*/ pub(crate) access: U32,
    /*16*/ pub(crate) backup: U32,
}
const _: () = assert!(size_of::<DatesRaw>() == 20);

/// Record of a folder (§7.2).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusCatalogFolder.
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
pub(crate) struct FolderRaw {
    /*00*/ pub(crate) record_type: U16, // record_type::FOLDER
    /*02*/ pub(crate) flags: U16, // record_flags
    /*04*/ pub(crate) valence: U32, // direct children
    /*08*/ pub(crate) folder_id: U32,
    /*12*/ pub(crate) dates: DatesRaw,
    /*32*/ pub(crate) bsd: BsdInfoRaw,
    /*48*/ pub(crate) user_info: FolderInfoRaw,
    /*64*/ pub(crate) finder_info: ExtendedInfoRaw,
    /*80*/ pub(crate) text_encoding: U32,
    /*84*/ pub(crate) folder_count: U32, // with HAS_FOLDER_COUNT
}
const _: () = assert!(size_of::<FolderRaw>() == 88);

/// Record of a file (§7.3).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusCatalogFile.
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
pub(crate) struct FileRaw {
    /*000*/ pub(crate) record_type: U16, // record_type::FILE
    /*002*/ pub(crate) flags: U16, // record_flags
    /*004*/ pub(crate) first_link: U32, // of an indirect node: the newest link
    /*008*/ pub(crate) file_id: U32,
    /*012*/ pub(crate) dates: DatesRaw,
    /*032*/ pub(crate) bsd: BsdInfoRaw,
    /*048*/ pub(crate) user_info: FileInfoRaw,
    /*064*/ pub(crate) finder_info: ExtendedInfoRaw,
    /*080*/ pub(crate) text_encoding: U32,
    /*084*/ pub(crate) reserved2: U32,
    /*088*/ pub(crate) data_fork: ForkRaw,
    /*168*/ pub(crate) resource_fork: ForkRaw,
}
const _: () = assert!(size_of::<FileRaw>() == 248);

/// Returns the bit of a text encoding in the volume header (§2), as Apple's checker computes it: by
/// the low seven bits of the number; those without a bit of their own are treated as MacRoman (0).
pub(crate) fn encoding_bit(text_encoding: u32) -> u64 {
    match text_encoding & 0x7F {
        number @ 0..48 => 1 << number,
        _ => 1,
    }
}

impl FileRaw {
    /// Returns the Finder type and creator.
    pub(crate) fn kind(&self) -> ([u8; 4], [u8; 4]) {
        (self.user_info.file_type, self.user_info.creator)
    }

    /// Returns true if the record has all properties of a hard link to a folder (§7.8).
    pub(crate) fn is_folder_link(&self) -> bool {
        self.kind() == FOLDER_LINK_TYPE
            && self.user_info.finder_flags.get() & finder_flags::ALIAS != 0
            && self.flags.get() & record_flags::HAS_LINK_CHAIN != 0
    }
}

/// Head of a thread record (§7.1); the name follows.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusCatalogThread.
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
pub(crate) struct ThreadHeadRaw {
    /*00*/ pub(crate) record_type: U16, // FOLDER_THREAD or FILE_THREAD
    /*02*/ pub(crate) reserved: U16,
    /*04*/ pub(crate) parent_id: U32,
    /*08*/ pub(crate) name_length: U16, // in UTF-16 units
}
const _: () = assert!(size_of::<ThreadHeadRaw>() == 10);

/// Head of a catalog key (§6.9); the name follows.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusCatalogKey.
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
pub(crate) struct CatalogKeyHeadRaw {
    /*00*/ pub(crate) key_length: U16, // CATALOG_MIN_KEY_LENGTH + 2 * name_length
    /*02*/ pub(crate) parent_id: U32,
    /*06*/ pub(crate) name_length: U16, // in UTF-16 units
}
const _: () = assert!(size_of::<CatalogKeyHeadRaw>() == 8);
/// Offset of the number of units of the name in a record.
pub(crate) const CATALOG_NAME_LENGTH_AT: usize = offset_of!(CatalogKeyHeadRaw, name_length);

/// A catalog key: a folder and a name in it. The key of an object's thread is its own number and
/// the empty name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CatalogKey<'a> {
    /// CNID of the folder.
    pub(crate) parent: Cnid,
    /// Name of at most [`MAX_NAME_UNITS`] units.
    pub(crate) name: &'a [U16],
}

impl<'a> CatalogKey<'a> {
    /// Splits `record` into the key at its beginning and the data; `None` if the key is invalid.
    pub(crate) fn split(record: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = CatalogKeyHeadRaw::ref_from_prefix(record).ok()?;
        let units = usize::from(head.name_length.get());
        let (name, _) = <[U16]>::ref_from_prefix_with_elems(rest, units).ok()?;
        let key_length = usize::from(head.key_length.get());
        // Some writers make index keys longer than the name needs, never shorter.
        if units > MAX_NAME_UNITS || key_length < usize::from(CATALOG_MIN_KEY_LENGTH) + 2 * units {
            return None;
        }
        let data = record.get(2 + key_length..)?;
        Some((
            Self {
                parent: Cnid(head.parent_id.get()),
                name,
            },
            data,
        ))
    }

    /// Appends the on-disk form of the key. The name is at most [`MAX_NAME_UNITS`] units.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let units = unit_count(self.name);
        let head = CatalogKeyHeadRaw {
            key_length: (CATALOG_MIN_KEY_LENGTH + 2 * units).into(),
            parent_id: self.parent.0.into(),
            name_length: units.into(),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.name.as_bytes());
    }
}

/// A thread: the record that maps a number to a folder and a name (§7.1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thread<'a> {
    /// The folder that contains the object.
    pub(crate) parent: Cnid,
    /// The name in that folder.
    pub(crate) name: &'a [U16],
    /// True if the object is a folder.
    pub(crate) folder: bool,
}

impl Thread<'_> {
    /// Appends the on-disk form of the record.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let kind = if self.folder {
            record_type::FOLDER_THREAD
        } else {
            record_type::FILE_THREAD
        };
        let head = ThreadHeadRaw {
            record_type: kind.into(),
            reserved: 0.into(),
            parent_id: self.parent.0.into(),
            name_length: unit_count(self.name).into(),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(self.name.as_bytes());
    }
}

/// The data of a catalog leaf record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CatalogRecord<'a> {
    /// A folder.
    Folder(&'a FolderRaw),
    /// A file, symbolic link, device node or hard link.
    File(&'a FileRaw),
    /// A thread.
    Thread(Thread<'a>),
}

impl<'a> CatalogRecord<'a> {
    /// Parses the record in `data`; `None` if its type is unknown or it is truncated.
    pub(crate) fn parse(data: &'a [u8]) -> Option<Self> {
        let (kind, _) = U16::ref_from_prefix(data).ok()?;
        match kind.get() {
            record_type::FOLDER => Some(Self::Folder(FolderRaw::ref_from_prefix(data).ok()?.0)),
            record_type::FILE => Some(Self::File(FileRaw::ref_from_prefix(data).ok()?.0)),
            kind @ (record_type::FOLDER_THREAD | record_type::FILE_THREAD) => {
                let (head, rest) = ThreadHeadRaw::ref_from_prefix(data).ok()?;
                let units = usize::from(head.name_length.get());
                let (name, _) = <[U16]>::ref_from_prefix_with_elems(rest, units).ok()?;
                let folder = kind == record_type::FOLDER_THREAD;
                let thread = Thread {
                    parent: Cnid(head.parent_id.get()),
                    name,
                    folder,
                };
                (units <= MAX_NAME_UNITS).then_some(Self::Thread(thread))
            }
            _ => None,
        }
    }
}

/// Fork types in an extents key.
pub(crate) mod fork_type {
    /// The data fork.
    pub(crate) const DATA: u8 = 0;
    /// The resource fork.
    pub(crate) const RESOURCE: u8 = 0xFF;
}

/// A key of the extents-overflow tree (§6.9), ordered by file, fork, start block.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusExtentKey.
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
pub(crate) struct ExtentKeyRaw {
    /*00*/ pub(crate) key_length: U16, // EXTENTS_KEY_LENGTH
    /*02*/ pub(crate) fork_type: u8, // fork_type
    /*03*/ pub(crate) pad: u8,
    /*04*/ pub(crate) file_id: U32,
    /*08*/ pub(crate) start_block: U32, // of the fork, not of the volume
}
const _: () = assert!(size_of::<ExtentKeyRaw>() == 12);

/// A whole record of the extents-overflow tree.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusExtentKey and HFSPlusExtentRecord.
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
pub(crate) struct ExtentRecordRaw {
    /*00*/ pub(crate) key: ExtentKeyRaw,
    /*12*/ pub(crate) extents: ExtentsRaw,
}
const _: () = assert!(size_of::<ExtentRecordRaw>() == 76);

/// Returns the length of a name that is known to be within the limit.
pub(super) fn unit_count(name: &[U16]) -> u16 {
    debug_assert!(
        name.len() <= MAX_NAME_UNITS,
        "names are checked when they are made"
    );
    u16::try_from(name.len()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_threads_survive_the_disk() {
        let name: Vec<U16> = "Grüße".encode_utf16().map(U16::new).collect();
        let mut bytes = Vec::new();
        CatalogKey {
            parent: Cnid(77),
            name: &name,
        }
        .put(&mut bytes);
        assert_eq!(bytes[..8], [0, 16, 0, 0, 0, 77, 0, 5]);
        bytes.extend_from_slice(b"data");
        let (key, data) = CatalogKey::split(&bytes).unwrap();
        assert_eq!(
            (key.parent, key.name, data),
            (Cnid(77), name.as_slice(), b"data".as_slice())
        );

        let mut bytes = Vec::new();
        Thread {
            parent: Cnid(5),
            name: &name,
            folder: true,
        }
        .put(&mut bytes);
        assert_eq!(bytes.len(), 20);
        let Some(CatalogRecord::Thread(thread)) = CatalogRecord::parse(&bytes) else {
            panic!("no thread")
        };
        assert_eq!(
            (thread.parent, thread.name, thread.folder),
            (Cnid(5), name.as_slice(), true)
        );
        assert!(CatalogRecord::parse(&bytes[..19]).is_none());
    }

    #[test]
    fn nonsense_is_no_key() {
        for bytes in [
            &[][..],
            &[0, 6, 0, 0, 0, 1, 0],
            &[0, 6, 0, 0, 0, 1, 0, 1, 0, 65],
            &[1, 6, 0, 0, 0, 1, 0, 0, 0],
        ] {
            assert!(CatalogKey::split(bytes).is_none(), "{bytes:?}");
        }
    }
}
