//! Tests of freed blocks that older checkpoints still need.

use super::*;
use crate::ResizeVolume;
use crate::apfs::ContainerMut;
use bandsaw_core::device::BlockDevice;

fn whole(device: &Arc<Memory>) -> ContainerMut {
    ContainerMut::open(&Arc::new(Container::open(device.clone(), None).unwrap())).unwrap()
}

/// Includes encrypted volumes without a key.
#[test]
fn removed_files_are_free_after_a_few_checkpoints() {
    for device in [container(16 << 20, false), encrypted(16 << 20)] {
        let bytes = || {
            let map = Container::open(device.clone(), None)
                .unwrap()
                .free_map()
                .unwrap();
            map.free_runs(0..16 << 20)
                .map(Result::unwrap)
                .map(|run| run.end - run.start)
                .sum::<u64>()
        };
        let fs = open(&device);
        file(&fs, fs.root(), "kept", &[1; 100_000]);
        file(&fs, fs.root(), "gone", &[2; 5_000_000]);
        fs.sync().unwrap();
        fs.remove(fs.root(), "gone").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert!(bytes() < 12_000_000, "older checkpoints have it");
        whole(&device).release_queued().unwrap();
        assert!(bytes() > 15_000_000, "{}", bytes());
        let checkpoint = || Container::open(device.clone(), None).unwrap().checkpoint();
        let at = checkpoint();
        whole(&device).release_queued().unwrap();
        assert_eq!(checkpoint(), at, "nothing is left that is worth it");
        assert_eq!(contents(&read(&device), "/kept"), [1; 100_000]);
    }
}

/// The volume that is open for changes releases the blocks and stays usable.
#[test]
fn a_volume_releases_what_it_holds_back() {
    for device in [container(16 << 20, false), encrypted(16 << 20)] {
        let bytes = || Container::open(device.clone(), None).unwrap().free();
        let fs = open(&device);
        file(&fs, fs.root(), "kept", &[1; 100_000]);
        file(&fs, fs.root(), "gone", &[2; 5_000_000]);
        fs.unmount().unwrap();
        drop(fs);
        let fs = open(&device);
        fs.remove(fs.root(), "gone").unwrap();
        fs.sync().unwrap();
        assert!(bytes() < 12_000_000, "older checkpoints have it");
        fs.release_held().unwrap();
        assert!(bytes() > 15_000_000, "{}", bytes());
        let at = Container::open(device.clone(), None).unwrap().checkpoint();
        fs.release_held().unwrap();
        assert_eq!(
            Container::open(device.clone(), None).unwrap().checkpoint(),
            at,
            "nothing is left that is worth it"
        );
        file(&fs, fs.root(), "after", &[3; 300_000]);
        fs.unmount().unwrap();
        drop(fs);
        let found = read(&device);
        assert_eq!(
            (contents(&found, "/kept"), contents(&found, "/after")),
            (vec![1; 100_000], vec![3; 300_000])
        );
    }
}

#[test]
fn a_container_is_changed_as_a_whole_or_in_a_volume() {
    let device = container(4 << 20, false);
    let container = Arc::new(Container::open(device, None).unwrap());
    let fs = ApfsMut::open(&container, 1, WriteOptions::default(), &key).unwrap();
    assert_eq!(kind(ContainerMut::open(&container)), Kind::Conflict);
    drop(fs);
    let whole = ContainerMut::open(&container).unwrap();
    assert_eq!(
        kind(ApfsMut::open(&container, 1, WriteOptions::default(), &key)),
        Kind::Conflict
    );
    drop(whole);
}

/// The checkpoint rings keep their size, which limits the length of the free queue.
#[test]
fn a_container_that_has_grown_takes_many_changes() {
    let device = Arc::new(Memory::zeros(1 << 30));
    device
        .write_at(0, &container(4 << 20, false).to_vec())
        .unwrap();
    whole(&device).resize(1 << 30, &Silent).unwrap();
    let fs = open(&device);
    let files: Vec<_> = (0..24)
        .map(|number| file(&fs, fs.root(), &format!("file {number}"), &vec![1; 1 << 20]))
        .collect();
    for round in 0..2 {
        for id in &files {
            let open = fs.open_mut(*id, Fork::Data).unwrap();
            for block in (round..256).step_by(2) {
                open.write_at(block * 4096, &[2; 4096]).unwrap();
            }
        }
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    drop(fs);
    let found = read(&device);
    assert!((0..24).all(|number| contents(&found, &format!("/file {number}")) == [2; 1 << 20]));
}

/// The blocks of a volume that is not listed would be freed, and a transaction whose number is not above all
/// others would not count.
#[test]
fn a_container_with_wrong_lists_or_numbers_is_not_changed() {
    for (damage, reason) in [
        ("does not list volume", "does not list volume"),
        (
            "the next transaction number is 1,",
            "the newest checkpoint is",
        ),
        (
            "the next transaction number is 18446744073709551615",
            "too large",
        ),
    ] {
        let (_, _, bytes) = crate::apfs::check::corruptions::damaged(8 << 20)
            .find(|(words, ..)| *words == damage)
            .unwrap();
        let container = Container::open(Arc::new(Memory::from(bytes)), None).unwrap();
        let error = ContainerMut::open(&Arc::new(container)).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict, "{damage}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}
