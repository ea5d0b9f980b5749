//! The cache on a local disk: saved requests, recovery, and detection of changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bandsaw::container::sparsebundle::Bundle;
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::store::{
    CacheOptions, FlushTo, MemoryStore, Objects, Open, Put, Remote, RemoteOptions, Store,
};
use bandsaw::testing::conformance::{Devices, Stores};
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyStore};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::object_faults::{FaultyObjects, Request};
use bandsaw::testing::power_cut::Keep;
use bandsaw::testing::{PowerCut, Random};
use bandsaw::{Kind, Result};

use super::adversity::Gone;
use super::through::Through;
use super::{BUNDLE, Last, MIB, load, memory, options, store, thief, writer};

/// Opens with so little memory that most writes go through the cache.
fn with_cache(folder: &Arc<dyn Store>, flush: FlushTo) -> RemoteOptions {
    let cache = CacheOptions {
        flush,
        upload_after: Duration::from_secs(3600),
        ..CacheOptions::new(folder.clone(), "the cache", 16 * MIB)
    };
    RemoteOptions {
        memory: 0,
        steal: true,
        cache: Some(cache),
        ..options(Access::ReadWrite)
    }
}

fn folder() -> Arc<dyn Store> {
    Arc::new(MemoryStore::default())
}

#[test]
fn with_a_cache_it_is_a_store_and_a_device() {
    for flush in [FlushTo::Store, FlushTo::Local] {
        let open = |objects: Arc<dyn Objects>| {
            let mut options = with_cache(&folder(), flush);
            // Uploads run in the background.
            options.cache.as_mut().unwrap().upload_after = Duration::from_millis(3);
            Remote::open(objects, &options).unwrap()
        };
        let last = Last::default();
        Stores::new(|| open(last.next()))
            .reopen(|| open(last.last()))
            .check();
        let make = || -> Arc<dyn BlockDevice> {
            Arc::new(Bundle::create(open(last.next()), &BUNDLE).unwrap())
        };
        let again = || -> Arc<dyn BlockDevice> {
            Arc::new(Bundle::open(open(last.last()), Access::ReadWrite).unwrap())
        };
        Devices::new(make).reopen(again).unit(MIB).check();
        Model::new(make())
            .reopen(again)
            .run(&operations(7, 150, 400_000));
    }
}

#[test]
fn more_is_written_than_memory_and_cache_hold() {
    for flush in [FlushTo::Store, FlushTo::Local] {
        let (objects, folder) = (memory(), folder());
        let remote = Remote::open(objects.clone(), &with_cache(&folder, flush)).unwrap();
        let file = remote.open("bands/0", Open::Create).unwrap().unwrap();
        let bytes = Random::new(3).bytes(40 * MIB as usize);
        file.set_len(bytes.len() as u64, AfterDiscard::Zeros)
            .unwrap();
        for (n, piece) in bytes.chunks(3 * MIB as usize).enumerate() {
            file.write_at(n as u64 * 3 * MIB, piece).unwrap();
        }
        file.flush().unwrap();
        // Data on the local disk is read back, in part and as a whole.
        let mut expected = bytes.clone();
        for at in (1000..bytes.len() - 9000).step_by(1_234_567) {
            file.write_at(at as u64, &[7; 8000]).unwrap();
            expected[at..at + 8000].fill(7);
        }
        assert!(file.read_vec(0, bytes.len()).unwrap() == expected);
        file.set_len(20 * MIB + 17, AfterDiscard::Zeros).unwrap();
        file.set_len(21 * MIB, AfterDiscard::Zeros).unwrap();
        expected.truncate(20 * MIB as usize + 17);
        expected.resize(21 * MIB as usize, 0);
        assert!(file.read_vec(0, expected.len()).unwrap() == expected);
        file.flush().unwrap();
        let used = folder.stat("blocks").unwrap().unwrap();
        assert_eq!(used.len, 16 * MIB);
        remote.close().unwrap();
        assert!(load(&thief(&objects).unwrap(), "bands/0").unwrap() == expected);
    }
}

#[test]
fn cached_bytes_are_not_fetched_again() {
    let inner = memory();
    store(
        &writer(&inner).unwrap(),
        "bands/0",
        &Random::new(4).bytes(3 * MIB as usize + 100),
    )
    .unwrap();
    let counted = FaultyObjects::new(inner.clone());
    let objects: Arc<dyn Objects> = counted.clone();
    let folder = folder();
    let options = RemoteOptions {
        access: Access::ReadOnly,
        ..with_cache(&folder, FlushTo::Store)
    };
    let fetched = |expected: &[u8]| {
        let remote = Remote::open(objects.clone(), &options).unwrap();
        let before = counted.count(Request::Read);
        assert_eq!(load(&remote, "bands/0").unwrap(), expected);
        counted.count(Request::Read) - before
    };
    let expected = load(&thief(&inner).unwrap(), "bands/0").unwrap();
    assert!(fetched(&expected) > 0);
    assert_eq!(fetched(&expected), 0);
    // Corrupt blocks are fetched again.
    let blocks = folder.open("blocks", Open::Write).unwrap().unwrap();
    blocks.write_at(70_000, &[0x55; 9]).unwrap();
    assert!(fetched(&expected) > 0);
    assert_eq!(fetched(&expected), 0);
    // Changes made without this cache invalidate it.
    let changed = [&expected[..MIB as usize], &[1; 70_000]].concat();
    let other = thief(&inner).unwrap();
    store(&other, "bands/0", &changed).unwrap();
    other.close().unwrap();
    assert!(fetched(&changed) > 0);
    let remote = Remote::open(objects.clone(), &with_cache(&folder, FlushTo::Store)).unwrap();
    store(&remote, "bands/1", &changed).unwrap();
    remote.close().unwrap();
    drop(remote);
    let remote = Remote::open(objects.clone(), &options).unwrap();
    assert_eq!(load(&remote, "bands/1").unwrap(), changed);
    drop(remote);
    // After a crash the index is missing, and all blocks are ignored.
    folder.remove("index").unwrap();
    assert!(fetched(&changed) > 0);
}

/// A writer with local flushes, on a store that can be disconnected.
struct Cut {
    gone: Arc<Through<Gone>>,
    remote: Arc<Remote>,
}

impl Cut {
    fn open(objects: &Arc<dyn Objects>, options: &RemoteOptions) -> Self {
        let gone = Gone::after(i64::MAX, objects);
        let remote = Remote::open(gone.clone(), options).unwrap();
        Self { gone, remote }
    }

    /// Disconnects the store.
    fn cut(&self) {
        self.gone.porter.left.store(0, Ordering::SeqCst);
    }
}

#[test]
fn data_flushed_locally_come_back() {
    let (objects, folder) = (memory(), folder());
    let local = with_cache(&folder, FlushTo::Local);
    store(&writer(&objects).unwrap(), "bands/1", b"stays").unwrap();
    store(&thief(&objects).unwrap(), "bands/2", b"goes").unwrap();
    let first = Cut::open(&objects, &local);
    let long = Random::new(5).bytes(2 * MIB as usize + 5);
    first.remote.put("bands/0", &long, Put::Replace).unwrap();
    first.remote.rename("bands/0", "bands/3").unwrap();
    first.cut();
    let file = first.remote.open("bands/3", Open::Write).unwrap().unwrap();
    file.write_at(100_000, &[9; 50_000]).unwrap();
    let long = [&long[..100_000], &[9; 50_000], &long[150_000..]].concat();
    first.remote.remove("bands/2").unwrap();
    first.remote.sync().unwrap();
    drop(file);
    assert!(first.remote.close().is_err());
    drop(first);
    // Readers with this cache see it; others do not.
    let reading = RemoteOptions {
        access: Access::ReadOnly,
        ..local.clone()
    };
    let seen = Remote::open(objects.clone(), &reading).unwrap();
    assert!(load(&seen, "bands/3").unwrap() == long && load(&seen, "bands/2").is_none());
    drop(seen);
    assert_eq!(
        load(
            &Remote::open(objects.clone(), &options(Access::ReadOnly)).unwrap(),
            "bands/2"
        )
        .unwrap(),
        b"goes"
    );
    let in_store = Remote::open(objects.clone(), &with_cache(&folder, FlushTo::Store)).unwrap();
    assert!(
        folder.stat("journal").unwrap().is_none(),
        "it is in the store"
    );
    drop(in_store);
    let seen = thief(&objects).unwrap();
    assert!(load(&seen, "bands/3").unwrap() == long);
    assert_eq!(
        (load(&seen, "bands/0"), load(&seen, "bands/2")),
        (None, None)
    );
    assert_eq!(load(&seen, "bands/1").unwrap(), b"stays");
}

/// The upload itself is interrupted after every number of requests.
#[test]
fn coming_back_may_be_cut_off() {
    let (objects, folder) = (memory(), folder());
    let local = with_cache(&folder, FlushTo::Local);
    let first = Cut::open(&objects, &local);
    store(&first.remote, "bands/0", &[1; 200_000]).unwrap();
    first.cut();
    store(&first.remote, "bands/0", &[2; 300_000]).unwrap();
    store(&first.remote, "bands/1", &[3; 100]).unwrap();
    drop(first);
    // Each takeover adds an entry to the log, which the next writer reads.
    for left in (0..).step_by(2) {
        let gone = Gone::after(left, &objects);
        match Remote::open(gone.clone(), &local) {
            Ok(remote) => {
                assert_eq!(load(&remote, "bands/1").unwrap(), [3; 100]);
                break;
            }
            Err(error) => assert_eq!(error.kind(), Kind::Io, "{error}"),
        }
    }
    let seen = thief(&objects).unwrap();
    assert_eq!(
        (
            load(&seen, "bands/0").unwrap(),
            load(&seen, "bands/1").unwrap()
        ),
        (vec![2; 300_000], vec![3; 100])
    );
}

#[test]
fn a_bundle_that_another_wrote_since_is_refused() {
    let (objects, folder) = (memory(), folder());
    let local = with_cache(&folder, FlushTo::Local);
    let first = Cut::open(&objects, &local);
    first.cut();
    store(&first.remote, "bands/0", b"flushed locally").unwrap();
    drop(first);
    let other = thief(&objects).unwrap();
    store(&other, "bands/0", b"written by another").unwrap();
    other.close().unwrap();
    let generation = other.generation();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = Remote::open(
            objects.clone(),
            &RemoteOptions {
                access,
                ..local.clone()
            },
        )
        .unwrap_err();
        let said = error.to_string();
        assert!(
            error.kind() == Kind::Conflict
                && said.contains("the cache has 1 flushed files")
                && said.contains("by process"),
            "{said}"
        );
    }
    folder.remove("journal").unwrap();
    let remote = Remote::open(objects.clone(), &local).unwrap();
    assert_eq!(
        remote.generation(),
        generation + 1,
        "who was refused took nothing over"
    );
    assert_eq!(load(&remote, "bands/0").unwrap(), b"written by another");
}

/// Two programs cannot use a cache at the same time.
#[test]
fn a_cache_has_one_user() {
    let (objects, folder) = (memory(), folder());
    let first = Remote::open(objects.clone(), &with_cache(&folder, FlushTo::Store)).unwrap();
    let reading = RemoteOptions {
        access: Access::ReadOnly,
        ..with_cache(&folder, FlushTo::Store)
    };
    assert_eq!(
        Remote::open(objects.clone(), &reading).unwrap_err().kind(),
        Kind::Conflict
    );
    drop(first);
    Remote::open(objects, &reading).unwrap();
}

/// Random writes and flushes; then the store is unreachable and the power fails. Each sector has
/// its contents at the last flush, or data written to it since.
#[test]
fn power_cuts_of_local_flushes() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let objects = memory();
        let mut disk = PowerCut::default();
        let mut sectors: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let first = Bundle::create(writer(&objects).unwrap(), &BUNDLE).unwrap();
        first.flush().unwrap();
        drop(first);
        for _life in 0..3 {
            let power: Arc<dyn Store> = Arc::new(disk.clone());
            let mut local = with_cache(&power, FlushTo::Local);
            local.cache.as_mut().unwrap().upload_after =
                Duration::from_millis(random.within(1..40));
            let cut = Cut::open(&objects, &local);
            let bundle = Bundle::open(cut.remote.clone(), Access::ReadWrite).unwrap();
            let found = bundle.read_vec(0, BUNDLE.len as usize).unwrap();
            for (sector, versions) in &mut sectors {
                let now = found[*sector as usize * 512..][..512].to_vec();
                assert!(
                    versions.contains(&now),
                    "seed {seed}: sector {sector} is something else"
                );
                *versions = vec![now];
            }
            for _ in 0..random.within(1..12) {
                for _ in 0..random.within(1..6) {
                    let at = random.within(0..BUNDLE.len / 512 - 300);
                    let bytes = random.bytes(512 * random.clone().within(1..300) as usize);
                    bundle.write_at(at * 512, &bytes).unwrap();
                    for (n, sector) in (at..).zip(bytes.chunks(512)) {
                        sectors
                            .entry(n)
                            .or_insert_with(|| vec![vec![0; 512]])
                            .push(sector.to_vec());
                    }
                }
                if random.one_in(8) {
                    cut.remote.checkpoint(&|_| Ok(())).unwrap();
                }
                if !random.one_in(3) {
                    bundle.flush().unwrap();
                    sectors
                        .values_mut()
                        .for_each(|versions| drop(versions.drain(..versions.len() - 1)));
                }
            }
            cut.cut();
            disk = disk.crash(if random.one_in(3) {
                Keep::Nothing
            } else {
                Keep::Some(random.within(0..u64::MAX))
            });
            drop((bundle, cut));
        }
    }
}

/// Blocks referenced by the journal are not overwritten before it is replaced or removed.
#[test]
fn blocks_stay_as_long_as_the_journal_lists_them() {
    let objects = memory();
    // More than the cache holds.
    let other = Random::new(6).bytes(20 * MIB as usize);
    store(&writer(&objects).unwrap(), "bands/9", &other).unwrap();
    for (name, is_torn) in [("bands/0", false), ("bands/1", true)] {
        let (faults, folder) = (Faults::new(), folder());
        let faulty: Arc<dyn Store> = Arc::new(FaultyStore::new(folder.clone(), &faults));
        let remote = Remote::open(objects.clone(), &with_cache(&faulty, FlushTo::Local)).unwrap();
        store(&remote, name, &[1; 60_000]).unwrap();
        // The store gets it, and the obsolete journal remains.
        faults.break_all(Call::Remove, Fault::Io);
        if is_torn {
            let file = remote.open(name, Open::Write).unwrap().unwrap();
            file.write_at(0, &[2; 60_000]).unwrap();
            // The block is written before the record.
            faults.fail(Call::Write, 2, Fault::NoSpace);
            assert!(file.flush().is_err());
        } else {
            assert!(remote.checkpoint(&|_| Ok(())).is_err());
        }
        assert!(faults.happened() > u64::from(is_torn));
        assert!(load(&remote, "bands/9").unwrap() == other);
        drop(remote);
        let again = Remote::open(objects.clone(), &with_cache(&folder, FlushTo::Local)).unwrap();
        assert!(load(&again, name).unwrap() == [1; 60_000]);
    }
}

fn bytes_of(folder: &Arc<dyn Store>, name: &str) -> Vec<u8> {
    let file = folder.open(name, Open::Read).unwrap().unwrap();
    file.read_vec(0, file.info().len as usize).unwrap()
}

#[test]
fn damage_is_found() {
    let (objects, folder) = (memory(), folder());
    let local = with_cache(&folder, FlushTo::Local);
    let first = Cut::open(&objects, &local);
    first.cut();
    let mut ends = Vec::new();
    for n in 0..4_u8 {
        store(&first.remote, &format!("bands/{n}"), &[n + 1; 70_000]).unwrap();
        ends.push(bytes_of(&folder, "journal").len());
    }
    drop(first);
    let (journal, blocks) = (bytes_of(&folder, "journal"), bytes_of(&folder, "blocks"));
    let reading = RemoteOptions {
        access: Access::ReadOnly,
        ..local
    };
    let open = |journal: &[u8], blocks: &[u8]| -> Result<Arc<Remote>> {
        folder.put("journal", journal, Put::Replace).unwrap();
        folder.put("blocks", blocks, Put::Replace).unwrap();
        Remote::open(objects.clone(), &reading)
    };
    // Torn at the end: everything acknowledged before is used.
    for cut in (ends[2] + 1..ends[3]).step_by(7) {
        let seen = open(&journal[..cut], &blocks).unwrap();
        assert_eq!(load(&seen, "bands/2").unwrap(), [3; 70_000]);
        assert_eq!(load(&seen, "bands/3"), None);
    }
    // Corrupt before the end: refused, at any offset.
    for at in (0..ends[2]).step_by(11) {
        let mut damaged = journal.clone();
        damaged[at] ^= 0x10;
        let error = open(&damaged, &blocks).unwrap_err();
        assert!(
            error.kind() == Kind::Corrupt && error.to_string().contains("journal"),
            "byte {at}: {error}"
        );
    }
    let mut random = Random::new(8);
    for _ in 0..300 {
        let mut damaged = journal.clone();
        for _ in 0..random.within(1..5) {
            let at = random.within(0..damaged.len() as u64) as usize;
            damaged[at] = random.within(0..256) as u8;
        }
        damaged.truncate(random.within(0..2 * damaged.len() as u64) as usize);
        let _refused_or_read = open(&damaged, &blocks);
    }
    // A corrupt block is detected on reading, and not taken for zeros.
    let mut damaged = blocks.clone();
    damaged[5] ^= 1;
    let seen = open(&journal, &damaged).unwrap();
    let lost = (0..4).filter(|n| {
        let file = seen
            .open(&format!("bands/{n}"), Open::Read)
            .unwrap()
            .unwrap();
        file.read_vec(0, 70_000)
            .is_err_and(|error| error.to_string().contains("lost data written to"))
    });
    assert_eq!(lost.count(), 1);
    drop(seen);
    assert!(open(&journal, &blocks[..65536]).is_err());
}
