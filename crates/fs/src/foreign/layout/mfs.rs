//! MFS, the file system of the Macintosh before HFS, which is only recognized. Big-endian.

use bandsaw_core::size::to_usize;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Offset of the master directory block in bytes.
const MASTER_DIRECTORY: u64 = 1024;
/// [`MasterDirectoryRaw::signature`].
const SIGNATURE: u16 = 0xD2D7;
/// Number of the first block after the boot blocks and the master directory block.
const FIRST_FREE: u16 = 3;
/// Lengths of volume names in bytes.
const NAME_LENGTHS: std::ops::RangeInclusive<u8> = 1..=27;

/// The first fields of the master directory block.
///
/// Source: Inside Macintosh, volume II, "Volume Information" (page II-121).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MasterDirectoryRaw {
    /*00*/ signature: U16,
    /*02*/ created: U32,
    /*06*/ backed_up: U32,
    /*10*/ attributes: U16,
    /*12*/ files: U16,
    /*14*/ directory_start: U16, // block of 512 bytes
    /*16*/ directory_blocks: U16,
    /*18*/ allocation_blocks: U16,
    /*20*/ allocation_block_size: U32, // bytes
    /*24*/ clump_size: U32, // bytes
    /*28*/ first_allocation_block: U16, // block of 512 bytes
    /*30*/ next_file: U32,
    /*34*/ free_blocks: U16,
    /*36*/ name_length: u8, // the name follows
}
const _: () = assert!(size_of::<MasterDirectoryRaw>() == 37);

/// Returns true if a volume that begins with `head` is MFS: by more than its magic, whose two bytes are
/// too few. `head` has 2 KiB.
pub fn is_mfs(head: &[u8]) -> bool {
    let found = head.get(to_usize(MASTER_DIRECTORY)..);
    let found = found.and_then(|bytes| MasterDirectoryRaw::ref_from_prefix(bytes).ok());
    found.is_some_and(|(raw, _)| {
        let (directory, block_size) = (raw.directory_start.get(), raw.allocation_block_size.get());
        raw.signature == SIGNATURE
            && directory >= FIRST_FREE
            && raw.allocation_blocks.get() > 0
            && block_size > 0
            && block_size.is_multiple_of(512)
            && raw.first_allocation_block.get() > directory
            && NAME_LENGTHS.contains(&raw.name_length)
    })
}
