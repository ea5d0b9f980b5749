//! Partition maps.

use super::{describe, disk};
use crate::device::{BlockDevice, Memory};
use crate::partition::{self, APPLE_HFS, Map, gpt};
use crate::problem::{Problems, Severity};

/// Takes an input whose rest describes a disk if its first byte is even; otherwise the checksums of
/// its GPT are corrected, to reach the numbers behind them.
///
/// Probing and checking change nothing and find the same partitions, and agree on errors;
/// partitions are within the disk and have unique numbers. Repair is refused and changes nothing,
/// or produces a map without damage that has the same partitions; a second one finds nothing to do.
pub fn partition_map(input: &[u8]) {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let Some(disk) = disk(input) else { return };
    if flags % 2 == 1 {
        gpt::store_checksum(&disk);
    }
    let before = disk.to_vec();
    let probed = partition::probe(&disk);
    let mut problems = Problems::default();
    let checked = partition::check(&disk, &mut problems);
    assert!(
        disk.to_vec() == before,
        "probing or checking changed the disk"
    );
    match (&probed, &checked) {
        (Ok(probed), Ok(checked)) => {
            let partitions = |map: &Option<Map>| map.as_ref().map(|map| map.partitions.clone());
            assert_eq!(partitions(probed), partitions(checked));
            let wrong = probed.as_ref().is_some_and(|map| !map.problems.is_empty());
            assert!(!wrong || problems.worst().is_some(), "{probed:?}");
        }
        (Err(_), checked) => {
            assert!(checked.is_err() || problems.worst() == Some(Severity::Damage))
        }
        (Ok(probed), Err(_)) => panic!("a check is refused, but there is {probed:?}"),
    }
    let found = probed.ok().flatten();
    if let Some(map) = &found {
        check(map, disk.info().len);
    }
    match gpt::repair(&disk) {
        Err(_) => assert!(disk.to_vec() == before, "a refused repair changed the disk"),
        Ok(_) => {
            let repaired = partition::probe(&disk).ok().flatten();
            let (Some(found), Some(repaired)) = (found, repaired) else {
                panic!("a map appeared or went away")
            };
            assert_eq!(
                (found.disk_guid, &found.partitions),
                (repaired.disk_guid, &repaired.partitions)
            );
            assert_eq!(gpt::repair(&disk).ok(), Some(gpt::Repaired::default()));
        }
    }
}

fn check(map: &Map, len: u64) {
    let within = |range: &std::ops::Range<u64>| range.start < range.end && range.end <= len;
    assert!(
        map.partitions
            .iter()
            .all(|partition| within(&partition.range)),
        "{map:?}"
    );
    assert!(
        map.partitions
            .windows(2)
            .all(|pair| pair[0].number < pair[1].number),
        "{map:?}"
    );
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let gpt = |sectors: usize, block: u32| {
        let disk = Memory::zeros(sectors * 512);
        let range = gpt::create_single(&disk, block, APPLE_HFS, gpt::Guids::derived("seed"));
        range.map(|_| disk.to_vec()).unwrap_or_default()
    };
    let disks = [gpt(128, 512), gpt(4096, 512), gpt(256, 4096), apm(), mbr()];
    let input = |flags: u8, disk: &[u8]| [&[flags][..], &describe(disk)].concat();
    disks
        .iter()
        .flat_map(|disk| [input(0, disk), input(1, disk)])
        .collect()
}

fn apm() -> Vec<u8> {
    let mut disk = vec![0; 200 * 512];
    disk[..4].copy_from_slice(b"ER\x02\0");
    for (number, (first, blocks, kind)) in [
        (1, 63, "Apple_partition_map"),
        (64, 100, "Apple_HFS"),
        (164, 36, "Apple_Free"),
    ]
    .iter()
    .enumerate()
    {
        let entry = &mut disk[(number + 1) * 512..];
        entry[..8].copy_from_slice(b"PM\0\0\0\0\0\x03");
        entry[11] = *first;
        entry[15] = *blocks;
        entry[48..48 + kind.len()].copy_from_slice(kind.as_bytes());
    }
    disk
}

fn mbr() -> Vec<u8> {
    let mut disk = vec![0; 200 * 512];
    for (sector, entries) in [
        (0, [(0xaf, 1, 49), (0x05, 50, 150)]),
        (50, [(0x83, 1, 9), (0x05, 20, 20)]),
        (70, [(0x0b, 1, 9), (0, 0, 0)]),
    ] {
        let record = &mut disk[sector * 512..][..512];
        for (slot, (kind, first, count)) in entries.into_iter().enumerate() {
            let entry = &mut record[446 + 16 * slot..][..16];
            (entry[4], entry[8], entry[12]) = (kind, first, count);
        }
        record[510..].copy_from_slice(&[0x55, 0xaa]);
    }
    disk
}
