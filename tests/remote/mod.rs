//! Bundles on an object store: the conformance suites, racing writers, lost and delayed requests.

mod adversity;
mod background;
mod cache;
mod checkpoints;
mod drafts;
mod plain;
mod through;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use bandsaw::Result;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{MemoryObjects, Objects, Open, Put, Remote, RemoteOptions, Store};
use bandsaw::testing::Random;
use bandsaw::testing::conformance::{self, Devices, Stores};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::object_faults::{FaultyObjects, Request};

const MIB: u64 = 1 << 20;

fn options(access: Access) -> RemoteOptions {
    RemoteOptions {
        access,
        part: 64 << 10,
        memory: 8 * MIB,
        expiry: Duration::from_millis(200),
        grace: Duration::ZERO,
        ..RemoteOptions::default()
    }
}

fn writer(objects: &Arc<dyn Objects>) -> Result<Arc<Remote>> {
    Remote::open(objects.clone(), &options(Access::ReadWrite))
}

fn thief(objects: &Arc<dyn Objects>) -> Result<Arc<Remote>> {
    Remote::open(
        objects.clone(),
        &RemoteOptions {
            steal: true,
            ..options(Access::ReadWrite)
        },
    )
}

fn reader(objects: &Arc<dyn Objects>) -> Result<Arc<Remote>> {
    Remote::open(objects.clone(), &options(Access::ReadOnly))
}

fn memory() -> Arc<dyn Objects> {
    Arc::new(MemoryObjects::default())
}

/// Objects created by one closure and reopened by another.
#[derive(Default)]
struct Last(bandsaw::sync::Mutex<Option<Arc<dyn Objects>>>);

impl Last {
    fn next(&self) -> Arc<dyn Objects> {
        self.0.lock().insert(memory()).clone()
    }

    fn last(&self) -> Arc<dyn Objects> {
        self.0.lock().clone().unwrap()
    }
}

#[test]
fn it_is_a_store() {
    let last = Last::default();
    Stores::new(|| writer(&last.next()).unwrap())
        .reopen(|| thief(&last.last()).unwrap())
        .check();
}

#[test]
fn a_store_with_little_memory_and_large_objects() {
    let open = |objects: Arc<dyn Objects>, steal| {
        let options = RemoteOptions {
            part: 256 << 10,
            memory: 0,
            steal,
            ..options(Access::ReadWrite)
        };
        Remote::open(objects, &options).unwrap()
    };
    let last = Last::default();
    Stores::new(|| open(last.next(), false))
        .reopen(|| open(last.last(), true))
        .check();
}

const BUNDLE: BundleOptions = BundleOptions {
    len: 5 * MIB + 512,
    band_size: Some(MIB),
};

#[test]
fn a_bundle_is_a_device_and_does_what_a_vector_does() {
    let last = Last::default();
    let make = || -> Arc<dyn BlockDevice> {
        Arc::new(Bundle::create(writer(&last.next()).unwrap(), &BUNDLE).unwrap())
    };
    let again = || -> Arc<dyn BlockDevice> {
        Arc::new(Bundle::open(thief(&last.last()).unwrap(), Access::ReadWrite).unwrap())
    };
    Devices::new(make).reopen(again).unit(MIB).check();
    for seed in 0..2 {
        let small = BundleOptions {
            len: 2 * MIB + 512,
            ..BUNDLE
        };
        let device = Arc::new(Bundle::create(writer(&last.next()).unwrap(), &small).unwrap());
        Model::new(device)
            .reopen(again)
            .run(&operations(seed, 120, 400_000));
    }
    drop(again());
    conformance::read_only(Arc::new(
        Bundle::open(reader(&last.last()).unwrap(), Access::ReadOnly).unwrap(),
    ));
}

#[test]
fn a_flush_of_many_bands_is_one_commit() {
    let objects = FaultyObjects::new(memory());
    let shared: Arc<dyn Objects> = objects.clone();
    let quiet = RemoteOptions {
        expiry: Duration::from_secs(3600),
        ..options(Access::ReadWrite)
    };
    let bundle = Bundle::create(Remote::open(shared.clone(), &quiet).unwrap(), &BUNDLE).unwrap();
    let bytes = Random::new(1).bytes(2 * MIB as usize);
    bundle.write_at(MIB / 2, &bytes).unwrap();
    bundle.flush().unwrap();
    bundle.write_at(MIB, &bytes).unwrap();
    let entries = || count(&shared, ".bandsaw/log/");
    let (before, puts) = (entries(), objects.count(Request::Put));
    bundle.flush().unwrap();
    assert_eq!(entries() - before, 1);
    assert_eq!(
        objects.count(Request::Put) - puts,
        2 * 16 + 1,
        "parts of 64 KiB, and the entry"
    );
    let read = reader(&shared).unwrap();
    let seen = Bundle::open(read, Access::ReadOnly).unwrap();
    assert_eq!(seen.read_vec(MIB, bytes.len()).unwrap(), bytes);
}

fn count(objects: &Arc<dyn Objects>, prefix: &str) -> usize {
    let mut count = 0;
    objects
        .list(prefix, &mut |_, _| {
            count += 1;
            Ok(())
        })
        .unwrap();
    count
}

/// Writes `value` to a file and makes it durable.
fn store(remote: &Remote, name: &str, value: &[u8]) -> Result<()> {
    remote.put(name, value, Put::Replace)?;
    remote.sync()
}

fn load(remote: &Remote, name: &str) -> Option<Vec<u8>> {
    let file = remote.open(name, Open::Read).unwrap()?;
    Some(file.read_vec(0, file.info().len as usize).unwrap())
}
