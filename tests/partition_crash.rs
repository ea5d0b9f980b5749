//! Power failures while a GPT is written or repaired: there is a valid map at every moment, the old
//! or the new one.

use std::sync::Arc;

use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::partition::gpt::{Guids, NewPartition};
use bandsaw::partition::{self, APPLE_APFS, APPLE_HFS, Partition, gpt};
use bandsaw::store::{Open, Store};
use bandsaw::testing::PowerCut;

const SECTORS: u64 = 256;

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

/// Returns a store with a durable disk.
fn store() -> PowerCut {
    let store = PowerCut::default();
    disk(&store)
        .set_len(SECTORS * 512, AfterDiscard::Zeros)
        .unwrap();
    disk(&store).flush().unwrap();
    store.sync().unwrap();
    store
}

fn partitions(disk: &dyn BlockDevice) -> Option<Vec<Partition>> {
    partition::probe(disk).unwrap().map(|map| map.partitions)
}

/// Returns the partitions found after each crash since `first`; the last result is the final
/// durable state.
fn found_after_crashes(store: &PowerCut, first: usize) -> Vec<Option<Vec<Partition>>> {
    let crashes = store.crashes_from(first, 7, 6);
    let mut found: Vec<_> = crashes
        .map(|crash| partitions(&*disk(&crash.store)))
        .collect();
    assert!(found.len() >= 40, "{} crashes", found.len());
    found.push(partitions(&*disk(
        &store.crash(bandsaw::testing::power_cut::Keep::Nothing),
    )));
    found
}

#[test]
fn a_new_map_over_an_old_one() {
    let store = store();
    let disk = disk(&store);
    let partition = |first: u64, last: u64| NewPartition {
        range: first * 512..last * 512,
        type_guid: APPLE_APFS,
        guid: Guids::derived("old").partition,
        name: "old".into(),
    };
    gpt::create(
        &*disk,
        512,
        Guids::derived("old").disk,
        &[partition(40, 48), partition(48, 64)],
    )
    .unwrap();
    let (old, begun) = (partitions(&*disk), store.position());
    gpt::create_single(&*disk, 512, APPLE_HFS, Guids::derived("new")).unwrap();
    let new = partitions(&*disk);
    let found = found_after_crashes(&store, begun);
    assert!(found.iter().all(|found| *found == old || *found == new));
    assert!(found.contains(&old) && found.last() == Some(&new));
}

#[test]
fn a_map_on_a_blank_disk() {
    let store = store();
    let (disk, begun) = (disk(&store), store.position());
    gpt::create_single(&*disk, 512, APPLE_HFS, Guids::derived("new")).unwrap();
    let new = partitions(&*disk);
    let found = found_after_crashes(&store, begun);
    assert!(found.iter().all(|found| found.is_none() || *found == new));
    assert_eq!(found.last(), Some(&new));
}

#[test]
fn a_repair() {
    for (what, lost) in [
        ("primary", 512..34 * 512),
        ("backup", (SECTORS - 33) * 512..SECTORS * 512),
    ] {
        let store = store();
        let disk = disk(&store);
        gpt::create_single(&*disk, 512, APPLE_HFS, Guids::derived("whole")).unwrap();
        let whole = disk.read_vec(0, (SECTORS * 512) as usize).unwrap();
        let expected = partitions(&*disk);
        disk.write_at(lost.start, &vec![0xa5; (lost.end - lost.start) as usize])
            .unwrap();
        disk.flush().unwrap();
        let begun = store.position();
        gpt::repair(&*disk).unwrap();
        assert!(
            found_after_crashes(&store, begun)
                .iter()
                .all(|found| *found == expected),
            "{what}"
        );
        let after = store.crash(bandsaw::testing::power_cut::Keep::Nothing);
        let durable = self::disk(&after).read_vec(0, whole.len()).unwrap();
        assert!(durable == whole, "{what}");
    }
}
