//! On-disk structures of QCOW2. Big-endian.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// [`Qcow2Raw::magic`].
pub(super) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// The header of version 2.
///
/// Source: QEMU, docs/interop/qcow2.rst.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Qcow2Raw {
    /*00*/ pub(super) magic: [u8; 4], // MAGIC
    /*04*/ pub(super) version: U32, // 2 or 3
    /*08*/ pub(super) backing_file_offset: U64, // 0: none
    /*10*/ pub(super) backing_file_size: U32,
    /*14*/ pub(super) cluster_bits: U32,
    /*18*/ pub(super) size: U64, // bytes
    /*20*/ pub(super) crypt_method: U32, // CRYPT_NONE, ...
    /*24*/ pub(super) l1_size: U32, // entries
    /*28*/ pub(super) l1_offset: U64,
    /*30*/ pub(super) refcount_offset: U64,
    /*38*/ pub(super) refcount_clusters: U32,
    /*3c*/ pub(super) snapshots: U32,
    /*40*/ pub(super) snapshots_offset: U64,
}
const _: () = assert!(size_of::<Qcow2Raw>() == 72);

/// The fields that the header of version 3 adds.
///
/// Source: QEMU, docs/interop/qcow2.rst.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Qcow2Version3Raw {
    /*48*/ pub(super) incompatible: U64,
    /*50*/ pub(super) compatible: U64,
    /*58*/ pub(super) autoclear: U64,
    /*60*/ pub(super) refcount_order: U32,
    /*64*/ pub(super) header_length: U32,
    /*68*/ pub(super) compression: u8, // ZLIB, ...; not in a SHORT_HEADER
    /*69*/ pub(super) padding: [u8; 7],
}
const _: () = assert!(size_of::<Qcow2Version3Raw>() == 40);

/// [`Qcow2Raw::crypt_method`] of an image that is not encrypted.
pub(super) const CRYPT_NONE: u32 = 0;
/// Of AES, in the format of QEMU.
pub(super) const CRYPT_AES: u32 = 1;
/// Of LUKS.
pub(super) const CRYPT_LUKS: u32 = 2;

/// [`Qcow2Version3Raw::header_length`] of a header without the field of the compression, in bytes.
pub(super) const SHORT_HEADER: u32 = 104;
/// [`Qcow2Version3Raw::compression`] of zlib.
pub(super) const ZLIB: u8 = 0;
/// Of zstd.
pub(super) const ZSTD: u8 = 1;

/// [`Qcow2Version3Raw::incompatible`]: the counts of references may be wrong.
pub(super) const DIRTY: u64 = 1;
/// The file is known to be damaged.
pub(super) const CORRUPT: u64 = 1 << 1;
/// Data is in another file.
pub(super) const EXTERNAL_DATA: u64 = 1 << 2;
/// The compression is not zlib.
pub(super) const OTHER_COMPRESSION: u64 = 1 << 3;
/// Entries have 128 bits, for parts of clusters.
pub(super) const EXTENDED_L2: u64 = 1 << 4;

/// Bits of an entry that hold an offset in the file.
pub(super) const OFFSET: u64 = 0x00FF_FFFF_FFFF_FE00;
/// The cluster is compressed.
pub(super) const COMPRESSED: u64 = 1 << 62;
/// The cluster reads as zeros.
pub(super) const ZERO: u64 = 1;
