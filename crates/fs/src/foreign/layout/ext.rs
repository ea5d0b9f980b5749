//! ext2, ext3, ext4: the superblock and the descriptors of block groups (§1). Sources: the Linux
//! kernel's `Documentation/filesystems/ext4`, chapters "Super Block", "Block Group Descriptors",
//! "Block and Inode Bitmaps".

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use bandsaw_core::size::to_usize;

/// Offset of the superblock on the volume, in bytes.
pub(crate) const SUPERBLOCK: u64 = 1024;
pub(crate) const MAGIC: U16 = U16::new(0xEF53);

/// Returns true if a volume that begins with `head` is ext2, ext3 or ext4: by more than its magic, whose
/// two bytes are too few. `head` has 2 KiB.
pub fn is_ext(head: &[u8]) -> bool {
    let found = head.get(to_usize(SUPERBLOCK)..);
    let found = found.and_then(|bytes| SuperblockRaw::read_from_prefix(bytes).ok());
    found.is_some_and(|(raw, _)| {
        raw.magic == MAGIC
            && raw.inodes.get() > 0
            && raw.blocks_low.get() > 0
            && raw.log_block_size.get() <= 6
            && raw.revision.get() <= 1
    })
}

/// Bits of [`SuperblockRaw::state`].
pub(crate) mod state {
    /// Cleanly unmounted.
    pub(crate) const CLEAN: u16 = 1;
    /// Errors were detected.
    pub(crate) const ERRORS: u16 = 2;
    /// Orphan files are being removed.
    pub(crate) const ORPHANS: u16 = 4;
}

/// Bits of [`SuperblockRaw::compatible`].
pub(crate) mod compatible {
    /// Copies of the superblock are only in the two groups that it lists.
    pub(crate) const SPARSE_SUPER2: u32 = 0x200;
}

/// Bits of [`SuperblockRaw::incompatible`].
pub(crate) mod incompatible {
    /// The journal must be replayed.
    pub(crate) const RECOVER: u32 = 0x4;
    /// Descriptors are stored in meta block groups.
    pub(crate) const META_BG: u32 = 0x10;
    /// Block numbers have 64 bits.
    pub(crate) const BITS_64: u32 = 0x80;
    /// The seed of checksums is in the superblock.
    pub(crate) const CHECKSUM_SEED: u32 = 0x2000;
    /// All features that do not affect the bitmaps: directory entries with types, extents, multiple
    /// mount protection, flexible groups, attribute values in inodes, large directories, data in
    /// inodes, encryption, case folding.
    pub(crate) const KNOWN: u32 = 0x2
        | RECOVER
        | META_BG
        | 0x40
        | BITS_64
        | 0x100
        | 0x200
        | 0x400
        | CHECKSUM_SEED
        | 0x4000
        | 0x8000
        | 0x1_0000
        | 0x2_0000;
}

/// Bits of [`SuperblockRaw::read_only`].
pub(crate) mod read_only {
    /// Only some groups have copies of the superblock.
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    /// Descriptors have CRC-16 checksums, and groups may be uninitialized.
    pub(crate) const DESCRIPTOR_SUMS: u32 = 0x10;
    /// Bits represent clusters of blocks.
    pub(crate) const BIGALLOC: u32 = 0x200;
    /// All metadata has CRC-32C checksums, and groups may be uninitialized.
    pub(crate) const METADATA_SUMS: u32 = 0x400;
    /// Orphan files remain to be removed.
    pub(crate) const ORPHANS: u32 = 0x1_0000;
    /// All features that do not affect the bitmaps: large files, directory trees, huge files,
    /// directories with many links, large inodes, quotas, read-only, projects, verity.
    pub(crate) const KNOWN: u32 = SPARSE_SUPER
        | 0x2
        | 0x4
        | 0x8
        | DESCRIPTOR_SUMS
        | 0x20
        | 0x40
        | 0x100
        | METADATA_SUMS
        | 0x1000
        | 0x2000
        | 0x8000
        | ORPHANS;
}

/// Bits of [`GroupRaw::flags`].
pub(crate) mod group_flags {
    /// The block bitmap is uninitialized: only the group's own structures are used.
    pub(crate) const BLOCKS_UNINITIALISED: u16 = 2;
}

/// The superblock.
///
/// Source: Linux, Documentation/filesystems/ext4, "Super Block".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SuperblockRaw {
    /*000*/ pub(crate) inodes: U32,
    /*004*/ pub(crate) blocks_low: U32,
    /*008*/ pub(crate) reserved_low: U32,
    /*00C*/ pub(crate) free_low: U32, // blocks
    /*010*/ pub(crate) free_inodes: U32,
    /*014*/ pub(crate) first_data_block: U32,
    /*018*/ pub(crate) log_block_size: U32, // 0: 1024 bytes
    /*01C*/ pub(crate) log_cluster_size: U32,
    /*020*/ pub(crate) blocks_per_group: U32,
    /*024*/ pub(crate) clusters_per_group: U32,
    /*028*/ pub(crate) inodes_per_group: U32,
    /*02C*/ pub(crate) mounted: [u8; 12],
    /*038*/ pub(crate) magic: U16,
    /*03A*/ pub(crate) state: U16, // state
    /*03C*/ pub(crate) checked: [u8; 16],
    /*04C*/ pub(crate) revision: U32, // 0: inodes of 128 bytes
    /*050*/ pub(crate) owner: [u8; 4],
    /*054*/ pub(crate) first_inode: U32,
    /*058*/ pub(crate) inode_size: U16,
    /*05A*/ pub(crate) group: U16,
    /*05C*/ pub(crate) compatible: U32, // compatible
    /*060*/ pub(crate) incompatible: U32, // incompatible
    /*064*/ pub(crate) read_only: U32, // read_only
    /*068*/ pub(crate) uuid: [u8; 16],
    /*078*/ pub(crate) names: [u8; 86],
    /*0CE*/ pub(crate) reserved_descriptor_blocks: U16, // for growing
    /*0D0*/ pub(crate) journal: [u8; 24],
    /*0E8*/ pub(crate) last_orphan: U32,
    /*0EC*/ pub(crate) hash: [u8; 18],
    /*0FE*/ pub(crate) descriptor_size: U16, // with BITS_64
    /*100*/ pub(crate) mount_options: U32,
    /*104*/ pub(crate) first_meta_group: U32, // of META_BG
    /*108*/ pub(crate) journal_copy: [u8; 72],
    /*150*/ pub(crate) blocks_high: U32,
    /*154*/ pub(crate) reserved_high: U32,
    /*158*/ pub(crate) free_high: U32,
    /*15C*/ pub(crate) sizes: [u8; 25],
    /*175*/ pub(crate) checksum_type: u8, // 1: CRC-32C
    /*176*/ pub(crate) history: [u8; 214],
    /*24C*/ pub(crate) backup_groups: [U32; 2], // of SPARSE_SUPER2
    /*254*/ pub(crate) encryption: [u8; 28],
    /*270*/ pub(crate) checksum_seed: U32, // of CHECKSUM_SEED
    /*274*/ pub(crate) reserved: [u8; 392],
    /*3FC*/ pub(crate) checksum: U32,
}
const _: () = assert!(size_of::<SuperblockRaw>() == 0x400);

/// The descriptor of a block group; without BITS_64 only its first 32 bytes exist.
///
/// Source: Linux, Documentation/filesystems/ext4, "Block Group Descriptors".
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct GroupRaw {
    /*00*/ pub(crate) block_bitmap_low: U32,
    /*04*/ pub(crate) inode_bitmap_low: U32,
    /*08*/ pub(crate) inode_table_low: U32,
    /*0C*/ pub(crate) free_low: U16, // blocks
    /*0E*/ pub(crate) free_inodes_low: U16,
    /*10*/ pub(crate) directories_low: U16,
    /*12*/ pub(crate) flags: U16, // group_flags
    /*14*/ pub(crate) exclude_bitmap_low: U32,
    /*18*/ pub(crate) block_bitmap_sum_low: U16,
    /*1A*/ pub(crate) inode_bitmap_sum_low: U16,
    /*1C*/ pub(crate) unused_inodes_low: U16,
    /*1E*/ pub(crate) checksum: U16,
    /*20*/ pub(crate) block_bitmap_high: U32,
    /*24*/ pub(crate) inode_bitmap_high: U32,
    /*28*/ pub(crate) inode_table_high: U32,
    /*2C*/ pub(crate) free_high: U16,
    /*2E*/ pub(crate) free_inodes_high: U16,
    /*30*/ pub(crate) directories_high: U16,
    /*32*/ pub(crate) unused_inodes_high: U16,
    /*34*/ pub(crate) exclude_bitmap_high: U32,
    /*38*/ pub(crate) block_bitmap_sum_high: U16,
    /*3A*/ pub(crate) inode_bitmap_sum_high: U16,
    /*3C*/ pub(crate) reserved: U32,
}
const _: () = assert!(size_of::<GroupRaw>() == 0x40);
/// Length of a descriptor without BITS_64, in bytes.
pub(crate) const SHORT_DESCRIPTOR: usize = 32;
/// Offset of its checksum.
pub(crate) const DESCRIPTOR_SUM: usize = 0x1E;
