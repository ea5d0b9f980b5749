//! On-disk structures of NDIF: the block table in resource `bcem` 128. Big-endian.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header of the table; runs follow.
///
/// Source: Aaru, Aaru.Images/NDIF/Structs.cs, ChunkHeader.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BlockTableRaw {
    /*00*/ pub(super) version: U16,
    /*02*/ pub(super) driver: U16,
    /*04*/ pub(super) name_length: u8,
    /*05*/ pub(super) name: [u8; 63],
    /*44*/ pub(super) sectors: U32,
    /*48*/ pub(super) max_run: U32, // sectors
    /*4c*/ pub(super) data_offset: U32, // added to the offsets of runs
    /*50*/ pub(super) checksum: U32, // CRC28
    /*54*/ pub(super) is_segmented: U32,
    /*58*/ pub(super) unknown: [U32; 7],
    /*74*/ pub(super) is_encrypted: U32,
    /*78*/ pub(super) hash: U32,
    /*7c*/ pub(super) runs: U32,
}
const _: () = assert!(size_of::<BlockTableRaw>() == 128);

/// A run of sectors. It ends where the next begins; a run of kind [`END`] is the last.
///
/// Source: Aaru, Aaru.Images/NDIF/Structs.cs, BlockChunk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RunRaw {
    /*0*/ pub(super) sector: [u8; 3],
    /*3*/ pub(super) kind: u8,
    /*4*/ pub(super) offset: U32,
    /*8*/ pub(super) length: U32, // bytes in the file
}
const _: () = assert!(size_of::<RunRaw>() == 12);

/// [`RunRaw::kind`] of zeros.
pub(super) const ZERO: u8 = 0;
/// Of stored sectors.
pub(super) const RAW: u8 = 2;
/// Of sectors compressed by ADC.
pub(super) const ADC: u8 = 0x83;
/// Of the end of the table.
pub(super) const END: u8 = 0xFF;
/// Kinds that are not read.
pub(super) const UNSUPPORTED: [(u8, &str); 4] = [
    (0x80, "KenCode"),
    (0x81, "RLE"),
    (0x82, "LZH"),
    (0xF0, "StuffIt"),
];
