//! The journal: its info block, its header and its block lists (§14).
//!
//! The info block is big-endian. The rest is in the byte order of the machine that wrote it, so its
//! fields are plain bytes here and are read through [`JournalOrder`]. Positions are bytes from the
//! start of the journal.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of [`JournalInfoBlockRaw::flags`].
pub(crate) mod journal_flags {
    /// The journal is in this volume.
    pub(crate) const IN_VOLUME: u32 = 1;
    /// The journal is on another device.
    pub(crate) const OTHER_DEVICE: u32 = 2;
    /// The contents of the journal are to be ignored.
    pub(crate) const NEEDS_INIT: u32 = 4;
}

/// The journal info block (§14.1).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, JournalInfoBlock.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct JournalInfoBlockRaw {
    /*000*/ pub(crate) flags: U32, // journal_flags
    /*004*/ pub(crate) device_signature: [u8; 32],
    /*036*/ pub(crate) offset: U64, // bytes from the start of the volume
    /*044*/ pub(crate) size: U64, // bytes
    /*052*/ pub(crate) external_uuid: [u8; 37],
    /*089*/ pub(crate) machine_serial: [u8; 48],
    /*137*/ pub(crate) reserved: [u8; 43],
}
const _: () = assert!(size_of::<JournalInfoBlockRaw>() == 180);

impl JournalInfoBlockRaw {
    /// Returns the info block of a journal in its volume, given its offset and size in bytes, which
    /// its first user has to initialize.
    pub(crate) fn unused((offset, size): (u64, u64)) -> Self {
        Self {
            flags: (journal_flags::IN_VOLUME | journal_flags::NEEDS_INIT).into(),
            device_signature: [0; 32],
            offset: offset.into(),
            size: size.into(),
            external_uuid: [0; 37],
            machine_serial: [0; 48],
            reserved: [0; 43],
        }
    }
}

/// `JNLx`, value of [`JournalHeaderRaw::magic`].
pub(crate) const JOURNAL_MAGIC: u32 = 0x4A4E_4C78;
/// `JHDR`, the value of old systems.
pub(crate) const JOURNAL_MAGIC_OLD: u32 = 0x4A48_4452;
/// Value of [`JournalHeaderRaw::endian`] in the writer's byte order.
pub(crate) const JOURNAL_ENDIAN: u32 = 0x1234_5678;
/// Number of bytes of a journal header that its checksum covers, with the checksum itself as zero.
pub(crate) const JOURNAL_HEADER_SUMMED: usize = 44;

/// Journal header: the first sector of the journal (§14.2), in the byte order of its writer.
///
/// Source: Apple hfs-715.100.10, core/hfs_journal.h, journal_header.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct JournalHeaderRaw {
    /*00*/ pub(crate) magic: [u8; 4], // JOURNAL_MAGIC
    /*04*/ pub(crate) endian: [u8; 4], // JOURNAL_ENDIAN
    /*08*/
    pub(crate) start: [u8; 8], // first pending transaction, bytes from the start of the journal
    /*16*/ pub(crate) end: [u8; 8], // free space; start == end: nothing pending
    /*24*/ pub(crate) size: [u8; 8], // of the whole journal
    /*32*/ pub(crate) block_list_size: [u8; 4],
    /*36*/ pub(crate) checksum: [u8; 4],
    /*40*/ pub(crate) header_size: [u8; 4], // of this header: the sector
    /*44*/ pub(crate) sequence: [u8; 4],
}
const _: () = assert!(size_of::<JournalHeaderRaw>() == 48);

/// Valid values of [`JournalHeaderRaw::header_size`]: a sector.
pub(crate) const JOURNAL_HEADER_SIZES: std::ops::RangeInclusive<u32> = 512..=65536;
/// Valid values of [`JournalHeaderRaw::block_list_size`]; macOS writes 4096 to 65536.
pub(crate) const BLOCK_LIST_SIZES: std::ops::RangeInclusive<u32> = 48..=1 << 20;

/// Bits of [`BlockListHeaderRaw::flags`].
pub(crate) mod block_list_flags {
    /// [`super::BlockInfoRaw::checksum`] is valid.
    pub(crate) const CHECKSUMS: u32 = 1;
    /// The first list of a transaction.
    pub(crate) const FIRST: u32 = 2;
}

/// Head of a block list (§14.3), in the byte order of its writer. [`BlockInfoRaw`]s follow, then,
/// after the full size of the list, the blocks.
///
/// Source: Apple hfs-715.100.10, core/hfs_journal.h, block_list_header.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct BlockListHeaderRaw {
    /*00*/ pub(crate) max_blocks: [u8; 2],
    /*02*/ pub(crate) num_blocks: [u8; 2], // the entry of the list itself counts
    /*04*/ pub(crate) bytes_used: [u8; 4], // the list and its blocks
    /*08*/ pub(crate) checksum: [u8; 4], // of the list's first 32 bytes
    /*12*/ pub(crate) flags: [u8; 4], // block_list_flags
}
const _: () = assert!(size_of::<BlockListHeaderRaw>() == 16);

/// Number of bytes of a block list that its checksum covers, with the checksum itself as zero.
pub(crate) const BLOCK_LIST_SUMMED: usize = 32;
/// Byte range of the checksum in a block list.
pub(crate) const BLOCK_LIST_CHECKSUM: std::ops::Range<usize> = 8..12;
/// Byte range of the checksum in the journal header.
pub(crate) const JOURNAL_HEADER_CHECKSUM: std::ops::Range<usize> = 36..40;

/// An entry of a block list; the first describes the list itself.
///
/// Source: Apple hfs-715.100.10, core/hfs_journal.h, block_info.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct BlockInfoRaw {
    /*00*/
    pub(crate) number: [u8; 8], // where the block belongs, in header sizes from the start of the volume
    /*08*/ pub(crate) size: [u8; 4], // bytes
    /*12*/
    pub(crate) checksum: [u8; 4], // of the block; of the first entry: the transaction's sequence number
}
const _: () = assert!(size_of::<BlockInfoRaw>() == 16);

/// [`BlockInfoRaw::number`] of a killed block, which is not to be written.
pub(crate) const KILLED_BLOCK: u64 = u64::MAX;

/// Byte order of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalOrder {
    /// Little-endian: every Mac since 2006.
    Little,
    /// Big-endian: PowerPC.
    Big,
}

impl JournalOrder {
    /// Returns the byte order of `header`; `None` if it is not a journal header.
    pub(crate) fn of(header: &JournalHeaderRaw) -> Option<Self> {
        [Self::Little, Self::Big].into_iter().find(|order| {
            matches!(order.u32(header.magic), JOURNAL_MAGIC | JOURNAL_MAGIC_OLD)
                && order.u32(header.endian) == JOURNAL_ENDIAN
        })
    }

    /// Encodes a 16-bit field.
    pub(crate) fn put_u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Encodes a 32-bit field.
    pub(crate) fn put_u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Encodes a 64-bit field.
    pub(crate) fn put_u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// Decodes a 16-bit field.
    pub(crate) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Decodes a 32-bit field.
    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// Decodes a 64-bit field.
    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// The checksum of a journal's headers and blocks, computed incrementally.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JournalChecksum(u32);

impl JournalChecksum {
    /// Adds bytes to the checksum.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| {
            (sum << 8) ^ sum.wrapping_add(u32::from(byte))
        });
    }

    /// Returns the checksum of all bytes added.
    pub(crate) fn finish(self) -> u32 {
        !self.0
    }

    /// Returns the checksum of a header, with its own field treated as zero.
    pub(crate) fn of_header(bytes: &[u8], field: std::ops::Range<usize>) -> u32 {
        let mut sum = Self::default();
        for (at, &byte) in bytes.iter().enumerate() {
            sum.update(&[if field.contains(&at) { 0 } else { byte }]);
        }
        sum.finish()
    }
}
