//! Volumes that are built are read, checked, and damaged.

mod free;

use std::sync::Arc;

use bandsaw_core::Kind;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Silent;
use bandsaw_testing::{Random, mutate};
use zerocopy::FromBytes;

use super::build::{ExFatOptions, ExFatPlan};
use super::fixture;
use super::layout::{FileRaw, StreamRaw, set_sum, stored_time, timestamp};
use super::{ExFatVolume, check, free_map, read_boot, stated_len};
use crate::clusters::fixture::{LONG, MOMENT, expected, found, tree};
use crate::source::Tree;
use crate::{
    BlockFreeMap, FileSystem, FileSystemExt, Fork, FreeMap, NodeId, Timestamp, UF_HIDDEN,
    UF_IMMUTABLE, VolumePlan,
};

fn device(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::read_only(bytes))
}

fn problems(bytes: &[u8]) -> Vec<Problem> {
    check(device(bytes.to_vec()), &Silent).unwrap()
}

fn options(block_size: Option<u32>) -> ExFatOptions {
    ExFatOptions {
        name: "My disk \u{fc}".into(),
        block_size,
        created: MOMENT,
        latest: None,
        serial: 7,
    }
}

#[test]
fn volumes_of_every_cluster_size_hold_their_files() {
    for (block_size, len) in [
        (None, 2 << 20),
        (Some(512), 1 << 20),
        (Some(65536), 16 << 20),
        (Some(1 << 20), 100 << 20),
    ] {
        let what = format!("{block_size:?}");
        let plan = ExFatPlan::new(tree(), options(block_size)).unwrap();
        let disk = Memory::zeros(len);
        let built = plan.build(&disk, &Silent).unwrap();
        let bytes = disk.to_vec();
        assert_eq!(problems(&bytes).len(), 0, "{what}: {:?}", problems(&bytes));
        let volume = ExFatVolume::open(device(bytes.clone())).unwrap();
        assert_eq!(found(&volume), expected(&tree()), "{what}");
        let info = volume.volume();
        assert_eq!((info.format, &*info.name), ("exFAT", "My disk \u{fc}"));
        assert_eq!((info.free, info.block_size), (built.free, built.block_size));
        assert!(info.clean && info.total == len as u64, "{what}");
        let map = free_map(device(bytes.clone())).and_then(BlockFreeMap::trusted);
        assert!(map.unwrap().is_in_order());
        assert_eq!(stated_len(&Memory::from(bytes)).unwrap(), Some(len as u64));
        let long = volume
            .resolve(&format!("/{}", LONG.to_uppercase()))
            .unwrap();
        assert_eq!((long.size, long.modified), (70_000, Some(MOMENT)));
        let hidden = volume.resolve("/.hidden").unwrap();
        assert_eq!(hidden.flags, UF_HIDDEN | UF_IMMUTABLE);
        assert_eq!(volume.attributes(volume.root()).unwrap().size, 6);
        assert_eq!(volume.resolve("/many files").unwrap().size, 70);
    }
}

#[test]
fn a_disk_that_is_read_is_the_disk_that_is_built() {
    let plan = ExFatPlan::new(tree(), options(None)).unwrap();
    let len = plan.comfortable_len().unwrap();
    let least = plan.minimum_len().unwrap();
    assert!(least <= len && len.is_multiple_of(4096));
    plan.build(&Memory::zeros(least as usize), &Silent).unwrap();
    let (built, read) = (Memory::zeros(len as usize), Memory::zeros(len as usize));
    let result = plan.build(&built, &Silent).unwrap();
    let (info, contents) = plan.build_metadata(&read).unwrap();
    assert_eq!(info, result);
    contents.write(contents.range(), &read).unwrap();
    assert!(built.to_vec() == read.to_vec());
    let long = ExFatOptions {
        name: "longer than eleven".into(),
        ..options(None)
    };
    let error = ExFatPlan::new(Tree::empty(MOMENT), long).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    let error = plan.build(&Memory::zeros(100 << 10), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit);
}

#[test]
fn times_have_zones() {
    let (field, hundredths) = stored_time(MOMENT);
    assert_eq!(timestamp(field, hundredths, 0), Some(MOMENT));
    assert_eq!(timestamp(field, hundredths, 0x80), Some(MOMENT));
    let east = timestamp(field, hundredths, 0x84).unwrap();
    assert_eq!(east, Timestamp::from_seconds(MOMENT.seconds - 3600));
    let west = timestamp(field, hundredths, 0xFC).unwrap();
    assert_eq!(west, Timestamp::from_seconds(MOMENT.seconds + 3600));
}

/// Returns the offset of the set whose name begins with these characters.
fn set_of(bytes: &[u8], name: &str) -> usize {
    let units: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let is_name = |entry: &&[u8]| entry[0] == 0xC1 && entry[2..].starts_with(&units);
    let entries = || bytes.chunks_exact(32);
    let found = entries().find(is_name).unwrap();
    let at = found.as_ptr() as usize - bytes.as_ptr() as usize;
    at - 64
}

/// Changes an entry of a set and its checksum.
fn change_set(bytes: &mut [u8], name: &str, change: impl FnOnce(&mut [u8])) {
    let at = set_of(bytes, name);
    let len = 32 * (1 + usize::from(bytes[at + 1]));
    change(&mut bytes[at..at + len]);
    let set = bytes[at..at + len].to_vec();
    let sum = set
        .chunks_exact(32)
        .enumerate()
        .fold(0, |sum, (number, entry)| set_sum(sum, entry, number == 0));
    bytes[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn bytes_after_the_valid_length_are_zeros() {
    let mut bytes = fixture::volume();
    change_set(&mut bytes, "a long name", |set| {
        set[32 + 8..32 + 16].copy_from_slice(&5000_u64.to_le_bytes());
    });
    assert_eq!(problems(&bytes).len(), 0);
    let volume = ExFatVolume::open(device(bytes)).unwrap();
    let file = volume.resolve(&format!("/{LONG}")).unwrap();
    let read = volume.open(file.id, Fork::Data).unwrap();
    let read = read.read_vec(0, 70_000).unwrap();
    let whole = expected(&tree())[&format!("/{LONG}")].clone().unwrap();
    assert!(read[..5000] == whole[..5000] && read[5000..].iter().all(|byte| *byte == 0));
}

#[test]
fn damage_is_found_and_described() {
    let whole = fixture::volume();
    let boot = read_boot(&Memory::from(whole.clone()), whole.len() as u64).unwrap();
    let heap = boot.heap_at as usize;
    let stream = |set: &mut [u8], at: usize, value: u64| {
        set[32 + at..32 + at + 4].copy_from_slice(&value.to_le_bytes()[..4]);
    };
    let long = "a long name";
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [(Change<'_>, &str, Severity); 16] = [
        (
            &|bytes| bytes[heap] &= 0xFE,
            "marked as free",
            Severity::Damage,
        ),
        (
            &|bytes| bytes[heap + 100] |= 1,
            "belong to no file",
            Severity::Warning,
        ),
        (
            &|bytes| bytes[heap + 4096 + 5] ^= 1,
            "up-case",
            Severity::Damage,
        ),
        (
            &|bytes| bytes[12 * 512 + 100] ^= 1,
            "copy of the boot",
            Severity::Warning,
        ),
        (&|bytes| bytes[2 * 512 + 511] = 0, "", Severity::Warning),
        (&|bytes| bytes[0x6A] = 2, "unmounted", Severity::Warning),
        (
            &|bytes| {
                let at = set_of(bytes, long);
                bytes[at + 4] ^= 1;
            },
            "checksum mismatch of the entries",
            Severity::Damage,
        ),
        (
            &|bytes| change_set(bytes, long, |set| set[36] ^= 1),
            "of the name",
            Severity::Warning,
        ),
        (
            &|bytes| change_set(bytes, long, |set| stream(set, 20, 2)),
            "shares cluster",
            Severity::Damage,
        ),
        (
            &|bytes| change_set(bytes, long, |set| stream(set, 20, 9999)),
            "outside the volume",
            Severity::Damage,
        ),
        (
            &|bytes| change_set(bytes, long, |set| stream(set, 8, 70_001)),
            "valid bytes",
            Severity::Damage,
        ),
        (
            &|bytes| change_set(bytes, long, |set| set[33] = 1),
            "free cluster",
            Severity::Damage,
        ),
        (
            &|bytes| change_set(bytes, long, |set| set[35] = 200),
            "shorter",
            Severity::Damage,
        ),
        (
            &|bytes| {
                let at = set_of(bytes, long);
                bytes[at + 1] = 18;
            },
            "fewer entries",
            Severity::Damage,
        ),
        (
            &|bytes| {
                let at = set_of(bytes, long);
                bytes[at] = 5;
            },
            "belongs to no file",
            Severity::Damage,
        ),
        (
            &|bytes| {
                let table = boot.table_at as usize;
                bytes[table + 8..table + 12].copy_from_slice(&[2, 0, 0, 0]);
            },
            "bitmap",
            Severity::Damage,
        ),
    ];
    for (number, (change, expected, severity)) in changes.iter().enumerate() {
        let mut bytes = whole.clone();
        change(&mut bytes);
        if expected.is_empty() {
            assert!(
                check(device(bytes), &Silent).is_err(),
                "the checksum covers it"
            );
            continue;
        }
        let problems = problems(&bytes);
        let is_expected = |problem: &&Problem| problem.error.to_string().contains(expected);
        let found = problems.iter().find(is_expected);
        let found = found.unwrap_or_else(|| panic!("{number}: no {expected:?} in {problems:?}"));
        assert_eq!(found.severity, *severity, "{number}: {found:?}");
    }
}

#[test]
fn sets_that_are_cut_off_hide_no_others() {
    let mut bytes = fixture::volume();
    let at = set_of(&bytes, "empty");
    bytes[at + 1] = 10;
    let volume = ExFatVolume::open(device(bytes)).unwrap();
    let names = found(&volume);
    assert!(!names.contains_key("/empty") && names.contains_key(&format!("/{LONG}")));
}

#[test]
fn numbers_of_no_object_are_refused() {
    let bytes = fixture::volume();
    let at = set_of(&bytes, "empty");
    assert!(FileRaw::read_from_bytes(&bytes[at..at + 32]).is_ok());
    assert!(StreamRaw::read_from_bytes(&bytes[at + 32..at + 64]).is_ok());
    let volume = ExFatVolume::open(device(bytes)).unwrap();
    for number in [0, 2, 31, 33, 512, at as u64 + 32, u64::MAX, u64::MAX - 31] {
        assert!(volume.attributes(NodeId(number)).is_err(), "{number}");
        assert!(volume.open(NodeId(number), Fork::Data).is_err(), "{number}");
    }
    let file = volume.resolve("/SHORT.txt").unwrap();
    assert!(volume.list(file.id, &mut |_| unreachable!()).is_err());
    assert_eq!(volume.open(file.id, Fork::Resource).unwrap().info().len, 0);
    assert!(volume.read_link(file.id).is_err());
}

#[test]
fn changed_bytes_never_cause_a_panic() {
    let bytes = fixture::volume();
    for copy in 0..60 {
        let mut random = Random::new(copy);
        let mut changed = mutate::mutated(&bytes, &mut random);
        fixture::seal_exfat(&mut changed);
        let _ = check(device(changed.clone()), &Silent);
        if let Ok(volume) = ExFatVolume::open(device(changed)) {
            let _ = (found(&volume), volume.volume());
        }
    }
}
