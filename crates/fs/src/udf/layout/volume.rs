//! Structures that describe a volume and its partitions.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{EntityRaw, LongAdRaw, SectorExtentRaw, ShortAdRaw, TagRaw, TimeRaw};

/// The anchor: the place of both volume descriptor sequences.
///
/// Source: ECMA-167 3/10.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct AnchorRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) main: SectorExtentRaw,
    /*18*/ pub(in crate::udf) reserve: SectorExtentRaw,
}
const _: () = assert!(size_of::<AnchorRaw>() == 32);

/// The start of the primary volume descriptor.
///
/// Source: ECMA-167 3/10.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct PrimaryRaw {
    /*000*/ pub(in crate::udf) tag: TagRaw,
    /*010*/ pub(in crate::udf) sequence: U32,
    /*014*/ pub(in crate::udf) number: U32,
    /*018*/ pub(in crate::udf) name: [u8; 32],
    /*038*/ pub(in crate::udf) levels: [u8; 16],
    /*048*/ pub(in crate::udf) set_name: [u8; 128],
    /*0C8*/ pub(in crate::udf) character_sets: [u8; 128],
    /*148*/ pub(in crate::udf) extents: [u8; 16],
    /*158*/ pub(in crate::udf) application: EntityRaw,
    /*178*/ pub(in crate::udf) recorded: TimeRaw,
}
const _: () = assert!(size_of::<PrimaryRaw>() == 388);

/// A pointer to the next extent of a volume descriptor sequence.
///
/// Source: ECMA-167 3/10.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct PointerRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) sequence: U32,
    /*14*/ pub(in crate::udf) next: SectorExtentRaw,
}
const _: () = assert!(size_of::<PointerRaw>() == 28);

/// The fields of a partition descriptor that are used.
///
/// Source: ECMA-167 3/10.5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct PartitionRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) sequence: U32,
    /*14*/ pub(in crate::udf) flags: U16,
    /*16*/ pub(in crate::udf) number: U16,
    /*18*/ pub(in crate::udf) contents: EntityRaw,
    /*38*/ pub(in crate::udf) header: PartitionHeaderRaw,
    /*B8*/ pub(in crate::udf) access: U32,
    /*BC*/ pub(in crate::udf) start: U32, // sector
    /*C0*/ pub(in crate::udf) len: U32, // sectors
}
const _: () = assert!(size_of::<PartitionRaw>() == 196);

/// The places of the tables of free space of a partition.
///
/// Source: ECMA-167 4/14.3.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct PartitionHeaderRaw {
    /*00*/ pub(in crate::udf) free_table: ShortAdRaw,
    /*08*/ pub(in crate::udf) free_bitmap: ShortAdRaw,
    /*10*/ pub(in crate::udf) integrity: ShortAdRaw,
    /*18*/ pub(in crate::udf) freed_table: ShortAdRaw,
    /*20*/ pub(in crate::udf) freed_bitmap: ShortAdRaw,
    /*28*/ pub(in crate::udf) reserved: [u8; 88],
}
const _: () = assert!(size_of::<PartitionHeaderRaw>() == 128);

/// The logical volume descriptor without its partition maps.
///
/// Source: ECMA-167 3/10.6.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct LogicalVolumeRaw {
    /*000*/ pub(in crate::udf) tag: TagRaw,
    /*010*/ pub(in crate::udf) sequence: U32,
    /*014*/ pub(in crate::udf) character_set: [u8; 64],
    /*054*/ pub(in crate::udf) name: [u8; 128],
    /*0D4*/ pub(in crate::udf) block_size: U32, // bytes
    /*0D8*/ pub(in crate::udf) domain: EntityRaw,
    /*0F8*/ pub(in crate::udf) file_set: LongAdRaw,
    /*108*/ pub(in crate::udf) maps_len: U32, // bytes
    /*10C*/ pub(in crate::udf) maps: U32, // number
    /*110*/ pub(in crate::udf) implementation: EntityRaw,
    /*130*/ pub(in crate::udf) implementation_use: [u8; 128],
    /*1B0*/ pub(in crate::udf) integrity: SectorExtentRaw,
}
const _: () = assert!(size_of::<LogicalVolumeRaw>() == 440);

/// The start of every partition map.
///
/// Source: ECMA-167 3/10.7.1.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct MapHeadRaw {
    /*0*/ pub(in crate::udf) kind: u8, // 1, or 2 for maps of UDF
    /*1*/ pub(in crate::udf) len: u8, // bytes
}
const _: () = assert!(size_of::<MapHeadRaw>() == 2);

/// A map of type 1: the blocks of a partition as they are.
///
/// Source: ECMA-167 3/10.7.2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct PlainMapRaw {
    /*0*/ pub(in crate::udf) head: MapHeadRaw,
    /*2*/ pub(in crate::udf) volume: U16,
    /*4*/ pub(in crate::udf) partition: U16, // number in its descriptor
}
const _: () = assert!(size_of::<PlainMapRaw>() == 6);

/// The common part of maps of type 2, whose identifier names the kind.
///
/// Source: UDF 2.60, 2.2.8 to 2.2.10.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct TypedMapRaw {
    /*00*/ pub(in crate::udf) head: MapHeadRaw,
    /*02*/ pub(in crate::udf) reserved: [u8; 2],
    /*04*/ pub(in crate::udf) kind: EntityRaw,
    /*24*/ pub(in crate::udf) volume: U16,
    /*26*/ pub(in crate::udf) partition: U16, // number in its descriptor
}
const _: () = assert!(size_of::<TypedMapRaw>() == 40);

/// A map of a partition whose defective packets are stored elsewhere.
///
/// Source: UDF 2.60, 2.2.9.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct SparableMapRaw {
    /*00*/ pub(in crate::udf) common: TypedMapRaw,
    /*28*/ pub(in crate::udf) packet: U16, // blocks
    /*2A*/ pub(in crate::udf) tables: u8, // number
    /*2B*/ pub(in crate::udf) reserved: u8,
    /*2C*/ pub(in crate::udf) table_len: U32, // bytes
    /*30*/ pub(in crate::udf) sectors: [U32; 4],
}
const _: () = assert!(size_of::<SparableMapRaw>() == 64);

/// A map of a partition that is stored in a file of another partition.
///
/// Source: UDF 2.60, 2.2.10.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct MetadataMapRaw {
    /*00*/ pub(in crate::udf) common: TypedMapRaw,
    /*28*/ pub(in crate::udf) file: U32, // block of its file entry
    /*2C*/ pub(in crate::udf) mirror: U32,
    /*30*/ pub(in crate::udf) bitmap: U32,
    /*34*/ pub(in crate::udf) unit: U32, // blocks that are allocated together
    /*38*/ pub(in crate::udf) alignment: U16, // blocks
    /*3A*/ pub(in crate::udf) flags: u8, // bit 0: the mirror has blocks of its own
    /*3B*/ pub(in crate::udf) reserved: [u8; 5],
}
const _: () = assert!(size_of::<MetadataMapRaw>() == 64);

/// The start of a sparing table.
///
/// Source: UDF 2.60, 2.2.12.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct SparingTableRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) kind: EntityRaw,
    /*30*/ pub(in crate::udf) entries: U16, // number
    /*32*/ pub(in crate::udf) reserved: U16,
    /*34*/ pub(in crate::udf) sequence: U32,
}
const _: () = assert!(size_of::<SparingTableRaw>() == 56);

/// An entry of a sparing table.
///
/// Source: UDF 2.60, 2.2.12.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct SparingEntryRaw {
    /*0*/
    pub(in crate::udf) original: U32, // first block of the packet; 0xFFFFFFF0 and above: none
    /*4*/ pub(in crate::udf) mapped: U32, // sector of the volume
}
const _: () = assert!(size_of::<SparingEntryRaw>() == 8);

/// The start of a virtual allocation table of UDF 2.00 and later.
///
/// Source: UDF 2.60, 2.2.11.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct VatHeaderRaw {
    /*00*/ pub(in crate::udf) len: U16, // bytes before the first entry
    /*02*/ pub(in crate::udf) use_len: U16, // bytes
    /*04*/ pub(in crate::udf) name: [u8; 128], // of the logical volume
    /*84*/ pub(in crate::udf) previous: U32,
    /*88*/ pub(in crate::udf) files: U32,
    /*8C*/ pub(in crate::udf) folders: U32,
    /*90*/ pub(in crate::udf) revisions: [U16; 3],
    /*96*/ pub(in crate::udf) reserved: U16,
}
const _: () = assert!(size_of::<VatHeaderRaw>() == 152);

/// The end of a virtual allocation table of UDF 1.50.
///
/// Source: UDF 1.50, 2.2.10; mkudffs.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct VatTrailerRaw {
    /*00*/ pub(in crate::udf) kind: EntityRaw,
    /*20*/ pub(in crate::udf) previous: U32,
}
const _: () = assert!(size_of::<VatTrailerRaw>() == 36);

/// The logical volume integrity descriptor without its tables.
///
/// Source: ECMA-167 3/10.10.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct IntegrityRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) recorded: TimeRaw,
    /*1C*/ pub(in crate::udf) kind: U32, // 0: open, 1: closed
    /*20*/ pub(in crate::udf) next: SectorExtentRaw,
    /*28*/ pub(in crate::udf) next_unique_id: U64,
    /*30*/ pub(in crate::udf) reserved: [u8; 24],
    /*48*/ pub(in crate::udf) partitions: U32,
    /*4C*/ pub(in crate::udf) use_len: U32, // bytes
}
const _: () = assert!(size_of::<IntegrityRaw>() == 80);

/// The fields that UDF adds to an integrity descriptor, after its tables.
///
/// Source: UDF 2.60, 2.2.6.4.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct IntegrityUseRaw {
    /*00*/ pub(in crate::udf) implementation: EntityRaw,
    /*20*/ pub(in crate::udf) files: U32,
    /*24*/ pub(in crate::udf) folders: U32,
    /*28*/ pub(in crate::udf) min_read: U16, // revision in BCD
    /*2A*/ pub(in crate::udf) min_write: U16,
    /*2C*/ pub(in crate::udf) max_write: U16,
}
const _: () = assert!(size_of::<IntegrityUseRaw>() == 46);

/// The start of a space bitmap: a bit for each block, set if it is free.
///
/// Source: ECMA-167 4/14.12.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(in crate::udf) struct SpaceBitmapRaw {
    /*00*/ pub(in crate::udf) tag: TagRaw,
    /*10*/ pub(in crate::udf) bits: U32,
    /*14*/ pub(in crate::udf) bytes: U32,
}
const _: () = assert!(size_of::<SpaceBitmapRaw>() == 24);
