//! On-disk structures of Apple Archive. Source: docs/formats/apple-archive.md.

use zerocopy::little_endian::{I64, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of an entry, of current archives and of those before macOS 11.
pub(super) const MAGICS: [[u8; 4]; 2] = [*b"AA01", *b"YAA1"];

/// The beginning of an entry, before its fields.
///
/// Source: the description in libNeoAppleArchive and The Apple Wiki.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct EntryHeadRaw {
    /* 0 */ pub(super) magic: [u8; 4],
    /// Length of the header in bytes: of this structure and all fields.
    /* 4 */
    pub(super) length: U16,
}
const _: () = assert!(size_of::<EntryHeadRaw>() == 6);

/// The beginning of a field, before its value.
///
/// Source: the description in libNeoAppleArchive; the keys are those of Apple's `AADefs.h`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct FieldRaw {
    /* 0 */ pub(super) key: [u8; 3],
    /// The type of the value, and its length.
    /* 3 */
    pub(super) subtype: u8,
}
const _: () = assert!(size_of::<FieldRaw>() == 4);

/// The value of a field of subtype `T`; that of `S` has only the seconds.
///
/// Source: the description in libNeoAppleArchive.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct TimeRaw {
    /// Since 1970-01-01 00:00:00 UTC.
    /* 0 */
    pub(super) seconds: I64,
    /* 8 */ pub(super) nanos: U32,
}
const _: () = assert!(size_of::<TimeRaw>() == 12);

/// The beginning of an extended attribute in the blob `XAT`. Its name follows, a zero byte, and the value.
///
/// Source: Apple's `AAEntryXATBlob.h`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct XattrRaw {
    /// Length of the attribute in bytes: of this structure, the name, the zero byte and the value.
    /* 0 */
    pub(super) length: U32,
}
const _: () = assert!(size_of::<XattrRaw>() == 4);

/// Values of the field `TYP`.
pub(super) mod entry_type {
    pub(in super::super) const FILE: u8 = b'F';
    pub(in super::super) const FOLDER: u8 = b'D';
    pub(in super::super) const SYMLINK: u8 = b'L';
    pub(in super::super) const FIFO: u8 = b'P';
    pub(in super::super) const CHAR_DEVICE: u8 = b'C';
    pub(in super::super) const BLOCK_DEVICE: u8 = b'B';
    pub(in super::super) const SOCKET: u8 = b'S';
    /// No object of a file system.
    pub(in super::super) const METADATA: u8 = b'M';
}
