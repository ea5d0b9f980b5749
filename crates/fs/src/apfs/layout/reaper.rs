//! The reaper, which deletes large objects over several transactions (§6).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockSize, ObjectRaw};
use bandsaw_core::size::narrow;

/// The reaper; a buffer for its state follows.
///
/// Source: Apple File System Reference (2020-06-22), nx_reaper_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ReaperRaw {
    /*00*/ pub(crate) object: ObjectRaw, // ephemeral
    /*20*/ pub(crate) next_id: U64, // from 1
    /*28*/ pub(crate) completed_id: U64,
    /*30*/ pub(crate) head: U64, // first list, 0 for none
    /*38*/ pub(crate) tail: U64, // last list
    /*40*/ pub(crate) flags: U32, // reaper_flags
    /*44*/ pub(crate) lists: U32,
    /*48*/ pub(crate) kind: U32,
    /*4C*/ pub(crate) size: U32,
    /*50*/ pub(crate) fs_oid: U64,
    /*58*/ pub(crate) oid: U64,
    /*60*/ pub(crate) xid: U64,
    /*68*/ pub(crate) entry_flags: U32,
    /*6C*/ pub(crate) buffer_size: U32, // the rest of the block
}
const _: () = assert!(size_of::<ReaperRaw>() == 0x70);

/// Bits of [`ReaperRaw::flags`].
pub(crate) mod reaper_flags {
    /// Always set.
    pub(crate) const ALWAYS: u32 = 0x1;
    /// An object is being deleted.
    pub(crate) const CONTINUE: u32 = 0x2;
}

/// Returns the length of the reaper's buffer in bytes.
pub(crate) fn reaper_buffer(block_size: BlockSize) -> u32 {
    block_size.get() - narrow::<u32>(size_of::<ReaperRaw>()) // a fixed 0x70
}

/// The head of a list of objects to be deleted; entries follow.
///
/// Source: Apple File System Reference (2020-06-22), nx_reap_list_phys_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct ReapListRaw {
    /*00*/ pub(crate) object: ObjectRaw, // ephemeral
    /*20*/ pub(crate) next: U64,
    /*28*/ pub(crate) flags: U32,
    /*2C*/ pub(crate) max: U32,
    /*30*/ pub(crate) count: U32,
    /*34*/ pub(crate) first: U32,
    /*38*/ pub(crate) last: U32,
    /*3C*/ pub(crate) free: U32,
}
const _: () = assert!(size_of::<ReapListRaw>() == 0x40);
