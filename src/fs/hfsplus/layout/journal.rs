//! The journal: its info block, its header and its block lists (§14).
//!
//! The info block is big-endian; the rest is in the byte order of the machine that wrote it, so fields are plain bytes
//! here and read through [`JournalOrder`].

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of [`JournalInfoBlockRaw::flags`].
pub(crate) mod journal_flags {
    /// The journal lies in this volume.
    pub(crate) const IN_VOLUME: u32 = 1;
    /// The journal lies on another device.
    pub(crate) const OTHER_DEVICE: u32 = 2;
    /// What the journal holds is to be ignored.
    pub(crate) const NEEDS_INIT: u32 = 4;
}

/// Where the journal lies (§14.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
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

/// `JNLx` in [`JournalHeaderRaw::magic`].
pub(crate) const JOURNAL_MAGIC: u32 = 0x4A4E_4C78;
/// `JHDR`, of old systems.
pub(crate) const JOURNAL_MAGIC_OLD: u32 = 0x4A48_4452;
/// [`JournalHeaderRaw::endian`] in the writer's byte order.
pub(crate) const JOURNAL_ENDIAN: u32 = 0x1234_5678;
/// The bytes of a journal header that its checksum covers, the checksum itself as zero.
pub(crate) const JOURNAL_HEADER_SUMMED: usize = 44;

/// The first sector of the journal (§14.2), in the byte order of its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct JournalHeaderRaw {
    /*00*/ pub(crate) magic: [u8; 4], // JOURNAL_MAGIC
    /*04*/ pub(crate) endian: [u8; 4], // JOURNAL_ENDIAN
    /*08*/ pub(crate) start: [u8; 8], // first pending transaction, bytes from the start of the journal
    /*16*/ pub(crate) end: [u8; 8], // free space; start == end: nothing pending
    /*24*/ pub(crate) size: [u8; 8], // of the whole journal
    /*32*/ pub(crate) block_list_size: [u8; 4],
    /*36*/ pub(crate) checksum: [u8; 4],
    /*40*/ pub(crate) header_size: [u8; 4], // of this header: the sector
    /*44*/ pub(crate) sequence: [u8; 4],
}
const _: () = assert!(size_of::<JournalHeaderRaw>() == 48);

/// The byte order of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalOrder {
    /// Every Mac since 2006.
    Little,
    /// PowerPC.
    Big,
}

impl JournalOrder {
    /// The order in which `header` is written; `None` if it is no journal header.
    pub(crate) fn of(header: &JournalHeaderRaw) -> Option<Self> {
        [Self::Little, Self::Big].into_iter().find(|order| {
            matches!(order.u32(header.magic), JOURNAL_MAGIC | JOURNAL_MAGIC_OLD) && order.u32(header.endian) == JOURNAL_ENDIAN
        })
    }

    /// A 32-bit field.
    pub(crate) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// A 64-bit field.
    pub(crate) fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// The checksum of a journal's headers and blocks; the checksum field itself counts as zero.
pub(crate) fn journal_checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(0_u32, |sum, &byte| (sum << 8) ^ sum.wrapping_add(u32::from(byte)))
}
