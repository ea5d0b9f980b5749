//! `partition::check`: every kind of damage is found, at its offset, in a single run.

use bandsaw::Kind;
use bandsaw::device::{BlockDevice, Memory};
use bandsaw::error::Place;
use bandsaw::partition::gpt::{Guids, NewPartition};
use bandsaw::partition::{self, APPLE_APFS, APPLE_HFS, Map, gpt};
use bandsaw::problem::Severity::{Damage, Note, Warning};
use bandsaw::problem::{Problems, Severity};

const SECTORS: usize = 1000;
const LAST: usize = (SECTORS - 1) * 512;

/// Returns a disk with two partitions.
fn disk() -> Vec<u8> {
    let disk = Memory::zeros(SECTORS * 512);
    let guids = Guids::derived("check");
    let partition = |range: std::ops::Range<u64>, type_guid, guid| NewPartition {
        range: range.start * 512..range.end * 512,
        type_guid,
        guid,
        name: "x".into(),
    };
    let partitions = [
        partition(40..400, APPLE_HFS, guids.partition),
        partition(400..800, APPLE_APFS, guids.disk),
    ];
    gpt::create(&disk, 512, guids.disk, &partitions).unwrap();
    disk.to_vec()
}

/// Severity, offset and text of a problem.
type Found = (Severity, u64, String);

/// Returns all problems, and the map.
fn check(bytes: Vec<u8>) -> (Vec<Found>, bandsaw::Result<Option<Map>>) {
    let mut problems = Problems::default();
    let map = partition::check(&Memory::read_only(bytes), &mut problems);
    let report = problems.into_iter().map(|problem| {
        let Place::Offset(at) = *problem.error.place() else {
            panic!("{} has no place", problem.error)
        };
        (problem.severity, at, problem.error.to_string())
    });
    (report.collect(), map)
}

/// Corrects the checksums of both copies, if they have headers.
fn seal(disk: &mut [u8]) {
    let last = disk.len() - 512;
    for (header, table) in [(512, 1024), (last, last - 32 * 512)] {
        let crc = crc32fast::hash(&disk[table..table + 32 * 512]);
        disk[header + 0x58..][..4].copy_from_slice(&crc.to_le_bytes());
        disk[header + 0x10..][..4].fill(0);
        let crc = crc32fast::hash(&disk[header..header + 92]);
        disk[header + 0x10..][..4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Changes a field in both copies of the headers or of the tables.
fn put_both(disk: &mut [u8], primary: usize, value: u64) {
    let backup = if primary < 1024 {
        LAST + primary - 512
    } else {
        LAST - 32 * 512 + primary - 1024
    };
    for at in [primary, backup] {
        disk[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    seal(disk);
}

#[test]
fn a_sound_map_has_no_problems() {
    let (found, map) = check(disk());
    assert_eq!(found, []);
    assert_eq!(map.unwrap().unwrap().partitions.len(), 2);
    assert!(check(vec![0; 512]).1.unwrap().is_none() && check(vec![7; 100]).1.unwrap().is_none());
}

#[test]
fn each_damage_is_found_at_its_place() {
    type Change = fn(&mut Vec<u8>);
    /// Name of the damage, the change, and the expected problems.
    type Case = (
        &'static str,
        Change,
        &'static [(Severity, usize, &'static str)],
    );
    let cases: [Case; 17] = [
        (
            "header of the primary",
            |disk| disk[520] ^= 1,
            &[(
                Damage,
                512,
                "primary copy of the map cannot be used: checksum",
            )],
        ),
        (
            "signature of the primary",
            |disk| disk[512] ^= 1,
            &[(Damage, 512, "EFI PART")],
        ),
        (
            "table of the primary",
            |disk| disk[1100] ^= 1,
            &[(Damage, 1024, "gpt table")],
        ),
        (
            "header of the backup",
            |disk| disk[LAST + 8] ^= 1,
            &[(Damage, LAST, "backup copy of the map cannot be used")],
        ),
        (
            "table of the backup",
            |disk| disk[LAST - 512] ^= 1,
            &[(
                Damage,
                LAST - 32 * 512,
                "backup copy of the map cannot be used",
            )],
        ),
        (
            "an edit of one copy",
            |disk| {
                disk[1024 + 0x30] ^= 4;
                seal(disk);
            },
            &[(Warning, LAST, "differs from the primary")],
        ),
        (
            "block 0 and the backup",
            |disk| {
                disk[..512].fill(0);
                disk[LAST] ^= 1;
            },
            &[
                (Damage, 0, "missing: block 0 is blank"),
                (Damage, LAST, "backup"),
            ],
        ),
        (
            "size in block 0",
            |disk| disk[0x1be + 12] ^= 1,
            &[(Warning, 0x1be, "expected 999 from 1")],
        ),
        (
            "start in block 0",
            |disk| disk[0x1be + 8] = 2,
            &[(Warning, 0x1be, "from block 2")],
        ),
        (
            "a hybrid",
            |disk| {
                disk[0x1ce..0x1de]
                    .copy_from_slice(&[0, 0, 0, 0, 0xaf, 0, 0, 0, 40, 0, 0, 0, 9, 0, 0, 0])
            },
            &[(Note, 0x1be, "hybrid")],
        ),
        (
            "a disk that grew",
            |disk| {
                disk.resize(2 * SECTORS * 512, 0);
                disk[0x1be + 12..0x1be + 16].copy_from_slice(&1999_u32.to_le_bytes());
            },
            &[(Warning, LAST, "has grown since")],
        ),
        (
            "a disk that was cut",
            |disk| {
                disk.truncate(900 * 512);
                disk[0x1be + 12..0x1be + 16].copy_from_slice(&899_u32.to_le_bytes());
            },
            &[(Damage, 512 + 0x20, "truncated")],
        ),
        (
            "a disk cut within a partition",
            |disk| {
                disk.truncate(500 * 512);
                disk[0x1be + 12..0x1be + 16].copy_from_slice(&499_u32.to_le_bytes());
            },
            &[
                (Damage, 512 + 0x20, "truncated"),
                (Damage, 1024 + 128, "partition 2"),
            ],
        ),
        (
            "partitions that overlap",
            |disk| put_both(disk, 1024 + 0x28, 500),
            &[(Damage, 400 * 512, "partitions 1 and 2 overlap")],
        ),
        (
            "a partition over the backup's table",
            |disk| put_both(disk, 1024 + 128 + 0x28, 980),
            &[(Damage, 1024 + 128, "not within the blocks for partitions")],
        ),
        (
            "blocks for partitions over the table",
            |disk| put_both(disk, 512 + 0x28, 20),
            &[
                (Damage, 512, "overlaps the blocks for partitions"),
                (Damage, LAST, ""),
            ],
        ),
        (
            "the same GUID twice",
            |disk| {
                let guid = disk[1024 + 16..1024 + 32].to_vec();
                for entry in [1024 + 128 + 16, LAST - 32 * 512 + 128 + 16] {
                    disk[entry..entry + 16].copy_from_slice(&guid);
                }
                seal(disk);
            },
            &[(Warning, 1024 + 128, "GUID of another")],
        ),
    ];
    for (name, change, expected) in cases {
        let mut bytes = disk();
        change(&mut bytes);
        let (found, map) = check(bytes);
        assert!(map.unwrap().is_some(), "{name}");
        // The backup's header is outside its own range for partitions, so only the primary is
        // reported.
        let expected: Vec<_> = expected
            .iter()
            .filter(|(_, _, text)| !text.is_empty())
            .collect();
        assert_eq!(found.len(), expected.len(), "{name}: {found:?}");
        for ((severity, at, text), (want_severity, want_at, want_text)) in
            found.iter().zip(expected)
        {
            assert_eq!(
                (severity, *at),
                (want_severity, *want_at as u64),
                "{name}: {text}"
            );
            assert!(text.contains(want_text), "{name}: {text}");
        }
    }
}

#[test]
fn two_broken_copies_are_both_reported() {
    let mut bytes = disk();
    bytes[520] ^= 1;
    bytes[LAST - 512] ^= 1;
    let (found, map) = check(bytes);
    assert_eq!(
        found
            .iter()
            .map(|(severity, at, _)| (*severity, *at))
            .collect::<Vec<_>>(),
        [(Damage, 512), (Damage, (LAST - 32 * 512) as u64)]
    );
    assert_eq!(map.unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn blocks_of_4096_bytes() {
    let disk = Memory::zeros(256 * 4096);
    gpt::create_single(&disk, 4096, APPLE_HFS, Guids::derived("check")).unwrap();
    assert_eq!(check(disk.to_vec()).0, []);
    disk.write_at(4096 + 8, &[9]).unwrap();
    assert_eq!(check(disk.to_vec()).0[0].1, 4096);
}

#[test]
fn maps_of_other_kinds() {
    // An Apple partition map of three entries, of which the second ends after the disk and the
    // third lacks its signature.
    let mut apm = vec![0; 64 * 512];
    for (number, first, count, kind) in [
        (1, 1_u32, 3_u32, "Apple_partition_map"),
        (2, 10, 100, "Apple_HFS"),
    ] {
        let entry = &mut apm[number * 512..][..512];
        entry[..8].copy_from_slice(b"PM\0\0\0\0\0\x03");
        entry[8..12].copy_from_slice(&first.to_be_bytes());
        entry[12..16].copy_from_slice(&count.to_be_bytes());
        entry[0x30..0x30 + kind.len()].copy_from_slice(kind.as_bytes());
    }
    let (found, map) = check(apm);
    let places: Vec<_> = found
        .iter()
        .map(|(severity, at, _)| (*severity, *at))
        .collect();
    assert_eq!(
        places,
        [(Note, 0), (Damage, 1024), (Damage, 1536)],
        "{found:?}"
    );
    assert_eq!(map.unwrap().unwrap().partitions.len(), 1);

    // An MBR with a partition after the end of the disk.
    let mut mbr = vec![0; 64 * 512];
    mbr[0x1be..0x1ce].copy_from_slice(&[0, 0, 0, 0, 0xaf, 0, 0, 0, 40, 0, 0, 0, 99, 0, 0, 0]);
    mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
    let (found, _) = check(mbr);
    assert_eq!(
        (found.len(), found[0].0, found[0].1),
        (1, Damage, 0),
        "{found:?}"
    );
}

/// Whole copies of a GPT count although block 0 does not announce them, and a repair restores what
/// is missing.
#[test]
fn a_map_that_block_0_does_not_announce() {
    use gpt::Search::{self, Announced, Everywhere};
    const TYPE: usize = 0x1be + 4;
    let whole = disk();
    let partitions = partition::probe(&Memory::from(whole.clone()))
        .unwrap()
        .unwrap()
        .partitions;
    type Change = fn(&mut [u8]);
    let cases: [(&str, Option<Search>, bool, Change); 11] = [
        ("blocks 0 and 1", Some(Everywhere), true, |disk| {
            disk[..1024].fill(0)
        }),
        ("the primary", Some(Everywhere), true, |disk| {
            disk[..34 * 512].fill(0)
        }),
        ("the head", Some(Everywhere), true, |disk| {
            disk[..100 * 512].fill(0)
        }),
        ("the type", Some(Announced), true, |disk| disk[TYPE] = 0xdd),
        ("the type, zero", Some(Announced), true, |disk| {
            disk[TYPE] = 0
        }),
        ("the signature", Some(Announced), true, |disk| disk[510] = 0),
        ("all of block 0", Some(Everywhere), false, |disk| {
            disk[..512].fill(7)
        }),
        // Remains of former use.
        ("block 0, and the backup", None, false, |disk| {
            disk[..512].fill(7);
            disk[LAST] = 0;
        }),
        ("the type, and the primary", None, false, |disk| {
            disk[TYPE] = 0xdd;
            disk[512] = 0;
        }),
        ("other partitions", None, false, |disk| {
            disk[TYPE] = 0xdd;
            disk[TYPE + 16] = 0x83;
            disk[TYPE + 16 + 4..][..8].copy_from_slice(&[9; 8]);
        }),
        ("both copies", None, false, |disk| {
            disk[..1024].fill(0);
            disk[LAST] = 0;
        }),
    ];
    for (what, found, is_repaired, change) in cases {
        let mut bytes = whole.clone();
        change(&mut bytes);
        for search in [Announced, Everywhere] {
            let what = format!("{what}, {search:?}");
            let disk = Memory::from(bytes.clone());
            let is_found = found.is_some_and(|least| least == Announced || search == Everywhere);
            let map = partition::probe_with(&disk, search).unwrap();
            let map = map.filter(|map| map.scheme == partition::Scheme::Gpt);
            let mut problems = Problems::default();
            let checked = partition::check_with(&disk, search, &mut problems).unwrap();
            let checked = checked.filter(|map| map.scheme == partition::Scheme::Gpt);
            assert_eq!(checked.is_some(), is_found, "{what}");
            let repaired = gpt::repair_with(&disk, search, None);
            if !is_found {
                assert!(map.is_none(), "{what}: {map:?}");
                assert_eq!(repaired.unwrap_err().kind(), Kind::NotFound, "{what}");
                continue;
            }
            let map = map.unwrap();
            assert_eq!(map.partitions, partitions, "{what}");
            assert!(!map.problems.is_empty(), "{what}");
            assert_eq!(problems.worst(), Some(Damage), "{what}");
            let (_, refused) = repaired.unwrap();
            assert_eq!(refused.is_empty(), is_repaired, "{what}: {refused:?}");
            // The boot code is no part of the map.
            let from = if what.starts_with("the head") {
                100 * 512
            } else {
                440
            };
            if is_repaired {
                assert!(
                    disk.to_vec()[440..34 * 512] == whole[440..34 * 512],
                    "{what}"
                );
                assert!(disk.to_vec()[from..] == whole[from..], "{what}");
            } else {
                assert!(disk.to_vec() == bytes, "{what}: written");
            }
        }
    }
}
