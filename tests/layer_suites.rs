//! The conformance suites on what lies between containers and users: copies on write, staged stores,
//! files of volumes, open for reading and for changes.

use std::sync::Arc;

use bandsaw::codec::Level;
use bandsaw::container::udif::Udif;
use bandsaw::decmpfs::{self, Bounds, Method, PackOptions, PlainContents};
use bandsaw::device::{
    Access, AfterDiscard, BlockDevice, Changes, CowDevice, Memory, ReadOnlyView, Spill,
};
use bandsaw::fs::apfs::{self, ApfsMut, Container};
use bandsaw::fs::hfsplus::{self, HfsPlusMut};
use bandsaw::fs::source::Tree;
use bandsaw::fs::{
    FileSystemMut, Fork, LockedVolume, NewKind, NewNode, Timestamp, VolumeKey, VolumePlan,
};
use bandsaw::fs::{exfat, fat};
use bandsaw::progress::Silent;
use bandsaw::store::{MemoryStore, Open, Put, Staged, Store};
use bandsaw::testing::Random;
use bandsaw::testing::conformance::{self, Stores};

const MIB: u64 = 1 << 20;
const CREATED: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn spill(memory: u64) -> Arc<Spill> {
    Arc::new(Spill::limited(std::env::temp_dir(), memory))
}

#[test]
fn copies_on_write() {
    for memory in [64 << 10, 32 << 20] {
        for len in [MIB, 300_007] {
            conformance::device(|| {
                let below = Arc::new(Memory::read_only(Random::new(1).bytes(len as usize)));
                Arc::new(CowDevice::spilling(below, spill(memory)))
            });
            conformance::device(|| {
                let changes = Arc::new(Changes::new(len, spill(memory)));
                Arc::new(CowDevice::with(changes, None, Access::ReadWrite))
            });
        }
    }
    let changes = Arc::new(Changes::new(MIB, spill(MIB)));
    let below = Arc::new(Memory::read_only(Random::new(2).bytes(MIB as usize)));
    conformance::read_only(Arc::new(CowDevice::with(
        changes,
        Some(below),
        Access::ReadOnly,
    )));
}

#[test]
fn staged_stores() {
    let stores = Stores::new(|| {
        Arc::new(Staged::new(
            Arc::new(MemoryStore::default()),
            std::env::temp_dir(),
        ))
    });
    stores.without_locks().check();
    // The files below are shown until they are changed.
    conformance::device(|| {
        let below = MemoryStore::default();
        let bytes = Random::new(3).bytes(MIB as usize);
        assert!(below.put("file", &bytes, Put::Replace).unwrap());
        let staged = Staged::new(Arc::new(below), std::env::temp_dir());
        staged.open("file", Open::Write).unwrap().unwrap()
    });
}

fn empty(apfs: bool) -> Arc<dyn BlockDevice> {
    let device = Arc::new(Memory::zeros(64 << 20));
    let tree = Tree::empty(CREATED);
    if apfs {
        let volumes = vec![apfs::build::NewVolume {
            name: "Suites".into(),
            case_sensitive: false,
            uuid: uuid::Uuid::nil(),
        }];
        let options = apfs::build::Options {
            volumes,
            created: CREATED,
            latest: None,
            uuid: uuid::Uuid::nil(),
        };
        let plan = apfs::build::Plan::new(tree, options).unwrap();
        plan.build(&*device, &Silent).unwrap();
    } else {
        let options = hfsplus::build::Options {
            name: "Suites".into(),
            case_sensitive: false,
            journaled: false,
            block_size: None,
            created: CREATED,
            latest: None,
            opens: false,
            identifier: 1,
        };
        let plan = hfsplus::build::Plan::new(tree, options).unwrap();
        plan.build(&*device, &Silent).unwrap();
    }
    device
}

fn open(device: Arc<dyn BlockDevice>, apfs: bool) -> Box<dyn FileSystemMut> {
    if !apfs {
        return Box::new(HfsPlusMut::open(device, hfsplus::WriteOptions::default()).unwrap());
    }
    let container = Arc::new(Container::open(device, None).unwrap());
    let key = |_: &LockedVolume| -> bandsaw::Result<VolumeKey> { unreachable!("not encrypted") };
    Box::new(ApfsMut::open(&container, 1, apfs::WriteOptions::default(), &key).unwrap())
}

#[test]
fn files_of_volumes() {
    for (apfs, fork) in [
        (false, Fork::Data),
        (false, Fork::Resource),
        (true, Fork::Data),
    ] {
        let file = |len: u64| {
            let fs = open(empty(apfs), apfs);
            let id = fs
                .create(fs.root(), "file", &NewNode::new(NewKind::File))
                .unwrap();
            let file = fs.open_mut(id, fork).unwrap();
            file.set_len(len, AfterDiscard::Zeros).unwrap();
            (fs, id, file)
        };
        conformance::device(|| file(MIB).2);
        conformance::device(|| file(300_007).2);
        let (fs, id, opened) = file(MIB);
        opened
            .write_at(0, &Random::new(4).bytes(MIB as usize))
            .unwrap();
        conformance::read_only(fs.open(id, fork).unwrap());
        drop(opened);
        conformance::read_only(fs.open(id, fork).unwrap());
    }
}

#[test]
fn files_of_fat_and_exfat_volumes() {
    let empty = |is_exfat: bool| -> Arc<dyn FileSystemMut> {
        let device = Arc::new(Memory::zeros(64 << 20));
        let (tree, name) = (Tree::empty(CREATED), "Suites".to_owned());
        if is_exfat {
            let options = exfat::build::ExFatOptions {
                name,
                block_size: None,
                created: CREATED,
                latest: None,
                serial: 1,
            };
            let plan = exfat::build::ExFatPlan::new(tree, options).unwrap();
            plan.build(&*device, &Silent).unwrap();
            return exfat::open_mut(device).unwrap();
        }
        let options = fat::build::FatOptions {
            name,
            width: None,
            block_size: None,
            created: CREATED,
            latest: None,
            serial: 1,
        };
        let plan = fat::build::FatPlan::new(tree, options).unwrap();
        plan.build(&*device, &Silent).unwrap();
        fat::open_mut(device).unwrap()
    };
    for is_exfat in [false, true] {
        let file = |len: u64| {
            let fs = empty(is_exfat);
            let new = NewNode::new(NewKind::File);
            let id = fs.create(fs.root(), "file", &new).unwrap();
            let file = fs.open_mut(id, Fork::Data).unwrap();
            file.set_len(len, AfterDiscard::Zeros).unwrap();
            (fs, id, file)
        };
        conformance::device(|| file(MIB).2);
        conformance::device(|| file(300_007).2);
        let (fs, id, opened) = file(MIB);
        opened
            .write_at(0, &Random::new(8).bytes(MIB as usize))
            .unwrap();
        drop(opened);
        conformance::read_only(fs.open(id, Fork::Data).unwrap());
    }
}

#[test]
fn files_of_volumes_opened_for_reading() {
    for apfs in [false, true] {
        let device = empty(apfs);
        let fs = open(device.clone(), apfs);
        let id = fs
            .create(fs.root(), "file", &NewNode::new(NewKind::File))
            .unwrap();
        let file = fs.open_mut(id, Fork::Data).unwrap();
        file.set_len(MIB, AfterDiscard::Zeros).unwrap();
        file.write_at(4096, &Random::new(5).bytes(700_000)).unwrap();
        drop(file);
        fs.sync().unwrap();
        drop(fs);
        let fs: Box<dyn bandsaw::fs::FileSystem> = if apfs {
            let container = Arc::new(Container::open(device, None).unwrap());
            Box::new(
                container
                    .open_volume(1, None, &|_| unreachable!("not encrypted"))
                    .unwrap(),
            )
        } else {
            Box::new(hfsplus::HfsPlus::open(device).unwrap())
        };
        conformance::read_only(fs.open(id, Fork::Data).unwrap());
    }
}

#[test]
fn views() {
    let memory = Arc::new(Memory::from(Random::new(6).bytes(200_000)));
    conformance::read_only(Arc::new(ReadOnlyView(memory)));
}

#[test]
fn compressed_contents() {
    // Half of it gets shorter.
    let mut bytes = vec![7; 300_000];
    bytes.extend(Random::new(7).bytes(300_000));
    for method in [Method::Zlib, Method::Lzvn, Method::Lzfse] {
        let fork = Arc::new(Memory::zeros(1 << 20));
        let packed = decmpfs::pack(
            PlainContents {
                len: bytes.len() as u64,
                read: &mut |at, buf| {
                    buf.copy_from_slice(&bytes[at as usize..][..buf.len()]);
                    Ok(())
                },
            },
            PackOptions::new(method, Level::default()).unwrap(),
            Bounds {
                attribute: 100,
                fork: MIB,
            },
            &Silent,
            &mut |at, part| fork.write_at(at, part),
        );
        let packed = packed.unwrap().unwrap();
        fork.set_len(packed.fork_len, AfterDiscard::Any).unwrap();
        let contents = decmpfs::contents(&packed.attribute, || Ok(fork)).unwrap();
        conformance::read_only(contents);
    }
    // A file of zeros is described by its length.
    let mut attribute = decmpfs::layout::MAGIC.to_vec();
    attribute.extend(5_u32.to_le_bytes());
    attribute.extend(MIB.to_le_bytes());
    let zeros = decmpfs::contents(&attribute, || unreachable!("there is no fork")).unwrap();
    conformance::read_only(zeros);
}

#[test]
fn compressed_images() {
    let image = bandsaw::testing::udif::image(&Random::new(8).bytes(MIB as usize), None);
    let image = Udif::open(Arc::new(Memory::read_only(image))).unwrap();
    conformance::read_only(Arc::new(image));
}
