//! Power failures while an APFS volume is changed: after every write of a recorded run the volume
//! has the checkpoint before or the one after, and can be changed further.

use std::sync::Arc;

use crate::common::changing::{World, bytes, operate, read_into};
use bandsaw::crypt::Secret;
use bandsaw::device::{AfterDiscard, BlockDevice, Memory};
use bandsaw::fs::apfs::build::{NewVolume, Options, Plan};
use bandsaw::fs::apfs::{ApfsMut, Container, WriteOptions};
use bandsaw::fs::source::Tree;
use bandsaw::fs::{
    FileSystem, FileSystemMut, LockedVolume, Timestamp, VolumeEncryption, VolumeKey, VolumePlan,
};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Store};
use bandsaw::testing::{PowerCut, Random};

const LEN: u64 = 2 << 20;
const SNAPSHOT: &str = "kept";

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

fn passphrase() -> Secret {
    Secret::new(b"power".to_vec())
}

fn key(_: &LockedVolume) -> bandsaw::Result<VolumeKey> {
    Ok(VolumeKey::Passphrase(passphrase()))
}

fn change(device: Arc<dyn BlockDevice>) -> ApfsMut {
    let container = Arc::new(Container::open(device, None).unwrap());
    let options = WriteOptions {
        now: Some(Timestamp::from_seconds(1_750_000_000)),
    };
    ApfsMut::open(&container, 1, options, &key).unwrap()
}

/// Returns the contents of a container, which must be consistent, and of its snapshot, if it has
/// one.
fn read(device: Arc<dyn BlockDevice>) -> (World, Option<World>) {
    let container = Arc::new(Container::open(device, None).unwrap());
    assert!(
        container.problems().is_empty(),
        "{:?}",
        container.problems()
    );
    container.trusted_free_map().unwrap();
    let mut problems = Problems::default();
    container
        .check("here", &key, &mut problems, &Silent)
        .unwrap();
    assert!(problems.worst() <= Some(Severity::Note), "{problems:#?}");
    let world = |snapshot| {
        let fs = container.open_volume(1, snapshot, &key).unwrap();
        let mut world = World::new();
        read_into(&fs, fs.root(), "", &mut world);
        world
    };
    let has_snapshot = !container.volumes()[0]
        .as_ref()
        .unwrap()
        .snapshots
        .is_empty();
    (world(None), has_snapshot.then(|| world(Some(SNAPSHOT))))
}

#[test]
fn a_cut_leaves_the_checkpoint_before_or_after() {
    for seed in 0..3 {
        let mut random = Random::new(seed);
        let store = PowerCut::default();
        disk(&store).set_len(LEN, AfterDiscard::Zeros).unwrap();
        let created = Timestamp::from_seconds(1_700_000_000);
        let volume = NewVolume {
            name: "Cut".into(),
            case_sensitive: seed == 1,
            uuid: uuid::Uuid::nil(),
        };
        let options = Options {
            volumes: vec![volume],
            created,
            latest: None,
            uuid: uuid::Uuid::nil(),
        };
        // One volume is case-sensitive, one is encrypted, and one gets a snapshot.
        let encryption = VolumeEncryption {
            passphrase: passphrase(),
            recovery_key: None,
            hint: None,
            iterations: 1,
        };
        let plan = Plan::encrypted(
            Tree::empty(created),
            options,
            Some(&encryption).filter(|_| seed == 0),
        );
        plan.unwrap().build(&*disk(&store), &Silent).unwrap();
        store.sync().unwrap();
        let first = store.position();
        let mut states = vec![(first, World::new())];
        let fs = change(disk(&store));
        // Write count at which the snapshot certainly exists, and its contents.
        let mut snapshot = None;
        for round in 0..12 {
            for _ in 0..random.within(1..8) {
                operate(&fs, &mut random);
            }
            fs.sync().unwrap();
            let mut world = World::new();
            read_into(&fs, fs.root(), "", &mut world);
            states.push((store.position(), world.clone()));
            if seed == 2 && round == 4 {
                fs.take_snapshot(SNAPSHOT, None).unwrap();
                snapshot = Some((store.position(), world));
            }
        }
        drop(fs);
        let mut seen = 0;
        for crash in store.crashes_from(first, seed, 1) {
            let device = Arc::new(Memory::from(bytes(&*disk(&crash.store))));
            let (found, kept) = read(device.clone());
            let last = states
                .iter()
                .rposition(|(position, _)| *position <= crash.position)
                .unwrap();
            let next = (last + 1).min(states.len() - 1);
            let which = (last..=next).find(|state| states[*state].1 == found);
            assert!(
                which.is_some(),
                "seed {seed}, a crash at {}: neither state {last} nor {next}",
                crash.position
            );
            match (&snapshot, &kept) {
                (Some((_, world)), Some(kept)) => assert!(
                    kept == world,
                    "a crash at {}: another snapshot",
                    crash.position
                ),
                (Some((taken, _)), None) => assert!(
                    crash.position < *taken,
                    "a crash at {}: no snapshot",
                    crash.position
                ),
                (None, kept) => assert!(kept.is_none()),
            }
            seen += 1;
            if seen % 29 == 0 {
                let fs = change(device.clone());
                for _ in 0..5 {
                    operate(&fs, &mut random);
                }
                let mut world = World::new();
                read_into(&fs, fs.root(), "", &mut world);
                fs.unmount().unwrap();
                assert!(read(device) == (world, kept));
            }
        }
        assert!(seen > 500, "{seen}");
    }
}
