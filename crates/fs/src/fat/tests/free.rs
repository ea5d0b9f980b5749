//! Tests of the free maps of synthetic volumes, and of errors for invalid ones.

use std::ops::Range;
use std::sync::Arc;

use super::super::fixture::{Width, fat};
use crate::{BlockFreeMap, FreeMapExt};
use bandsaw_core::device::Memory;
use bandsaw_core::{Error, Kind, Result};

fn open(bytes: &[u8]) -> Result<BlockFreeMap> {
    super::super::free_map(Arc::new(Memory::from(bytes.to_vec())))
}

fn refused(bytes: &[u8]) -> Error {
    open(bytes).and_then(BlockFreeMap::trusted).unwrap_err()
}

fn runs(bytes: &[u8]) -> Vec<Range<u64>> {
    let map = open(bytes).unwrap().trusted().unwrap();
    let runs: Vec<_> = map.free_runs(0..u64::MAX).map(Result::unwrap).collect();
    assert_eq!(
        runs.iter().map(|run| run.end - run.start).sum::<u64>(),
        map.free().unwrap()
    );
    runs
}

fn blocks(start: u64, size: u64, blocks: &[Range<u64>]) -> Vec<Range<u64>> {
    blocks
        .iter()
        .map(|run| start + run.start * size..start + run.end * size)
        .collect()
}

#[test]
fn fat_is_free_where_entries_are_zero() {
    for (width, used, start, size, end) in [
        (Width::Fat12, 10..30, (1 + 4 + 32) * 512, 2048, 502),
        (Width::Fat16, 11..31, (1 + 64 + 32) * 512, 512, 8095),
        (Width::Fat32, 2..33, (32 + 32) * 512, 512, 1984),
    ] {
        let bytes = fat(width, used.clone());
        let (first, last) = (used.start as u64 - 2, used.end as u64 - 2);
        let expected = blocks(start, size, &[0..first, last..end]);
        let expected: Vec<_> = expected.into_iter().filter(|run| !run.is_empty()).collect();
        assert_eq!(runs(&bytes), expected, "{width:?}");
    }
}

#[test]
fn fat_is_free_only_if_both_tables_say_so() {
    for (width, second, entry) in [
        (Width::Fat12, 3 * 512, 75),
        (Width::Fat16, 33 * 512, 100),
        (Width::Fat32, 48 * 512, 200),
    ] {
        let mut bytes = fat(width, 2..4);
        let before: u64 = runs(&bytes).iter().map(|run| run.end - run.start).sum();
        bytes[second + entry] = 0x7F;
        let after: u64 = runs(&bytes).iter().map(|run| run.end - run.start).sum();
        assert!(after < before, "{width:?}");
    }
}

#[test]
fn unclean_fat_is_refused() {
    // The flags of the boot sector, then the two bits of entry 1.
    for (width, at, bits) in [
        (Width::Fat12, 0x25, 1),
        (Width::Fat12, 0x25, 2),
        (Width::Fat16, 0x25, 1),
        (Width::Fat16, 512 + 3, 0x80),
        (Width::Fat16, 512 + 3, 0x40),
        (Width::Fat32, 0x41, 1),
        (Width::Fat32, 32 * 512 + 7, 0x08),
        (Width::Fat32, 32 * 512 + 7, 0x04),
    ] {
        let mut bytes = fat(width, 2..10);
        bytes[at] ^= bits;
        assert_eq!(
            refused(&bytes).kind(),
            Kind::Conflict,
            "{width:?} at {at:#x}"
        );
    }
}

#[test]
fn fat_that_does_not_add_up_is_refused() {
    for (width, at, value) in [
        (Width::Fat12, 0x0B, [0x01, 0x00]),
        (Width::Fat12, 0x0D, [0, 1]),
        (Width::Fat12, 0x0D, [3, 1]),
        (Width::Fat12, 0x0E, [0, 0]),
        (Width::Fat12, 0x10, [0, 0]),
        (Width::Fat12, 0x13, [0xFF, 0xFF]),
        (Width::Fat12, 0x16, [1, 0]),
        (Width::Fat16, 0x16, [1, 0]),
        (Width::Fat32, 0x2C, [0, 0]),
        (Width::Fat32, 0x2C, [50, 0]),
        (Width::Fat32, 0x24, [1, 0]),
        (Width::Fat32, 0x28, [0x85, 0]),
        (Width::Fat32, 32 * 512, [0xF0, 0xFF]),
    ] {
        let mut bytes = fat(width, 2..10);
        bytes[at..at + 2].copy_from_slice(&value);
        assert_eq!(
            refused(&bytes).kind(),
            Kind::Corrupt,
            "{width:?} at {at:#x}"
        );
    }
}

#[test]
fn short_devices_are_refused() {
    const LEN: usize = 1 << 20;
    let volumes = [fat(Width::Fat12, 2..10), fat(Width::Fat32, 2..10)];
    for len in [
        0,
        1,
        79,
        511,
        512,
        1024,
        2047,
        2048,
        4096,
        16384,
        20480,
        LEN / 2,
        LEN - 513,
    ] {
        for bytes in &volumes {
            assert!(open(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
