//! On-disk structures of Core Storage. Sources: the documentation of libfvde, "FileVault Drive
//! Encryption (FVDE)", and the test image of cryptsetup 2.6 (`fvault2-images`).

use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use bandsaw_core::crc32c::crc32c;

/// Length of the header of a physical volume in bytes.
pub(super) const HEADER: usize = 512;
/// Length of a metadata block in bytes.
pub(super) const BLOCK: usize = 8192;
/// Bytes of the header of a metadata block.
pub(super) const BLOCK_HEADER: usize = size_of::<BlockRaw>();
/// Seed of all checksums.
const SEED: u32 = u32::MAX;
const VERSION: u16 = 1;

/// Types of metadata blocks.
pub(super) mod kind {
    /// Header of a physical volume.
    pub(in super::super) const PHYSICAL: u16 = 0x10;
    /// Label of a physical volume.
    pub(in super::super) const LABEL: u16 = 0x11;
    /// Family of logical volumes, with the encryption context.
    pub(in super::super) const FAMILY: u16 = 0x19;
    /// Logical volume.
    pub(in super::super) const VOLUME: u16 = 0x1A;
    /// Continuation of a property list.
    pub(in super::super) const CONTINUED: u16 = 0x24;
    /// Map of a logical volume.
    pub(in super::super) const MAP: u16 = 0x305;
    /// Region of the physical volume that maps refer to.
    pub(in super::super) const REGION: u16 = 0x505;
}

/// The header of a physical volume, in its first sector.
///
/// Source: libfvde, "Physical volume header".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeaderRaw {
    /*000*/ pub(super) sum: U32, // CRC-32C of bytes 8 to 511
    /*004*/ pub(super) seed: U32,
    /*008*/ pub(super) version: U16,
    /*00A*/ pub(super) kind: U16, // kind
    /*00C*/ pub(super) serial: [u8; 52],
    /*040*/ pub(super) len: U64, // bytes
    /*048*/ pub(super) flags: [u8; 16],
    /*058*/ pub(super) magic: [u8; 2],
    /*05A*/ pub(super) sums: U32, // 1: CRC-32C
    /*05E*/ pub(super) label_count: U16,
    /*060*/ pub(super) block_size: U32, // bytes
    /*064*/ pub(super) label_size: U32, // bytes
    /*068*/ pub(super) labels: [U64; 8], // blocks
    /*0A8*/ pub(super) key_size: U32, // bytes
    /*0AC*/ pub(super) cipher: U32, // 2: AES-XTS
    /*0B0*/ pub(super) key: [u8; 16],
    /*0C0*/ pub(super) reserved: [u8; 112],
    /*130*/ pub(super) uuid: [u8; 16],
    /*140*/ pub(super) group: [u8; 16],
    /*150*/ pub(super) unused: [u8; 176],
}
const _: () = assert!(size_of::<HeaderRaw>() == HEADER);

/// The header of a metadata block.
///
/// Source: libfvde, "Metadata block header".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BlockRaw {
    /*00*/ pub(super) sum: U32, // CRC-32C of bytes 8 to 8191
    /*04*/ pub(super) seed: U32,
    /*08*/ pub(super) version: U16,
    /*0A*/ pub(super) kind: U16, // kind
    /*0C*/ pub(super) serial: U32,
    /*10*/ pub(super) transaction: U64,
    /*18*/ pub(super) object: U64,
    /*20*/ pub(super) number: U64, // from the start of the metadata
    /*28*/ pub(super) object_copy: U64,
    /*30*/ pub(super) block_size: U32,
    /*34*/ pub(super) flags: U32,
    /*38*/ pub(super) reserved: U64,
}
const _: () = assert!(size_of::<BlockRaw>() == 64);

/// The fields of a label that are used, after the header of its block.
///
/// Source: libfvde, "Metadata block data type 0x0011".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct LabelRaw {
    /*00*/ pub(super) len: U32, // bytes, with the header
    /*04*/ pub(super) unknown: [u8; 152],
    /*9C*/ pub(super) descriptor: U32, // offset from the header
    /*A0*/ pub(super) list: U32, // offset of the property list from the header
    /*A4*/ pub(super) list_len: U32, // bytes
    /*A8*/ pub(super) list_len_copy: U32,
    /*AC*/ pub(super) reserved: U16,
    /*AE*/ pub(super) index: U16, // of this physical volume
}
const _: () = assert!(size_of::<LabelRaw>() == 0xB0);

/// The place of the encrypted metadata.
///
/// Source: libfvde, "Volume group descriptor block".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct DescriptorRaw {
    /*00*/ pub(super) state: U64,
    /*08*/ pub(super) count: U64, // metadata blocks
    /*10*/ pub(super) reserved: U64,
    /*18*/ pub(super) unknown: U64,
    /*20*/ pub(super) primary: PlaceRaw,
    /*28*/ pub(super) secondary: PlaceRaw, // zeros: none
}
const _: () = assert!(size_of::<DescriptorRaw>() == 0x30);

/// A block of a physical volume of the group.
///
/// Source: libfvde, "Volume group descriptor block".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct PlaceRaw {
    /*0*/ pub(super) block: [u8; 6],
    /*6*/ pub(super) index: U16,
}
const _: () = assert!(size_of::<PlaceRaw>() == 8);

/// A family of logical volumes, after the header of its block.
///
/// Source: libfvde, "Metadata block data type 0x0019".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct FamilyRaw {
    /*00*/ pub(super) unknown: [u8; 32],
    /*20*/ pub(super) next: U64, // object with more of the list, or 0
    /*28*/ pub(super) packed_len: U32, // bytes of the whole list
    /*2C*/ pub(super) len: U32, // bytes of the whole list once inflated
    /*30*/ pub(super) list: U32, // offset from the header of the block
    /*34*/ pub(super) list_len: U32, // bytes in this block
}
const _: () = assert!(size_of::<FamilyRaw>() == 0x38);

/// A logical volume, after the header of its block.
///
/// Source: libfvde, "Metadata block data type 0x001a".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct VolumeRaw {
    /*00*/ pub(super) family: U64, // object
    /*08*/ pub(super) map: U64, // object
    /*10*/ pub(super) unknown: [u8; 32],
    /*30*/ pub(super) region: U64, // object, or 0
    /*38*/ pub(super) packed_len: U32,
    /*3C*/ pub(super) len: U32,
    /*40*/ pub(super) list: U32, // offset from the header of the block
    /*44*/ pub(super) list_len: U32, // bytes
}
const _: () = assert!(size_of::<VolumeRaw>() == 0x48);

/// The beginning of a continuation of a property list, after the header of its block.
///
/// Source: libfvde, "Metadata block data type 0x0024".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ContinuedRaw {
    /*00*/ pub(super) next: U64, // object, or 0
    /*08*/ pub(super) len: U32, // bytes that follow
    /*0C*/ pub(super) unknown: U32,
}
const _: () = assert!(size_of::<ContinuedRaw>() == 0x10);

/// An entry of the map of a logical volume.
///
/// Source: libfvde, "Metadata block data type 0x0305".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ExtentRaw {
    /*00*/ pub(super) unknown: U64,
    /*08*/ pub(super) logical: U64, // block
    /*10*/ pub(super) count: U32, // blocks
    /*14*/ pub(super) flags: U32,
    /*18*/ pub(super) reserved: U64,
    /*20*/ pub(super) place: PlaceRaw,
}
const _: () = assert!(size_of::<ExtentRaw>() == 0x28);

/// An entry of the regions that maps refer to.
///
/// Source: libfvde, "Metadata block data type 0x0505".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RegionRaw {
    /*00*/ pub(super) count: U64, // blocks
    /*08*/ pub(super) place: PlaceRaw,
}
const _: () = assert!(size_of::<RegionRaw>() == 0x10);

/// A wrapped key of a user, in a property list.
///
/// Source: the test image of cryptsetup; libfvde, "PassphraseWrappedKEKStruct", has the iterations
/// four bytes later.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct UserKeyRaw {
    /*00*/ pub(super) salt_kind: U32,
    /*04*/ pub(super) salt_len: U32, // bytes
    /*08*/ pub(super) salt: [u8; 16],
    /*18*/ pub(super) key_kind: U32,
    /*1C*/ pub(super) key_len: U32, // bytes
    /*20*/ pub(super) key: [u8; 24],
    /*38*/ pub(super) unknown: [u8; 112],
    /*A8*/ pub(super) iterations: U32, // PBKDF2
    /*AC*/ pub(super) unknown_end: [u8; 112],
}
const _: () = assert!(size_of::<UserKeyRaw>() == 284);

/// A wrapped key of a volume, in a property list.
///
/// Source: libfvde, "Key encrypted key wrapped volume key".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct VolumeKeyRaw {
    /*00*/ pub(super) kind: U32,
    /*04*/ pub(super) len: U32, // bytes
    /*08*/ pub(super) key: [u8; 24],
    /*20*/ pub(super) unknown: [u8; 224],
}
const _: () = assert!(size_of::<VolumeKeyRaw>() == 256);

impl HeaderRaw {
    /// Returns true if the fields that never vary are those of a physical volume. The checksum is
    /// not compared.
    pub(super) fn is_marked(&self) -> bool {
        self.magic == *b"CS" && self.version == VERSION && self.kind == kind::PHYSICAL
    }

    /// Returns true if the checksum is right.
    pub(super) fn is_sound(&self) -> bool {
        self.seed == SEED && self.sum == crc32c(SEED, &self.as_bytes()[8..])
    }

    pub(super) fn uuid(&self) -> Uuid {
        Uuid::from_bytes(self.uuid)
    }

    pub(super) fn group(&self) -> Uuid {
        Uuid::from_bytes(self.group)
    }
}

impl PlaceRaw {
    /// Returns the number of the block.
    pub(super) fn block(self) -> u64 {
        let [a, b, c, d, e, f] = self.block;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn new(block: u64, index: u16) -> Self {
        let [a, b, c, d, e, f, ..] = block.to_le_bytes();
        Self {
            block: [a, b, c, d, e, f],
            index: index.into(),
        }
    }
}

/// Returns the header of a metadata block if its checksum is right.
pub(super) fn sound_block(block: &[u8; BLOCK]) -> Option<BlockRaw> {
    let (header, _) = BlockRaw::read_from_prefix(block).ok()?;
    let is_sound =
        header.seed == SEED && header.version == VERSION && header.sum == crc32c(SEED, &block[8..]);
    is_sound.then_some(header)
}

/// Corrects the checksum of a header or of a metadata block.
#[cfg(any(test, feature = "testing"))]
pub(super) fn seal(bytes: &mut [u8]) {
    if let Some((start, rest)) = bytes.split_at_mut_checked(8) {
        start[..4].copy_from_slice(&crc32c(SEED, rest).to_le_bytes());
        start[4..].copy_from_slice(&SEED.to_le_bytes());
    }
}
