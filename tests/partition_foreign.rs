//! Maps written by other software: those of the corpus, and hand-written Apple partition maps and
//! MBRs after docs/formats/raw.md §2.3.

use crate::common::corpus;
use bandsaw::device::Memory;
use bandsaw::partition::gpt::Guids;
use bandsaw::partition::{self, Map, Scheme, TypeId, gpt};

fn probe(bytes: &[u8]) -> Option<Map> {
    partition::probe(&Memory::from(bytes.to_vec())).unwrap()
}

fn found(map: &Map) -> Vec<(u32, u64, u64, &str, &str)> {
    map.partitions
        .iter()
        .map(|p| {
            (
                p.number,
                p.range.start,
                p.range.end - p.range.start,
                p.name.as_str(),
                p.kind.as_str(),
            )
        })
        .collect()
}

/// Writes entry `number` of `count` of an Apple partition map with blocks of `block` bytes.
fn apm_entry(
    disk: &mut [u8],
    block: usize,
    number: usize,
    count: u32,
    range: (u32, u32),
    name: &str,
    kind: &str,
) {
    let entry = &mut disk[number * block..][..512];
    entry[..2].copy_from_slice(b"PM");
    entry[4..8].copy_from_slice(&count.to_be_bytes());
    entry[8..12].copy_from_slice(&range.0.to_be_bytes());
    entry[12..16].copy_from_slice(&range.1.to_be_bytes());
    entry[16..16 + name.len()].copy_from_slice(name.as_bytes());
    entry[48..48 + kind.len()].copy_from_slice(kind.as_bytes());
    entry[88..92].copy_from_slice(&0x4000_0033_u32.to_be_bytes());
}

fn driver_descriptor(disk: &mut [u8], block: u16, count: u32) {
    disk[..2].copy_from_slice(b"ER");
    disk[2..4].copy_from_slice(&block.to_be_bytes());
    disk[4..8].copy_from_slice(&count.to_be_bytes());
}

/// Returns the sample of raw.md §2.3.
fn apm_disk() -> Vec<u8> {
    let mut disk = vec![0; 2178 * 512];
    driver_descriptor(&mut disk, 512, 2178);
    apm_entry(
        &mut disk,
        512,
        1,
        3,
        (1, 63),
        "Apple",
        "Apple_partition_map",
    );
    apm_entry(&mut disk, 512, 2, 3, (64, 2104), "disk image", "Apple_HFS");
    apm_entry(&mut disk, 512, 3, 3, (2168, 10), "", "Apple_Free");
    disk
}

const APM: [(u32, u64, u64, &str, &str); 3] = [
    (1, 512, 32256, "Apple", "Apple_partition_map"),
    (2, 32768, 1_077_248, "disk image", "Apple_HFS"),
    (3, 1_110_016, 5120, "", "Apple_Free"),
];

#[test]
fn an_apple_partition_map() {
    let map = probe(&apm_disk()).unwrap();
    assert_eq!(
        (map.scheme, map.block, map.problems.len()),
        (Scheme::Apm, 512, 0)
    );
    assert_eq!(found(&map), APM);
    assert_eq!(map.partitions[1].flags, 0x4000_0033);
    assert!(
        map.partitions[1].type_id.may_hold_volume() && !map.partitions[2].type_id.may_hold_volume()
    );
}

#[test]
fn an_apple_partition_map_without_driver_descriptor() {
    let mut disk = apm_disk();
    disk[..512].fill(0);
    assert_eq!(found(&probe(&disk).unwrap()), APM);
    disk[..8].copy_from_slice(b"ER\0\0\0\0\0\0");
    assert_eq!(
        found(&probe(&disk).unwrap()),
        APM,
        "a block size of 0 says nothing"
    );
}

/// A hybrid CD: the driver descriptor has a block size of 2048, the map may use blocks of 2048, of
/// 512, or both.
#[test]
fn an_apple_partition_map_of_a_cd() {
    for (in_2048, in_512, block) in [(true, false, 2048), (false, true, 512), (true, true, 2048)] {
        let mut disk = vec![0; 1 << 20];
        driver_descriptor(&mut disk, 2048, 512);
        if in_512 {
            apm_entry(&mut disk, 512, 1, 2, (1, 2), "Apple", "Apple_partition_map");
            apm_entry(&mut disk, 512, 2, 2, (64, 1000), "Disc", "Apple_HFS");
        }
        if in_2048 {
            apm_entry(
                &mut disk,
                2048,
                1,
                2,
                (1, 2),
                "Apple",
                "Apple_partition_map",
            );
            apm_entry(&mut disk, 2048, 2, 2, (16, 250), "Disc", "Apple_HFS");
        }
        let map = probe(&disk).unwrap();
        assert_eq!((map.scheme, map.block), (Scheme::Apm, block));
        assert_eq!(found(&map)[1], (2, 32768, 512_000, "Disc", "Apple_HFS"));
    }
}

/// Images of the time of Mac OS X 10.4 have driver partitions before the data.
#[test]
fn drivers_hold_no_volume() {
    let mut disk = vec![0; 1 << 20];
    driver_descriptor(&mut disk, 512, 2048);
    apm_entry(
        &mut disk,
        512,
        1,
        4,
        (1, 63),
        "Apple",
        "Apple_partition_map",
    );
    apm_entry(
        &mut disk,
        512,
        2,
        4,
        (64, 56),
        "Macintosh",
        "Apple_Driver_ATA",
    );
    apm_entry(
        &mut disk,
        512,
        3,
        4,
        (120, 512),
        "Macintosh",
        "Apple_FWDriver",
    );
    apm_entry(
        &mut disk,
        512,
        4,
        4,
        (632, 1000),
        "disk image",
        "Apple_HFSX",
    );
    let map = probe(&disk).unwrap();
    let volumes: Vec<_> = map
        .partitions
        .iter()
        .filter(|p| p.type_id.may_hold_volume())
        .map(|p| p.number)
        .collect();
    assert_eq!(volumes, [4]);
}

fn mbr_entry(disk: &mut [u8], sector: usize, slot: usize, kind: u8, first: u32, count: u32) {
    let record = &mut disk[sector * 512..][..512];
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    let entry = &mut record[446 + 16 * slot..][..16];
    entry[4] = kind;
    entry[8..12].copy_from_slice(&first.to_le_bytes());
    entry[12..].copy_from_slice(&count.to_le_bytes());
}

#[test]
fn an_mbr_with_logical_partitions() {
    let mut disk = vec![0; 1 << 20];
    mbr_entry(&mut disk, 0, 0, 0x0b, 1, 99);
    disk[446] = 0x80;
    mbr_entry(&mut disk, 0, 2, 0x0f, 200, 800);
    mbr_entry(&mut disk, 0, 3, 0xaf, 1000, 500);
    mbr_entry(&mut disk, 200, 0, 0x83, 10, 90);
    mbr_entry(&mut disk, 200, 1, 0x05, 100, 200);
    mbr_entry(&mut disk, 300, 0, 0x99, 10, 50);
    let map = probe(&disk).unwrap();
    assert_eq!((map.scheme, map.block), (Scheme::Mbr, 512));
    assert!(map.problems.is_empty(), "{:?}", map.problems);
    assert_eq!(
        found(&map),
        [
            (1, 512, 99 * 512, "", "DOS_FAT_32"),
            (3, 200 * 512, 800 * 512, "", "DOS_Extended"),
            (4, 1000 * 512, 500 * 512, "", "Apple_HFS"),
            (5, 210 * 512, 90 * 512, "", "Linux Filesystem"),
            (6, 310 * 512, 50 * 512, "", "0x99"),
        ]
    );
    assert_eq!(map.partitions[0].flags, 0x80);
}

#[test]
fn boot_sectors_are_no_mbr() {
    let mut fat = vec![0; 1 << 16];
    mbr_entry(&mut fat, 0, 0, 0x0b, 1, 99);
    assert!(probe(&fat).is_some());
    fat[..11].copy_from_slice(b"\xeb\x3c\x90BSD  4.4");
    fat[11..24].copy_from_slice(&[0, 2, 1, 1, 0, 2, 0, 2, 0x40, 0xb, 0xf0, 9, 0]);
    assert!(probe(&fat).is_none(), "FAT");
    for name in [b"NTFS    ", b"EXFAT   "] {
        let mut other = vec![0; 1 << 16];
        mbr_entry(&mut other, 0, 0, 7, 1, 99);
        other[..3].copy_from_slice(&[0xeb, 0x52, 0x90]);
        other[3..11].copy_from_slice(name);
        assert!(probe(&other).is_none(), "{}", name.escape_ascii());
    }
    let mut code = vec![0; 1 << 16];
    mbr_entry(&mut code, 0, 0, 7, 1, 99);
    code[446 + 16] = b'M';
    assert!(
        probe(&code).is_none(),
        "text where an entry's status would be"
    );
}

#[test]
fn the_maps_of_the_corpus() {
    let Some(images) = corpus::images("the_maps_of_the_corpus") else {
        return;
    };
    let mut schemes = std::collections::BTreeMap::<String, u32>::new();
    for image in images {
        let (Some(medium), Some(scheme)) = (image.medium(), image.text("partition_scheme")) else {
            continue;
        };
        let map = probe(&medium);
        assert_eq!(
            map.as_ref()
                .map_or("none".into(), |map| map.scheme.to_string()),
            scheme,
            "{}",
            image.path()
        );
        *schemes.entry(scheme.to_owned()).or_default() += 1;
        let Some(map) = map else { continue };
        assert!(
            map.problems.is_empty(),
            "{}: {:?}",
            image.path(),
            map.problems
        );
        let known = image.entry()["partitions"].as_array().unwrap();
        assert_eq!(map.partitions.len(), known.len(), "{}", image.path());
        for (found, known) in map.partitions.iter().zip(known) {
            let range = [
                known["start"].as_u64().unwrap(),
                known["size"].as_u64().unwrap(),
            ];
            assert_eq!(
                [found.range.start, found.range.end - found.range.start],
                range,
                "{}",
                image.path()
            );
            assert_eq!(
                found.name,
                known["name"].as_str().unwrap(),
                "{}",
                image.path()
            );
            let kinds = [found.kind.clone(), found.type_id.to_string()];
            assert!(
                kinds.contains(&known["type"].as_str().unwrap().to_owned()),
                "{}: {kinds:?}",
                image.path()
            );
        }
    }
    assert!(
        ["GPT", "APM", "none"]
            .iter()
            .all(|scheme| schemes[*scheme] > 0),
        "{schemes:?}"
    );
}

/// Our maps with hdiutil's GUIDs are identical to hdiutil's, byte for byte.
#[test]
fn new_maps_are_those_of_hdiutil() {
    let Some(images) = corpus::images("new_maps_are_those_of_hdiutil") else {
        return;
    };
    let mut compared = 0;
    for image in images
        .iter()
        .filter(|image| image.text("partition_scheme") == Some("GPT"))
    {
        let Some(medium) = image.medium() else {
            continue;
        };
        let map = probe(&medium).unwrap();
        let [theirs] = &map.partitions[..] else {
            continue;
        };
        let TypeId::Guid(type_guid) = theirs.type_id else {
            panic!("{theirs:?}")
        };
        let disk = Memory::zeros(medium.len());
        let guids = Guids {
            disk: map.disk_guid.unwrap(),
            partition: theirs.guid.unwrap(),
        };
        let range = gpt::create_single(&disk, 512, type_guid, guids).unwrap();
        assert_eq!(range, theirs.range, "{}", image.path());
        let (start, end) = (range.start as usize, range.end as usize);
        let ours = disk.to_vec();
        assert!(
            ours[..start] == medium[..start] && ours[end..] == medium[end..],
            "{}",
            image.path()
        );
        compared += 1;
    }
    assert!(compared >= 3, "{compared} images compared");
}
