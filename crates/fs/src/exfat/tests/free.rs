//! Tests of the free maps of synthetic volumes, and of errors for invalid ones.

use std::ops::Range;
use std::sync::Arc;

use super::super::fixture::{LEN, exfat, seal_exfat};
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
fn exfat_is_free_where_bits_are_clear() {
    let bytes = exfat(2..20);
    assert_eq!(
        runs(&bytes),
        blocks(40 * 512, 1024, std::slice::from_ref(&(18..1004)))
    );
}

#[test]
fn exfat_out_of_order_or_wrong_is_refused() {
    for flag in [2, 4] {
        let mut bytes = exfat(2..20);
        bytes[0x6A] |= flag;
        assert_eq!(refused(&bytes).kind(), Kind::Conflict);
    }
    for (at, value) in [
        (0x49, 0),
        (0x50, 1),
        (0x54, 1),
        (0x58, 30),
        (0x5C, 0xFF),
        (0x60, 1),
        (0x69, 2),
        (0x6C, 8),
        (0x6D, 99),
    ] {
        let mut bytes = exfat(2..20);
        bytes[at] = value;
        seal_exfat(&mut bytes);
        assert_eq!(refused(&bytes).kind(), Kind::Corrupt, "{at:#x}");
    }
    let mut bytes = exfat(2..20);
    bytes[0x6E] = 2;
    seal_exfat(&mut bytes);
    assert_eq!(refused(&bytes).kind(), Kind::Unsupported);
    let mut bytes = exfat(2..20);
    bytes[0x64] ^= 1;
    assert!(refused(&bytes).message().contains("checksum"));
    // Bitmap, table and directory must be used, and the bitmap must have its full length.
    for used in [3..20, 2..3, 5..20] {
        assert_eq!(refused(&exfat(used)).kind(), Kind::Corrupt);
    }
    let directory = 40 * 512 + 2 * 1024;
    for (at, value) in [(0, 0), (0x18, 9), (0x14, 0xFF), (0x17, 0xFF), (1, 1)] {
        let mut bytes = exfat(2..20);
        bytes[directory + at] = value;
        assert_eq!(refused(&bytes).kind(), Kind::Corrupt, "{at:#x}");
    }
}

#[test]
fn short_devices_are_refused() {
    let bytes = exfat(2..20);
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
        assert!(open(&bytes[..len]).is_err(), "{len} bytes");
    }
}
