//! The suites for all devices on raw images and sparse bundles: conformance, random operations
//! compared with a model, power failures at every point, and each call failing once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bandsaw::container::raw::Raw;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::crypt::aea::fixture::ArchiveFixture;
use bandsaw::crypt::aea::{Archive, LockedArchive};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::store::{Local, LocalFile, MemoryStore, Open, Put, Store};
use bandsaw::testing::conformance::{self, Devices};
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyStore, at_every};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::power_cut::Survival;
use bandsaw::testing::{PowerCut, Random};
use bandsaw::{Kind, Result};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Returns the `Info.plist` of a bundle with bands of any size, as other software may create them.
fn plist(len: u64, band_size: u64, version: u32) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\"><dict>\
         <key>CFBundleInfoDictionaryVersion</key><string>6.0</string>\
         <key>band-size</key><integer>{band_size}</integer>\
         <key>bundle-backingstore-version</key><integer>{version}</integer>\
         <key>diskimage-bundle-type</key><string>com.apple.diskimage.sparsebundle</string>\
         <key>size</key><integer>{len}</integer></dict></plist>"
    )
}

fn describe(store: &dyn Store, len: u64, band_size: u64, version: u32) -> Result<()> {
    for name in ["Info.bckup", "Info.plist"] {
        store.put(
            name,
            plist(len, band_size, version).as_bytes(),
            Put::Replace,
        )?;
    }
    store.sync()
}

fn open(store: Arc<dyn Store>) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(Bundle::open(store, Access::ReadWrite)?))
}

/// A sequence of folders for bundles.
struct Folders {
    scratch: tempfile::TempDir,
    last: AtomicU64,
}

impl Folders {
    fn new() -> Self {
        Self {
            scratch: tempfile::tempdir().unwrap(),
            last: AtomicU64::new(0),
        }
    }

    fn next(&self) -> Arc<dyn Store> {
        self.last.fetch_add(1, Ordering::Relaxed);
        self.again()
    }

    fn again(&self) -> Arc<dyn Store> {
        Arc::new(Local::new(
            self.scratch
                .path()
                .join(self.last.load(Ordering::Relaxed).to_string()),
        ))
    }
}

#[test]
fn raw_images_conform() {
    let folders = Folders::new();
    let make = || -> Arc<dyn BlockDevice> {
        Arc::new(Raw::create(&*folders.next(), "disk", 4 * MIB).unwrap())
    };
    let again = || -> Arc<dyn BlockDevice> {
        Arc::new(Raw::new(
            folders.again().open("disk", Open::Write).unwrap().unwrap(),
        ))
    };
    Devices::new(make).reopen(again).unit(MIB).check();
    let path = folders.scratch.path().join("read-only");
    std::fs::write(&path, Random::new(1).bytes(1 << 20)).unwrap();
    conformance::read_only(Arc::new(Raw::new(Arc::new(
        LocalFile::open(&path, Open::Read).unwrap().unwrap(),
    ))));
}

#[test]
fn encrypted_archives_conform() {
    let fixture = ArchiveFixture::default();
    let bytes = fixture.of(&Random::new(4).bytes(300_000));
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let locked = LockedArchive::read(&*file).unwrap().unwrap();
    let archive = Archive::new(file, locked.unlock(&fixture.keys()).unwrap());
    conformance::read_only(Arc::new(archive));
}

#[test]
fn bundles_conform() {
    for (len, version) in [(12 * MIB + 512, 1), (12 * MIB, 2)] {
        let folders = Folders::new();
        let make = || {
            let store = folders.next();
            describe(&*store, len, MIB, version).unwrap();
            open(store).unwrap()
        };
        Devices::new(make)
            .reopen(|| open(folders.again()).unwrap())
            .unit(MIB)
            .check();
    }
}

#[test]
fn bundles_conform_with_any_bands() {
    for (len, band_size) in [
        (3 * MIB, 64 << 20),
        (512 << 10, 64 << 10),
        (256 << 10, 1536),
        (128 << 10, 512),
    ] {
        let last = std::cell::RefCell::new(MemoryStore::default());
        let make = || {
            let store = MemoryStore::default();
            last.replace(store.clone());
            describe(&store, len, band_size, 1).unwrap();
            open(Arc::new(store)).unwrap()
        };
        Devices::new(make)
            .reopen(|| open(Arc::new(last.borrow().clone())).unwrap())
            .unit(band_size)
            .check();
    }
}

#[test]
fn a_bundle_read_only_conforms() {
    let store = MemoryStore::default();
    let options = BundleOptions {
        len: 5 * MIB,
        band_size: Some(MIB),
    };
    let bundle = Bundle::create(Arc::new(store.clone()), &options).unwrap();
    bundle
        .write_at(MIB - 100, &Random::new(2).bytes(2 << 20))
        .unwrap();
    drop(bundle);
    conformance::read_only(Arc::new(
        Bundle::open(Arc::new(store), Access::ReadOnly).unwrap(),
    ));
}

#[test]
fn a_bundle_without_room_for_files_conforms() {
    // Only one band stays open at a time.
    let folders = Folders::new();
    let faults = Faults::new();
    let make = || {
        let store = folders.next();
        describe(&*store, 8 * MIB, 256 << 10, 1).unwrap();
        open(Arc::new(FaultyStore::new(store, &faults))).unwrap()
    };
    let device = make();
    device.write_at(0, &vec![1; 8 << 20]).unwrap();
    // The open fails once for lack of file descriptors: bands are closed and it is retried.
    device.flush().unwrap();
    drop(device);
    let device = open(Arc::new(FaultyStore::new(folders.again(), &faults))).unwrap();
    device.read_vec(0, 1 << 20).unwrap();
    for n in 1..4 {
        faults.fail(Call::Open, n, Fault::TooManyFiles);
    }
    assert!(device.read_vec(0, 8 << 20).unwrap() == vec![1; 8 << 20]);
    assert_eq!(faults.happened(), 3);
    faults.break_all(Call::Open, Fault::TooManyFiles);
    let device = open(Arc::new(FaultyStore::new(folders.again(), &Faults::new()))).err();
    assert_eq!(device.unwrap().kind(), Kind::Conflict, "still open");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_bundle_is_a_plain_disk(
        seed: u64,
        count in 1usize..60,
        sectors in 1u64..800,
        band_sectors in 1u64..300,
        version in 1u32..3,
    ) {
        let store = MemoryStore::default();
        describe(&store, sectors * 512, band_sectors * 512, version).unwrap();
        let again = || open(Arc::new(store.clone())).unwrap();
        Model::new(again()).reopen(again).run(&operations(seed, count, 40_000));
    }

    #[test]
    fn a_raw_image_is_a_plain_disk(seed: u64, count in 1usize..60, sectors in 1u64..800) {
        let store = MemoryStore::default();
        Raw::create(&store, "disk", sectors * 512).unwrap();
        let again = || -> Arc<dyn BlockDevice> { Arc::new(Raw::new(store.open("disk", Open::Write).unwrap().unwrap())) };
        Model::new(again()).reopen(again).run(&operations(seed, count, 40_000));
    }

    #[test]
    fn a_map_hides_nothing_that_was_written(seed: u64, count in 1usize..40, map in proptest::collection::vec(0u8..4, 4)) {
        // A version 2 bundle whose band has a map: bytes of zeros hide data, others do not.
        let store = MemoryStore::default();
        let band_size = 4 * 8 * 4096;
        describe(&store, 2 * band_size + 512, band_size, 2).unwrap();
        store.put("bands/0", &Random::new(seed).bytes(100_000), Put::Replace).unwrap();
        store.put("mapped/0", &map, Put::Replace).unwrap();
        let again = || open(Arc::new(store.clone())).unwrap();
        let visible = again().read_vec(0, band_size as usize).unwrap();
        for (number, byte) in map.iter().enumerate() {
            let part = &visible[number * 32768..(number + 1) * 32768];
            prop_assert!(*byte != 0 || part.iter().all(|byte| *byte == 0));
        }
        Model::new(again()).reopen(again).run(&operations(seed, count, 40_000));
    }
}

#[test]
fn raw_images_survive_power_cuts() {
    let make = |store: &PowerCut| -> Result<Arc<dyn BlockDevice>> {
        let raw = Raw::create(store, "disk", 60_416)?;
        raw.flush()?;
        store.sync()?;
        Ok(Arc::new(raw))
    };
    let again = |store: &PowerCut| -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(Raw::new(
            store
                .open("disk", Open::Write)?
                .ok_or_else(|| bandsaw::Error::not_found("test", "disk"))?,
        )))
    };
    let survival = Survival::new(make, again).steps(30).crashes(2);
    let crashes: usize = (0..6).map(|seed| survival.check(seed)).sum();
    assert!(crashes > 500, "{crashes}");
}

/// Tests bundles with small bands on a store with power failures.
fn survive(len: u64, band_size: u64, version: u32, resize_by: u64, seeds: std::ops::Range<u64>) {
    let make = |store: &PowerCut| {
        describe(store, len, band_size, version)?;
        if version == 2 {
            // As macOS leaves it: a band with data, of which the map hides a part.
            let band = store.open("bands/0", Open::Create)?.expect("a new band");
            band.set_len(band_size.min(len), AfterDiscard::Zeros)?;
            band.write_at(0, &Random::new(9).bytes(band_size.min(len) as usize))?;
            band.flush()?;
            let map: Vec<u8> = (0..band_size.div_ceil(8 * 4096))
                .map(|number| if number % 2 == 0 { 0 } else { 0xff })
                .collect();
            store.put("mapped/0", &map, Put::Replace)?;
            store.put("mapped/1", &map, Put::Replace)?;
            store.sync()?;
        }
        // With its lock files, which are created once.
        let bundle = open(Arc::new(store.clone()))?;
        store.sync()?;
        Ok(bundle)
    };
    let again = |store: &PowerCut| open(Arc::new(store.clone()));
    let survival = Survival::new(make, again)
        .steps(30)
        .crashes(2)
        .resize_by(resize_by);
    let crashes: usize = seeds.map(|seed| survival.check(seed)).sum();
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn bundles_survive_power_cuts() {
    survive(60_416, 8192, 1, 0, 0..6);
    survive(100_352, 65_536, 1, 0, 10..13);
}

#[test]
fn bundles_survive_power_cuts_while_they_are_resized() {
    survive(60_416, 8192, 1, 20_000, 20..26);
    survive(100_352, 1 << 20, 1, 60_000, 30..33);
}

#[test]
fn bundles_of_version_2_survive_power_cuts() {
    survive(150_016, 65_536, 2, 0, 40..44);
    survive(150_016, 65_536, 2, 80_000, 50..54);
}

#[test]
fn a_new_bundle_is_whole_or_none() {
    let cut = PowerCut::default();
    let options = BundleOptions {
        len: 3 * MIB,
        band_size: None,
    };
    drop(Bundle::create(Arc::new(cut.clone()), &options).unwrap());
    for crash in cut.crashes(1, 8) {
        match Bundle::open(Arc::new(crash.store.clone()), Access::ReadWrite) {
            Ok(bundle) => assert_eq!(bundle.read_vec(0, 3 << 20).unwrap(), vec![0; 3 << 20]),
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{error}");
                assert!(
                    crash.position < cut.crashes(1, 0).map(|last| last.position).max().unwrap(),
                    "durable at the end"
                );
            }
        }
    }
}

/// Runs random operations on a bundle until the first error; `held` is its contents before that.
fn work(device: &dyn BlockDevice, seed: u64, held: &mut Vec<u8>) -> Result<()> {
    let mut random = Random::new(seed);
    for _ in 0..30 {
        *held = device.read_vec(0, device.info().len as usize)?;
        let start = random.within(0..held.len() as u64 - 3000);
        match random.within(0..8) {
            0 => device.discard(start..start + 3000, AfterDiscard::Zeros)?,
            1 => device.flush()?,
            2 => {
                let first = start / 8192 * 8192;
                device.discard(
                    first..(first + 8192).min(held.len() as u64),
                    AfterDiscard::Zeros,
                )?;
            }
            _ => device.write_at(start, &random.bytes(3000))?,
        }
    }
    device.flush()
}

#[test]
fn a_call_that_fails_spoils_nothing() {
    for version in [1, 2] {
        for call in [
            Call::Open,
            Call::SetLen,
            Call::Write,
            Call::Discard,
            Call::Remove,
        ] {
            at_every(call, Fault::NoSpace, |faults, n| {
                fail_once(faults, version, &format!("version {version}, {call:?} {n}"))
            });
        }
    }
}

/// A temporarily full disk: everything except the failed request is stored, and later requests
/// succeed.
fn fail_once(faults: &Arc<Faults>, version: u32, place: &str) {
    let store = MemoryStore::default();
    describe(&store, 60_416, 8192, version).unwrap();
    if version == 2 {
        for band in 0..8 {
            store
                .put(&format!("bands/{band}"), &[band; 5000], Put::Replace)
                .unwrap();
            store
                .put(&format!("mapped/{band}"), &[band % 2], Put::Replace)
                .unwrap();
        }
    }
    let mut held = open(Arc::new(store.clone()))
        .unwrap()
        .read_vec(0, 60_416)
        .unwrap();
    let device = Bundle::open(
        Arc::new(FaultyStore::new(Arc::new(store.clone()), faults)),
        Access::ReadWrite,
    );
    let Ok(device) = device else { return };
    let done = work(&device, 5, &mut held);
    assert!(done.is_ok() || faults.happened() > 0, "{place}: {done:?}");
    faults.clear();
    let now = device.read_vec(0, held.len()).unwrap();
    let differ = held
        .iter()
        .zip(&now)
        .filter(|(before, now)| before != now)
        .count();
    assert!(
        differ <= 8192,
        "{place}: {differ} bytes differ after {done:?}"
    );
    device
        .write_at(100, b"on")
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    device
        .flush()
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    drop(device);
    let again = open(Arc::new(store)).unwrap();
    assert_eq!(again.read_vec(100, 2).unwrap(), b"on", "{place}");
    assert!(
        again.read_vec(200, held.len() - 200).unwrap()[..] == now[200..],
        "{place}: {done:?}"
    );
}

#[test]
fn after_a_lost_flush_only_reads_go_on() {
    for call in [Call::Flush, Call::Sync] {
        let faults = Faults::new();
        let store = MemoryStore::default();
        describe(&store, 60_416, 8192, 1).unwrap();
        let device = Bundle::open(
            Arc::new(FaultyStore::new(Arc::new(store), &faults)),
            Access::ReadWrite,
        )
        .unwrap();
        device.write_at(0, &[1; 20_000]).unwrap();
        faults.fail(call, 1, Fault::Io);
        assert_eq!(device.flush().unwrap_err().kind(), Kind::Io);
        assert_eq!(device.read_vec(0, 20_000).unwrap(), [1; 20_000]);
        for refused in [
            device.write_at(0, &[2]),
            device.discard(0..8192, AfterDiscard::Zeros),
            device.flush(),
            device.set_len(60_416 - 512, AfterDiscard::Zeros),
        ] {
            assert!(
                refused
                    .unwrap_err()
                    .message()
                    .contains("open the image again"),
                "{call:?}"
            );
        }
    }
}

#[test]
fn a_resize_that_fails_leaves_the_old_disk_or_the_new() {
    for call in [
        Call::Put,
        Call::Sync,
        Call::Remove,
        Call::SetLen,
        Call::List,
        Call::Flush,
    ] {
        for len in [120_832, 20_480] {
            at_every(call, Fault::Io, |faults, n| {
                let store = MemoryStore::default();
                describe(&store, 60_416, 8192, 1).unwrap();
                let device = Bundle::open(
                    Arc::new(FaultyStore::new(Arc::new(store.clone()), faults)),
                    Access::ReadWrite,
                );
                let Ok(device) = device else { return };
                if device
                    .write_at(0, &[7; 60_416])
                    .and_then(|()| device.flush())
                    .is_err()
                {
                    return;
                }
                let done = device.set_len(len, AfterDiscard::Zeros);
                drop(device);
                let again = open(Arc::new(store)).unwrap();
                let now = again.info().len;
                assert!(
                    now == len || (done.is_err() && now == 60_416),
                    "{call:?} {n}: {now} after {done:?}"
                );
                let kept = now.min(60_416) as usize;
                assert_eq!(
                    again.read_vec(0, kept).unwrap(),
                    vec![7; kept],
                    "{call:?} {n}"
                );
                // Data that a failed request left after the end does not reappear on growth.
                again.set_len(200_704, AfterDiscard::Zeros).unwrap();
                assert!(
                    again
                        .read_vec(now, 200_704 - now as usize)
                        .unwrap()
                        .iter()
                        .all(|byte| *byte == 0),
                    "{call:?} {n}"
                );
            });
        }
    }
}
