//! Allocation and freeing of blocks, compared with a model.

use std::sync::Arc;

use super::*;
use crate::hfsplus::extents::{ForkSpace, Owner};
use crate::hfsplus::layout::ForkRaw;
use bandsaw_core::device::{AfterDiscard, BlockDeviceExt, Memory};
use bandsaw_core::store::{LocalFile, Open};
use bandsaw_testing::Random;

fn bitmap(bytes: Vec<u8>, total: u32) -> (Arc<Memory>, Bitmap) {
    let blocks = (bytes.len() / 512) as u32;
    let mut fork = ForkRaw {
        logical_size: (bytes.len() as u64).into(),
        total_blocks: blocks.into(),
        ..Default::default()
    };
    fork.extents[0] = Extent {
        start: AllocBlock(0),
        count: blocks,
    }
    .into();
    let device = Arc::new(Memory::from(bytes));
    let space = ForkSpace {
        device: device.clone(),
        block_size: 512,
        total_blocks: blocks,
    };
    let file = space
        .fork(&fork, &Owner::Special("bitmap"), &mut |_| Ok(None))
        .unwrap();
    (device, Bitmap::new(file, total).unwrap())
}

fn extent(start: u32, count: u32) -> Extent {
    Extent {
        start: AllocBlock(start),
        count,
    }
}

#[test]
fn bits_are_those_of_a_model() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let total = random.within(1..4096) as u32;
        let (device, mut bitmap) = bitmap(vec![0; 512], total);
        let mut model = vec![false; total as usize];
        let mut taken = Vec::new();
        for _ in 0..200 {
            if random.one_in(3) && !taken.is_empty() {
                let extent: Extent =
                    taken.swap_remove(random.within(0..taken.len() as u64) as usize);
                bitmap.free(extent).unwrap();
                bitmap.accept();
                model[extent.start.0 as usize..extent.end() as usize].fill(false);
                if random.one_in(2) {
                    bitmap.release();
                }
            } else {
                let (wanted, near) = (random.within(1..100) as u32, random.within(0..4096) as u32);
                let held = bitmap.held.clone();
                for extent in bitmap.allocate(wanted, 1, near).unwrap() {
                    let range = extent.start.0..extent.end() as u32;
                    assert!(
                        held.iter()
                            .all(|(&start, &end)| end <= range.start || start >= range.end),
                        "{extent:?}"
                    );
                    assert!(
                        model[range.start as usize..range.end as usize]
                            .iter()
                            .all(|used| !used)
                    );
                    model[range.start as usize..range.end as usize].fill(true);
                    taken.push(extent);
                }
            }
            let bytes = device.read_vec(0, 512).unwrap();
            let bit = |block: usize| bytes[block / 8] & (0x80 >> (block % 8)) != 0;
            assert!(
                (0..4096).all(|block| bit(block) == model.get(block).copied().unwrap_or(false)),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn one_piece_is_preferred_and_many_are_better_than_none() {
    let (_, mut bitmap) = bitmap(vec![0; 512], 100);
    for start in [0, 10, 40, 60, 90] {
        bitmap.mark(extent(start, 1), true).unwrap();
    }
    assert_eq!(bitmap.allocate(20, 1, 5).unwrap(), [extent(11, 20)]);
    assert_eq!(
        bitmap.allocate(30, 1, 5).unwrap(),
        [extent(41, 1), extent(61, 29)],
        "no run is of 30"
    );
}

#[test]
fn freed_blocks_are_reused_only_after_the_commit() {
    let (_, mut bitmap) = bitmap(vec![0; 512], 64);
    assert_eq!(bitmap.allocate(64, 1, 0).unwrap(), [extent(0, 64)]);
    bitmap.free(extent(8, 16)).unwrap();
    assert!(bitmap.allocate(1, 1, 0).unwrap().is_empty());
    bitmap.accept();
    assert!(bitmap.allocate(1, 1, 0).unwrap().is_empty() && bitmap.holds_any());
    bitmap.release();
    assert_eq!(bitmap.allocate(17, 4, 0).unwrap(), [extent(8, 16)]);
    let error = bitmap.free(extent(63, 2)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    bitmap.free(extent(5, 1)).unwrap();
    assert!(
        bitmap
            .free(extent(4, 2))
            .unwrap_err()
            .to_string()
            .contains("already free in the bitmap")
    );
}

#[test]
fn the_last_run_is_found_across_windows() {
    let (_, bitmap) = bitmap(vec![0; 1 << 20], 8 << 20);
    bitmap.mark(extent(2_000_000, 6_000_000), true).unwrap();
    assert_eq!(
        bitmap.find_last(1000).unwrap(),
        Some(extent((8 << 20) - 1000, 1000))
    );
    assert_eq!(
        bitmap.find_last(400_000).unwrap(),
        Some(extent(1_600_000, 400_000))
    );
    assert_eq!(bitmap.find_last(2_000_001).unwrap(), None);
}

/// A volume with the maximum number of blocks.
#[test]
fn the_last_blocks_of_the_largest_volume() {
    let scratch = tempfile::tempdir().unwrap();
    let file = LocalFile::open(scratch.path().join("bitmap"), Open::CreateNew)
        .unwrap()
        .unwrap();
    file.set_len(1 << 29, AfterDiscard::Zeros).unwrap();
    let blocks = 1 << 20;
    let mut fork = ForkRaw {
        logical_size: (1_u64 << 29).into(),
        total_blocks: blocks.into(),
        ..Default::default()
    };
    fork.extents[0] = extent(0, blocks).into();
    let space = ForkSpace {
        device: Arc::new(file),
        block_size: 512,
        total_blocks: blocks,
    };
    let file = space
        .fork(&fork, &Owner::Special("bitmap"), &mut |_| Ok(None))
        .unwrap();
    let mut bitmap = Bitmap::new(file, u32::MAX).unwrap();
    assert_eq!(bitmap.find_last(7).unwrap(), Some(extent(u32::MAX - 7, 7)));
    assert_eq!(
        bitmap.allocate(20, 1, u32::MAX - 13).unwrap(),
        [extent(0, 20)]
    );
    assert_eq!(
        bitmap.allocate(13, 1, u32::MAX - 13).unwrap(),
        [extent(u32::MAX - 13, 13)]
    );
    assert_eq!(
        bitmap.allocate(1, 1, u32::MAX - 13).unwrap(),
        [extent(20, 1)]
    );
    assert_eq!(bitmap.used_in(u32::MAX - 30..u32::MAX).unwrap(), 13);
    bitmap.free(extent(u32::MAX - 9, 9)).unwrap();
    bitmap.accept();
    assert_eq!(bitmap.release(), [(u32::MAX - 9, u32::MAX)].into());
    assert_eq!(bitmap.find_last(9).unwrap(), Some(extent(u32::MAX - 9, 9)));
    assert!(bitmap.free(extent(u32::MAX - 9, 9)).is_err());
}
