//! The suites for all devices on encrypted files and encrypted bundles, and tests specific to them:
//! whole cipher blocks are written without being read, and partial writes modify only their own
//! block.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bandsaw::container::sparsebundle::{self, Bundle, BundleOptions};
use bandsaw::crypt::{Device, KeyWrap, LockedHeader, Protection, Secret};
use bandsaw::device::{
    Access, AfterDiscard, BlockDevice, BlockDeviceExt, Extent, FileRange, Info, Memory,
};
use bandsaw::store::{Local, MemoryStore, Open, Put, Store};
use bandsaw::sync::Mutex;
use bandsaw::testing::conformance::{self, Devices};
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyStore, at_every};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::power_cut::Survival;
use bandsaw::testing::{PowerCut, Random};
use bandsaw::{Error, Kind, Result};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Protection with the minimum of iterations, since the passphrase is not tested here.
fn protection(key_bits: u32, block: u32) -> Protection {
    Protection {
        key_bits,
        block,
        iterations: 1,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(Secret::new(b"key".to_vec())),
        certificates: Vec::new(),
    }
}

fn new_file(store: &dyn Store, len: u64, block: u32) -> Result<Arc<dyn BlockDevice>> {
    let file = store.open("disk", Open::Create)?.expect("a new file");
    let device = Device::create(file, &protection(256, block))?;
    device.set_len(len, AfterDiscard::Zeros)?;
    device.flush()?;
    store.sync()?;
    Ok(Arc::new(device))
}

fn old_file(store: &dyn Store) -> Result<Arc<dyn BlockDevice>> {
    let file = store
        .open("disk", Open::Write)?
        .ok_or_else(|| Error::not_found("test", "disk"))?;
    let locked = LockedHeader::read(&*file)?.expect("an encrypted image");
    let keys = locked.unlock(b"key")?;
    Ok(Arc::new(Device::new(file, locked, &keys)?))
}

/// Creates a bundle with bands of any size, as other software may: the property lists are written
/// after the token.
fn new_bundle(
    store: Arc<dyn Store>,
    len: u64,
    band_size: u64,
    block: u32,
    version: u32,
) -> Result<Arc<dyn BlockDevice>> {
    let options = BundleOptions {
        len: MIB,
        band_size: Some(MIB),
    };
    drop(Bundle::create_encrypted(
        store.clone(),
        &options,
        &protection(128, block),
    )?);
    let list = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\"><dict>\
         <key>CFBundleInfoDictionaryVersion</key><string>6.0</string>\
         <key>band-size</key><integer>{band_size}</integer>\
         <key>bundle-backingstore-version</key><integer>{version}</integer>\
         <key>diskimage-bundle-type</key><string>com.apple.diskimage.sparsebundle</string>\
         <key>size</key><integer>{len}</integer></dict></plist>"
    );
    for name in ["Info.bckup", "Info.plist"] {
        store.put(name, list.as_bytes(), Put::Replace)?;
    }
    store.sync()?;
    old_bundle(store)
}

fn old_bundle(store: Arc<dyn Store>) -> Result<Arc<dyn BlockDevice>> {
    let locked = sparsebundle::encryption(&*store)?.expect("an encrypted bundle");
    let keys = locked.unlock(b"key")?;
    Ok(Arc::new(Bundle::open_encrypted(
        store,
        Access::ReadWrite,
        &locked,
        &keys,
    )?))
}

#[test]
fn encrypted_files_conform() {
    for (len, block) in [(4 * MIB, 512), (MIB + 512, 4096)] {
        let last = RefCell::new(MemoryStore::default());
        let make = || {
            last.replace(MemoryStore::default());
            new_file(&*last.borrow(), len, block).unwrap()
        };
        Devices::new(make)
            .reopen(|| old_file(&*last.borrow()).unwrap())
            .check();
    }
    let store = MemoryStore::default();
    new_file(&store, 300_000, 4096)
        .unwrap()
        .write_at(0, &Random::new(1).bytes(300_000))
        .unwrap();
    let file = store.open("disk", Open::Read).unwrap().unwrap();
    let locked = LockedHeader::read(&*file).unwrap().unwrap();
    let keys = locked.unlock(b"key").unwrap();
    conformance::read_only(Arc::new(Device::new(file, locked, &keys).unwrap()));
}

#[test]
fn encrypted_bundles_conform() {
    for (len, band_size, block, version) in [
        (12 * MIB + 512, MIB, 512, 1),
        (6 * MIB + 512, MIB, 4096, 1),
        (6 * MIB, MIB, 4096, 2),
        (256 << 10, 1536, 512, 1),
    ] {
        let last = RefCell::new(MemoryStore::default());
        let make = || {
            last.replace(MemoryStore::default());
            new_bundle(
                Arc::new(last.borrow().clone()),
                len,
                band_size,
                block,
                version,
            )
            .unwrap()
        };
        let again = || old_bundle(Arc::new(last.borrow().clone())).unwrap();
        Devices::new(make).reopen(again).unit(band_size).check();
    }
}

#[test]
fn an_encrypted_bundle_in_a_folder_conforms() {
    let (scratch, last) = (tempfile::tempdir().unwrap(), AtomicU64::new(0));
    let folder = || {
        Arc::new(Local::new(
            scratch
                .path()
                .join(last.load(Ordering::Relaxed).to_string()),
        ))
    };
    let make = || {
        last.fetch_add(1, Ordering::Relaxed);
        new_bundle(folder(), 5 * MIB, MIB, 512, 1).unwrap()
    };
    Devices::new(make)
        .reopen(|| old_bundle(folder()).unwrap())
        .unit(MIB)
        .check();
}

#[test]
fn an_encrypted_bundle_read_only_conforms() {
    let store = MemoryStore::default();
    let bundle = new_bundle(Arc::new(store.clone()), 5 * MIB, MIB, 512, 1).unwrap();
    bundle
        .write_at(MIB - 100, &Random::new(2).bytes(2 << 20))
        .unwrap();
    drop(bundle);
    let locked = sparsebundle::encryption(&store).unwrap().unwrap();
    let keys = locked.unlock(b"key").unwrap();
    conformance::read_only(Arc::new(
        Bundle::open_encrypted(Arc::new(store), Access::ReadOnly, &locked, &keys).unwrap(),
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_encrypted_file_is_a_plain_disk(seed: u64, count in 1usize..60, sectors in 1u64..800, large: bool) {
        let store = MemoryStore::default();
        let device = new_file(&store, sectors * 512, if large { 4096 } else { 512 }).unwrap();
        Model::new(device).reopen(|| old_file(&store).unwrap()).run(&operations(seed, count, 40_000));
    }

    #[test]
    fn an_encrypted_bundle_is_a_plain_disk(
        seed: u64,
        count in 1usize..60,
        sectors in 1u64..800,
        band_blocks in 1u64..60,
        large: bool,
        version in 1u32..3,
    ) {
        let block = if large { 4096 } else { 512 };
        let store = MemoryStore::default();
        let band_size = band_blocks * u64::from(block);
        let device = new_bundle(Arc::new(store.clone()), sectors * 512, band_size, block, version).unwrap();
        Model::new(device).reopen(|| old_bundle(Arc::new(store.clone())).unwrap()).run(&operations(seed, count, 40_000));
    }
}

// Sectors survive a power failure as a whole, so the blocks here are sectors; larger ones can be
// torn on disks with such sectors.

#[test]
fn encrypted_files_survive_power_cuts() {
    for (resize_by, seeds) in [(0, 0..4), (20_000, 10..14)] {
        let survival = Survival::new(|cut| new_file(cut, 30_208, 512), |cut| old_file(cut));
        let survival = survival.steps(30).crashes(2).resize_by(resize_by);
        let crashes: usize = seeds.map(|seed| survival.check(seed)).sum();
        assert!(crashes > 200, "{crashes}");
    }
}

#[test]
fn encrypted_bundles_survive_power_cuts() {
    for (len, band_size, version, resize_by, seeds) in [
        (30_208, 8192, 1, 0, 0..4),
        (60_416, 32_768, 1, 0, 10..12),
        (30_208, 8192, 1, 20_000, 20..24),
        (60_416, 32_768, 2, 20_000, 30..32),
    ] {
        let make = |cut: &PowerCut| new_bundle(Arc::new(cut.clone()), len, band_size, 512, version);
        let survival = Survival::new(make, |cut| old_bundle(Arc::new(cut.clone())));
        let survival = survival.steps(30).crashes(2).resize_by(resize_by);
        let crashes: usize = seeds.map(|seed| survival.check(seed)).sum();
        assert!(crashes > 100, "{crashes}");
    }
}

#[test]
fn a_new_encrypted_bundle_is_whole_or_none() {
    let cut = PowerCut::default();
    let options = BundleOptions {
        len: 3 * MIB,
        band_size: None,
    };
    drop(Bundle::create_encrypted(Arc::new(cut.clone()), &options, &protection(256, 512)).unwrap());
    let (mut whole, mut none) = (0, 0);
    for crash in cut.crashes(1, 8) {
        let store: Arc<dyn Store> = Arc::new(crash.store);
        if !sparsebundle::is_bundle(&*store).unwrap() {
            none += 1;
            continue;
        }
        assert_eq!(
            old_bundle(store).unwrap().read_vec(0, 3 << 20).unwrap(),
            vec![0; 3 << 20]
        );
        whole += 1;
    }
    assert!(whole > 0 && none > 0);
}

/// A temporarily full disk: everything except the failed request is stored, and later requests
/// succeed.
#[test]
fn a_call_that_fails_spoils_nothing() {
    for call in [
        Call::Open,
        Call::SetLen,
        Call::Write,
        Call::Discard,
        Call::Remove,
    ] {
        at_every(call, Fault::NoSpace, |faults, n| {
            fail_once(faults, &format!("{call:?} {n}"))
        });
    }
}

fn fail_once(faults: &Arc<Faults>, place: &str) {
    let store = MemoryStore::default();
    drop(new_bundle(Arc::new(store.clone()), 60_416, 8192, 512, 1).unwrap());
    let Ok(device) = old_bundle(Arc::new(FaultyStore::new(Arc::new(store.clone()), faults))) else {
        return;
    };
    let (mut held, mut random) = (vec![0; 60_416], Random::new(5));
    let done = (0..30).try_for_each(|_| {
        held = device.read_vec(0, 60_416)?;
        let start = random.within(0..57_000);
        match random.within(0..8) {
            0 => device.discard(start..start + 3000, AfterDiscard::Zeros),
            1 => device.flush(),
            2 => device.discard(
                start / 8192 * 8192..(start / 8192 * 8192 + 8192).min(60_416),
                AfterDiscard::Zeros,
            ),
            _ => device.write_at(start, &random.bytes(3000)),
        }
    });
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
        .and_then(|()| device.flush())
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    drop(device);
    let again = old_bundle(Arc::new(store)).unwrap();
    assert_eq!(again.read_vec(100, 2).unwrap(), b"on", "{place}");
    assert!(
        again.read_vec(200, held.len() - 200).unwrap()[..] == now[200..],
        "{place}: {done:?}"
    );
}

/// Returns a list with one range.
fn only(range: Range<u64>) -> Vec<Range<u64>> {
    [range].to_vec()
}

/// Memory that logs reads and writes.
#[derive(Debug)]
struct Listed {
    inner: Memory,
    reads: Mutex<Vec<Range<u64>>>,
    writes: Mutex<Vec<Range<u64>>>,
}

impl Listed {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: Memory::zeros(0),
            reads: Mutex::default(),
            writes: Mutex::default(),
        })
    }

    /// Returns the reads and writes since the last call, from byte `from` on.
    fn drain(&self, from: u64) -> [Vec<Range<u64>>; 2] {
        [&self.reads, &self.writes].map(|list| {
            let mut ranges: Vec<_> = list
                .lock()
                .drain(..)
                .map(|range| range.start - from..range.end - from)
                .collect();
            ranges.sort_by_key(|range| range.start);
            ranges
        })
    }
}

impl BlockDevice for Listed {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.lock().push(offset..offset + buf.len() as u64);
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.writes.lock().push(offset..offset + buf.len() as u64);
        self.inner.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.inner.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.inner.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.inner.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.inner.file_range(range)
    }
}

#[test]
fn whole_blocks_are_written_unread_and_parts_touch_their_block_alone() {
    let file = Listed::new();
    let device = Device::create(file.clone(), &protection(128, 4096)).unwrap();
    device.set_len(8 * MIB, AfterDiscard::Any).unwrap();
    let start = file.info().len - 8 * MIB;
    file.reads.lock().clear();
    file.writes.lock().clear();

    device.write_at(8192, &vec![1; 16384]).unwrap();
    assert_eq!(file.drain(start), [Vec::new(), only(8192..24576)]);
    device.write_at(4 * MIB, &vec![1; 3 << 20]).unwrap();
    let [reads, writes] = file.drain(start);
    assert!(reads.is_empty(), "{reads:?}");
    assert_eq!(
        (writes[0].start, writes.last().unwrap().end),
        (4 * MIB, 7 * MIB)
    );
    assert!(
        writes.windows(2).all(|pair| pair[0].end == pair[1].start),
        "{writes:?}"
    );

    device.write_at(20_000, &[2; 100]).unwrap();
    assert_eq!(file.drain(start), [only(16384..20480), only(16384..20480)]);
    device.write_at(8000, &[2; 8000]).unwrap();
    let touched = vec![4096..8192, 12288..16384];
    assert_eq!(
        file.drain(start),
        [touched, vec![4096..8192, 8192..12288, 12288..16384]]
    );
    device.discard(0..MIB, AfterDiscard::Zeros).unwrap();
    let [reads, writes] = file.drain(start);
    assert!(
        reads.is_empty() && writes[0].start == 0 && writes.last().unwrap().end == MIB,
        "{reads:?} {writes:?}"
    );
}

#[test]
fn large_requests_are_the_same_as_small_ones() {
    for block in [512, 4096] {
        let store = MemoryStore::default();
        let device = new_file(&store, 5 * MIB, block).unwrap();
        let bytes = Random::new(7).bytes(5 << 20);
        device.write_at(0, &bytes).unwrap();
        for at in (0..5 * MIB as usize).step_by(40_000) {
            let part = &bytes[at..(at + 40_000).min(bytes.len())];
            assert!(device.read_vec(at as u64, part.len()).unwrap() == part);
        }
        for at in (0..5 * MIB as usize).step_by(70_000) {
            device
                .write_at(at as u64, &bytes[at..(at + 70_000).min(bytes.len())])
                .unwrap();
        }
        assert!(device.read_vec(100, bytes.len() - 200).unwrap() == bytes[100..bytes.len() - 100]);
    }
}

#[test]
fn a_file_of_512_byte_blocks_ends_at_2_tib() {
    // A file of 2 TiB to which nothing is written.
    let folder = tempfile::tempdir().unwrap();
    let store = Local::new(folder.path());
    let device = new_file(&store, 512, 512).unwrap();
    device.set_len(2 << 40, AfterDiscard::Any).unwrap();
    device.write_at((2 << 40) - 512, &[1; 512]).unwrap();
    assert_eq!(device.read_vec((2 << 40) - 1, 1).unwrap(), [1]);
    let error = device
        .set_len((2 << 40) + 512, AfterDiscard::Any)
        .unwrap_err();
    assert!(
        error.kind() == Kind::Limit && error.message().contains("convert"),
        "{error}"
    );
    assert_eq!(device.info().len, 2 << 40);
}
