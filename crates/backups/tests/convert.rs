//! Backups in folders converted into snapshots: every file of every date, also after an interruption
//! at any point.

use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::decmpfs;
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw::fs::apfs::{self, Container};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystemExt, Timestamp, VolumePlan};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::testing::Random;
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyDevice};
use bandsaw_backups::{BackupState, Backups, Conversion, convert, verify_conversion, volumes_of};
use uuid::Uuid;

use crate::common::backupd::{self, History, MACHINE, VOLUME};
use crate::common::{backups, image, objects};

const MOMENT: Timestamp = Timestamp::from_seconds(1_770_000_000);

/// Returns an empty case-sensitive volume of this length.
fn empty(len: usize) -> Arc<Memory> {
    let options = apfs::build::Options {
        volumes: vec![apfs::build::NewVolume {
            name: format!("Backups of {MACHINE}"),
            case_sensitive: true,
            uuid: Uuid::from_u128(7),
        }],
        created: MOMENT,
        latest: None,
        uuid: Uuid::from_u128(8),
    };
    let device = Arc::new(Memory::zeros(len));
    let plan = apfs::build::Plan::new(Tree::empty(MOMENT), options).unwrap();
    plan.build(&*device, &Silent).unwrap();
    device
}

fn container(device: Arc<dyn BlockDevice>) -> Arc<Container> {
    Arc::new(Container::open(device, None).unwrap())
}

/// Converts to the end and verifies.
fn finish(source: &Backups, device: &Arc<Memory>) -> Conversion {
    let mut report = convert(source, &container(device.clone()), &Silent).unwrap();
    let target = container(device.clone());
    verify_conversion(source, &target, &mut report, &Silent).unwrap();
    report
}

/// Compares the converted backups with the history, and checks the container.
fn compare(device: &Memory, history: &History) {
    let bytes = device.to_vec();
    let read = Backups::read(volumes_of(&image(bytes.clone()), None, None).unwrap());
    assert!(read.problems().is_empty(), "{:?}", read.problems());
    assert_eq!(read.machines(), [MACHINE]);
    assert_eq!(read.all().len(), history.backups.len());
    for (number, (one, truth)) in read.all().iter().zip(&history.backups).enumerate() {
        assert_eq!(one.state, BackupState::Complete);
        assert_eq!(one.date.0, truth.wall);
        assert_eq!(one.copied, Some(truth.copied), "{}", truth.date);
        let open = read.open(number).unwrap();
        let volume = open.resolve(VOLUME).unwrap();
        let found = objects(&*open.fs, volume.attributes.id);
        assert_eq!(found, truth.objects, "{}", truth.date);
    }
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let checked = bandsaw::open::examine_device(
        device,
        std::path::Path::new("converted.img"),
        &bandsaw::open::OpenOptions::default(),
        &Silent,
    );
    let worst = checked.unwrap().problems.worst();
    assert!(
        worst.is_none_or(|worst| worst == Severity::Note),
        "{worst:?}"
    );
}

#[test]
fn every_date_becomes_a_snapshot() {
    let history = History::new(31, 160, 40);
    let source = backups(backupd::hfs_plus(&history, |_, _| {}));
    let device = empty(128 << 20);
    let report = finish(&source, &device);
    assert_eq!((report.dates, report.known_dates), (160, 0));
    assert_eq!(report.left_out.len(), 1);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    compare(&device, &history);
    // A file is copied once, as long as it has not changed.
    let copied: u64 = history.backups.iter().map(|one| one.copied).sum();
    assert!(report.bytes <= copied, "{} of {copied}", report.bytes);
    // A second run finds everything.
    let before = device.to_vec();
    let again = finish(&source, &device);
    assert_eq!((again.dates, again.known_dates, again.files), (0, 160, 0));
    let read = |bytes| backups(bytes).all().len();
    assert_eq!(read(device.to_vec()), read(before));
}

#[test]
fn an_interrupted_conversion_is_resumed() {
    let history = History::new(32, 8, 30);
    let source = backups(backupd::hfs_plus(&history, |_, _| {}));
    let writes = {
        let faults = Faults::new();
        let whole = Arc::new(FaultyDevice::new(empty(48 << 20), &faults));
        convert(&source, &container(whole), &Silent).unwrap();
        faults.count(Call::Write)
    };
    let mut random = Random::new(32);
    let mut resumed = 0;
    for _ in 0..12 {
        let device = empty(48 << 20);
        // Several interruptions, each at any write.
        for _ in 0..3 {
            let faults = Faults::new();
            faults.fail(Call::Write, random.within(1..writes), Fault::Io);
            let faulty = Arc::new(FaultyDevice::new(device.clone(), &faults));
            if let Err(error) = convert(&source, &container(faulty), &Silent) {
                assert_eq!(error.kind(), Kind::Io, "{error}");
            }
        }
        let report = finish(&source, &device);
        assert_eq!(report.dates + report.known_dates, 8);
        resumed += report.known_dates;
        compare(&device, &history);
    }
    assert!(resumed > 0);
}

#[test]
fn attributes_forks_and_compressed_files_are_kept() {
    let plain: Vec<u8> = (0..200_000_u32).map(|n| (n / 100) as u8).collect();
    let history = History::new(33, 3, 10);
    let bytes = backupd::hfs_plus(&history, |nodes, machine| {
        let date = nodes.len() as u32;
        let mut add = |parent, name: &str, kind| {
            nodes.push(SourceNode::made(parent, name, kind, 0o2750, MOMENT));
            nodes.len() as u32 - 1
        };
        add(machine, "2027-01-01-000000", SourceKind::Folder);
        let file = |bytes: &[u8]| SourceKind::File(Stream::Bytes(bytes.to_vec().into()));
        let odd = add(date, "odd", file(b"data"));
        add(
            date,
            "pipe",
            SourceKind::Special(bandsaw::fs::FileKind::Fifo, 0),
        );
        add(date, "A\u{308} \u{1F600}:x", file(&plain));
        let packed = add(date, "packed", file(b""));
        let odd = &mut nodes[odd as usize];
        (odd.uid, odd.gid, odd.flags) = (501, 20, 0x8002);
        let value = |bytes: Vec<u8>| Stream::Bytes(bytes.into());
        odd.xattrs
            .push(("com.apple.FinderInfo".into(), value(vec![3; 32])));
        odd.xattrs
            .push(("com.apple.ResourceFork".into(), value(vec![5; 70_000])));
        odd.xattrs.push(("long".into(), value(vec![8; 60_000])));
        // "fpmc", type 1, 5 bytes, not compressed.
        let packed = &mut nodes[packed as usize];
        let mut attribute = b"fpmc\x01\0\0\0\x05\0\0\0\0\0\0\0".to_vec();
        attribute.extend(b"hello");
        packed.flags = 0x20;
        packed
            .xattrs
            .push((decmpfs::ATTRIBUTE.into(), value(attribute)));
    });
    let source = backups(bytes);
    let device = empty(48 << 20);
    let report = finish(&source, &device);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let read = backups(device.to_vec());
    let open = read.open(read.all().len() - 1).unwrap();
    let packed = open.find("/packed").unwrap().unwrap().attributes;
    assert_eq!((packed.flags, packed.size), (0x20, 5));
    let contents = open.fs.open(packed.id, bandsaw::fs::Fork::Data).unwrap();
    assert_eq!(contents.read_vec(0, 5).unwrap(), b"hello");
    let odd = open.find("/odd").unwrap().unwrap().attributes;
    assert_eq!(
        (odd.uid, odd.gid, odd.flags, odd.mode),
        (501, 20, 0x8002, 0o2750)
    );
    assert_eq!(odd.resource_size, 70_000);
    assert_eq!(odd.modified, Some(MOMENT));
    let names = open.fs.xattrs(odd.id).unwrap();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(open.find("/A\u{308} \u{1F600}:x").unwrap().is_some());
}

#[test]
fn another_target_is_refused() {
    let history = History::new(34, 3, 10);
    let source = backups(backupd::hfs_plus(&history, |_, _| {}));
    let other = backups(backupd::hfs_plus(&History::new(35, 3, 10), |_, _| {}));
    let refused = |source: &Backups, device: &Arc<Memory>| {
        let before = device.to_vec();
        let error = convert(source, &container(device.clone()), &Silent).unwrap_err();
        assert!(before == device.to_vec(), "{error}");
        error.kind()
    };
    // Backups on APFS already.
    let apfs = backupd::apfs(&history, |_, _| {});
    assert_eq!(
        refused(&backups(apfs.clone()), &empty(16 << 20)),
        Kind::Invalid
    );
    // A volume with other backups.
    let used = Arc::new(Memory::zeros(apfs.len()));
    used.write_at(0, &apfs).unwrap();
    assert_eq!(refused(&source, &used), Kind::Conflict);
    let device = empty(32 << 20);
    convert(&other, &container(device.clone()), &Silent).unwrap();
    assert_eq!(refused(&source, &device), Kind::Conflict);
    // Too little room: an error, and a container that can be read.
    let small = empty(1 << 20);
    let many = backups(backupd::hfs_plus(&History::new(36, 4, 400), |_, _| {}));
    let error = convert(&many, &container(small.clone()), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    assert!(container(small).problems().is_empty());
    let root = source.open(0).unwrap();
    assert!(!root.fs.entries(root.root).unwrap().is_empty());
}
