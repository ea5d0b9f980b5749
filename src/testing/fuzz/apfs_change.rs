//! Changes of corrupt APFS volumes.

use std::sync::Arc;

use super::change::{change, spoil};
use super::{describe, disk};
use crate::crypt::Secret;
use crate::device::{BlockDevice, Memory};
use crate::fs::apfs::build::{NewVolume, Options, Plan};
use crate::fs::apfs::{self, ApfsMut, Container, WriteOptions};
use crate::fs::source::Tree;
use crate::fs::{FileSystemMut, LockedVolume, Timestamp, VolumeEncryption, VolumeKey, VolumePlan};
use crate::progress::Silent;
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_seconds(1_750_000_000);

/// Takes an input that describes a disk, whose checksums are corrected: otherwise it would be
/// refused before any change. The volume in the container on it is refused, too, or can be changed
/// and unmounted; nothing panics, loops forever or is written past the end.
pub fn apfs_change(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let mut bytes = disk.to_vec();
    apfs::reseal(&mut bytes);
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::from(bytes));
    let Ok(container) = Container::open(device, None).map(Arc::new) else {
        return;
    };
    let Ok(fs) = ApfsMut::open(&container, 1, WriteOptions { now: Some(NOW) }, &key) else {
        return;
    };
    let _ = spoil(&fs);
    let _ = fs.take_snapshot("snapshot", None);
    let _ = change(&fs, true);
    let _ = fs.unmount();
}

fn passphrase() -> Secret {
    Secret::new(b"guess".to_vec())
}

fn key(_: &LockedVolume) -> crate::Result<VolumeKey> {
    Ok(VolumeKey::Passphrase(passphrase()))
}

/// Returns containers with some files: one with a snapshot, one encrypted.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    [false, true]
        .iter()
        .map(|&encrypted| describe(&sample(encrypted)))
        .collect()
}

fn sample(encrypted: bool) -> Vec<u8> {
    let volume = NewVolume {
        name: "Sample".into(),
        case_sensitive: false,
        uuid: Uuid::nil(),
    };
    let options = Options {
        volumes: vec![volume],
        created: NOW,
        latest: None,
        uuid: Uuid::nil(),
    };
    let encryption = VolumeEncryption {
        passphrase: passphrase(),
        recovery_key: None,
        hint: None,
        iterations: 1,
    };
    let plan = Plan::encrypted(
        Tree::empty(NOW),
        options,
        Some(&encryption).filter(|_| encrypted),
    );
    let device = Arc::new(Memory::zeros(1200 << 10));
    plan.and_then(|plan| plan.build(&*device, &Silent))
        .expect("the sample can be built");
    let container = Arc::new(Container::open(device.clone(), None).expect("the sample opens"));
    let fs = ApfsMut::open(&container, 1, WriteOptions { now: Some(NOW) }, &key)
        .expect("the sample can be changed");
    change(&fs, false)
        .and_then(|()| fs.sync())
        .expect("the sample has room");
    if !encrypted {
        fs.take_snapshot("before", None)
            .expect("the sample has room");
        let _ = spoil(&fs);
    }
    fs.unmount().expect("the sample has room");
    drop(fs);
    device.to_vec()
}
