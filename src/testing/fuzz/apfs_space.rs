//! The space manager of an APFS container and the map of free blocks.

use super::{describe, disk};
use crate::device::{BlockDeviceExt, Memory};
use crate::fs::apfs::build::{BLOCK_BYTES, NewVolume, Options, Plan};
use crate::fs::apfs::free_map_of;
use crate::fs::source::Tree;
use crate::fs::{FreeMapExt, Timestamp, VolumePlan};
use crate::progress::Silent;
use uuid::Uuid;

/// Takes an input that describes a disk: the block of a space manager, then a container. The map is
/// refused, or its free runs are within the container, ordered and disjoint.
pub fn apfs_spaceman(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let bytes = disk.to_vec();
    let Some((spaceman, container)) = bytes.split_at_checked(BLOCK_BYTES as usize) else {
        return;
    };
    let blocks = container.len() as u64 / u64::from(BLOCK_BYTES);
    let Ok(map) = free_map_of(container, spaceman) else {
        return;
    };
    let (mut end, mut free) = (None, 0);
    for run in map.free_runs(0..u64::MAX) {
        let Ok(run) = run else { return };
        assert!(
            run.start < run.end && end.is_none_or(|end| run.start > end),
            "{run:?} after {end:?}"
        );
        free += run.end - run.start;
        end = Some(run.end);
    }
    assert!(
        free <= blocks * u64::from(BLOCK_BYTES) && end <= Some(blocks * u64::from(BLOCK_BYTES))
    );
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let created = Timestamp::from_seconds(1_700_000_000);
    let volume = NewVolume {
        name: "Sample".into(),
        case_sensitive: false,
        uuid: Uuid::nil(),
    };
    let options = Options {
        volumes: vec![volume],
        created,
        latest: None,
        uuid: Uuid::nil(),
    };
    let plan = Plan::new(Tree::empty(created), options).expect("the sample can be planned");
    let container = Memory::zeros(1 << 20);
    plan.build(&container, &Silent)
        .expect("the sample can be built");
    // The first block of the data area, at the address in the superblock.
    let data = container
        .read_array(0x78)
        .map(u64::from_le_bytes)
        .expect("reading memory");
    let mut bytes = container
        .read_vec(data * u64::from(BLOCK_BYTES), BLOCK_BYTES as usize)
        .expect("reading memory");
    bytes.extend(container.to_vec());
    vec![describe(&bytes)]
}
