//! APFS containers, and the parsers of what is in them.

use std::sync::Arc;

use super::{describe, disk};
use crate::Kind;
use crate::crypt::Secret;
use crate::device::{BlockDevice, Memory};
use crate::fs::VolumeKey;
use crate::fs::apfs::{self, Container};
use crate::testing::walk;

/// Folders of a real volume hold more, but what a broken one claims to hold must not cost us time.
const MOST_OBJECTS: u64 = 500;

/// An input describes a disk. Whatever is on it, the container can be opened or is refused, and
/// everything in its volumes can be asked; once as it is, and once with every checksum made right,
/// so that what is behind them is looked at.
pub fn apfs_container(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let mut bytes = disk.to_vec();
    read_all(bytes.clone());
    apfs::reseal(&mut bytes);
    read_all(bytes);
}

fn read_all(bytes: Vec<u8>) {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let Ok(container) = Container::open(device, None).map(Arc::new) else {
        return;
    };
    for number in 1..=container.volumes().len().min(4) as u32 {
        let key = |_: &_| Ok(VolumeKey::Passphrase(Secret::new(b"guess".to_vec())));
        let Ok(volume) = container.open_volume(number, None, &key) else {
            continue;
        };
        let walked = walk::walk(&volume, MOST_OBJECTS);
        assert!(walked.objects <= MOST_OBJECTS);
        assert!(
            walked
                .first_error
                .is_none_or(|error| error.kind() != Kind::ReadOnly)
        );
    }
}

/// An input is a node of a tree. It is refused, or its records lie within it, and each is a key
/// with data or refused.
pub fn apfs_node(input: &[u8]) {
    apfs::read_node(input);
}

/// An input is a record's key or value, of any kind: it makes sense, or is refused.
pub fn apfs_record(input: &[u8]) {
    apfs::read_record(input);
}

/// An input is a plain keybag, or a key in one.
pub fn apfs_keybag(input: &[u8]) {
    apfs::read_keybag_bytes(input);
}

/// The bytes of a small container with one volume.
pub fn apfs_sample() -> Vec<u8> {
    apfs::sample()
}

pub(super) fn container_seeds() -> Vec<Vec<u8>> {
    vec![describe(&apfs_sample())]
}

pub(super) fn node_seeds() -> Vec<Vec<u8>> {
    let sample = apfs_sample();
    sample
        .chunks(4096)
        .filter(|node| apfs::read_node(node) > 0)
        .map(<[u8]>::to_vec)
        .collect()
}

pub(super) fn record_seeds() -> Vec<Vec<u8>> {
    apfs::sample_records()
}

pub(super) fn keybag_seeds() -> Vec<Vec<u8>> {
    vec![apfs::sample_keybag()]
}
