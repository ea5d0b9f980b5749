//! The on-disk structures of the three kinds of partition map.
//!
//! Source: docs/formats/raw.md §2; the UEFI specification (GPT) and Inside Macintosh: Devices
//! (Apple partition map) for the fields that §2 does not describe.

use zerocopy::big_endian::{U16 as Be16, U32 as Be32};
use zerocopy::little_endian::{U16 as Le16, U32 as Le32, U64 as Le64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Master boot record, sector 0. Little-endian.
///
/// Source: UEFI specification 2.10, 5.2.1.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MbrRaw {
    /*000*/ pub(super) boot_code: [u8; 446],
    /*1be*/ pub(super) entries: [MbrEntryRaw; 4],
    /*1fe*/ pub(super) signature: [u8; 2], // 55 aa
}
const _: () = assert!(size_of::<MbrRaw>() == 512);

pub(super) const MBR_SIGNATURE: [u8; 2] = [0x55, 0xaa];

/// The fields by which the boot sector of a volume without a partition map is told from a master boot
/// record, which has code there.
///
/// Source: Microsoft, "FAT: General Overview of On-Disk Format", 1.03, "Boot Sector and BPB".
#[derive(Debug, Clone, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BootSectorRaw {
    /*00*/ pub(super) jump: [u8; 3], // eb or e9 first
    /*03*/
    pub(super) oem: [u8; 8], // "NTFS    " or "EXFAT   "; the fields below are of FAT
    /*0b*/ pub(super) bytes_per_sector: Le16,
    /*0d*/ pub(super) sectors_per_cluster: u8, // a power of two
    /*0e*/ pub(super) reserved_sectors: Le16,
    /*10*/ pub(super) fats: u8,
    /*11*/ pub(super) root_entries: Le16,
    /*13*/ pub(super) sectors: Le16,
    /*15*/ pub(super) media: u8, // f0 and up
}
const _: () = assert!(size_of::<BootSectorRaw>() == 0x16);

/// A partition of an MBR, or a link of a chain of extended boot records.
///
/// Source: UEFI specification 2.10, 5.2.1.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MbrEntryRaw {
    /*00*/ pub(super) status: u8, // 80 active, 00 not
    /*01*/ pub(super) first_chs: [u8; 3],
    /*04*/ pub(super) kind: u8, // 0: unused
    /*05*/ pub(super) last_chs: [u8; 3],
    /*08*/
    pub(super) first: Le32, // block; in a chain relative to this record or to its head
    /*0c*/ pub(super) blocks: Le32,
}
const _: () = assert!(size_of::<MbrEntryRaw>() == 16);

/// GPT header, in block 1 and in the last block of the disk. Little-endian, 92 bytes of its block.
///
/// Source: UEFI specification 2.10, 5.3.2.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct GptHeaderRaw {
    /*00*/ pub(super) signature: [u8; 8], // "EFI PART"
    /*08*/ pub(super) revision: Le32, // 0x10000
    /*0c*/ pub(super) header_size: Le32, // 92; what the checksum covers
    /*10*/ pub(super) header_crc: Le32, // taken with this field zero
    /*14*/ pub(super) reserved: Le32,
    /*18*/ pub(super) my_lba: Le64,
    /*20*/ pub(super) alternate_lba: Le64, // the other header
    /*28*/ pub(super) first_usable: Le64,
    /*30*/ pub(super) last_usable: Le64, // inclusive
    /*38*/ pub(super) disk_guid: [u8; 16], // mixed-endian
    /*48*/ pub(super) entries_lba: Le64,
    /*50*/ pub(super) entry_count: Le32, // 128
    /*54*/ pub(super) entry_size: Le32, // 128, or that times a power of two
    /*58*/ pub(super) entries_crc: Le32,
}
const _: () = assert!(size_of::<GptHeaderRaw>() == 92);

pub(super) const GPT_SIGNATURE: [u8; 8] = *b"EFI PART";
pub(super) const GPT_REVISION: u32 = 0x0001_0000;

/// GPT entry. Little-endian.
///
/// Source: UEFI specification 2.10, 5.3.3.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct GptEntryRaw {
    /*00*/ pub(super) type_guid: [u8; 16], // mixed-endian; all zero: unused
    /*10*/ pub(super) guid: [u8; 16], // mixed-endian
    /*20*/ pub(super) first: Le64,
    /*28*/ pub(super) last: Le64, // inclusive
    /*30*/ pub(super) attributes: Le64,
    /*38*/ pub(super) name: [Le16; 36], // UTF-16, ends at the first zero
}
const _: () = assert!(size_of::<GptEntryRaw>() == 128);

/// Apple driver descriptor, at the beginning of block 0. Big-endian; drivers follow.
///
/// Source: Inside Macintosh: Devices, chapter 3, Block0.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DriverDescriptorRaw {
    /*00*/ pub(super) signature: [u8; 2], // "ER"
    /*02*/ pub(super) block_size: Be16, // 512, or 2048 on a CD
    /*04*/ pub(super) block_count: Be32,
}
const _: () = assert!(size_of::<DriverDescriptorRaw>() == 8);

pub(super) const DRIVER_DESCRIPTOR_SIGNATURE: [u8; 2] = *b"ER";

/// Entry of an Apple partition map, one in each block from block 1 on. Big-endian; boot fields
/// follow, unused here.
///
/// Source: Inside Macintosh: Devices, chapter 3, Partition.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ApmEntryRaw {
    /*00*/ pub(super) signature: [u8; 2], // "PM"
    /*02*/ pub(super) reserved: Be16,
    /*04*/ pub(super) entries: Be32, // in the map, the same in each
    /*08*/ pub(super) first: Be32, // block
    /*0c*/ pub(super) blocks: Be32,
    /*10*/ pub(super) name: [u8; 32], // ends at the first zero
    /*30*/ pub(super) kind: [u8; 32], // "Apple_HFS", ...; ends at the first zero
    /*50*/ pub(super) data_first: Be32,
    /*54*/ pub(super) data_blocks: Be32,
    /*58*/ pub(super) status: Be32,
}
const _: () = assert!(size_of::<ApmEntryRaw>() == 92);

pub(super) const APM_SIGNATURE: [u8; 2] = *b"PM";
