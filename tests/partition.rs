//! Valid partition maps: our own, those of other software, and repair.

use std::ops::Range;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory, Slice};
use bandsaw::partition::gpt::{Guids, MapGeometry, NewPartition, Repaired};
use bandsaw::partition::{self, APPLE_APFS, APPLE_HFS, Map, Scheme, TypeId, gpt};
use proptest::prelude::*;

fn probe(disk: &Memory) -> Map {
    partition::probe(disk).unwrap().expect("a map")
}

fn hfs_disk(sectors: usize) -> Memory {
    let disk = Memory::zeros(sectors * 512);
    gpt::create_single(&disk, 512, APPLE_HFS, Guids::derived("test")).unwrap();
    disk
}

/// Returns the first and last sector.
fn sectors(range: &Range<u64>) -> (u64, u64) {
    (range.start / 512, range.end / 512 - 1)
}

/// The disks measured in docs/formats/raw.md §2.1.
#[test]
fn partitions_lie_where_hdiutil_puts_them() {
    for (total, expected) in [
        (128, (40, 87)),
        (3836, (40, 3799)),
        (195_353, (40, 195_319)),
    ] {
        let disk = hfs_disk(total);
        let map = probe(&disk);
        assert_eq!(
            (map.scheme, map.block, map.problems.len()),
            (Scheme::Gpt, 512, 0)
        );
        let [only] = &map.partitions[..] else {
            panic!("{map:?}")
        };
        assert_eq!(
            (only.number, sectors(&only.range)),
            (1, expected),
            "{total} sectors"
        );
        assert_eq!(
            (only.name.as_str(), only.kind.as_str(), only.flags),
            ("disk image", "Apple_HFS", 0)
        );
        assert_eq!(only.type_id, TypeId::Guid(APPLE_HFS));
        assert_eq!(
            (map.disk_guid, only.guid),
            (
                Some(Guids::derived("test").disk),
                Some(Guids::derived("test").partition)
            )
        );
    }
}

#[test]
fn every_byte_of_a_small_map() {
    let disk = hfs_disk(128).to_vec();
    let mut mbr = [0; 512];
    mbr[446..462].copy_from_slice(&[
        0, 0xfe, 0xff, 0xff, 0xee, 0xfe, 0xff, 0xff, 1, 0, 0, 0, 127, 0, 0, 0,
    ]);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    assert_eq!(disk[..512], mbr);
    for (at, my, alternate, entries) in [(1_usize, 1, 127, 2), (127, 127, 1, 95)] {
        let header = &disk[at * 512..(at + 1) * 512];
        let number =
            |offset: usize| u64::from_le_bytes(header[offset..offset + 8].try_into().unwrap());
        assert_eq!(&header[..16], b"EFI PART\0\0\x01\0\x5c\0\0\0");
        assert_eq!(
            [
                number(0x18),
                number(0x20),
                number(0x28),
                number(0x30),
                number(0x48)
            ],
            [my, alternate, 34, 94, entries]
        );
        assert_eq!(&header[0x50..0x58], &[128, 0, 0, 0, 128, 0, 0, 0]);
        assert!(header[0x5c..].iter().all(|&byte| byte == 0));
    }
    let entry = &disk[1024..1152];
    assert_eq!(
        entry[..16],
        [
            0, 0x53, 0x46, 0x48, 0, 0, 0xaa, 0x11, 0xaa, 0x11, 0, 0x30, 0x65, 0x43, 0xec, 0xac
        ]
    );
    assert_eq!(
        entry[0x20..0x38],
        [
            40, 0, 0, 0, 0, 0, 0, 0, 87, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
        ]
    );
    assert_eq!(&entry[0x38..0x4e], b"d\0i\0s\0k\0 \0i\0m\0a\0g\0e\0\0\0");
    assert_eq!(
        disk[1024..34 * 512],
        disk[95 * 512..127 * 512],
        "both tables"
    );
    assert!(
        disk[34 * 512..95 * 512].iter().all(|&byte| byte == 0),
        "nothing but the map is written"
    );
}

#[test]
fn blocks_of_4096_bytes() {
    let disk = Memory::zeros(1 << 20);
    let range = gpt::create_single(&disk, 4096, APPLE_APFS, Guids::random()).unwrap();
    assert_eq!(range, 6 * 4096..(1 << 20) - 5 * 4096);
    let map = probe(&disk);
    assert_eq!(
        (
            map.block,
            map.problems.len(),
            map.partitions[0].range.clone()
        ),
        (4096, 0, range)
    );
    assert_eq!(map.partitions[0].kind, "Apple_APFS");
    disk.write_at(4096, &[0; 4096]).unwrap();
    assert_eq!(
        gpt::repair(&disk).unwrap(),
        Repaired {
            primary: true,
            ..Repaired::default()
        }
    );
    assert!(probe(&disk).problems.is_empty());
}

#[test]
fn several_partitions_keep_their_order() {
    let disk = Memory::zeros(1 << 20);
    let new = |first: u64, last: u64, name: &str| NewPartition {
        range: first * 512..(last + 1) * 512,
        type_guid: APPLE_HFS,
        guid: Guids::derived(name).partition,
        name: name.to_owned(),
    };
    let partitions = [
        new(1000, 1999, "späte"),
        new(34, 999, "𝔣𝔯ü𝔥𝔢"),
        new(2000, 2014, ""),
    ];
    gpt::create(&disk, 512, Guids::random().disk, &partitions).unwrap();
    let map = probe(&disk);
    let found: Vec<_> = map
        .partitions
        .iter()
        .map(|p| (p.number, p.name.as_str(), sectors(&p.range)))
        .collect();
    assert_eq!(
        found,
        [
            (1, "späte", (1000, 1999)),
            (2, "𝔣𝔯ü𝔥𝔢", (34, 999)),
            (3, "", (2000, 2014))
        ]
    );
    assert!(map.problems.is_empty());
}

#[test]
fn invalid_maps_are_refused() {
    let disk = Memory::zeros(1 << 20);
    let new = |range: Range<u64>| NewPartition {
        range,
        type_guid: APPLE_HFS,
        guid: Guids::random().partition,
        name: "x".into(),
    };
    let long = NewPartition {
        name: "x".repeat(37),
        ..new(20480..40960)
    };
    for partitions in [
        vec![new(33 * 512..40960)],
        vec![new(20480..2015 * 512 + 1)],
        vec![new(20480..2016 * 512)],
        vec![new(20481..40960)],
        vec![new(20480..20480)],
        vec![new(20480..40960), new(40448..81920)],
        vec![long],
        vec![new(20480..40960); 129],
    ] {
        let error = gpt::create(&disk, 512, Guids::random().disk, &partitions).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    assert!(gpt::create(&disk, 1024, Guids::random().disk, &[]).is_err());
    assert!(gpt::create_single(&Memory::zeros(80 * 512), 512, APPLE_HFS, Guids::random()).is_err());
    gpt::create_single(&Memory::zeros(81 * 512), 512, APPLE_HFS, Guids::random()).unwrap();
    let read_only = Memory::read_only(vec![0; 1 << 20]);
    assert_eq!(
        gpt::create_single(&read_only, 512, APPLE_HFS, Guids::random())
            .unwrap_err()
            .kind(),
        Kind::ReadOnly
    );
    assert!(
        disk.to_vec().iter().all(|&byte| byte == 0),
        "refused before anything is written"
    );
}

#[test]
fn guids_are_derived_or_random() {
    assert_eq!(Guids::derived("a"), Guids::derived("a"));
    assert_ne!(Guids::derived("a").disk, Guids::derived("b").disk);
    assert_ne!(Guids::derived("a").disk, Guids::derived("a").partition);
    assert_ne!(Guids::random().disk, Guids::random().disk);
    assert_eq!(hfs_disk(200).to_vec(), hfs_disk(200).to_vec());
}

#[test]
fn blank_and_unmapped_disks_have_no_map() {
    for len in [0, 1, 511, 512, 513, 1024, 4096, 1 << 20] {
        assert!(
            partition::probe(&Memory::zeros(len)).unwrap().is_none(),
            "{len} zeros"
        );
    }
    assert!(
        partition::probe(&Memory::from(vec![0xff; 1 << 16]))
            .unwrap()
            .is_none()
    );
    let mut volume = vec![0; 1 << 20];
    volume[1024..1028].copy_from_slice(b"H+\0\x04");
    assert!(partition::probe(&Memory::from(volume)).unwrap().is_none());
}

#[test]
fn a_volume_over_an_old_map_has_no_map() {
    // The signatures stay because a file system does not write there: only block 0 invalidates
    // them.
    let mut bytes = hfs_disk(4096).to_vec();
    bytes[..512].fill(0);
    bytes[1024..1028].copy_from_slice(b"H+\0\x04");
    assert!(partition::probe(&Memory::from(bytes)).unwrap().is_none());
}

/// Checks [`Repaired`] after the loss of one copy or block 0, and that a second run finds nothing
/// to do.
#[test]
fn repair_restores_what_was_lost() {
    let whole = hfs_disk(1000).to_vec();
    let nothing = Repaired::default();
    let primary = Repaired {
        primary: true,
        ..nothing
    };
    let backup = Repaired {
        backup: true,
        ..nothing
    };
    for (what, lost, expected) in [
        ("nothing", 0..0, nothing),
        (
            "block 0",
            0..512,
            Repaired {
                protective_mbr: true,
                ..nothing
            },
        ),
        ("primary header", 512..1024, primary),
        ("a byte of the primary header", 0x238..0x239, primary),
        ("a few bytes of the primary table", 1024..1030, primary),
        ("primary", 512..34 * 512, primary),
        ("backup header", 999 * 512..1000 * 512, backup),
        ("backup table", 967 * 512..998 * 512, backup),
        ("backup", 967 * 512..1000 * 512, backup),
    ] {
        let mut bytes = whole.clone();
        let zeroed = lost.len() > 16;
        bytes[lost]
            .iter_mut()
            .for_each(|byte| *byte = if zeroed { 0 } else { !*byte });
        let disk = Memory::from(bytes.clone());
        let map = probe(&disk);
        assert_eq!(
            map.problems.is_empty(),
            expected == nothing,
            "{what}: {:?}",
            map.problems
        );
        assert_eq!(sectors(&map.partitions[0].range), (40, 959), "{what}");
        assert_eq!(disk.to_vec(), bytes, "probing changes nothing");
        assert_eq!(gpt::repair(&disk).unwrap(), expected, "{what}");
        assert_eq!(disk.to_vec(), whole, "{what}");
        assert_eq!(gpt::repair(&disk).unwrap(), nothing, "{what}");
    }
}

#[test]
fn repair_refuses_what_it_cannot_know() {
    let whole = hfs_disk(1000).to_vec();
    let refused = |bytes: Vec<u8>| {
        let disk = Memory::from(bytes.clone());
        let error = gpt::repair(&disk).unwrap_err();
        assert_eq!(disk.to_vec(), bytes, "a refusal changes nothing: {error}");
        error.to_string()
    };
    let both = [&[0; 1024][..], &whole[1024..999 * 512], &[0; 512]].concat();
    assert!(refused([&whole[..512], &both[512..]].concat()).contains("neither copy"));
    // Nothing says that the disk has had a GPT.
    assert!(refused(both).contains("has no GPT"));
    assert!(refused(vec![0x41; 4096]).contains("has no GPT"));
    assert!(refused(whole[..900 * 512].to_vec()).contains("ends before"));
    let read_only = Memory::read_only(whole);
    assert_eq!(gpt::repair(&read_only).unwrap_err().kind(), Kind::ReadOnly);
}

#[test]
fn a_hybrid_mbr_does_not_hide_the_gpt() {
    let mut bytes = hfs_disk(1000).to_vec();
    bytes[462..478].copy_from_slice(&[0x80, 0, 0, 0, 0xaf, 0, 0, 0, 40, 0, 0, 0, 100, 0, 0, 0]);
    assert_eq!(probe(&Memory::from(bytes)).scheme, Scheme::Gpt);
}

#[test]
fn a_foreign_table_of_larger_entries() {
    let mut bytes = hfs_disk(4096).to_vec();
    let entry = bytes[1024..1152].to_vec();
    // 64 entries of 256 bytes: the first is unchanged, the third is a copy of it with other blocks.
    bytes[1024 + 512..1024 + 640].copy_from_slice(&entry);
    bytes[1024 + 512 + 0x20..][..16]
        .copy_from_slice(&[0xa0, 0x0f, 0, 0, 0, 0, 0, 0, 0xa7, 0x0f, 0, 0, 0, 0, 0, 0]);
    bytes[0x250..0x258].copy_from_slice(&[64, 0, 0, 0, 0, 1, 0, 0]);
    let table = crc32fast::hash(&bytes[1024..34 * 512]).to_le_bytes();
    bytes[0x258..0x25c].copy_from_slice(&table);
    bytes[0x210..0x214].fill(0);
    let header = crc32fast::hash(&bytes[512..512 + 92]).to_le_bytes();
    bytes[0x210..0x214].copy_from_slice(&header);
    let map = probe(&Memory::from(bytes));
    let found: Vec<_> = map
        .partitions
        .iter()
        .map(|p| (p.number, sectors(&p.range)))
        .collect();
    assert_eq!(found, [(1, (40, 4055)), (3, (4000, 4007))]);
    let problems: Vec<_> = map.problems.iter().map(ToString::to_string).collect();
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("two copies of the map differ")),
        "{problems:?}"
    );
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("1 and 3 overlap")),
        "{problems:?}"
    );
}

#[test]
fn a_map_inside_a_window() {
    let disk: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(1 << 20));
    let window = Slice::new(disk.clone(), 4096..512_000 + 4096).unwrap();
    let range = gpt::create_single(&window, 512, APPLE_HFS, Guids::random()).unwrap();
    assert_eq!(
        partition::probe(&window).unwrap().unwrap().partitions[0].range,
        range
    );
    assert!(partition::probe(&*disk).unwrap().is_none());
    assert!(
        disk.read_vec(0, 4096)
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_volume_fits_the_disk_made_for_it(len in 1_u64..1 << 50, large: bool) {
        let block = if large { 4096 } else { 512 };
        let geometry = MapGeometry::holding(len, block).unwrap();
        let room = geometry.partition();
        prop_assert!(room.end - room.start >= len && room.end - room.start < len + 4096);
        prop_assert_eq!((room.start % 4096, room.end % 4096), (0, 0));
        prop_assert_eq!(MapGeometry::of(geometry.disk_len(), block).unwrap(), geometry);
        if room.end - room.start > 4096 {
            let smaller = MapGeometry::of(geometry.disk_len() - u64::from(block), block).unwrap().partition();
            prop_assert!(smaller.end - smaller.start < len);
        }
    }

    #[test]
    fn maps_read_back(sectors in 1_usize..5000, large: bool) {
        let (block, smallest) = if large { (4096, 12 * 8) } else { (512, 81) };
        let disk = Memory::zeros(sectors * 512);
        match gpt::create_single(&disk, block, APPLE_HFS, Guids::random()) {
            Ok(range) => {
                let map = probe(&disk);
                prop_assert!(map.problems.is_empty(), "{:?}", map.problems);
                prop_assert_eq!(&map.partitions[0].range, &range);
                prop_assert_eq!(range, MapGeometry::of(disk.info().len, block).unwrap().partition());
            }
            Err(error) => prop_assert!(sectors < smallest, "{}", error),
        }
    }
}
