//! ext: two groups of blocks of 1024 bytes.

use zerocopy::{FromZeros, IntoBytes};

use super::super::ext::superblock::Superblock;
use super::super::layout::ext::{
    GroupRaw, MAGIC, SHORT_DESCRIPTOR, SuperblockRaw, group_flags, incompatible, read_only, state,
};
use super::super::sums::crc32c;
use super::{LEN, put};
use crate::fs::bitmap::{count_clear, set_bits};

const BLOCK: usize = 1024;
const PER_GROUP: usize = 512;
/// Blocks of the second group, of which the last one is not there.
const LAST: usize = PER_GROUP - 1;
/// Blocks of a copy of the superblock and the descriptors.
const HEAD: usize = 2;
/// Blocks of a group's own structures: the copies, two bitmaps, two blocks of inodes.
const STRUCTURES: usize = HEAD + 4;

/// Which check sums there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtSums {
    None,
    /// Of descriptors; the second group was never initialised.
    Descriptors,
    /// Of all, with descriptors of 64 bytes.
    All,
}

/// A volume whose blocks `used` of the first group, from 0 on, are in use besides its structures.
pub(crate) fn ext(sums: ExtSums, used: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let mut raw = SuperblockRaw::new_zeroed();
    (raw.inodes, raw.inodes_per_group, raw.inode_size) = (32.into(), 16.into(), 128.into());
    (raw.blocks_low, raw.blocks_per_group) =
        ((LEN as u32 / 1024).into(), (PER_GROUP as u32).into());
    (raw.first_data_block, raw.magic, raw.state, raw.revision) =
        (1.into(), MAGIC, state::CLEAN.into(), 1.into());
    raw.uuid = [7; 16];
    let (incompatible, features) = match sums {
        ExtSums::None => (0, 0),
        ExtSums::Descriptors => (0, read_only::DESCRIPTOR_SUMS),
        ExtSums::All => (incompatible::BITS_64, read_only::METADATA_SUMS),
    };
    (raw.incompatible, raw.read_only) = (
        incompatible.into(),
        (features | read_only::SPARSE_SUPER).into(),
    );
    let size = if sums == ExtSums::All {
        size_of::<GroupRaw>()
    } else {
        SHORT_DESCRIPTOR
    };
    raw.descriptor_size = (size as u16).into();
    raw.checksum_type = u8::from(sums == ExtSums::All);
    let mut free = 0;
    let mut descriptors = Vec::new();
    for (group, count) in [PER_GROUP, LAST].into_iter().enumerate() {
        let mut bits = vec![0; PER_GROUP / 8];
        set_bits(&mut bits, 0..STRUCTURES);
        if group == 0 {
            set_bits(&mut bits, used.clone());
        }
        let clear = count_clear(&bits, count);
        set_bits(&mut bits, count..PER_GROUP);
        free += clear;
        let first = 1 + group * PER_GROUP;
        let block = |number: usize| ((first + HEAD + number) as u32).into();
        let mut descriptor = GroupRaw::new_zeroed();
        (
            descriptor.block_bitmap_low,
            descriptor.inode_bitmap_low,
            descriptor.inode_table_low,
        ) = (block(0), block(1), block(2));
        descriptor.free_low = (clear as u16).into();
        if sums == ExtSums::Descriptors && group == 1 {
            descriptor.flags = group_flags::BLOCKS_UNINITIALISED.into();
        } else {
            put(&mut bytes, (first + HEAD) * BLOCK, &bits);
        }
        let sum = crc32c(crc32c(!0, &raw.uuid), &bits);
        (
            descriptor.block_bitmap_sum_low,
            descriptor.block_bitmap_sum_high,
        ) = ((sum as u16).into(), ((sum >> 16) as u16).into());
        descriptors.push(descriptor);
    }
    raw.free_low = (free as u32).into();
    seal(&mut raw);
    put(&mut bytes, 1024, raw.as_bytes());
    let superblock = Superblock::parse(raw, LEN as u64).expect("it is well-formed");
    for (index, mut descriptor) in descriptors.into_iter().enumerate() {
        let sum = superblock.descriptor_sum(index as u64, &descriptor.as_bytes()[..size]);
        descriptor.checksum = sum.unwrap_or(0).into();
        put(
            &mut bytes,
            2048 + index * size,
            &descriptor.as_bytes()[..size],
        );
    }
    bytes
}

/// Gives a superblock its check sum.
pub(crate) fn seal(raw: &mut SuperblockRaw) {
    raw.checksum = crc32c(!0, &raw.as_bytes()[..0x3FC]).into();
}
