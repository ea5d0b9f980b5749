//! HFS volumes.

use std::sync::Arc;

use super::{describe, disk};
use crate::Kind;
use crate::device::{BlockDevice, Memory};
use crate::fs::FileSystem;
use crate::fs::hfs::{self, HfsVolume, fixture};
use crate::progress::Silent;
use crate::testing::walk;

/// Maximum number of objects read.
const MAX_OBJECTS: u64 = 500;
/// Maximum number of findings of a check.
const MAX_FINDINGS: usize = 1000;

/// Takes an input that describes a disk. The volume on it is checked; it opens or is refused, and
/// everything in it can be queried.
pub fn hfs_volume(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(disk.to_vec()));
    let checked = hfs::check(device.clone(), &Silent).expect("memory can be read");
    assert!(checked.len() <= MAX_FINDINGS + 1, "{}", checked.len());
    let stated = hfs::stated_len(&*device);
    let Ok(volume) = HfsVolume::open(device) else {
        return;
    };
    assert!(
        stated.is_ok_and(|len| len.is_some()),
        "a volume is opened that states no length"
    );
    let info = volume.volume();
    assert!(info.free <= info.total, "{info:?}");
    let walked = walk::walk(&volume, MAX_OBJECTS);
    assert!(walked.objects <= MAX_OBJECTS);
    assert!(
        walked
            .first_error
            .is_none_or(|error| error.kind() != Kind::ReadOnly)
    );
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    vec![describe(&hfs_sample())]
}

/// Returns the bytes of a small volume with one of everything.
pub fn hfs_sample() -> Vec<u8> {
    fixture::sample()
}
