//! The free maps of file systems other than Apple's.

use std::sync::Arc;

use super::{describe, disk};
use crate::device::Memory;
use crate::fs::foreign::{Foreign, fixture};
use crate::fs::{BlockFreeMap, FreeMapExt};

const KINDS: [Foreign; 2] = [Foreign::Ext, Foreign::Ntfs];

/// Takes an input of the number of a file system and the description of a disk. The map is refused,
/// or its free runs are within the disk, ordered and disjoint, and match the count.
pub fn foreign_free(input: &[u8]) {
    let Some((&kind, rest)) = input.split_first() else {
        return;
    };
    let (kind, Some(disk)) = (KINDS[usize::from(kind) % KINDS.len()], disk(rest)) else {
        return;
    };
    let bytes = disk.to_vec();
    let len = bytes.len() as u64;
    if let Ok(map) = kind.free_map(Arc::new(Memory::read_only(bytes))) {
        check_map(map, len);
    }
}

/// Checks the free runs of a map against each other, the length of the disk, and the count.
pub(super) fn check_map(map: BlockFreeMap, len: u64) {
    let (mut end, mut free) = (None, 0);
    for run in map.free_runs(0..u64::MAX) {
        let Ok(run) = run else { return };
        assert!(
            run.start < run.end && run.end <= len && end.is_none_or(|end| run.start > end),
            "{run:?} after {end:?}"
        );
        free += run.end - run.start;
        end = Some(run.end);
    }
    assert_eq!(map.free().ok(), Some(free));
    // Only must not panic; the result does not matter.
    let _ = map.trusted();
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |kind: Foreign, bytes: &[u8]| {
        let number = KINDS
            .iter()
            .position(|other| *other == kind)
            .unwrap_or_default();
        seeds.push([vec![number as u8], describe(bytes)].concat());
    };
    for sums in [
        fixture::ExtSums::None,
        fixture::ExtSums::Descriptors,
        fixture::ExtSums::All,
    ] {
        add(Foreign::Ext, &fixture::ext(sums, 100..120));
    }
    add(Foreign::Ntfs, &fixture::ntfs(0, &[]));
    seeds
}
