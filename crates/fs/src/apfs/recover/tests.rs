//! Containers whose files are deleted by the library. The truth is what was written.

use super::*;
use crate::apfs::build::{NewVolume, Options, Plan};
use crate::apfs::{ApfsMut, WriteOptions};
use crate::source::Tree;
use crate::{
    Certainty, FileSystem, FileSystemMut, FileSystemMutExt, Fork, NewKind, NewNode, NodeId,
    RecordSource, Timestamp, VolumeEncryption, VolumePlan,
};
use bandsaw_core::crypt::Secret;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory, ReadOnlyView};
use bandsaw_core::progress::Silent;
use bandsaw_testing::Random;

const NOW: Timestamp = Timestamp::from_seconds(1_750_000_000);
const PASSPHRASE: &[u8] = b"correct horse";

fn key(_: &LockedVolume) -> Result<VolumeKey> {
    Ok(VolumeKey::Passphrase(Secret::new(PASSPHRASE.to_vec())))
}

fn made(len: usize, names: &[&str], is_encrypted: bool) -> Arc<Memory> {
    let created = Timestamp::from_seconds(1_700_000_000);
    let volume = |name: &&str| NewVolume {
        name: (*name).into(),
        case_sensitive: false,
        uuid: uuid::Uuid::from_u128(name.len() as u128 + 1),
    };
    let options = Options {
        volumes: names.iter().map(volume).collect(),
        created,
        latest: None,
        uuid: uuid::Uuid::nil(),
    };
    let encryption = is_encrypted.then(|| VolumeEncryption {
        passphrase: Secret::new(PASSPHRASE.to_vec()),
        recovery_key: None,
        hint: None,
        iterations: 1,
    });
    let device = Memory::zeros(len);
    Plan::encrypted(Tree::empty(created), options, encryption.as_ref())
        .unwrap()
        .build(&device, &Silent)
        .unwrap();
    Arc::new(device)
}

fn open(device: &Arc<Memory>, number: u32) -> ApfsMut {
    let container = Arc::new(Container::open(device.clone(), None).unwrap());
    ApfsMut::open(&container, number, WriteOptions { now: Some(NOW) }, &key).unwrap()
}

fn write(fs: &ApfsMut, dir: NodeId, name: &str, bytes: &[u8]) -> NodeId {
    let id = fs.create(dir, name, &NewNode::new(NewKind::File)).unwrap();
    fs.write_all(id, bytes).unwrap();
    fs.sync().unwrap();
    id
}

/// Searches volumes of a container that cannot be written to.
fn scan(bytes: Vec<u8>, numbers: &[u32]) -> (Vec<(u32, RecoveredFile)>, Vec<RecoverySummary>) {
    scan_device(Arc::new(Memory::read_only(bytes)), numbers)
}

fn scan_device(
    device: Arc<dyn BlockDevice>,
    numbers: &[u32],
) -> (Vec<(u32, RecoveredFile)>, Vec<RecoverySummary>) {
    let container = Arc::new(Container::open(device, None).unwrap());
    let mut recovery = ApfsRecovery::new(&container);
    for &number in numbers {
        recovery.add(number, &key).unwrap();
    }
    let mut found = Vec::new();
    let summaries = recovery
        .scan(&Silent, &mut |number, file| {
            found.push((number, file));
            Ok(())
        })
        .unwrap();
    (
        found,
        summaries.into_iter().map(|(_, summary)| summary).collect(),
    )
}

fn contents(file: &RecoveredFile) -> Vec<u8> {
    let device = file.open(Fork::Data).unwrap();
    device.read_vec(0, device.info().len as usize).unwrap()
}

/// Copies the blocks of `before` that are zeros in `after` and free there: the library discards what is
/// deleted, and macOS leaves it on many disks.
fn restore_free(after: &mut [u8], before: &[u8]) {
    let container = Container::open(Arc::new(Memory::from(after.to_vec())), None).unwrap();
    let map = FreeOrQueued::open(&container).unwrap();
    let mut at = 0;
    while let Some(run) = crate::FreeMap::free_from(&map, at).unwrap() {
        let blocks = run.clone().step_by(4096).map(|start| start as usize);
        for start in blocks {
            let block = start..start + 4096;
            if is_zero(&after[block.clone()]) {
                after[block.clone()].copy_from_slice(&before[block]);
            }
        }
        at = run.end;
    }
}

#[test]
fn deleted_files_are_found_in_nodes_of_earlier_transactions() {
    for is_encrypted in [false, true] {
        let device = made(24 << 20, &["Test"], is_encrypted);
        let fs = open(&device, 1);
        let dir = fs
            .create(fs.root(), "Letters", &NewNode::new(NewKind::Folder))
            .unwrap();
        write(&fs, dir, "kept", b"still there");
        let mut written = Vec::new();
        for number in 0..6_u8 {
            let bytes = vec![number + 1; 9000 * usize::from(number) + 10];
            let name = format!("file {number}");
            write(&fs, dir, &name, &bytes);
            written.push((name, bytes));
        }
        let before = device.to_vec();
        for (name, _) in &written {
            fs.remove(dir, name).unwrap();
        }
        fs.sync().unwrap();
        fs.unmount().unwrap();
        drop(fs);
        let mut after = device.to_vec();
        restore_free(&mut after, &before);
        let (found, summaries) = scan(after.clone(), &[1]);
        assert!(!summaries[0].is_damaged, "{summaries:?}");
        for (name, bytes) in &written {
            let path = format!("/Letters/{name}");
            let file = found.iter().find(|(_, file)| file.path == path);
            let (_, file) = file.unwrap_or_else(|| panic!("{path} in {found:#?}"));
            assert_eq!(file.source, RecordSource::OldNode);
            assert!(file.transaction.is_some());
            assert_eq!(file.certainty, Certainty::Whole, "{file:?}");
            assert_eq!(contents(file), *bytes, "{path}");
        }
        assert!(
            found.iter().all(|(_, file)| file.name() != "kept"),
            "{found:#?}"
        );
        assert_eq!(found.len(), written.len(), "{found:#?}");
    }
}

#[test]
fn nothing_is_found_where_nothing_was_deleted() {
    let device = made(24 << 20, &["Test"], false);
    let fs = open(&device, 1);
    for number in 0..30_u8 {
        write(
            &fs,
            fs.root(),
            &format!("file {number}"),
            &vec![number; 5000],
        );
    }
    fs.unmount().unwrap();
    drop(fs);
    let (found, _) = scan(device.to_vec(), &[1]);
    assert!(found.is_empty(), "{found:#?}");
}

/// A container has a volume for each 512 MiB. Nearly all of its memory is never touched.
#[test]
fn files_are_of_the_volume_that_they_were_deleted_from() {
    let device = made(1 << 30, &["One", "Other"], false);
    for (number, name) in [(1, "first"), (2, "second")] {
        let fs = open(&device, number);
        write(&fs, fs.root(), "kept", &[9; 100]);
        write(&fs, fs.root(), name, &[number as u8; 20_000]);
        fs.unmount().unwrap();
    }
    for (number, name) in [(1, "first"), (2, "second")] {
        let fs = open(&device, number);
        fs.remove(fs.root(), name).unwrap();
        fs.sync().unwrap();
        fs.unmount().unwrap();
    }
    let (found, _) = scan_device(Arc::new(ReadOnlyView(device)), &[1, 2]);
    let names: Vec<_> = found
        .iter()
        .map(|(number, file)| (*number, file.path.as_str()))
        .collect();
    assert_eq!(names, [(1, "/first"), (2, "/second")]);
}

/// No damage makes a search panic or write.
#[test]
fn damaged_containers_are_searched() {
    let device = made(4 << 20, &["Test"], false);
    let fs = open(&device, 1);
    for number in 0..20_u8 {
        write(
            &fs,
            fs.root(),
            &format!("file {number}"),
            &vec![number; 5000],
        );
    }
    for number in 0..20_u8 {
        fs.remove(fs.root(), &format!("file {number}")).unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    let sound = device.to_vec();
    let mut random = Random::new(3);
    for round in 0..30 {
        let mut bytes = sound.clone();
        for _ in 0..random.within(1..60) {
            let at = random.within(0..bytes.len() as u64 / 2) as usize;
            bytes[at] = random.within(0..256) as u8;
        }
        if round % 2 == 0 {
            crate::apfs::fixture::reseal(&mut bytes);
        }
        let device = Arc::new(Memory::read_only(bytes));
        let Ok(container) = Container::open(device, None).map(Arc::new) else {
            continue;
        };
        let mut recovery = ApfsRecovery::new(&container);
        if recovery.add(1, &key).is_err() {
            continue;
        }
        let scanned = recovery.scan(&Silent, &mut |_, file| {
            if let Ok(device) = file.open(Fork::Data) {
                let len = device.info().len.min(1 << 16);
                let _ = device.read_vec(0, len as usize);
            }
            Ok(())
        });
        if let Err(error) = scanned {
            assert_ne!(error.kind(), Kind::ReadOnly, "{error}");
        }
    }
}
