//! The volume header, forks, and the HFS wrapper (§1, §2).

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{AllocBlock, Extent};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

/// Offset of the volume header, in bytes from the start of the volume; the alternate is at the same
/// distance from the end.
pub(crate) const HEADER_OFFSET: u64 = 1024;
/// Minimum size of an allocation block in bytes.
pub(crate) const MIN_BLOCK_SIZE: u32 = 512;

/// `H+`: HFS Plus, with case-insensitive names.
pub(crate) const SIGNATURE_HFS_PLUS: u16 = 0x482B;
/// `HX`: HFSX, whose names are compared as the catalog's header says.
pub(crate) const SIGNATURE_HFSX: u16 = 0x4858;
/// `BD`: HFS, possibly only a wrapper around HFS Plus.
pub(crate) const SIGNATURE_HFS: u16 = 0x4244;
/// Version of `H+` volumes.
pub(crate) const VERSION_HFS_PLUS: u16 = 4;
/// Version of `HX` volumes.
pub(crate) const VERSION_HFSX: u16 = 5;

/// Bits of [`VolumeHeaderRaw::attributes`] (§2.1).
pub(crate) mod volume_attributes {
    /// The volume was unmounted cleanly.
    pub(crate) const UNMOUNTED: u32 = 1 << 8;
    /// The bad-block file has extents.
    pub(crate) const SPARED_BLOCKS: u32 = 1 << 9;
    /// Set by Linux while mounted read-write.
    pub(crate) const BOOT_INCONSISTENT: u32 = 1 << 11;
    /// The next CNID has wrapped around.
    pub(crate) const CNIDS_REUSED: u32 = 1 << 12;
    /// The journal info block is valid.
    pub(crate) const JOURNALED: u32 = 1 << 13;
    /// Damage was detected.
    pub(crate) const INCONSISTENT: u32 = 1 << 14;
    /// The volume is read-only by choice.
    pub(crate) const SOFTWARE_LOCK: u32 = 1 << 15;
    /// Dates are seconds since 1970.
    pub(crate) const EXPANDED_TIMES: u32 = 1 << 29;
    /// Free nodes of the catalog are all zero.
    pub(crate) const UNUSED_NODE_FIX: u32 = 1 << 31;
}

/// An extent descriptor.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusExtentDescriptor.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct ExtentRaw {
    /*00*/ pub(crate) start_block: U32,
    /*04*/ pub(crate) block_count: U32,
}
const _: () = assert!(size_of::<ExtentRaw>() == 8);

/// Number of extents in one record.
pub(crate) const EXTENTS_PER_RECORD: usize = 8;

/// The extents of a fork's record, or of one record of the extents-overflow tree.
pub(crate) type ExtentsRaw = [ExtentRaw; EXTENTS_PER_RECORD];

impl From<ExtentRaw> for Extent {
    fn from(raw: ExtentRaw) -> Self {
        Self {
            start: AllocBlock(raw.start_block.get()),
            count: raw.block_count.get(),
        }
    }
}

impl From<Extent> for ExtentRaw {
    fn from(extent: Extent) -> Self {
        Self {
            start_block: extent.start.0.into(),
            block_count: extent.count.into(),
        }
    }
}

/// Returns the extents of a record: those before the first empty one.
pub(crate) fn extents_of(record: &ExtentsRaw) -> impl Iterator<Item = Extent> + '_ {
    record
        .iter()
        .map(|&raw| Extent::from(raw))
        .take_while(|extent| extent.count != 0)
}

/// A fork: its size and the first eight extents (§2).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusForkData.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub(crate) struct ForkRaw {
    /*00*/ pub(crate) logical_size: U64,
    /*08*/ pub(crate) clump_size: U32,
    /*12*/ pub(crate) total_blocks: U32,
    /*16*/ pub(crate) extents: ExtentsRaw,
}
const _: () = assert!(size_of::<ForkRaw>() == 80);

/// The volume header (§2), 512 bytes; the alternate near the end has the same layout.
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSPlusVolumeHeader.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct VolumeHeaderRaw {
    /*000*/ pub(crate) signature: U16, // SIGNATURE_HFS_PLUS or SIGNATURE_HFSX
    /*002*/ pub(crate) version: U16, // VERSION_HFS_PLUS or VERSION_HFSX
    /*004*/ pub(crate) attributes: U32, // volume_attributes
    /*008*/ pub(crate) last_mounted_version: [u8; 4],
    /*012*/ pub(crate) journal_info_block: U32, // 0 without journal
    /*016*/ pub(crate) create_date: U32, // local time, the same in both headers
    /*020*/ pub(crate) modify_date: U32, // UTC
    /*024*/ pub(crate) backup_date: U32,
    /*028*/ pub(crate) checked_date: U32,
    /*032*/ pub(crate) file_count: U32, // file records
    /*036*/ pub(crate) folder_count: U32, // folder records, root excluded
    /*040*/ pub(crate) block_size: U32, // power of two, 512 and up
    /*044*/ pub(crate) total_blocks: U32,
    /*048*/ pub(crate) free_blocks: U32,
    /*052*/ pub(crate) next_allocation: U32, // a hint
    /*056*/ pub(crate) rsrc_clump_size: U32,
    /*060*/ pub(crate) data_clump_size: U32,
    /*064*/ pub(crate) next_catalog_id: U32,
    /*068*/ pub(crate) write_count: U32,
    /*072*/ pub(crate) encodings_bitmap: U64, // 1
    /*080*/ pub(crate) finder_info: [U32; 6], // blessed folders
    /*104*/ pub(crate) identifier: U64, // random; the UUID is made from it
    /*112*/ pub(crate) allocation_file: ForkRaw,
    /*192*/ pub(crate) extents_file: ForkRaw,
    /*272*/ pub(crate) catalog_file: ForkRaw,
    /*352*/ pub(crate) attributes_file: ForkRaw,
    /*432*/ pub(crate) startup_file: ForkRaw,
}
const _: () = assert!(size_of::<VolumeHeaderRaw>() == 512);

impl VolumeHeaderRaw {
    /// Adds to the number of free blocks, which may have been wrong before.
    pub(crate) fn count_freed(&mut self, blocks: u32) {
        self.free_blocks = self.free_blocks.get().saturating_add(blocks).into();
    }

    /// Subtracts from the number of free blocks, which may have been wrong before.
    pub(crate) fn count_used(&mut self, blocks: u32) {
        self.free_blocks = self.free_blocks.get().saturating_sub(blocks).into();
    }
}

/// HFS Plus or HFSX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// `H+` version 4.
    HfsPlus,
    /// `HX` version 5.
    Hfsx,
}

/// A volume header that is valid for a volume of its size.
#[derive(Debug, Clone)]
pub(crate) struct VolumeHeader {
    /// HFS Plus or HFSX.
    pub(crate) variant: Variant,
    /// Size of an allocation block in bytes: a power of two, at least 512.
    pub(crate) block_size: u32,
    /// Number of allocation blocks, at least 1, all within the volume.
    pub(crate) total_blocks: u32,
    /// Number of free blocks, at most `total_blocks`.
    pub(crate) free_blocks: u32,
    /// All fields in their on-disk form.
    pub(crate) raw: VolumeHeaderRaw,
}

/// Maximum growth increment of a data or resource fork that Apple's checker accepts, in bytes.
const MAX_CLUMP: u32 = 1 << 20;

const LAYER: &str = "hfs+ volume header";

impl VolumeHeader {
    /// Parses the header at `offset` of a volume of `volume_len` bytes.
    pub(crate) fn parse(raw: &VolumeHeaderRaw, offset: u64, volume_len: u64) -> Result<Self> {
        let corrupt = |message: String| Err(Error::corrupt(LAYER, offset, message));
        let variant = match (raw.signature.get(), raw.version.get()) {
            (SIGNATURE_HFS_PLUS, VERSION_HFS_PLUS) => Variant::HfsPlus,
            (SIGNATURE_HFSX, VERSION_HFSX) => Variant::Hfsx,
            (signature @ (SIGNATURE_HFS_PLUS | SIGNATURE_HFSX), version) => {
                let message = format!(
                    "unsupported version {version} of {signature:#06x}: expected 4 of H+ or 5 of \
                     HX"
                );
                return Err(Error::unsupported(LAYER, message).at(offset));
            }
            (signature, _) => {
                return corrupt(format!(
                    "invalid signature {signature:#06x}: expected H+ or HX"
                ));
            }
        };
        let (block_size, total_blocks) = (raw.block_size.get(), raw.total_blocks.get());
        if !block_size.is_power_of_two() || block_size < MIN_BLOCK_SIZE {
            return corrupt(format!(
                "invalid block size {block_size}: expected a power of two from 512"
            ));
        }
        let end = AllocBlock(total_blocks).offset(block_size);
        if total_blocks == 0 || end > volume_len {
            return corrupt(format!(
                "{total_blocks} blocks of {block_size} bytes do not fit a volume of {volume_len} bytes"
            ));
        }
        let free_blocks = raw.free_blocks.get().min(total_blocks);
        Ok(Self {
            variant,
            block_size,
            total_blocks,
            free_blocks,
            raw: *raw,
        })
    }

    /// Returns the blocks that hold the headers, at the beginning and at the end of the volume.
    pub(crate) fn reserved(&self) -> [Extent; 2] {
        let (head, tail) = reserved_blocks(self.block_size);
        let head = head.min(self.total_blocks);
        let tail = tail.min(self.total_blocks - head);
        let start = AllocBlock(self.total_blocks - tail);
        [
            Extent {
                start: AllocBlock(0),
                count: head,
            },
            Extent { start, count: tail },
        ]
    }

    /// Returns true if `clump` is a valid growth increment of data and resource forks, in bytes
    /// (§2).
    pub(crate) fn is_fork_clump(&self, clump: u32) -> bool {
        (1..=MAX_CLUMP.max(self.block_size)).contains(&clump)
            && clump.is_multiple_of(self.block_size)
    }

    /// Returns true if `clump` is a valid growth increment of a file of the volume itself, in bytes
    /// (§2).
    pub(crate) fn is_file_clump(&self, clump: u32) -> bool {
        let most = u64::from(self.total_blocks / 4) * u64::from(self.block_size);
        u64::from(clump) <= most && clump.is_multiple_of(self.block_size)
    }

    /// Returns true if all `bits` of the attributes are set.
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.raw.attributes.get() & bits == bits
    }

    /// Returns true if the volume was unmounted cleanly, and no system has found damage since.
    pub(in crate::hfsplus) fn is_clean(&self) -> bool {
        self.has(volume_attributes::UNMOUNTED) && !self.has(volume_attributes::INCONSISTENT)
    }
}

/// Returns the number of blocks at the beginning of a volume that hold boot blocks and header, and
/// the number at its end that hold the alternate (§1).
pub(crate) fn reserved_blocks(block_size: u32) -> (u32, u32) {
    let tail = narrow::<u32>(HEADER_OFFSET);
    let head = tail + narrow::<u32>(size_of::<VolumeHeaderRaw>());
    (head.div_ceil(block_size), tail.div_ceil(block_size))
}

/// Head of an HFS master directory block, as far as a wrapper needs it (§1.1).
///
/// Source: Apple hfs-715.100.10, core/hfs_format.h, HFSMasterDirectoryBlock.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct MasterDirectoryBlockRaw {
    /*00*/ pub(crate) signature: U16, // SIGNATURE_HFS
    /*02*/ unused_02: [u8; 18],
    /*14*/ pub(crate) allocation_block_size: U32,
    /*18*/ unused_18: [u8; 4],
    /*1c*/ pub(crate) first_allocation_block: U16, // in 512-byte sectors
    /*1e*/ unused_1e: [u8; 94],
    /*7c*/ pub(crate) embedded_signature: U16, // of the volume within, 0 if none
    /*7e*/ pub(crate) embedded_start_block: U16,
    /*80*/ pub(crate) embedded_block_count: U16,
}
const _: () = assert!(size_of::<MasterDirectoryBlockRaw>() == 0x82);

impl MasterDirectoryBlockRaw {
    /// Returns the byte range of the embedded HFS Plus volume, if there is one.
    pub(crate) fn embedded(&self) -> Option<std::ops::Range<u64>> {
        let signature = self.embedded_signature.get();
        if self.signature != SIGNATURE_HFS
            || !matches!(signature, SIGNATURE_HFS_PLUS | SIGNATURE_HFSX)
        {
            return None;
        }
        let block = u64::from(self.allocation_block_size.get());
        let start = u64::from(self.first_allocation_block.get()) * 512
            + u64::from(self.embedded_start_block.get()) * block;
        Some(start..start + u64::from(self.embedded_block_count.get()) * block)
    }
}
