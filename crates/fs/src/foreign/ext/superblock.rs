//! The block groups as described by the superblock and the group descriptors, checked against each
//! other and against the device.

use std::mem::offset_of;

use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use super::super::crc16::crc16;
use super::super::layout::ext::{
    DESCRIPTOR_SUM, GroupRaw, MAGIC, SHORT_DESCRIPTOR, SUPERBLOCK, SuperblockRaw, compatible,
    group_flags, incompatible, read_only, state,
};
use super::super::layout::power;
use bandsaw_core::crc32c::crc32c;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};

const LAYER: &str = "ext superblock";
/// Maximum number of groups: 128 TiB with blocks of 4096 bytes.
const MAX_GROUPS: u64 = 1 << 20;
/// Minimum number of blocks per group; no known program uses fewer.
const MIN_PER_GROUP: u64 = 256;

/// The checked fields of the superblock that describe the groups.
#[derive(Debug, Clone)]
pub(in crate::foreign) struct Superblock {
    pub(super) block_size: u64,
    /// First block of group 0.
    pub(super) first: u64,
    /// Number of blocks of the volume, including those before `first`.
    pub(super) blocks: u64,
    pub(super) free: u64,
    pub(super) per_group: u64,
    pub(super) groups: u64,
    /// Number of blocks of a group's inode table.
    pub(super) inode_table: u64,
    pub(super) descriptor_size: usize,
    /// Seed of CRC-32C checksums, if the volume has them.
    seed: Option<u32>,
    raw: SuperblockRaw,
}

/// The checked fields of a group descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) block_bitmap: u64,
    pub(super) inode_bitmap: u64,
    pub(super) inode_table: u64,
    pub(super) free: u64,
    pub(super) is_uninitialised: bool,
    bitmap_sum: u32,
}

impl Superblock {
    /// Parses the superblock of a volume of `len` bytes.
    pub(in crate::foreign) fn parse(raw: SuperblockRaw, len: u64) -> Result<Self> {
        check_features(&raw)?;
        let has_64 = raw.incompatible.get() & incompatible::BITS_64 != 0;
        let wide = |low: U32, high: U32| {
            u64::from(low.get())
                | if has_64 {
                    u64::from(high.get()) << 32
                } else {
                    0
                }
        };
        let (blocks, free) = (
            wide(raw.blocks_low, raw.blocks_high),
            wide(raw.free_low, raw.free_high),
        );
        let log = raw.log_block_size.get();
        let block_size = power(log).filter(|_| log <= 6).map(|power| 1024 * power);
        let block_size =
            block_size.ok_or_else(|| wrong(format!("unsupported block size of 2^{log} KiB")))?;
        // With blocks of 1 KiB the boot sector has block 0 for itself, and group 0 begins after it.
        let first = u64::from(block_size == 1024);
        let per_group = u64::from(raw.blocks_per_group.get());
        let most = 8 * block_size;
        for (what, is_right) in [
            (
                "blocks",
                blocks > first
                    && blocks
                        .checked_mul(block_size)
                        .is_some_and(|bytes| bytes <= len),
            ),
            ("free blocks", free < blocks),
            (
                "the first data block",
                u64::from(raw.first_data_block.get()) == first,
            ),
            (
                "blocks per group",
                (MIN_PER_GROUP..=most).contains(&per_group) && per_group.is_multiple_of(8),
            ),
        ] {
            if !is_right {
                let message = format!(
                    "invalid {what}: {blocks} blocks of {block_size} bytes, {free} of them free, \
                     in groups of {per_group}, on {len} bytes"
                );
                return Err(wrong(message));
            }
        }
        // A descriptor is read for each group, so their number is limited before memory is allocated.
        let groups = (blocks - first).div_ceil(per_group);
        if groups > MAX_GROUPS {
            return Err(Error::unsupported(
                LAYER,
                format!("too many block groups: {groups} (limit {MAX_GROUPS})"),
            ));
        }
        let inode_size = if raw.revision.get() == 0 {
            128
        } else {
            u64::from(raw.inode_size.get())
        };
        let per = u64::from(raw.inodes_per_group.get());
        if !inode_size.is_power_of_two()
            || !(128..=block_size).contains(&inode_size)
            || !(1..=most).contains(&per)
        {
            return Err(wrong(format!(
                "invalid inode table: {per} inodes of {inode_size} bytes in a group"
            )));
        }
        let descriptor_size = if has_64 {
            usize::from(raw.descriptor_size.get())
        } else {
            SHORT_DESCRIPTOR
        };
        if has_64
            && !(descriptor_size.is_power_of_two()
                && (size_of::<GroupRaw>()..=1024).contains(&descriptor_size))
        {
            return Err(wrong(format!(
                "unsupported descriptor size {descriptor_size}"
            )));
        }
        let seed = checksum_seed(&raw)?;
        let inode_table = (per * inode_size).div_ceil(block_size);
        Ok(Self {
            block_size,
            first,
            blocks,
            free,
            per_group,
            groups,
            inode_table,
            descriptor_size,
            seed,
            raw,
        })
    }

    /// Returns the reason if the volume is not clean.
    pub(super) fn disorder(&self) -> Option<&'static str> {
        let state = self.raw.state.get();
        if self.raw.incompatible.get() & incompatible::RECOVER != 0 {
            Some("the journal is not empty")
        } else if state & state::ERRORS != 0 {
            Some("errors were recorded")
        } else if state & state::CLEAN == 0 {
            Some("not cleanly unmounted")
        } else if state & state::ORPHANS != 0
            || self.raw.last_orphan.get() != 0
            || self.raw.read_only.get() & read_only::ORPHANS != 0
        {
            Some("files deleted while in use are not yet removed")
        } else {
            None
        }
    }

    /// Returns the number of blocks of group `index`.
    pub(super) fn blocks_in(&self, index: u64) -> u64 {
        (self.blocks - self.first - index * self.per_group).min(self.per_group)
    }

    fn descriptors_per_block(&self) -> u64 {
        self.block_size / self.descriptor_size as u64
    }

    /// Returns the offset of the descriptor of group `index` on the volume, in bytes.
    pub(super) fn descriptor_at(&self, index: u64) -> u64 {
        let per = self.descriptors_per_block();
        let number = index / per;
        let block = if self.is_meta(number) {
            // In the first group of the meta block group, behind the copy of the superblock.
            let group = number * per;
            self.first + group * self.per_group + u64::from(self.has_superblock(group))
        } else {
            self.first + 1 + number
        };
        block.saturating_mul(self.block_size) + index % per * self.descriptor_size as u64
    }

    /// Returns true if descriptor block `number` is in a meta block group.
    fn is_meta(&self, number: u64) -> bool {
        self.raw.incompatible.get() & incompatible::META_BG != 0
            && number >= self.raw.first_meta_group.get().into()
    }

    /// Returns true if group `index` begins with a copy of the superblock.
    pub(super) fn has_superblock(&self, index: u64) -> bool {
        if index == 0 {
            return true;
        }
        if self.raw.compatible.get() & compatible::SPARSE_SUPER2 != 0 {
            return self
                .raw
                .backup_groups
                .iter()
                .any(|group| u64::from(group.get()) == index);
        }
        if index == 1 || self.raw.read_only.get() & read_only::SPARSE_SUPER == 0 {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| {
            let mut power = base;
            while power < index {
                power *= base; // below 2^23
            }
            power == index
        })
    }

    /// Returns the number of blocks at the beginning of group `index` for copies of the superblock
    /// and of descriptors, including reserved ones.
    pub(super) fn head_of(&self, index: u64) -> u64 {
        let (per, copy) = (
            self.descriptors_per_block(),
            u64::from(self.has_superblock(index)),
        );
        let number = index / per;
        if self.is_meta(number) {
            let place = index % per;
            return copy + u64::from(place <= 1 || place == per - 1);
        }
        let all = self.groups.div_ceil(per);
        let stored = match self.raw.incompatible.get() & incompatible::META_BG {
            0 => all,
            _ => all.min(self.raw.first_meta_group.get().into()),
        };
        copy * (1 + stored + u64::from(self.raw.reserved_descriptor_blocks.get()))
    }

    /// Parses the descriptor of group `index`; its length is given by the superblock.
    pub(super) fn group(&self, index: u64, bytes: &[u8]) -> Result<Group> {
        let mut raw = GroupRaw::new_zeroed();
        let shared = bytes.len().min(size_of::<GroupRaw>());
        raw.as_mut_bytes()[..shared].copy_from_slice(&bytes[..shared]);
        let wrong = |message: String| {
            Error::corrupt("ext group descriptor", self.descriptor_at(index), message)
        };
        let features = self.raw.read_only.get();
        if let Some(sum) = self.descriptor_sum(index, bytes)
            && sum != raw.checksum.get()
        {
            return Err(wrong(format!(
                "group {index}: checksum mismatch: computed {sum:#06x}, stored {:#06x}",
                raw.checksum.get()
            )));
        }
        let wide = |low: U32, high: U32| u64::from(low.get()) | u64::from(high.get()) << 32;
        let is_uninitialised = raw.flags.get() & group_flags::BLOCKS_UNINITIALISED != 0
            && features & (read_only::DESCRIPTOR_SUMS | read_only::METADATA_SUMS) != 0;
        let group = Group {
            block_bitmap: wide(raw.block_bitmap_low, raw.block_bitmap_high),
            inode_bitmap: wide(raw.inode_bitmap_low, raw.inode_bitmap_high),
            inode_table: wide(raw.inode_table_low, raw.inode_table_high),
            free: u64::from(raw.free_low.get()) | u64::from(raw.free_high.get()) << 16,
            is_uninitialised,
            bitmap_sum: u32::from(raw.block_bitmap_sum_low.get())
                | u32::from(raw.block_bitmap_sum_high.get()) << 16,
        };
        for (what, at, count) in [
            ("bitmap of blocks", group.block_bitmap, 1),
            ("bitmap of inodes", group.inode_bitmap, 1),
            ("table of inodes", group.inode_table, self.inode_table),
        ] {
            if at <= self.first || at.checked_add(count).is_none_or(|end| end > self.blocks) {
                return Err(wrong(format!(
                    "group {index}: its {what} at block {at} is past the end of the volume ({})",
                    self.blocks
                )));
            }
        }
        if group.free > self.blocks_in(index) {
            return Err(wrong(format!(
                "group {index}: impossible count of free blocks: {} of {}",
                group.free,
                self.blocks_in(index)
            )));
        }
        Ok(group)
    }

    /// Returns the expected checksum of a descriptor, `None` if the volume has none.
    pub(in crate::foreign) fn descriptor_sum(&self, index: u64, bytes: &[u8]) -> Option<u16> {
        let (head, tail) = (bytes.get(..DESCRIPTOR_SUM)?, bytes.get(SHORT_DESCRIPTOR..)?);
        let number = narrow::<u32>(index).to_le_bytes(); // below MAX_GROUPS
        if let Some(seed) = self.seed {
            let sum = crc32c(crc32c(crc32c(seed, &number), head), &[0; 2]);
            return Some((crc32c(sum, tail) & 0xFFFF) as u16);
        }
        let has = self.raw.read_only.get() & read_only::DESCRIPTOR_SUMS != 0;
        has.then(|| crc16(crc16(crc16(crc16(!0, &self.raw.uuid), &number), head), tail))
    }

    /// Returns true if the bitmap of a group matches the checksum in its descriptor, or if there
    /// are no checksums.
    pub(super) fn is_bitmap_of(&self, group: &Group, bits: &[u8]) -> bool {
        let Some(seed) = self.seed else { return true };
        let sum = crc32c(seed, bits);
        let recorded = if self.descriptor_size < size_of::<GroupRaw>() {
            sum & 0xFFFF
        } else {
            sum
        };
        recorded == group.bitmap_sum
    }
}

fn wrong(message: String) -> Error {
    Error::corrupt(LAYER, SUPERBLOCK, message)
}

/// Refuses other structures, and features that change where free blocks are recorded.
fn check_features(raw: &SuperblockRaw) -> Result<()> {
    if raw.magic != MAGIC {
        return Err(wrong(format!(
            "invalid magic {:#06x}: expected {MAGIC:#06x}",
            raw.magic.get()
        )));
    }
    let (found, readable) = (raw.incompatible.get(), raw.read_only.get());
    if readable & read_only::BIGALLOC != 0 {
        let message = "unsupported: ext4 with clusters (bigalloc)";
        return Err(Error::unsupported(LAYER, message));
    }
    let unknown = (found & !incompatible::KNOWN, readable & !read_only::KNOWN);
    if unknown != (0, 0) {
        let message = format!(
            "unsupported features (incompatible {:#x}, read-only {:#x})",
            unknown.0, unknown.1
        );
        return Err(Error::unsupported(LAYER, message));
    }
    Ok(())
}

/// Returns the seed of the checksums of other structures, if the volume has checksums. That of the
/// superblock is compared.
fn checksum_seed(raw: &SuperblockRaw) -> Result<Option<u32>> {
    if raw.read_only.get() & read_only::METADATA_SUMS == 0 {
        return Ok(None);
    }
    let sum = crc32c(!0, &raw.as_bytes()[..offset_of!(SuperblockRaw, checksum)]);
    if raw.checksum_type != 1 || raw.checksum.get() != sum {
        let message = format!(
            "checksum mismatch: {:#010x} of kind {}, expected {sum:#010x} of kind 1",
            raw.checksum.get(),
            raw.checksum_type
        );
        return Err(wrong(message));
    }
    Ok(Some(
        match raw.incompatible.get() & incompatible::CHECKSUM_SEED {
            0 => crc32c(!0, &raw.uuid),
            _ => raw.checksum_seed.get(),
        },
    ))
}
