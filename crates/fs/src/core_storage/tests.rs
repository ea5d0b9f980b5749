//! Groups of every form, damaged and hostile ones included.

use std::sync::Arc;

use bandsaw_core::crypt::Secret;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::{Error, Kind, Reason, Result};
use bandsaw_testing::conformance;

use super::fixture::{self, METADATA, Options};
use super::{Group, LogicalDevice, group_of};
use crate::VolumeKey;

fn contents(blocks: usize) -> Vec<u8> {
    (0..blocks * 4096)
        .map(|at| (at / 512 + at % 251) as u8)
        .collect()
}

fn devices(disks: Vec<Vec<u8>>) -> Vec<Arc<dyn BlockDevice>> {
    let device = |bytes| Arc::new(Memory::read_only(bytes)) as Arc<dyn BlockDevice>;
    disks.into_iter().map(device).collect()
}

fn group(options: &Options) -> Result<Group> {
    Group::open(&devices(options.build()))
}

fn open(group: &Group, files: &[Vec<u8>], passphrase: &str) -> Result<LogicalDevice> {
    group.open_volume(group.select(None)?, files, &|_| {
        Ok(VolumeKey::Passphrase(Secret::new(passphrase.into())))
    })
}

fn all(device: &LogicalDevice) -> Vec<u8> {
    device.read_vec(0, device.info().len as usize).unwrap()
}

#[track_caller]
fn refused<T>(opened: Result<T>, kind: Kind) -> Error {
    let error = opened.err().expect("it should be refused");
    assert_eq!(error.kind(), kind, "{error}");
    error
}

#[test]
fn a_passphrase_opens_the_volume() {
    let plain = contents(200);
    let options = Options {
        passphrases: vec!["first".into(), "second".into()],
        in_parts: true,
        ..Options::new(plain.clone(), "")
    };
    let group = group(&options).unwrap();
    assert_eq!(group.damage(), None);
    assert_eq!(
        (group.volumes()[0].len, &*group.volumes()[0].name),
        (819_200, "Untitled")
    );
    for passphrase in ["first", "second"] {
        assert!(all(&open(&group, &[], passphrase).unwrap()) == plain);
    }
    let error = refused(open(&group, &[], "third"), Kind::WrongKey);
    assert_eq!(error.reason(), Some(Reason::WrongVolumeKey));
    let device = open(&group, &[], "first").unwrap();
    for (at, len) in [
        (0, 1),
        (511, 2),
        (700, 600_000),
        (512, 512),
        (513, 1024),
        (819_199, 1),
    ] {
        assert!(
            device.read_vec(at, len).unwrap() == plain[at as usize..][..len],
            "{at}"
        );
    }
    assert!(device.read_vec(819_199, 2).is_err());
    refused(device.write_at(0, &[0]), Kind::ReadOnly);
}

#[test]
fn the_contents_are_a_device_like_others() {
    for passphrases in [vec!["pass".to_owned()], Vec::new()] {
        let options = Options {
            passphrases,
            ..Options::new(contents(40), "")
        };
        let device = open(&group(&options).unwrap(), &[], "pass").unwrap();
        conformance::read_only(Arc::new(device));
    }
}

#[test]
fn hints_and_names_reach_the_source_of_the_key() {
    let group = group(&Options::new(contents(3), "x")).unwrap();
    let opened = group.open_volume(group.select(None).unwrap(), &[], &|locked| {
        assert_eq!(
            (&*locked.name, locked.hint.as_deref()),
            ("Untitled", Some("a hint"))
        );
        Err(Error::new(Kind::Cancelled, "test", "stopped"))
    });
    refused(opened, Kind::Cancelled);
}

#[test]
fn volumes_without_encryption_and_with_a_region_are_read() {
    let plain = contents(7);
    for region in [false, true] {
        let options = Options {
            passphrases: Vec::new(),
            region,
            ..Options::new(plain.clone(), "")
        };
        let group = group(&options).unwrap();
        let opened = group.open_volume(group.select(None).unwrap(), &[], &|_| unreachable!());
        assert!(all(&opened.unwrap()) == plain);
    }
}

#[test]
fn the_keys_of_a_start_volume_are_in_a_file() {
    let plain = contents(5);
    let options = Options {
        keys_in_file: true,
        ..Options::new(plain.clone(), "pass")
    };
    let group = group(&options).unwrap();
    let files = [vec![7; 100], options.key_file()];
    assert!(
        all(&open(&group, &files, "pass").unwrap()) == plain,
        "a wrong file before it"
    );
    refused(open(&group, &files, "other"), Kind::WrongKey);
    refused(open(&group, &files[..1], "pass"), Kind::Corrupt);
}

#[test]
fn several_disks_are_found_by_their_identifiers() {
    let plain = contents(10);
    let options = Options {
        disks: 3,
        ..Options::new(plain.clone(), "pass")
    };
    let mut disks = devices(options.build());
    disks.reverse();
    let group = Group::open(&disks).unwrap();
    assert!(all(&open(&group, &[], "pass").unwrap()) == plain);
    let missing = Group::open(&disks[1..]).unwrap();
    let error = refused(open(&missing, &[], "pass"), Kind::NotFound);
    assert!(error.message().contains("a2a2a2a2"), "{error}");
    refused(Group::open(&disks[..2]), Kind::NotFound);
    let twice = [disks[2].clone(), disks[2].clone()];
    refused(Group::open(&twice), Kind::Conflict);
    let other = Options::new(contents(1), "x").build().remove(0);
    assert!(group_of(&Memory::from(other)).unwrap().is_some());
    assert_eq!(group_of(&Memory::from(vec![0; 4096])).unwrap(), None);
}

#[test]
fn several_volumes_are_listed_unless_one_is_named() {
    let options = Options {
        names: vec!["One".into(), "Two".into(), "Two".into()],
        ..Options::new(contents(4), "pass")
    };
    let group = group(&options).unwrap();
    let error = refused(group.select(None), Kind::Undecided);
    assert!(error.message().contains("\"One\" (E82EC3B4"), "{error}");
    assert_eq!(&*group.select(Some("One")).unwrap().name, "One");
    refused(group.select(Some("Two")), Kind::Undecided);
    refused(group.select(Some("Three")), Kind::NotFound);
    let uuid = group.volumes()[2].uuid.clone().unwrap();
    assert_eq!(
        group.select(Some(&uuid.to_lowercase())).unwrap().uuid,
        Some(uuid)
    );
}

#[test]
fn conversions_in_progress_are_refused_by_name() {
    for status in ["Converting", "Pending", "Other"] {
        let options = Options {
            status: status.into(),
            ..Options::new(contents(2), "pass")
        };
        let error = refused(
            open(&group(&options).unwrap(), &[], "pass"),
            Kind::Unsupported,
        );
        assert!(error.message().contains(status), "{error}");
    }
}

#[test]
fn damaged_metadata_is_taken_from_its_copy_or_reported() {
    let plain = contents(2);
    let options = Options::new(plain.clone(), "pass");
    let disk = options.build().remove(0);
    let damaged = |places: &[usize]| {
        let mut disk = disk.clone();
        places.iter().for_each(|at| disk[*at] ^= 1);
        Group::open(&devices(vec![disk]))
    };
    let [first, second] = METADATA.map(|copy| fixture::metadata_at(copy, 0) + 100);
    let copied = damaged(&[first]).unwrap();
    assert_eq!(copied.damage(), None, "the copy is intact");
    assert!(all(&open(&copied, &[], "pass").unwrap()) == plain);
    let lost = damaged(&[first, second]).unwrap();
    assert!(
        lost.damage()
            .unwrap()
            .contains("1 blocks of the metadata are damaged")
    );
    refused(open(&lost, &[], "pass"), Kind::Corrupt);
    // A label, and all labels.
    let labels = [1, 5, 9, 13].map(|block| block * 4096 + 100);
    let one = damaged(&labels[..1]).unwrap();
    assert!(
        one.damage().unwrap().contains("1 labels are damaged"),
        "{:?}",
        one.damage()
    );
    refused(damaged(&labels), Kind::Corrupt);
    // The header, and both headers.
    let headers = [100, disk.len() - 4096 + 100];
    assert!(
        damaged(&headers[..1])
            .unwrap()
            .damage()
            .unwrap()
            .contains("header")
    );
    refused(damaged(&headers), Kind::Corrupt);
}

#[test]
fn labels_that_disagree_with_the_list_are_refused() {
    let options = Options {
        disks: 2,
        ..Options::new(contents(4), "pass")
    };
    let mut disks = options.build();
    for label in [1, 5, 9, 13] {
        disks[1][label * 4096 + 64 + 0xAE] = 0;
    }
    fixture::reseal(&mut disks[1]);
    refused(Group::open(&devices(disks)), Kind::Conflict);
}

#[test]
fn parts_of_a_volume_that_are_not_described_are_refused() {
    let options = Options::new(contents(4), "pass");
    let mut disk = options.build().remove(0);
    fixture::change_metadata(&mut disk, 0, |block| block[64 + 8 + 16] = 3);
    let group = Group::open(&devices(vec![disk])).unwrap();
    let error = refused(open(&group, &[], "pass"), Kind::Unsupported);
    assert!(error.message().contains("Fusion"), "{error}");
}

#[test]
fn changed_bytes_never_cause_a_panic() {
    let options = Options::new(contents(1), "pass");
    let disk = options.build().remove(0);
    let mut random = bandsaw_testing::Random::new(43);
    for _ in 0..400 {
        let mut changed = disk.clone();
        for _ in 0..=random.within(0..3) {
            let block = random.within(0..7);
            let at = random.within(0..400) as usize;
            let value = random.within(0..256) as u8;
            match random.within(0..3) {
                0 => changed[at] = value,
                1 => changed[4096 * [1, 3][at % 2] + at] = value,
                _ => fixture::change_metadata(&mut changed, block, |bytes| bytes[8 + at] = value),
            }
        }
        fixture::reseal(&mut changed);
        if let Ok(group) = Group::open(&devices(vec![changed])) {
            let _ = open(&group, &[], "pass").map(|device| device.read_vec(0, 512));
        }
    }
}
