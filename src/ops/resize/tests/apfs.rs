//! Power failures while APFS containers are resized. Their space manager moves when the number of
//! chunks changes.

use super::*;
use crate::crypt::Secret;
use crate::device::Memory;
use crate::fs::apfs::build::{NewVolume, Options as NewContainer, Plan as Container};
use crate::fs::apfs::{ApfsMut, Container as Opened, WriteOptions as Writing};
use crate::fs::{FreeMapExt, VolumeEncryption, VolumeKey, VolumePlan};
use crate::partition::APPLE_APFS;
use crate::problem::{Problems, Severity};

fn plan(volumes: u8, encryption: Option<&VolumeEncryption>) -> Container {
    let created = Timestamp::from_seconds(1_700_000_000);
    let name = |number| NewVolume {
        name: format!("Cut {number}"),
        case_sensitive: false,
        uuid: uuid::Uuid::from_u128(number),
    };
    let volumes = (1..=volumes.into()).map(name).collect();
    let options = NewContainer {
        volumes,
        created,
        latest: None,
        uuid: uuid::Uuid::nil(),
    };
    Container::encrypted(Tree::empty(created), options, encryption).unwrap()
}

/// Returns a disk with a used container. One of its volumes has more than the last checkpoint in
/// its free queue.
fn lived_in_apfs(len: u64, around: Around) -> PowerCut {
    let store = PowerCut::default();
    let disk = disk(&store);
    disk.set_len(len, AfterDiscard::Zeros).unwrap();
    let range = match around {
        Around::Gpt => {
            gpt::create_single(&*disk, 512, APPLE_APFS, gpt::Guids::derived("cut")).unwrap()
        }
        _ => 0..len,
    };
    let volume: Arc<dyn BlockDevice> = Arc::new(Slice::new(disk, range).unwrap());
    plan(1, None).build(&*volume, &Silent).unwrap();
    live(&changed(volume));
    store.sync().unwrap();
    store
}

fn changed(device: Arc<dyn BlockDevice>) -> ApfsMut {
    let container = Arc::new(Opened::open(device, None).unwrap());
    ApfsMut::open(&container, 1, Writing::default(), &|_| {
        unreachable!("it is plain")
    })
    .unwrap()
}

pub(super) fn sound_container(container: &Arc<Opened>) {
    assert!(
        container.problems().is_empty(),
        "{:?}",
        container.problems()
    );
    let mut problems = Problems::default();
    let key = |_: &_| Ok(VolumeKey::Passphrase(Secret::new(b"passphrase".to_vec())));
    container
        .check("here", &key, &mut problems, &Silent)
        .unwrap();
    assert!(problems.worst() <= Some(Severity::Note), "{problems:#?}");
}

#[test]
fn power_cuts_while_containers_grow() {
    cut_while_resized(
        &lived_in_apfs(4 * MIB, Around::Gpt),
        Around::Gpt,
        8 * MIB + 512,
    );
    for (from, to) in [(127, 130), (130, 900)] {
        cut_while_resized(
            &lived_in_apfs(from * MIB, Around::Nothing),
            Around::Nothing,
            to * MIB,
        );
    }
}

#[test]
fn power_cuts_while_containers_shrink() {
    cut_while_resized(
        &lived_in_apfs(8 * MIB, Around::Gpt),
        Around::Gpt,
        4 * MIB + 1024,
    );
    cut_while_resized(
        &lived_in_apfs(900 * MIB, Around::Nothing),
        Around::Nothing,
        130 * MIB,
    );
    // The pool is past the new end.
    let store = lived_in_apfs(4 * MIB, Around::Nothing);
    resize_to(&store, 300 << 30).unwrap();
    cut_while_resized(&store, Around::Nothing, 20 * MIB);
}

/// After a resize to any size, the container is consistent and keeps its files.
#[test]
fn containers_get_any_size() {
    let mut random = Random::new(3);
    let store = lived_in_apfs(64 * MIB, Around::Nothing);
    // Large enough that the pool has more bitmaps and a longer ring, and must itself move when the
    // container shrinks.
    resize_to(&store, 3 << 40).unwrap();
    sound(&store);
    resize_to(&store, 60 * MIB).unwrap();
    for _ in 0..8 {
        let limits = {
            let disk = disk(&store);
            let volumes = find_volumes(&disk, None).unwrap();
            ResizePlan::new(
                PartitionedDisk {
                    disk: &disk,
                    bundle: None,
                    map: None,
                    volumes: &volumes,
                },
                &volumes[0],
            )
            .unwrap()
            .limits()
            .unwrap()
        };
        let len = match random.within(0..4) {
            0 => limits.min,
            1 => random.within(limits.min..200 * MIB),
            2 => random.within(limits.min..5000 * MIB),
            _ => random.within(limits.min..200 << 30),
        };
        resize_to(&store, len.next_multiple_of(512))
            .unwrap_or_else(|error| panic!("{len}: {error}"));
        sound(&store);
        check_kept(&store).unwrap();
        if random.one_in(2) {
            let fs = changed(disk(&store));
            let id = fs
                .create(
                    fs.root(),
                    &format!("more {len}"),
                    &NewNode::new(NewKind::File),
                )
                .unwrap();
            fs.write_all(id, &contents(1)).unwrap();
            fs.unmount().unwrap();
            sound(&store);
            fs.remove(fs.root(), &format!("more {len}")).unwrap();
        }
    }
}

/// No key is required, and the minimum length is limited by the number of volumes.
#[test]
fn volumes_keep_the_container_as_it_needs_to_be() {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(0));
    device.set_len(1100 * MIB, AfterDiscard::Zeros).unwrap();
    let passphrase = Secret::new(b"passphrase".to_vec());
    let encryption = VolumeEncryption {
        passphrase,
        recovery_key: None,
        hint: None,
        iterations: 1,
    };
    plan(3, Some(&encryption)).build(&*device, &Silent).unwrap();
    let volumes = find_volumes(&device, None).unwrap();
    let planned = || {
        ResizePlan::new(
            PartitionedDisk {
                disk: &device,
                bundle: None,
                map: None,
                volumes: &volumes,
            },
            &volumes[0],
        )
        .unwrap()
    };
    let limits = planned().limits().unwrap();
    assert!(
        limits.min > 1024 * MIB && limits.min < 1030 * MIB,
        "{limits:?}"
    );
    let to = |bytes| ResizeOptions {
        size: Size::Bytes(bytes),
        parts: Parts::All,
        volume: None,
        dry_run: false,
    };
    assert_eq!(
        planned().run(&to(600 * MIB), &Silent).unwrap_err().kind(),
        Kind::Limit
    );
    planned().run(&to(limits.min), &Silent).unwrap();
    let container = volumes[0].container().unwrap();
    assert_eq!(container.block_count() * 4096, limits.min);
    sound_container(&container);
    assert!(
        container
            .free_map()
            .unwrap()
            .free_runs(0..limits.min)
            .count()
            > 0
    );
}
