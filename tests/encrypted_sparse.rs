//! Sparse images and ASIF in an encrypted file, which has no holes, has arbitrary contents where it
//! grows, and a length that is durable only after a flush: conformance, random operations, power
//! failures.

use std::cell::RefCell;
use std::sync::Arc;

use bandsaw::container::asif::{self, Asif};
use bandsaw::container::sparseimage::{self, SparseImage, SparseImageOptions};
use bandsaw::crypt::{Device, KeyWrap, LockedHeader, Protection, Secret};
use bandsaw::device::{AfterDiscard, BlockDevice};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::{MemoryStore, Open, Store};
use bandsaw::testing::conformance::Devices;
use bandsaw::testing::fuzz::{SMALL_CHUNK, small_asif};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::power_cut::Survival;
use bandsaw::{Error, Result};
use proptest::prelude::*;

/// Protection with one iteration, since the passphrase is not tested here.
fn protection(block: u32) -> Protection {
    Protection {
        key_bits: 128,
        block,
        iterations: 1,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(Secret::new(b"key".to_vec())),
        certificates: Vec::new(),
    }
}

fn new_file(store: &dyn Store, block: u32) -> Result<Arc<dyn BlockDevice>> {
    let file = store.open("disk", Open::Create)?.expect("a new file");
    let device = Device::create(file, &protection(block))?;
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

/// Fails if a check finds damage.
fn no_damage<T>(check: impl FnOnce(&mut Problems) -> Result<T>) {
    let mut problems = Problems::default();
    drop(check(&mut problems).unwrap());
    assert_eq!(problems.count(Severity::Damage), 0, "{problems:?}");
}

type Shared = Arc<dyn BlockDevice>;

/// A container in an encrypted file: functions that create and open it.
struct Container {
    make: fn(Shared, u64) -> Result<Shared>,
    open: fn(Shared) -> Result<Shared>,
    unit: u64,
}

const BAND: u64 = 6144;

const BOTH: [Container; 2] = [
    Container {
        make: |file, len| {
            let image = SparseImage::create(
                file,
                &SparseImageOptions {
                    len,
                    band_size: Some(BAND),
                },
            )?;
            image.flush()?;
            Ok(Arc::new(image))
        },
        open: |file| {
            no_damage(|problems| sparseimage::check(&file, problems, &Silent));
            Ok(Arc::new(SparseImage::open(file)?))
        },
        unit: BAND,
    },
    Container {
        make: |file, len| {
            file.set_len(SMALL_CHUNK, AfterDiscard::Zeros)?;
            file.write_at(0, &small_asif(len))?;
            file.flush()?;
            Ok(Arc::new(Asif::open(file)?))
        },
        open: |file| {
            no_damage(|problems| asif::check(&file, problems, &Silent));
            Ok(Arc::new(Asif::open(file)?))
        },
        unit: SMALL_CHUNK,
    },
];

#[test]
fn they_are_devices() {
    for Container { make, open, unit } in BOTH {
        let last = RefCell::new(MemoryStore::default());
        let new = || {
            last.replace(MemoryStore::default());
            make(new_file(&*last.borrow(), 4096).unwrap(), 20 * unit + 512).unwrap()
        };
        Devices::new(new)
            .unit(unit)
            .reopen(|| open(old_file(&*last.borrow()).unwrap()).unwrap())
            .check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_work_beside_a_vector(seed: u64, count in 1..150_usize) {
        for Container { make, open, .. } in BOTH {
            let store = MemoryStore::default();
            let device = make(new_file(&store, 4096).unwrap(), 150 << 10).unwrap();
            Model::new(device).reopen(|| open(old_file(&store).unwrap()).unwrap()).run(&operations(seed, count, 20_000));
        }
    }
}

/// Tests with cipher blocks of one sector. If a disk tears a larger one, data beside the index
/// entry being written is lost: the format has no place to protect it.
#[test]
fn power_cuts_are_survived() {
    for Container { make, open, .. } in BOTH {
        for seed in 1..3 {
            let survival = Survival::new(
                |store| {
                    let device = make(new_file(store, 512)?, 60 << 10)?;
                    store.sync()?;
                    Ok(device)
                },
                |store| open(old_file(store)?),
            );
            let crashes = survival.steps(25).resize_by(40 << 10).check(seed);
            assert!(crashes > 100, "only {crashes} crashes");
        }
    }
}
