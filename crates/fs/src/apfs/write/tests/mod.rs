//! Tests that modify volumes, compare them with a model, and read them back with the reader.

mod contents;
mod exchange;
mod extents;
mod queued;
mod swaps;

use std::sync::Arc;

use zerocopy::FromBytes;

use super::{ApfsMut, WriteOptions};
use crate::apfs::build::{NewVolume, Options, Plan};
use crate::apfs::layout::{BlockSize, ObjectRaw, SpacemanRaw, object_type, store_checksum};
use crate::apfs::{Apfs, Container};
use crate::source::Tree;
use crate::{
    Change, ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt,
    Fork, FreeMapExt, LockedVolume, NewKind, NewNode, NodeId, Timestamp, VolumeEncryption,
    VolumeKey, VolumePlan,
};
use bandsaw_core::crypt::Secret;
use bandsaw_core::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::problem::{Problems, Severity};
use bandsaw_core::progress::Silent;
use bandsaw_core::{Error, Kind, Result};
use bandsaw_testing::Random;

const NOW: Timestamp = Timestamp::from_seconds(1_750_000_000);

const PASSPHRASE: &[u8] = b"correct horse";

/// Returns an empty container of `len` bytes.
fn container(len: usize, case_sensitive: bool) -> Arc<Memory> {
    made(len, case_sensitive, None)
}

fn made(len: usize, case_sensitive: bool, encryption: Option<&VolumeEncryption>) -> Arc<Memory> {
    let created = Timestamp::from_seconds(1_700_000_000);
    let volume = NewVolume {
        name: "Test".into(),
        case_sensitive,
        uuid: uuid::Uuid::nil(),
    };
    let options = Options {
        volumes: vec![volume],
        created,
        latest: None,
        uuid: uuid::Uuid::nil(),
    };
    let device = Memory::zeros(len);
    Plan::encrypted(Tree::empty(created), options, encryption)
        .unwrap()
        .build(&device, &Silent)
        .unwrap();
    Arc::new(device)
}

/// Returns an empty container with an encrypted volume.
fn encrypted(len: usize) -> Arc<Memory> {
    let passphrase = Secret::new(PASSPHRASE.to_vec());
    made(
        len,
        false,
        Some(&VolumeEncryption {
            passphrase,
            recovery_key: None,
            hint: None,
            iterations: 1,
        }),
    )
}

fn key(_: &LockedVolume) -> Result<VolumeKey> {
    Ok(VolumeKey::Passphrase(Secret::new(PASSPHRASE.to_vec())))
}

fn try_open(device: &Arc<Memory>) -> Result<ApfsMut> {
    let container = Arc::new(Container::open(device.clone(), None)?);
    ApfsMut::open(&container, 1, WriteOptions { now: Some(NOW) }, &key)
}

fn open(device: &Arc<Memory>) -> ApfsMut {
    try_open(device).unwrap()
}

/// Opens the state on disk.
fn read(device: &Arc<Memory>) -> Apfs {
    let container = Arc::new(Container::open(device.clone(), None).unwrap());
    assert!(
        container.problems().is_empty(),
        "{:?}",
        container.problems()
    );
    container.trusted_free_map().unwrap();
    let mut problems = Problems::default();
    let unseen = container
        .check("here", &key, &mut problems, &Silent)
        .unwrap();
    assert!(
        unseen.is_empty() && problems.worst() <= Some(Severity::Note),
        "{problems:#?}"
    );
    container.open_volume(1, None, &key).unwrap()
}

fn file(fs: &dyn FileSystemMut, dir: NodeId, name: &str, bytes: &[u8]) -> NodeId {
    let id = fs.create(dir, name, &NewNode::new(NewKind::File)).unwrap();
    fs.write_all(id, bytes).unwrap();
    id
}

fn contents(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let found = fs.resolve(path).unwrap();
    let device = fs.open(found.id, Fork::Data).unwrap();
    assert_eq!(device.info().len, found.size);
    device.read_vec(0, found.size as usize).unwrap()
}

/// Changes the space manager of a container, and corrects its checksum.
fn change_space_manager(device: &Memory, change: impl Fn(&mut SpacemanRaw)) {
    let size = BlockSize::DEFAULT.bytes();
    let mut bytes = device.to_vec();
    let managers = bytes.chunks_mut(size).filter(|block| {
        ObjectRaw::ref_from_prefix(block)
            .is_ok_and(|(head, _)| head.kind.get() & 0xFFFF == object_type::SPACE_MANAGER)
    });
    let mut count = 0;
    for block in managers {
        change(SpacemanRaw::mut_from_prefix(block).unwrap().0);
        store_checksum(block);
        count += 1;
    }
    assert_eq!(count, 1, "a new container has one checkpoint");
    device.write_at(0, &bytes).unwrap();
}

#[test]
fn arrays_outside_of_the_space_manager_are_refused() {
    type Change = fn(&mut SpacemanRaw);
    let changes: [Change; 4] = [
        |head| head.pool_xids = u32::MAX.into(),
        |head| head.pool_slots = u32::MAX.into(),
        |head| head.ring_free_next = u32::MAX.into(),
        |head| head.devices[0].addresses = u32::MAX.into(),
    ];
    for (number, change) in changes.iter().enumerate() {
        let device = container(8 << 20, false);
        change_space_manager(&device, change);
        let written = try_open(&device).and_then(|fs| {
            fs.create(fs.root(), "new", &NewNode::new(NewKind::File))?;
            fs.sync()
        });
        assert_eq!(kind(written), Kind::Corrupt, "{number}");
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> Kind {
    result.unwrap_err().kind()
}

#[test]
fn files_and_folders_come_and_go() {
    for case_sensitive in [false, true] {
        let device = container(8 << 20, case_sensitive);
        let free = read(&device).volume().free;
        {
            let fs = open(&device);
            let dir = fs
                .create(fs.root(), "Folder é", &NewNode::new(NewKind::Folder))
                .unwrap();
            file(&fs, dir, "file", &[7; 100_000]);
            file(&fs, fs.root(), "empty", &[]);
            fs.create(
                fs.root(),
                "link",
                &NewNode::new(NewKind::Symlink("to/there".into())),
            )
            .unwrap();
            fs.create(
                dir,
                "pipe",
                &NewNode::new(NewKind::Special(FileKind::Fifo, 0)),
            )
            .unwrap();
            assert_eq!(
                kind(fs.create(dir, "file", &NewNode::new(NewKind::File))),
                Kind::Conflict
            );
            let again = fs.create(dir, "FILE", &NewNode::new(NewKind::File));
            assert_eq!(again.is_ok(), case_sensitive);
            assert_eq!(contents(&fs, "/Folder é/file"), [7; 100_000]);
            assert_eq!(kind(fs.remove(fs.root(), "Folder é")), Kind::Conflict);
        }
        let found = read(&device);
        assert_eq!(contents(&found, "/Folder é/file"), [7; 100_000]);
        assert_eq!(
            found.read_link(found.resolve("/link").unwrap().id).unwrap(),
            "to/there"
        );
        assert_eq!(
            (found.volume().folders, found.volume().files),
            (1, if case_sensitive { 3 } else { 2 })
        );
        assert!(found.volume().free <= free - 100_000);
        let fs = open(&device);
        let dir = fs.resolve("/Folder é").unwrap().id;
        let names: Vec<_> = fs
            .entries(dir)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        names.iter().for_each(|name| fs.remove(dir, name).unwrap());
        fs.remove(fs.root(), "Folder é").unwrap();
        fs.remove(fs.root(), "empty").unwrap();
        fs.remove(fs.root(), "link").unwrap();
        fs.unmount().unwrap();
        let found = read(&device);
        assert!(found.entries(found.root()).unwrap().is_empty());
        assert_eq!((found.volume().folders, found.volume().files), (0, 0));
    }
}

#[test]
fn many_names_divide_nodes_and_leave_none() {
    let device = container(16 << 20, false);
    let mut random = Random::new(1);
    let fs = open(&device);
    let mut names: Vec<String> = (0..3000)
        .map(|n| format!("{n} {}", "name ".repeat(n % 17)))
        .collect();
    for name in &names {
        fs.create(fs.root(), name, &NewNode::new(NewKind::File))
            .unwrap();
    }
    assert_eq!(fs.entries(fs.root()).unwrap().len(), 3000);
    fs.sync().unwrap();
    assert_eq!(read(&device).entries(NodeId(2)).unwrap().len(), 3000);
    while !names.is_empty() {
        let name = names.swap_remove(random.within(0..names.len() as u64) as usize);
        fs.remove(fs.root(), &name).unwrap();
    }
    fs.unmount().unwrap();
    let found = read(&device);
    assert!(found.entries(found.root()).unwrap().is_empty());
    assert_eq!(
        found.raw.allocated_blocks.get(),
        5,
        "blocks of an empty volume"
    );
    assert_eq!(
        found.raw.total_blocks_freed,
        found.raw.total_blocks_allocated
    );
}

#[test]
fn names_move_and_multiply() {
    let device = container(8 << 20, false);
    let fs = open(&device);
    let root = fs.root();
    let dir = fs
        .create(root, "dir", &NewNode::new(NewKind::Folder))
        .unwrap();
    let id = file(&fs, root, "a", b"contents");
    fs.link(id, dir, "b").unwrap();
    fs.link(id, root, "c").unwrap();
    assert_eq!(fs.attributes(id).unwrap().links, 3);
    // Removing the first name makes the next one the object's own.
    fs.remove(root, "a").unwrap();
    fs.rename((dir, "b"), (root, "B"), ExistingTarget::Error)
        .unwrap();
    fs.rename((root, "B"), (root, "b"), ExistingTarget::Error)
        .unwrap();
    assert_eq!(
        kind(fs.rename((root, "b"), (root, "c"), ExistingTarget::Error)),
        Kind::Conflict
    );
    fs.rename((root, "b"), (root, "c"), ExistingTarget::Replace)
        .unwrap();
    assert_eq!(
        fs.attributes(id).unwrap().links,
        2,
        "two names of one file stay"
    );
    let other = file(&fs, dir, "other", b"other");
    fs.rename((dir, "other"), (root, "c"), ExistingTarget::Replace)
        .unwrap();
    assert_eq!(
        (contents(&fs, "/c"), contents(&fs, "/b")),
        (b"other".to_vec(), b"contents".to_vec())
    );
    assert_eq!(fs.lookup(root, "C").unwrap().unwrap().id, other);
    assert_eq!(
        kind(fs.rename((root, "dir"), (dir, "x"), ExistingTarget::Error)),
        Kind::Invalid
    );
    assert_eq!(kind(fs.link(dir, root, "d")), Kind::Unsupported);
    fs.unmount().unwrap();
    let found = read(&device);
    assert_eq!(
        (contents(&found, "/c"), contents(&found, "/b")),
        (b"other".to_vec(), b"contents".to_vec())
    );
    assert_eq!(found.attributes(id).unwrap().links, 1);
}

#[test]
fn attributes_of_all_sizes() {
    let device = container(8 << 20, false);
    let fs = open(&device);
    let id = file(&fs, fs.root(), "file", b"x");
    for len in [0, 1, 3804, 3805, 100_000] {
        let name = format!("user.{len}");
        fs.set_xattr_bytes(id, &name, &vec![len as u8; len])
            .unwrap();
        fs.set_xattr_bytes(id, &name, &vec![1; len]).unwrap();
    }
    fs.set_xattr_bytes(id, "com.apple.ResourceFork", &[5; 5000])
        .unwrap();
    fs.open_mut(id, Fork::Resource)
        .unwrap()
        .set_len(6000, AfterDiscard::Zeros)
        .unwrap();
    fs.set_xattr_bytes(id, "com.apple.FinderInfo", &[1; 32])
        .unwrap();
    let change = Change {
        mode: Some(0o600),
        uid: Some(7),
        modified: Some(Timestamp::from_seconds(9)),
        ..Change::default()
    };
    fs.set_attributes(id, &change).unwrap();
    assert_eq!(kind(fs.remove_xattr(id, "none")), Kind::NotFound);
    fs.remove_xattr(id, "user.3805").unwrap();
    fs.unmount().unwrap();
    let found = read(&device);
    let attributes = found.attributes(id).unwrap();
    assert_eq!(
        (attributes.mode, attributes.uid, attributes.modified),
        (0o600, 7, Some(Timestamp::from_seconds(9)))
    );
    assert_eq!(attributes.resource_size, 6000);
    for len in [0, 1, 3804, 100_000] {
        let value = found.xattr(id, &format!("user.{len}")).unwrap().unwrap();
        assert!(value.info().len == len as u64 && value.read_vec(0, len).unwrap() == vec![1; len]);
    }
    assert!(found.xattr(id, "user.3805").unwrap().is_none());
}

/// A full volume returns an error, stays unchanged, and can be emptied.
#[test]
fn a_full_volume_stays_usable() {
    let device = container(2 << 20, false);
    let fs = open(&device);
    let mut count = 0;
    let error = loop {
        let name = format!("file {count}");
        let made = fs
            .create(fs.root(), &name, &NewNode::new(NewKind::File))
            .and_then(|id| fs.write_all(id, &[3; 20_000]));
        match made {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(
        error.kind() == Kind::Limit && count > 20,
        "{count}: {error}"
    );
    fs.sync().unwrap();
    drop(fs);
    let fs = open(&device);
    for entry in fs.entries(fs.root()).unwrap() {
        fs.remove(fs.root(), &entry.name)
            .unwrap_or_else(|error: Error| panic!("{count}: {error}"));
    }
    for _ in 0..2 {
        fs.set_attributes(
            fs.root(),
            &Change {
                uid: Some(1),
                ..Change::default()
            },
        )
        .unwrap();
        fs.sync().unwrap();
    }
    for number in 0..20 {
        file(&fs, fs.root(), &format!("again {number}"), &[4; 20_000]);
    }
    fs.unmount().unwrap();
    assert_eq!(read(&device).entries(NodeId(2)).unwrap().len(), 20);
}

/// Both checkpoint rings and that of the pool's bitmaps wrap around, and the free map stays
/// correct.
#[test]
fn rings_turn() {
    let device = container(4 << 20, false);
    let fs = open(&device);
    for number in 0..100 {
        let name = format!("file {}", number % 5);
        let _ = fs.remove(fs.root(), &name);
        file(
            &fs,
            fs.root(),
            &name,
            &vec![number; 9000 + 100 * usize::from(number)],
        );
        fs.sync().unwrap();
        let found = read(&device);
        assert_eq!(
            contents(&found, &format!("/{name}")).len(),
            9000 + 100 * usize::from(number)
        );
        let map = found.container.trusted_free_map().unwrap();
        let free: u64 = map
            .free_runs(0..u64::MAX)
            .map(|run| run.unwrap())
            .map(|run| run.end - run.start)
            .sum();
        assert_eq!(free, found.container.free());
    }
}

/// The state in a snapshot is unaffected by changes of the volume.
#[test]
fn snapshots_keep_what_they_have() {
    let device = container(8 << 20, false);
    let fs = open(&device);
    let root = fs.root();
    let mut random = Random::new(7);
    let id = file(&fs, root, "file", &[1; 50_000]);
    file(&fs, root, "gone", &[2; 30_000]);
    for number in 0..300 {
        file(&fs, root, &format!("many {number}"), &[]);
    }
    fs.take_snapshot("first", None).unwrap();
    fs.write_all(id, &[3; 40_000]).unwrap();
    fs.open_mut(id, Fork::Data)
        .unwrap()
        .write_at(5000, &[4; 100])
        .unwrap();
    fs.remove(root, "gone").unwrap();
    for number in 0..290 {
        fs.remove(root, &format!("many {number}")).unwrap();
    }
    fs.take_snapshot("second", None).unwrap();
    file(&fs, root, "new", &[5; 10_000]);
    fs.remove(root, "file").unwrap();
    for _ in 0..50 {
        let name = format!("many {}", 290 + random.within(0..10));
        if fs.lookup(root, &name).unwrap().is_some() {
            fs.remove(root, &name)
        } else {
            fs.create(root, &name, &NewNode::new(NewKind::File))
                .map(drop)
        }
        .unwrap();
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    let container = Arc::new(Container::open(device.clone(), None).unwrap());
    container.trusted_free_map().unwrap();
    let at = |snapshot: Option<&str>| {
        container
            .open_volume(1, snapshot, &|_| unreachable!())
            .unwrap()
    };
    let (first, second, now) = (at(Some("first")), at(Some("second")), at(None));
    assert_eq!(
        (contents(&first, "/file"), contents(&first, "/gone")),
        (vec![1; 50_000], vec![2; 30_000])
    );
    assert_eq!(
        (
            first.entries(root).unwrap().len(),
            second.entries(root).unwrap().len()
        ),
        (302, 11)
    );
    let mut changed = vec![3; 40_000];
    changed[5000..5100].fill(4);
    assert!(contents(&second, "/file") == changed);
    assert_eq!(contents(&now, "/new"), vec![5; 10_000]);
    assert!(now.lookup(root, "file").unwrap().is_none());
}

/// An open file survives its unlinking, also across a crash, and leaves no blocks allocated.
#[test]
fn open_files_outlive_their_names() {
    let device = container(4 << 20, false);
    let fs = open(&device);
    let root = fs.root();
    let id = file(&fs, root, "file", &[1; 9000]);
    let other = file(&fs, root, "other", &[2; 9000]);
    let (kept, also) = (
        fs.open_mut(id, Fork::Data).unwrap(),
        fs.open(other, Fork::Data).unwrap(),
    );
    fs.remove(root, "file").unwrap();
    file(&fs, root, "new", &[3; 9000]);
    fs.rename((root, "new"), (root, "other"), ExistingTarget::Replace)
        .unwrap();
    kept.write_at(100, &[9; 10]).unwrap();
    fs.sync().unwrap();
    assert_eq!(
        kept.read_vec(95, 20).unwrap(),
        [&[1; 5][..], &[9; 10], &[1; 5]].concat()
    );
    assert_eq!(also.read_vec(0, 9000).unwrap(), [2; 9000]);
    assert_eq!(
        (fs.volume().files, kind(fs.link(id, root, "again"))),
        (1, Kind::NotFound)
    );
    let crashed = Arc::new(Memory::from(device.to_vec()));
    drop((kept, also));
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(read(&crashed).entries(NodeId(3)).unwrap().len(), 2);
    open(&crashed).unmount().unwrap();
    for device in [device, crashed] {
        let found = read(&device);
        assert!(found.entries(NodeId(3)).unwrap().is_empty());
        // The volume's own blocks plus those of one file.
        assert_eq!(
            (found.raw.allocated_blocks.get(), found.volume().files),
            (5 + 3, 1)
        );
    }
}
