//! The conformance suite on every device and store that is not a container, and tests that it
//! detects bugs.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bandsaw::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info, Memory, Slice,
};
use bandsaw::store::{
    Local, LocalFile, MemoryObjects, MemoryStore, Meta, Open, PrefixStore, Put, SingleFile, Store,
};
use bandsaw::sync::RwLock;
use bandsaw::testing::conformance::{self, Devices, Stores};
use bandsaw::testing::faults::{Faults, FaultyDevice, FaultyStore};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::object_faults::FaultyObjects;
use bandsaw::testing::{PowerCut, Random};
use bandsaw::{Kind, Result};
use proptest::prelude::*;

/// Generator of names for new files or folders in a scratch folder.
struct Scratch {
    folder: tempfile::TempDir,
    last: AtomicU64,
}

impl Scratch {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            last: AtomicU64::new(0),
        }
    }

    fn last(&self) -> PathBuf {
        self.folder
            .path()
            .join(self.last.load(Ordering::Relaxed).to_string())
    }

    fn next(&self) -> PathBuf {
        self.last.fetch_add(1, Ordering::Relaxed);
        self.last()
    }

    fn new_file(&self, len: u64) -> Arc<dyn BlockDevice> {
        let file = LocalFile::open(self.next(), Open::CreateNew)
            .unwrap()
            .unwrap();
        file.set_len(len, AfterDiscard::Zeros).unwrap();
        Arc::new(file)
    }

    fn last_file(&self, mode: Open) -> Arc<dyn BlockDevice> {
        Arc::new(LocalFile::open(self.last(), mode).unwrap().unwrap())
    }
}

#[test]
fn memory() {
    conformance::device(|| Arc::new(Memory::zeros(1 << 20)));
    conformance::device(|| Arc::new(Memory::zeros(65_537)));
    conformance::read_only(Arc::new(Memory::read_only(Random::new(1).bytes(100_000))));
}

#[test]
fn slice() {
    let slice =
        |range: Range<u64>| Arc::new(Slice::new(Arc::new(Memory::zeros(1 << 20)), range).unwrap());
    conformance::device(|| slice(0..1 << 20));
    conformance::device(|| slice(12_345..512_345));
    let inner = Arc::new(Memory::read_only(Random::new(1).bytes(200_000)));
    conformance::read_only(Arc::new(Slice::new(inner, 5_000..150_000).unwrap()));
}

#[test]
fn a_slice_leaves_its_surroundings() {
    let inner = Arc::new(Memory::from(Random::new(1).bytes(1 << 20)));
    let before = inner.to_vec();
    let window = 100_001..900_001;
    conformance::device(|| {
        Arc::new(Slice::new(inner.clone(), window.start as u64..window.end as u64).unwrap())
    });
    let after = inner.to_vec();
    assert!(
        before[..window.start] == after[..window.start]
            && before[window.end..] == after[window.end..]
    );
}

#[test]
fn local_file() {
    let scratch = Scratch::new();
    for len in [1 << 20, 300_007] {
        Devices::new(|| scratch.new_file(len))
            .reopen(|| scratch.last_file(Open::Write))
            .check();
    }
    Devices::new(|| scratch.new_file(32 << 20))
        .unit(1 << 20)
        .check();
    scratch
        .new_file(200_000)
        .write_at(0, &Random::new(1).bytes(200_000))
        .unwrap();
    conformance::read_only(scratch.last_file(Open::Read));
}

#[test]
fn power_cut() {
    conformance::store(|| Arc::new(PowerCut::default()));
    conformance::store(|| Arc::new(PowerCut::default().folder("a/b")));
    conformance::host_store(|| {
        let folder = PowerCut::default().folder("a/b");
        folder.put("first", b"", Put::Replace).unwrap();
        assert!(folder.remove("first").unwrap());
        Arc::new(folder)
    });
}

#[test]
fn memory_store() {
    conformance::store(|| Arc::new(MemoryStore::default()));
}

#[test]
fn memory_objects() {
    conformance::objects(|| Arc::new(MemoryObjects::default()));
}

#[test]
fn local_store() {
    let scratch = Scratch::new();
    let stores = Stores::new(|| Arc::new(Local::new(scratch.next())));
    stores
        .reopen(|| Arc::new(Local::new(scratch.last())))
        .check();
    conformance::host_store(|| {
        let folder = scratch.next();
        std::fs::create_dir(&folder).unwrap();
        Arc::new(Local::new(folder))
    });
}

#[test]
fn prefix_store() {
    conformance::store(|| {
        let parent = Arc::new(MemoryStore::default());
        parent.put("a/bother", b"outside", Put::Replace).unwrap();
        Arc::new(PrefixStore::new(parent, "a/b"))
    });
    let scratch = Scratch::new();
    let within = |folder| Arc::new(PrefixStore::new(Arc::new(Local::new(folder)), "a/b"));
    let stores = Stores::new(|| within(scratch.next()));
    stores.reopen(|| within(scratch.last())).check();
}

#[test]
fn single_file() {
    let store = |file: Arc<Memory>| {
        let meta = Meta {
            len: file.info().len,
            allocated: 0,
            version: 5,
            changed: None,
        };
        SingleFile::new("image", file, move || Ok(meta))
    };
    conformance::device(|| {
        let store = store(Arc::new(Memory::zeros(1 << 20)));
        store.open("image", Open::Write).unwrap().unwrap()
    });
    let store = store(Arc::new(Memory::zeros(512)));
    assert!(store.open("image", Open::Create).unwrap().is_some());
    assert!(store.open("image", Open::CreateNew).unwrap().is_none());
    assert!(store.open("other", Open::Write).unwrap().is_none());
    assert!(store.stat("other").unwrap().is_none() && !store.remove("other").unwrap());
    assert_eq!(store.stat("image").unwrap().unwrap().version, 5);
    for refused in [
        store.open("other", Open::Create).map(drop),
        store.put("image", b"", Put::Replace).map(drop),
        store.rename("image", "other"),
        store.copy("image", "other"),
        store.remove("image").map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
    }
    for (prefix, expected) in [("", 1), ("im", 1), ("image/", 0)] {
        let mut count = 0;
        let listed = store.list(prefix, &mut |entry| {
            count += 1;
            assert_eq!((entry.name, entry.meta()?.unwrap().len), ("image", 512));
            Ok(())
        });
        listed.unwrap();
        assert_eq!(count, expected, "{prefix:?}");
    }
}

#[test]
fn wrappers_without_faults_change_nothing() {
    let faults = Faults::new();
    conformance::device(|| Arc::new(FaultyDevice::new(Arc::new(Memory::zeros(1 << 20)), &faults)));
    conformance::store(|| Arc::new(FaultyStore::new(Arc::new(MemoryStore::default()), &faults)));
    conformance::objects(|| FaultyObjects::new(Arc::new(MemoryObjects::default())));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn memory_is_its_model(seed: u64, count in 1..400_usize) {
        Model::new(Arc::new(Memory::zeros(100_000))).run(&operations(seed, count, 20_000));
    }

    #[test]
    fn a_local_file_is_its_model(seed: u64, count in 1..400_usize) {
        let scratch = Scratch::new();
        let file = scratch.new_file(300_007);
        Model::new(file).reopen(|| scratch.last_file(Open::Write)).run(&operations(seed, count, 50_000));
    }
}

/// Bugs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// Unaligned requests write whole sectors.
    WritesWholeSectors,
    /// One byte after the end reads as zero.
    ReadsPastTheEnd,
    /// A write of one byte after the end is truncated instead of refused.
    WritesWhatFits,
    /// An empty range is refused.
    RefusesNothing,
    /// A discard is rounded outwards to whole blocks.
    DiscardsTooMuch,
    /// A discard is rounded inwards to whole blocks.
    DiscardsTooLittle,
    /// A discarded range is reported as zeros but keeps its data.
    TellsZeros,
    /// Extents extend beyond the requested range.
    TellsTooMuch,
    /// Old data reappears when the device grows.
    KeepsWhatWasCut,
    /// Partial sectors are modified without a lock.
    PatchesWithoutLock,
    /// Data next to a discarded range reads as zeros for a moment.
    BlinksWhenDiscarding,
    /// A file range starts one byte late.
    LendsTheWrongPlace,
    /// The read buffer is not filled where there are zeros.
    LeavesTheBuffer,
}

/// A device with a bug. Operations that are not affected are passed to the memory below.
struct Buggy {
    bug: Bug,
    inner: Memory,
    cut: RwLock<Vec<u8>>,
    lent: Arc<std::fs::File>,
}

impl fmt::Debug for Buggy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.bug)
    }
}

impl Buggy {
    fn new(bug: Bug) -> Self {
        let lent = Arc::new(tempfile::tempfile().unwrap());
        Self {
            bug,
            inner: Memory::zeros(100_000),
            cut: RwLock::default(),
            lent,
        }
    }

    /// Reads whole sectors, modifies them and writes them back.
    fn patch(&self, offset: u64, buf: &[u8], keep: bool) -> Result<()> {
        self.info().check("buggy", offset, buf.len() as u64)?;
        let start = offset / 512 * 512;
        let end = (offset + buf.len() as u64)
            .next_multiple_of(512)
            .min(self.info().len);
        let mut whole = vec![0; (end - start) as usize];
        if keep {
            self.inner.read_at(start, &mut whole)?;
            std::thread::yield_now();
        }
        whole[(offset - start) as usize..][..buf.len()].copy_from_slice(buf);
        self.inner.write_at(start, &whole)
    }
}

impl BlockDevice for Buggy {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.inner.read_at(offset, buf) {
            Err(_)
                if self.bug == Bug::ReadsPastTheEnd
                    && offset + buf.len() as u64 == self.info().len + 1 =>
            {
                let fits = buf.len() - 1;
                buf[fits] = 0;
                self.inner.read_at(offset, &mut buf[..fits])
            }
            Ok(())
                if self.bug == Bug::LeavesTheBuffer
                    && !buf.is_empty()
                    && buf.iter().all(|byte| *byte == 0) =>
            {
                buf.fill(0xee);
                Ok(())
            }
            read => read,
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        match self.bug {
            Bug::WritesWholeSectors => self.patch(offset, buf, false),
            Bug::PatchesWithoutLock => self.patch(offset, buf, true),
            Bug::WritesWhatFits => {
                let fits = self.info().len.saturating_sub(offset).min(buf.len() as u64) as usize;
                self.inner
                    .write_at(offset.min(self.info().len), &buf[..fits])
            }
            Bug::RefusesNothing if buf.is_empty() => self.inner.write_at(u64::MAX, &[0]),
            _ => self.inner.write_at(offset, buf),
        }
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range("buggy", &range)?;
        let outwards =
            range.start / 512 * 512..range.end.next_multiple_of(512).min(self.info().len);
        if range.is_empty() {
            return Ok(());
        }
        match self.bug {
            Bug::DiscardsTooMuch => self.inner.discard(outwards, leave),
            Bug::DiscardsTooLittle => {
                let inwards = range.start.next_multiple_of(512)..range.end / 512 * 512;
                if inwards.is_empty() {
                    Ok(())
                } else {
                    self.inner.discard(inwards, leave)
                }
            }
            Bug::TellsZeros => {
                self.cut.write().push(1);
                self.inner.discard(range, leave)
            }
            Bug::BlinksWhenDiscarding => {
                let mut around = vec![0; (outwards.end - outwards.start) as usize];
                self.inner.read_at(outwards.start, &mut around)?;
                self.inner.discard(outwards.clone(), leave)?;
                std::thread::yield_now();
                around[(range.start - outwards.start) as usize
                    ..(range.end - outwards.start) as usize]
                    .fill(0);
                self.inner.write_at(outwards.start, &around)
            }
            _ => self.inner.discard(range, leave),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        let mut extent = self.inner.extent_at(range)?;
        if self.bug == Bug::TellsZeros && !self.cut.read().is_empty() {
            extent.kind = ExtentKind::Zero;
        }
        if self.bug == Bug::TellsTooMuch {
            extent.len = extent.len.next_multiple_of(512);
        }
        Ok(extent)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        let old = self.inner.to_vec();
        self.inner.set_len(len, leave)?;
        if self.bug == Bug::KeepsWhatWasCut {
            let mut cut = self.cut.write();
            if (len as usize) < old.len() {
                *cut = old[len as usize..].to_vec();
            } else {
                let back = cut.len().min(len as usize - old.len());
                self.inner.write_at(old.len() as u64, &cut[..back])?;
            }
        }
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range("buggy", &range)?;
        if self.bug != Bug::LendsTheWrongPlace || range.is_empty() {
            return Ok(None);
        }
        std::os::unix::fs::FileExt::write_all_at(&*self.lent, &self.inner.to_vec(), 1).unwrap();
        Ok(Some(FileRange::new(
            self.lent.clone(),
            range.start,
            range.end - range.start,
        )))
    }
}

/// Runs the suite on a device with this bug; returns the failure.
fn verdict(bug: Bug) -> Option<String> {
    let suite = || conformance::device(|| Arc::new(Buggy::new(bug)));
    let panic = catch_unwind(AssertUnwindSafe(suite)).err()?;
    Some(
        panic
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| "threads panicked".to_owned()),
    )
}

#[test]
fn every_bug_is_seen() {
    assert_eq!(
        verdict(Bug::None),
        None,
        "the device without a bug is innocent"
    );
    let bugs = [
        (Bug::WritesWholeSectors, "any offset"),
        (Bug::ReadsPastTheEnd, "one byte too many"),
        (Bug::WritesWhatFits, "one byte too many"),
        (Bug::RefusesNothing, "empty range"),
        (Bug::DiscardsTooMuch, "discard"),
        (Bug::DiscardsTooLittle, "discard"),
        (Bug::TellsZeros, "extent"),
        (Bug::TellsTooMuch, "extent"),
        (Bug::KeepsWhatWasCut, "cut"),
        (Bug::PatchesWithoutLock, "thread"),
        (Bug::BlinksWhenDiscarding, "thread"),
        (Bug::LendsTheWrongPlace, "lent"),
        (Bug::LeavesTheBuffer, "any offset"),
    ];
    for (bug, expected) in bugs {
        let said = verdict(bug).unwrap_or_else(|| panic!("{bug:?} is not seen"));
        assert!(
            said.contains(expected),
            "{bug:?} is seen for another reason: {said}"
        );
    }
}

#[test]
fn a_read_only_device_that_writes_is_seen() {
    let device = Arc::new(Memory::zeros(100_000));
    let seen = catch_unwind(|| conformance::read_only(device));
    assert!(seen.is_err());
    assert_eq!(
        Memory::read_only(vec![0; 4])
            .write_at(0, b"x")
            .unwrap_err()
            .kind(),
        Kind::ReadOnly
    );
    assert_eq!(
        Memory::read_only(vec![0; 4]).info().access,
        Access::ReadOnly
    );
}
