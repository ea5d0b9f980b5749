//! Structures that describe files and directories.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian};

use super::{AddressRaw, EntityRaw, TagRaw, TimeRaw};

/// Types of files (4/14.6.6 and UDF 2.60, 2.2.11 to 2.2.13).
pub(in crate::udf) mod file_type {
    /// Not said; the virtual allocation table of UDF 1.50.
    pub(in crate::udf) const UNKNOWN: u8 = 0;
    pub(in crate::udf) const DIRECTORY: u8 = 4;
    pub(in crate::udf) const FILE: u8 = 5;
    pub(in crate::udf) const BLOCK_DEVICE: u8 = 6;
    pub(in crate::udf) const CHAR_DEVICE: u8 = 7;
    pub(in crate::udf) const ATTRIBUTES: u8 = 8;
    pub(in crate::udf) const FIFO: u8 = 9;
    pub(in crate::udf) const SOCKET: u8 = 10;
    pub(in crate::udf) const SYMLINK: u8 = 12;
    pub(in crate::udf) const STREAMS: u8 = 13;
    pub(in crate::udf) const VAT: u8 = 248;
    pub(in crate::udf) const REAL_TIME: u8 = 249;
    pub(in crate::udf) const METADATA: u8 = 250;
    pub(in crate::udf) const METADATA_MIRROR: u8 = 251;
}

/// Flags of ICB tags (4/14.6.8).
pub(in crate::udf) mod icb_flags {
    /// Mask of the form of the allocation descriptors.
    pub(in crate::udf) const ALLOCATION: u16 = 0x0007;
    pub(in crate::udf) const SETUID: u16 = 0x0040;
    pub(in crate::udf) const SETGID: u16 = 0x0080;
    pub(in crate::udf) const STICKY: u16 = 0x0100;
    /// The contents are encoded, for example encrypted.
    pub(in crate::udf) const TRANSFORMED: u16 = 0x0800;
}

/// Forms of allocation descriptors.
pub(in crate::udf) mod allocation {
    pub(in crate::udf) const SHORT: u16 = 0;
    pub(in crate::udf) const LONG: u16 = 1;
    pub(in crate::udf) const EXTENDED: u16 = 2;
    /// The contents take the place of the descriptors.
    pub(in crate::udf) const EMBEDDED: u16 = 3;
}

/// Kinds of extents, in the top two bits of their lengths (4/14.14.1.1).
pub(in crate::udf) mod extent_kind {
    /// The lowest bit of a kind.
    pub(in crate::udf) const SHIFT: u32 = 30;
    pub(in crate::udf) const RECORDED: u32 = 0;
    pub(in crate::udf) const ALLOCATED: u32 = 1;
    #[cfg(any(test, feature = "testing"))]
    pub(in crate::udf) const UNALLOCATED: u32 = 2;
    /// The place of more allocation descriptors.
    pub(in crate::udf) const CONTINUATION: u32 = 3;
}

/// Strategies of ICBs (4/14.6.2).
pub(in crate::udf) mod icb_strategy {
    /// One file entry.
    pub(in crate::udf) const SINGLE: u16 = 4;
    /// A chain of ICBs of two blocks, each with a file entry and perhaps an indirect entry.
    pub(in crate::udf) const CHAIN: u16 = 4096;
}

/// Characteristics of names (4/14.4.3).
pub(in crate::udf) mod characteristics {
    pub(in crate::udf) const HIDDEN: u8 = 0x01;
    pub(in crate::udf) const DIRECTORY: u8 = 0x02;
    pub(in crate::udf) const DELETED: u8 = 0x04;
    pub(in crate::udf) const PARENT: u8 = 0x08;
}

/// Types of path components (4/14.16.1.1).
pub(in crate::udf) mod component {
    /// The root of a file system that was agreed upon; without a name the root of this one.
    pub(in crate::udf) const AGREED_ROOT: u8 = 1;
    pub(in crate::udf) const ROOT: u8 = 2;
    pub(in crate::udf) const PARENT: u8 = 3;
    pub(in crate::udf) const CURRENT: u8 = 4;
    pub(in crate::udf) const NAME: u8 = 5;
}

/// Types of extended attributes (4/14.10).
pub(in crate::udf) mod attribute_type {
    pub(in crate::udf) const FILE_TIMES: u32 = 5;
    pub(in crate::udf) const DEVICE: u32 = 12;
    pub(in crate::udf) const IMPLEMENTATION: u32 = 2048;
}

/// Mask of the bits of [`ExtentLengthRaw`] that hold bytes.
const LENGTH: u32 = 0x3FFF_FFFF;

/// The length of an extent, and its kind.
///
/// Source: ECMA-167 4/14.14.1.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct ExtentLengthRaw {
    /*0*/ value: U32,
}
const _: () = assert!(size_of::<ExtentLengthRaw>() == 4);

impl ExtentLengthRaw {
    /// Returns the length in bytes.
    pub(in crate::udf) fn bytes(self) -> u32 {
        self.value.get() & LENGTH
    }

    /// Returns the kind, of [`extent_kind`].
    pub(in crate::udf) fn kind(self) -> u32 {
        self.value.get() >> extent_kind::SHIFT
    }
}

impl From<u32> for ExtentLengthRaw {
    fn from(value: u32) -> Self {
        Self {
            value: value.into(),
        }
    }
}

/// A short allocation descriptor, for blocks of the same partition.
///
/// Source: ECMA-167 4/14.14.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct ShortAdRaw {
    /*0*/ pub(in crate::udf) len: ExtentLengthRaw,
    /*4*/ pub(in crate::udf) block: U32,
}
const _: () = assert!(size_of::<ShortAdRaw>() == 8);

/// A long allocation descriptor.
///
/// Source: ECMA-167 4/14.14.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct LongAdRaw {
    /*0*/ pub(in crate::udf) len: ExtentLengthRaw,
    /*4*/ pub(in crate::udf) address: AddressRaw,
    /*A*/ pub(in crate::udf) flags: U16,
    /*C*/ pub(in crate::udf) unique_id: U32, // low bits, in names of UDF 2.00 and later
}
const _: () = assert!(size_of::<LongAdRaw>() == 16);

/// An extended allocation descriptor.
///
/// Source: ECMA-167 4/14.14.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct ExtendedAdRaw {
    /*00*/ pub(in crate::udf) len: ExtentLengthRaw,
    /*04*/ pub(in crate::udf) recorded: ExtentLengthRaw, // without a kind
    /*08*/ pub(in crate::udf) information: U32, // bytes after decoding
    /*0C*/ pub(in crate::udf) address: AddressRaw,
    /*12*/ pub(in crate::udf) use_bytes: [u8; 2],
}
const _: () = assert!(size_of::<ExtendedAdRaw>() == 20);

/// The start of an extent of more allocation descriptors.
///
/// Source: ECMA-167 4/14.5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct AllocationExtentRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) previous: U32,
    /*14*/ pub(in crate::udf) len: U32, // bytes of descriptors
}
const _: () = assert!(size_of::<AllocationExtentRaw>() == 24);

/// The file set descriptor.
///
/// Source: ECMA-167 4/14.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct FileSetRaw {
    /*000*/ pub(in crate::udf) tag: TagRaw,
    /*010*/ pub(in crate::udf) recorded: TimeRaw,
    /*01C*/ pub(in crate::udf) levels: [u8; 12],
    /*028*/ pub(in crate::udf) number: U32,
    /*02C*/ pub(in crate::udf) descriptor: U32,
    /*030*/ pub(in crate::udf) volume_set: [u8; 64],
    /*070*/ pub(in crate::udf) volume: [u8; 128],
    /*0F0*/ pub(in crate::udf) set: [u8; 64],
    /*130*/ pub(in crate::udf) name: [u8; 32],
    /*150*/ pub(in crate::udf) other_names: [u8; 64],
    /*190*/ pub(in crate::udf) root: LongAdRaw,
    /*1A0*/ pub(in crate::udf) domain: EntityRaw,
    /*1C0*/ pub(in crate::udf) next: LongAdRaw,
    /*1D0*/ pub(in crate::udf) streams: LongAdRaw,
    /*1E0*/ pub(in crate::udf) reserved: [u8; 32],
}
const _: () = assert!(size_of::<FileSetRaw>() == 512);

/// The tag of an information control block (ICB).
///
/// Source: ECMA-167 4/14.6.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct IcbTagRaw {
    /*00*/ pub(in crate::udf) prior: U32,
    /*04*/ pub(in crate::udf) strategy: U16, // icb_strategy
    /*06*/ pub(in crate::udf) parameter: U16,
    /*08*/ pub(in crate::udf) max_entries: U16,
    /*0A*/ pub(in crate::udf) reserved: u8,
    /*0B*/ pub(in crate::udf) kind: u8, // file_type
    /*0C*/ pub(in crate::udf) parent: AddressRaw,
    /*12*/ pub(in crate::udf) flags: U16, // icb_flags
}
const _: () = assert!(size_of::<IcbTagRaw>() == 20);

/// An indirect entry: the place of a newer ICB of strategy 4096.
///
/// Source: ECMA-167 4/14.7.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct IndirectRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) icb: IcbTagRaw,
    /*24*/ pub(in crate::udf) next: LongAdRaw,
}
const _: () = assert!(size_of::<IndirectRaw>() == 52);

/// A file entry without its extended attributes and allocation descriptors.
///
/// Source: ECMA-167 4/14.9.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct FileEntryRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) icb: IcbTagRaw,
    /*24*/ pub(in crate::udf) uid: U32,
    /*28*/ pub(in crate::udf) gid: U32,
    /*2C*/ pub(in crate::udf) permissions: U32,
    /*30*/ pub(in crate::udf) links: U16,
    /*32*/ pub(in crate::udf) record: [u8; 6],
    /*38*/ pub(in crate::udf) len: U64, // bytes
    /*40*/ pub(in crate::udf) blocks: U64, // recorded
    /*48*/ pub(in crate::udf) accessed: TimeRaw,
    /*54*/ pub(in crate::udf) modified: TimeRaw,
    /*60*/ pub(in crate::udf) changed: TimeRaw,
    /*6C*/ pub(in crate::udf) checkpoint: U32,
    /*70*/ pub(in crate::udf) attributes: LongAdRaw, // ICB of more extended attributes
    /*80*/ pub(in crate::udf) implementation: EntityRaw,
    /*A0*/ pub(in crate::udf) unique_id: U64,
    /*A8*/ pub(in crate::udf) attributes_len: U32, // bytes
    /*AC*/ pub(in crate::udf) allocation_len: U32, // bytes
}
const _: () = assert!(size_of::<FileEntryRaw>() == 176);

/// An extended file entry without its extended attributes and allocation descriptors.
///
/// Source: ECMA-167 4/14.17.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct ExtendedEntryRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) icb: IcbTagRaw,
    /*24*/ pub(in crate::udf) uid: U32,
    /*28*/ pub(in crate::udf) gid: U32,
    /*2C*/ pub(in crate::udf) permissions: U32,
    /*30*/ pub(in crate::udf) links: U16,
    /*32*/ pub(in crate::udf) record: [u8; 6],
    /*38*/ pub(in crate::udf) len: U64, // bytes
    /*40*/ pub(in crate::udf) object_len: U64, // bytes, of all streams
    /*48*/ pub(in crate::udf) blocks: U64, // recorded
    /*50*/ pub(in crate::udf) accessed: TimeRaw,
    /*5C*/ pub(in crate::udf) modified: TimeRaw,
    /*68*/ pub(in crate::udf) created: TimeRaw,
    /*74*/ pub(in crate::udf) changed: TimeRaw,
    /*80*/ pub(in crate::udf) checkpoint: U32,
    /*84*/ pub(in crate::udf) reserved: U32,
    /*88*/ pub(in crate::udf) attributes: LongAdRaw, // ICB of more extended attributes
    /*98*/ pub(in crate::udf) streams: LongAdRaw, // ICB of the directory of streams
    /*A8*/ pub(in crate::udf) implementation: EntityRaw,
    /*C8*/ pub(in crate::udf) unique_id: U64,
    /*D0*/ pub(in crate::udf) attributes_len: U32, // bytes
    /*D4*/ pub(in crate::udf) allocation_len: U32, // bytes
}
const _: () = assert!(size_of::<ExtendedEntryRaw>() == 216);

/// A file identifier descriptor without the name: an entry of a directory.
///
/// Source: ECMA-167 4/14.4.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct NameRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) version: U16,
    /*12*/ pub(in crate::udf) characteristics: u8, // characteristics
    /*13*/ pub(in crate::udf) name_len: u8, // bytes
    /*14*/ pub(in crate::udf) icb: LongAdRaw,
    /*24*/ pub(in crate::udf) use_len: U16, // bytes before the name
}
const _: () = assert!(size_of::<NameRaw>() == 38);

/// A component of the target of a symbolic link without its name.
///
/// Source: ECMA-167 4/14.16.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct PathComponentRaw {
    /*0*/ pub(in crate::udf) kind: u8, // component
    /*1*/ pub(in crate::udf) name_len: u8, // bytes
    /*2*/ pub(in crate::udf) version: U16,
}
const _: () = assert!(size_of::<PathComponentRaw>() == 4);

/// The start of an extended attribute.
///
/// Source: ECMA-167 4/14.10.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct AttributeRaw {
    /*0*/ pub(in crate::udf) kind: U32, // attribute_type
    /*4*/ pub(in crate::udf) subtype: u8,
    /*5*/ pub(in crate::udf) reserved: [u8; 3],
    /*8*/ pub(in crate::udf) len: U32, // bytes of the attribute
}
const _: () = assert!(size_of::<AttributeRaw>() == 12);

/// The times of a file without extended file entry, up to the first.
///
/// Source: ECMA-167 4/14.10.5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct FileTimesRaw {
    /*00*/ pub(in crate::udf) head: AttributeRaw,
    /*0C*/ pub(in crate::udf) data_len: U32, // bytes
    /*10*/ pub(in crate::udf) existence: U32, // bit 0: the first is the creation
    /*14*/ pub(in crate::udf) first: TimeRaw,
}
const _: () = assert!(size_of::<FileTimesRaw>() == 32);

/// The number of a device.
///
/// Source: ECMA-167 4/14.10.7.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct DeviceRaw {
    /*00*/ pub(in crate::udf) head: AttributeRaw,
    /*0C*/ pub(in crate::udf) use_len: U32, // bytes
    /*10*/ pub(in crate::udf) major: U32,
    /*14*/ pub(in crate::udf) minor: U32,
}
const _: () = assert!(size_of::<DeviceRaw>() == 24);

/// The start of an attribute of an implementation, up to a checksum that is not read.
///
/// Source: ECMA-167 4/14.10.8; UDF 2.60, 3.3.4.5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct ImplementationRaw {
    /*00*/ pub(in crate::udf) head: AttributeRaw,
    /*0C*/ pub(in crate::udf) use_len: U32, // bytes after the identifier
    /*10*/ pub(in crate::udf) kind: EntityRaw,
    /*30*/ pub(in crate::udf) checksum: U16,
}
const _: () = assert!(size_of::<ImplementationRaw>() == 50);

/// Finder info, from the checksum of its attribute on.
///
/// Source: UDF 2.60, 3.3.4.5.4.2; mkisofs.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct FinderRaw {
    /*00*/ pub(in crate::udf) checksum: U16,
    /*02*/ pub(in crate::udf) reserved: U16,
    /*04*/ pub(in crate::udf) parent: big_endian::U32,
    /*08*/ pub(in crate::udf) info: [u8; 32],
}
const _: () = assert!(size_of::<FinderRaw>() == 40);
