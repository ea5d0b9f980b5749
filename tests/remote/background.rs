//! Background work: readahead and writeback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bandsaw::Result;
use bandsaw::container::sparsebundle::{Bundle, BundleOptions};
use bandsaw::device::{Access, BlockDevice, BlockDeviceExt};
use bandsaw::store::{Objects, Remote, RemoteOptions};
use bandsaw::testing::Random;
use bandsaw::testing::object_faults::{FaultyObjects, Request, Slip};

use super::through::{Call, Porter, Through};
use super::{BUNDLE, MIB, memory, options, reader};

/// Returns options with memory of which a quarter is 16 parts.
fn small(access: Access) -> RemoteOptions {
    RemoteOptions {
        memory: 4 * MIB,
        ..options(access)
    }
}

/// A slow store that counts concurrent requests.
#[derive(Debug, Default)]
struct Slow {
    now: AtomicUsize,
    most: AtomicUsize,
    reads: AtomicUsize,
}

impl Porter for Slow {
    fn meets(&self, call: Call<'_>, _inner: &dyn Objects) -> Result<()> {
        if matches!(call, Call::Read) {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(
                self.now.fetch_add(1, Ordering::SeqCst) + 1,
                Ordering::SeqCst,
            );
            thread::sleep(Duration::from_millis(20));
            self.now.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

#[test]
fn sequential_reads_are_fetched_ahead_over_bands() {
    let size = BundleOptions {
        len: 24 * MIB,
        band_size: Some(MIB),
    };
    let inner = memory();
    let writing = RemoteOptions {
        part: MIB,
        memory: 64 * MIB,
        ..options(Access::ReadWrite)
    };
    let made = Bundle::create(Remote::open(inner.clone(), &writing).unwrap(), &size).unwrap();
    let bytes = Random::new(3).bytes(size.len as usize);
    made.write_at(0, &bytes).unwrap();
    made.flush().unwrap();
    drop(made);
    let slow = Through::new(&inner, Slow::default());
    let open = || {
        let reading = RemoteOptions {
            access: Access::ReadOnly,
            ..writing.clone()
        };
        Bundle::open(
            Remote::open(slow.clone() as Arc<dyn Objects>, &reading).unwrap(),
            Access::ReadOnly,
        )
        .unwrap()
    };
    let bundle = open();
    let before = slow.porter.reads.load(Ordering::SeqCst);
    for (at, expected) in (0..).step_by(128 << 10).zip(bytes.chunks(128 << 10)) {
        assert!(
            bundle.read_vec(at, expected.len()).unwrap() == expected,
            "at {at}"
        );
    }
    let (most, reads) = (
        slow.porter.most.load(Ordering::SeqCst),
        slow.porter.reads.load(Ordering::SeqCst) - before,
    );
    assert!(most > 3, "{most} requests at a time");
    assert!(reads < 24 + 12, "{reads} requests for 24 bands");
    drop(bundle);
    // Several concurrent readers of the same data: nothing is fetched twice.
    let bundle = open();
    let before = slow.porter.reads.load(Ordering::SeqCst);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(bundle.read_vec(0, bytes.len()).unwrap() == bytes));
        }
    });
    let reads = slow.porter.reads.load(Ordering::SeqCst) - before;
    assert!(reads < 24 + 12, "{reads} requests for 24 bands");
    // Random reads are fetched without readahead.
    drop(bundle);
    let bundle = open();
    let before = slow.porter.reads.load(Ordering::SeqCst);
    for band in [20, 3, 11, 7, 15] {
        let at = (band * MIB + 300_000) as usize;
        assert!(bundle.read_vec(at as u64, 4096).unwrap() == bytes[at..at + 4096]);
    }
    assert_eq!(slow.porter.reads.load(Ordering::SeqCst) - before, 5);
}

/// One thread writes sequentially in a loop, another flushes. Everything written before a flush
/// began is in the store when it returns, including uploads that were in progress.
#[test]
fn uploads_under_way_are_part_of_a_flush() {
    let objects = FaultyObjects::new(memory());
    let shared: Arc<dyn Objects> = objects.clone();
    let bundle = Bundle::create(
        Remote::open(shared.clone(), &small(Access::ReadWrite)).unwrap(),
        &BUNDLE,
    )
    .unwrap();
    bundle.flush().unwrap();
    objects.always(Request::Put, Slip::Late(Duration::from_millis(2)));
    // Total number of pieces written.
    let (written, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    const PIECE: u64 = 128 << 10;
    const PIECES: u64 = 5 * MIB / PIECE;
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..40 * PIECES {
                bundle
                    .write_at(
                        n % PIECES * PIECE,
                        &[(n / PIECES + 1) as u8; PIECE as usize],
                    )
                    .unwrap();
                written.store(n + 1, Ordering::SeqCst);
            }
            ended.store(true, Ordering::SeqCst);
        });
        let mut flushes = 0;
        while !ended.load(Ordering::SeqCst) {
            let before = written.load(Ordering::SeqCst);
            bundle.flush().unwrap();
            let seen = Bundle::open(reader(&shared).unwrap(), Access::ReadOnly).unwrap();
            for piece in 0..PIECES {
                let least = before / PIECES + u64::from(piece < before % PIECES);
                let found = seen.read_vec(piece * PIECE, 512).unwrap();
                assert!(
                    u64::from(found[0]) >= least,
                    "piece {piece} is of round {}, flushed was {least}",
                    found[0]
                );
            }
            flushes += 1;
        }
        assert!(flushes > 3, "{flushes} flushes");
    });
}

#[test]
fn failed_uploads_are_repeated_by_a_flush() {
    let objects = FaultyObjects::new(memory());
    let shared: Arc<dyn Objects> = objects.clone();
    let quiet = RemoteOptions {
        expiry: Duration::from_secs(3600),
        ..small(Access::ReadWrite)
    };
    let bundle = Bundle::create(Remote::open(shared.clone(), &quiet).unwrap(), &BUNDLE).unwrap();
    bundle.flush().unwrap();
    let bytes = Random::new(5).bytes(7 * MIB as usize / 4);
    objects.always(Request::Put, Slip::Lost);
    for (at, piece) in (0..).step_by(64 << 10).zip(bytes.chunks(64 << 10)) {
        bundle.write_at(at, piece).unwrap();
    }
    while objects.happened() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    objects.clear();
    bundle.flush().unwrap();
    let seen = Bundle::open(reader(&shared).unwrap(), Access::ReadOnly).unwrap();
    assert!(seen.read_vec(0, bytes.len()).unwrap() == bytes);
}
