//! On-disk structures of compressed Apple Archives. Source: docs/formats/apple-archive.md.

use zerocopy::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of an archive that is not compressed.
pub(super) const MAGICS: [[u8; 4]; 2] = [*b"AA01", *b"YAA1"];
/// First bytes of a compressed archive, before the letter of the compression.
pub(super) const PREFIX: &[u8; 3] = b"pbz";

/// The beginning of a compressed archive.
///
/// Source: the readers of libNeoAppleArchive and ipsw.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct EnvelopeRaw {
    /* 0 */ pub(super) prefix: [u8; 3],
    /// The letter of the compression.
    /* 3 */
    pub(super) compression: u8,
    /// Usual length of the contents of a block, in bytes. Not used.
    /* 4 */
    pub(super) block_size: U64,
}
const _: () = assert!(size_of::<EnvelopeRaw>() == 12);

/// The beginning of a block. Its stored bytes follow.
///
/// Source: the readers of libNeoAppleArchive and ipsw.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct BlockRaw {
    /// Length of the contents in bytes.
    /* 0 */
    pub(super) length: U64,
    /// Stored length in bytes. The contents are not compressed if it is the same.
    /* 8 */
    pub(super) stored: U64,
}
const _: () = assert!(size_of::<BlockRaw>() == 16);
