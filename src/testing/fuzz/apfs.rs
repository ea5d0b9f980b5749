//! APFS containers, and the parsers of their structures.

use std::sync::Arc;

use super::{describe, disk};
use crate::Kind;
use crate::crypt::Secret;
use crate::device::{BlockDevice, Memory};
use crate::fs::VolumeKey;
use crate::fs::apfs::{self, Container};
use crate::testing::walk;

/// Maximum number of objects read. Real folders contain more, but the claims of a corrupt one must
/// not cost time.
const MAX_OBJECTS: u64 = 500;

/// Takes an input that describes a disk. The container on it opens or is refused, and everything in
/// its volumes can be queried; once unchanged, and once with every checksum corrected, to reach the
/// code behind the checks.
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
        let walked = walk::walk(&volume, MAX_OBJECTS);
        assert!(walked.objects <= MAX_OBJECTS);
        assert!(
            walked
                .first_error
                .is_none_or(|error| error.kind() != Kind::ReadOnly)
        );
    }
}

/// Takes an input that is a node of a tree. It is refused, or its records are within it, and each
/// is refused or a key with data.
pub fn apfs_node(input: &[u8]) {
    apfs::read_node(input);
}

/// Takes an input that is a record's key or value, of any kind: it is valid, or refused.
pub fn apfs_record(input: &[u8]) {
    apfs::read_record(input);
}

/// Takes an input that is a plain keybag, or a key in one.
pub fn apfs_keybag(input: &[u8]) {
    apfs::read_keybag_bytes(input);
}

/// Returns the bytes of a small container with one volume.
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
