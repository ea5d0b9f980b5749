//! Invalid partition maps: each is refused or reported as a problem, in bounded time and memory,
//! without a panic.

use std::time::{Duration, Instant};

use bandsaw::device::{Access, Memory};
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::resize::{Parts, ResizeOptions, Size, resize};
use bandsaw::partition::gpt::Guids;
use bandsaw::partition::{self, APPLE_HFS, Map, gpt};
use bandsaw::progress::Silent;
use bandsaw::{Error, Kind};
use proptest::prelude::*;

const SECTORS: usize = 1000;

fn hfs_disk() -> Vec<u8> {
    let disk = Memory::zeros(SECTORS * 512);
    gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("bad")).unwrap();
    disk.to_vec()
}

fn probe(bytes: Vec<u8>) -> Result<Option<Map>, Error> {
    let begun = Instant::now();
    let found = partition::probe(&Memory::read_only(bytes));
    assert!(begun.elapsed() < Duration::from_secs(5));
    found
}

fn problems(map: &Map) -> String {
    map.problems
        .iter()
        .map(|problem| format!("{problem}\n"))
        .collect()
}

/// Changes header bytes of both copies and corrects the checksums, as an attacker would.
fn forge(disk: &mut [u8], change: impl Fn(&mut [u8])) {
    for at in [512, (SECTORS - 1) * 512] {
        let header = &mut disk[at..at + 512];
        change(header);
        let size = u32::from_le_bytes(header[12..16].try_into().unwrap());
        header[16..20].fill(0);
        let crc = crc32fast::hash(&header[..(size as usize).min(512)]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Changes the first entry of both tables, and corrects the checksums.
fn forge_entry(disk: &mut [u8], change: impl Fn(&mut [u8])) {
    for at in [1024, (SECTORS - 33) * 512] {
        change(&mut disk[at..at + 128]);
    }
    let crc = crc32fast::hash(&disk[1024..34 * 512]);
    forge(disk, |header| {
        header[0x58..0x5c].copy_from_slice(&crc.to_le_bytes())
    });
}

fn put(bytes: &mut [u8], offset: usize, value: u64, size: usize) {
    bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

#[test]
fn headers_with_right_checksums_and_wrong_numbers() {
    for (what, offset, size, value, hint) in [
        ("header size 0", 0x0c, 4, 0, "92 to 512"),
        ("header size 91", 0x0c, 4, 91, "92 to 512"),
        ("header size past the block", 0x0c, 4, 513, "92 to 512"),
        ("header size 4 GiB", 0x0c, 4, 0xffff_ffff, "92 to 512"),
        ("revision 2", 0x08, 4, 0x20000, "revision"),
        ("entry size 0", 0x54, 4, 0, "128"),
        ("entry size 127", 0x54, 4, 127, "128"),
        ("entry size 384", 0x54, 4, 384, "128"),
        ("entry size 2 GiB", 0x54, 4, 1 << 31, "entries"),
        ("no entries", 0x50, 4, 0, "entries"),
        ("4 Gi entries", 0x50, 4, 0xffff_ffff, "entries"),
        (
            "8192 entries on a small disk",
            0x50,
            4,
            8192,
            "exceeds the disk",
        ),
        ("table in the MBR", 0x48, 8, 0, "exceeds the disk"),
        ("table past the end", 0x48, 8, 990, "exceeds the disk"),
        (
            "table at the end of numbers",
            0x48,
            8,
            u64::MAX,
            "exceeds the disk",
        ),
        (
            "header that belongs elsewhere",
            0x18,
            8,
            7,
            "wrong location",
        ),
    ] {
        let mut disk = hfs_disk();
        forge(&mut disk, |header| put(header, offset, value, size));
        let error = probe(disk).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{what}");
        assert!(error.to_string().contains(hint), "{what}: {error}");
        assert!(
            std::error::Error::source(&error)
                .is_some_and(|cause| cause.to_string().contains("at byte 512")),
            "{what}: {error}"
        );
    }
}

#[test]
fn entries_outside_the_disk_are_left_out() {
    for (what, first, last) in [
        ("past the end", 40, 1000),
        ("wholly past the end", 5000, 6000),
        ("end before start", 100, 99),
        ("end of numbers", 40, u64::MAX),
        ("all of numbers", 0, u64::MAX),
        ("start at the end of numbers", u64::MAX, u64::MAX),
    ] {
        let mut disk = hfs_disk();
        forge_entry(&mut disk, |entry| {
            put(entry, 0x20, first, 8);
            put(entry, 0x28, last, 8);
        });
        let map = probe(disk).unwrap().unwrap();
        assert!(map.partitions.is_empty(), "{what}");
        assert!(
            problems(&map).contains("partition 1"),
            "{what}: {}",
            problems(&map)
        );
    }
}

#[test]
fn entries_over_the_map_itself_are_problems() {
    let mut disk = hfs_disk();
    forge_entry(&mut disk, |entry| put(entry, 0x20, 1, 8));
    let map = probe(disk).unwrap().unwrap();
    assert_eq!(map.partitions.len(), 1);
    assert!(
        problems(&map).contains("not within the blocks for partitions"),
        "{}",
        problems(&map)
    );
}

#[test]
fn repair_writes_over_nothing_that_counts() {
    // The header assigns the map's own blocks to partitions, or a partition overlaps them
    // regardless of the header.
    let granted = |disk: &mut [u8]| forge(disk, |header| put(header, 0x30, 998, 8));
    let taken = |disk: &mut [u8]| forge_entry(disk, |entry| put(entry, 0x28, 998, 8));
    for (what, lie) in [
        ("granted", &granted as &dyn Fn(&mut [u8])),
        ("taken", &taken),
    ] {
        let mut bytes = hfs_disk();
        lie(&mut bytes);
        bytes[999 * 512..].fill(0);
        let disk = Memory::from(bytes.clone());
        let error = gpt::repair(&disk).unwrap_err();
        assert_eq!(
            (error.kind(), disk.to_vec()),
            (Kind::Unsupported, bytes),
            "{what}: {error}"
        );
    }
    // No space is left for partitions, and the backup's position is that of the primary.
    for alternate in [1, 2, 33, 34] {
        let mut bytes = hfs_disk();
        forge_entry(&mut bytes, |entry| entry.fill(0));
        forge(&mut bytes, |header| {
            put(header, 0x20, alternate, 8);
            put(header, 0x30, 0, 8);
        });
        let disk = Memory::from(bytes.clone());
        let error = gpt::repair(&disk).unwrap_err();
        assert_eq!(
            (error.kind(), disk.to_vec()),
            (Kind::Unsupported, bytes),
            "{alternate}: {error}"
        );
    }
    let mut bytes = hfs_disk();
    forge_entry(&mut bytes, |entry| put(entry, 0x20, 2, 8));
    bytes[512..1024].fill(0);
    let disk = Memory::from(bytes.clone());
    let error = gpt::repair(&disk).unwrap_err();
    assert_eq!(
        (error.kind(), disk.to_vec()),
        (Kind::Unsupported, bytes),
        "{error}"
    );
}

#[test]
fn a_backup_of_something_else_is_none() {
    let mut bytes = hfs_disk();
    forge(&mut bytes, |header| put(header, 0x20, 77, 8));
    bytes[512..1024].fill(0);
    let disk = Memory::from(bytes.clone());
    assert!(
        gpt::repair(&disk)
            .unwrap_err()
            .to_string()
            .contains("neither copy")
    );
    assert_eq!(disk.to_vec(), bytes);
    assert!(
        probe(bytes)
            .unwrap_err()
            .to_string()
            .contains("invalid location 77 of the primary")
    );
}

#[test]
fn truncated_disks_are_refused() {
    let whole = hfs_disk();
    for sectors in [1, 2, 3, 33, 34, 35, 40, 500, 959, 960, 998, 999] {
        match probe(whole[..sectors * 512].to_vec()) {
            Ok(Some(map)) => {
                let kept = map.partitions.len();
                assert_eq!(kept, usize::from(sectors >= 960), "{sectors}");
                assert!(
                    problems(&map).contains("backup"),
                    "{sectors}: {}",
                    problems(&map)
                );
                assert_eq!(
                    problems(&map).contains("is not within the disk"),
                    sectors < 960,
                    "{sectors}: {}",
                    problems(&map)
                );
            }
            Ok(None) => panic!("{sectors}: the protective MBR is there"),
            Err(error) => {
                assert!(sectors < 34, "{sectors}: {error}");
                assert_eq!(error.kind(), Kind::Corrupt, "{error}");
            }
        }
    }
}

#[test]
fn apple_maps_that_lie() {
    let disk = |count: u32, first: u32, blocks: u32| {
        let mut disk = vec![0; 1 << 20];
        disk[..4].copy_from_slice(b"ER\x02\0");
        for number in 1..=2_usize {
            let entry = &mut disk[number * 512..][..512];
            entry[..2].copy_from_slice(b"PM");
            entry[4..8].copy_from_slice(&count.to_be_bytes());
            entry[8..12].copy_from_slice(&first.to_be_bytes());
            entry[12..16].copy_from_slice(&blocks.to_be_bytes());
            entry[48..57].copy_from_slice(b"Apple_HFS");
        }
        disk
    };
    assert!(
        probe(disk(0, 1, 1))
            .unwrap_err()
            .to_string()
            .contains("1 to 2047")
    );
    assert!(
        probe(disk(2048, 1, 1))
            .unwrap_err()
            .to_string()
            .contains("1 to 2047")
    );
    assert!(
        probe(disk(u32::MAX, 1, 1))
            .unwrap_err()
            .to_string()
            .contains("1 to 2047")
    );
    assert_eq!(probe(disk(2047, 1, 1)).unwrap_err().kind(), Kind::Limit);
    for (first, blocks) in [(1, 2048), (2048, 1), (u32::MAX, u32::MAX), (64, 0)] {
        let map = probe(disk(2, first, blocks)).unwrap().unwrap();
        assert_eq!(
            (map.partitions.len(), map.problems.len()),
            (0, 2),
            "{}",
            problems(&map)
        );
    }
    let map = probe(disk(2, 64, 64)).unwrap().unwrap();
    assert!(map.partitions.len() == 2 && problems(&map).contains("1 and 2 overlap"));
    let map = probe(disk(3, 64, 64)).unwrap().unwrap();
    assert!(
        problems(&map).contains("entry 3 of 3 has no signature"),
        "{}",
        problems(&map)
    );
}

/// Writes a record of the chain at `sector`, whose next one is `next` sectors from the head at 100.
fn extended(disk: &mut [u8], sector: usize, next: u32) {
    let record = &mut disk[sector * 512..][..512];
    record[450] = 0x83;
    put(record, 454, 1, 4);
    put(record, 458, 5, 4);
    record[466] = 0x05;
    put(record, 470, next.into(), 4);
    put(record, 474, 10, 4);
    record[510..].copy_from_slice(&[0x55, 0xaa]);
}

#[test]
fn chains_of_extended_boot_records_that_do_not_end() {
    let base = || {
        let mut disk = vec![0; 1 << 20];
        disk[450] = 0x05;
        put(&mut disk, 454, 100, 4);
        put(&mut disk, 458, 1900, 4);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk
    };
    let mut to_itself = base();
    extended(&mut to_itself, 100, 0);
    let map = probe(to_itself).unwrap().unwrap();
    assert!(
        map.partitions.len() == 2 && problems(&map).contains("cycle in the chain"),
        "{}",
        problems(&map)
    );

    let mut in_a_ring = base();
    extended(&mut in_a_ring, 100, 50);
    extended(&mut in_a_ring, 150, 60);
    extended(&mut in_a_ring, 160, 50);
    let map = probe(in_a_ring).unwrap().unwrap();
    assert!(
        map.partitions.len() == 4 && problems(&map).contains("cycle in the chain"),
        "{}",
        problems(&map)
    );

    let mut without_end = base();
    (0..150).for_each(|link| extended(&mut without_end, 100 + 10 * link, 10 * (link as u32 + 1)));
    let map = probe(without_end).unwrap().unwrap();
    assert!(
        map.partitions.len() == 129 && problems(&map).contains("limit 128"),
        "{}",
        problems(&map)
    );

    let mut off_the_disk = base();
    extended(&mut off_the_disk, 100, u32::MAX);
    let map = probe(off_the_disk).unwrap().unwrap();
    assert!(
        map.partitions.len() == 2 && problems(&map).contains("the signature 55 aa"),
        "{}",
        problems(&map)
    );
    assert!(problems(&probe(base()).unwrap().unwrap()).contains("the signature 55 aa"));
}

#[test]
fn primaries_outside_the_disk_are_left_out() {
    let mut disk = vec![0; 1 << 20];
    disk[450] = 0x0b;
    put(&mut disk, 454, 1, 4);
    put(&mut disk, 458, 2047, 4);
    disk[466] = 0xaf;
    put(&mut disk, 470, 0xffff_ffff, 4);
    put(&mut disk, 474, 0xffff_ffff, 4);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let map = probe(disk).unwrap().unwrap();
    assert_eq!(
        (map.partitions.len(), map.problems.len()),
        (1, 1),
        "{}",
        problems(&map)
    );
    assert!(problems(&map).contains("partition 2"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Random corruption: no panic, partitions are within the disk, and reading changes nothing
    /// (the disk is read-only).
    #[test]
    fn any_damage(changes in proptest::collection::vec((0_usize..34 * 512, any::<u8>()), 1..8), cut in 0_usize..=SECTORS) {
        let mut disk = hfs_disk();
        for (at, byte) in changes {
            disk[at] = byte;
        }
        disk.truncate(cut * 512);
        if let Ok(Some(map)) = probe(disk) {
            prop_assert!(map.partitions.iter().all(|p| p.range.start < p.range.end && p.range.end <= cut as u64 * 512));
        }
    }
}

/// A map that cannot be changed: a resize fails before the disk is longer.
#[test]
fn a_resize_changes_nothing_if_the_map_cannot_follow() {
    let mut bytes = hfs_disk();
    forge_entry(&mut bytes, |entry| put(entry, 0x20, 0, 8));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.img");
    std::fs::write(&path, &bytes).unwrap();
    let writable = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let image = open::open(&path, &writable).unwrap();
    for dry_run in [true, false] {
        let larger = ResizeOptions {
            size: Size::Bytes(2 * bytes.len() as u64),
            parts: Parts::Image,
            volume: None,
            dry_run,
        };
        resize(&image, &larger, &Silent).unwrap_err();
    }
    drop(image);
    assert!(std::fs::read(&path).unwrap() == bytes);
}
