//! Failing calls below a container: the caller gets an error, and the image is unchanged.

use std::ops::Range;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::container::raw::Raw;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::store::{MemoryStore, Open, Store};
use bandsaw::testing::Random;
use bandsaw::testing::faults::{Call, Fault, Faults, FaultyStore, at_every};

const BAND: u64 = 1 << 20;
const LEN: u64 = 2 * BAND + 100 * 512;

/// A kind of image, with functions that create and open it in a store.
#[derive(Clone, Copy)]
struct Image {
    create: Make,
    open: Make,
}

type Make = fn(&Arc<dyn Store>) -> bandsaw::Result<Arc<dyn BlockDevice>>;

const RAW: Image = Image {
    create: |store| Ok(Arc::new(Raw::create(&**store, "disk", LEN)?)),
    open: |store| {
        Ok(Arc::new(Raw::new(
            store.open("disk", Open::Write)?.expect("the disk"),
        )))
    },
};

const BUNDLE: Image = Image {
    create: |store| {
        Ok(Arc::new(Bundle::create(
            store.clone(),
            &BundleOptions {
                len: LEN,
                band_size: Some(BAND),
            },
        )?))
    },
    open: |store| Ok(Arc::new(Bundle::open(store.clone(), Access::ReadWrite)?)),
};

/// A change of an image.
#[derive(Debug, Clone)]
enum Step {
    Write(Range<u64>),
    Discard(Range<u64>),
    Flush,
    SetLen(u64),
}

/// Returns steps that allocate, fill, free, truncate and grow bands.
fn steps() -> Vec<Step> {
    vec![
        Step::Write(1000..9000),
        Step::Write(BAND - 3000..BAND + 3000),
        Step::Flush,
        Step::Discard(0..BAND),
        Step::Write(2 * BAND..LEN),
        Step::Discard(BAND + 1000..BAND + 20_000),
        Step::Flush,
        Step::SetLen(LEN + BAND),
        Step::Write(LEN + BAND - 700..LEN + BAND),
        Step::SetLen(BAND + 512),
        Step::Write(BAND..BAND + 512),
        Step::SetLen(LEN),
        Step::Flush,
    ]
}

fn apply(device: &dyn BlockDevice, step: &Step, bytes: &[u8]) -> bandsaw::Result<()> {
    match step {
        Step::Write(range) => device.write_at(range.start, bytes),
        Step::Discard(range) => device.discard(range.clone(), AfterDiscard::Zeros),
        Step::Flush => device.flush(),
        Step::SetLen(len) => device.set_len(*len, AfterDiscard::Zeros),
    }
}

fn expect(model: &mut Vec<u8>, step: &Step, bytes: &[u8]) {
    match step {
        Step::Write(range) => {
            model[range.start as usize..range.end as usize].copy_from_slice(bytes)
        }
        Step::Discard(range) => model[range.start as usize..range.end as usize].fill(0),
        Step::Flush => {}
        Step::SetLen(len) => model.resize(*len as usize, 0),
    }
}

/// Checks that each byte is as before the step that failed, or as after it.
fn check(device: &dyn BlockDevice, before: &[u8], after: &[u8], place: &str) {
    let len = device.info().len as usize;
    assert!(
        len == before.len() || len == after.len(),
        "{place}: the length is {len}"
    );
    let found = device
        .read_vec(0, len)
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    let known = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
    for (start, piece) in (0..).step_by(4096).zip(found.chunks(4096)) {
        let whole = start..start + piece.len();
        if before.get(whole.clone()) == Some(piece) || after.get(whole) == Some(piece) {
            continue; // most pieces, and told in one step
        }
        for (at, byte) in (start..).zip(piece) {
            let known = [known(before, at), known(after, at)];
            assert!(
                known.contains(byte),
                "{place}: byte {at} is {byte}, neither as before nor as after {known:?}"
            );
        }
    }
}

/// Runs the steps until one fails.
fn run(image: Image, call: Call, fault: Fault, faults: &Arc<Faults>, n: u64) {
    let place = format!("{fault:?} at {call:?} number {n}");
    let below: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let device = (image.create)(&below).unwrap();
    let mut model = vec![0; LEN as usize];
    drop(device);
    let store: Arc<dyn Store> = Arc::new(FaultyStore::new(below.clone(), faults));
    let device = match (image.open)(&store) {
        Ok(device) => device,
        Err(error) => {
            assert_eq!(faults.happened(), 1, "{place}: {error}");
            return check(&*(image.open)(&below).unwrap(), &model, &model, &place);
        }
    };
    // An unreadable plist is replaced by its copy, which only happens on opening.
    let met = faults.happened();
    for (number, step) in (1..).zip(steps()) {
        let place = format!("{place}, step {number}, {step:?}");
        let bytes = match &step {
            Step::Write(range) => Random::new(number).bytes((range.end - range.start) as usize),
            _ => Vec::new(),
        };
        let before = model.clone();
        expect(&mut model, &step, &bytes);
        let done = apply(&*device, &step, &bytes);
        let Err(error) = done else {
            // A best-effort call may fail silently if the data is correct afterwards; a barrier may
            // not.
            let is_barrier = matches!(call, Call::Flush | Call::Sync) && faults.happened() > met;
            assert!(!is_barrier, "{place}: nobody heard of it");
            continue;
        };
        assert_eq!(error.kind(), Kind::Io, "{place}: {error}");
        check(&*device, &before, &model, &place);
        if call == Call::Flush || call == Call::Sync {
            assert!(
                device.write_at(0, b"x").is_err() && device.flush().is_err(),
                "{place}: it was forgotten"
            );
        } else if device.write_at(0, &before[..1]).is_ok() {
            device
                .flush()
                .unwrap_or_else(|error| panic!("{place}, flush afterwards: {error}"));
        }
        drop(device);
        return check(
            &*(image.open)(&below).unwrap(),
            &before,
            &model,
            &format!("{place}, opened again"),
        );
    }
    drop(device);
    check(
        &*(image.open)(&below).unwrap(),
        &model,
        &model,
        &format!("{place}, at the end"),
    );
}

/// Fails each call once; returns the number of failed calls.
fn fail_all(image: Image, calls: &[Call], fault: Fault) -> u64 {
    calls
        .iter()
        .map(|call| {
            at_every(*call, fault, |faults, n| {
                run(image, *call, fault, faults, n)
            })
        })
        .sum()
}

#[test]
fn a_raw_image_stays_as_it_was() {
    for fault in [Fault::NoSpace, Fault::Io, Fault::Short] {
        assert!(fail_all(RAW, &Call::CHANGES, fault) >= 13);
    }
}

#[test]
fn a_bundle_stays_as_it_was() {
    for fault in [Fault::NoSpace, Fault::Io, Fault::Short] {
        assert!(fail_all(BUNDLE, &Call::CHANGES, fault) >= 30);
    }
    fail_all(BUNDLE, &[Call::List, Call::Stat, Call::Lock], Fault::Io);
}
