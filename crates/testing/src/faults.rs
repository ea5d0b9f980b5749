//! Fault injection: the n-th write, the second flush, or every further open fails.
//!
//! ```
//! use std::sync::Arc;
//! use bandsaw_core::device::{BlockDevice, Memory};
//! use bandsaw_testing::faults::{Call, Fault, Faults, FaultyDevice};
//!
//! let faults = Faults::new();
//! let device = FaultyDevice::new(Arc::new(Memory::zeros(4096)), &faults);
//! faults.fail(Call::Write, 2, Fault::NoSpace);
//! assert!(device.write_at(0, b"one").is_ok());
//! assert!(device.write_at(0, b"two").is_err());
//! assert!(device.write_at(0, b"three").is_ok());
//! ```

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use bandsaw_core::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use bandsaw_core::store::{Entry, Guard, Lock, Meta, Open, Put, Store};
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "fault injection";

/// A kind of call to a device or a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the method of that name")]
pub enum Call {
    Read,
    Write,
    Discard,
    Extent,
    Flush,
    SetLen,
    Lend,
    Open,
    Put,
    Stat,
    Copy,
    Rename,
    Remove,
    List,
    Sync,
    Lock,
}

impl Call {
    /// The calls that change something or make it durable.
    pub const CHANGES: [Call; 10] = [
        Call::Write,
        Call::Discard,
        Call::Flush,
        Call::SetLen,
        Call::Open,
        Call::Put,
        Call::Copy,
        Call::Rename,
        Call::Remove,
        Call::Sync,
    ];
}

/// The error of a failing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// ENOSPC: the disk is full. The call has no effect.
    NoSpace,
    /// EMFILE: too many open files. The call has no effect.
    TooManyFiles,
    /// EOPNOTSUPP: the file system has no such call.
    NotSupported,
    /// EIO: the call has no effect. After a failed flush the device refuses changes, after a failed
    /// sync the store does.
    Io,
    /// EIO: a write or a read transfers the first half. Other calls have no effect.
    Short,
}

impl Fault {
    fn error(self, call: Call) -> Error {
        let errno = match self {
            Fault::NotSupported => return Error::unsupported(LAYER, format!("{call:?}")),
            Fault::NoSpace => Errno::NOSPC,
            Fault::TooManyFiles => Errno::MFILE,
            Fault::Io | Fault::Short => Errno::IO,
        };
        Error::io(LAYER, format!("{call:?}"), io::Error::from(errno))
    }
}

/// A plan of failing calls, for any number of devices and stores. Calls are counted over all of
/// them.
#[derive(Debug, Default)]
pub struct Faults(Mutex<FaultPlan>);

#[derive(Debug, Default)]
struct FaultPlan {
    counts: HashMap<Call, u64>,
    planned: Vec<(Call, u64, Fault)>,
    broken: HashMap<Call, Fault>,
    happened: u64,
}

impl Faults {
    /// Creates a plan without faults.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes the `n`-th call of this kind from now on fail (1 is the next one); later ones succeed
    /// again.
    pub fn fail(&self, call: Call, n: u64, fault: Fault) {
        assert!(n > 0, "the next call is number 1");
        let mut plan = self.0.lock();
        let now = plan.counts.get(&call).copied().unwrap_or(0);
        plan.planned.push((call, now + n, fault));
    }

    /// Makes every call of this kind fail from now on, until [`clear`](Self::clear).
    pub fn break_all(&self, call: Call, fault: Fault) {
        self.0.lock().broken.insert(call, fault);
    }

    /// Removes all faults.
    pub fn clear(&self) {
        let mut plan = self.0.lock();
        plan.planned.clear();
        plan.broken.clear();
    }

    /// Returns the number of calls of this kind so far.
    pub fn count(&self, call: Call) -> u64 {
        self.0.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// Returns the number of calls that failed because of this plan.
    pub fn happened(&self) -> u64 {
        self.0.lock().happened
    }

    fn meet(&self, call: Call) -> Option<Fault> {
        let mut plan = self.0.lock();
        let count = plan.counts.entry(call).or_default();
        *count += 1;
        let count = *count;
        let planned = plan
            .planned
            .iter()
            .find(|(planned, n, _)| *planned == call && *n == count)
            .map(|(.., fault)| *fault);
        let fault = planned.or_else(|| plan.broken.get(&call).copied())?;
        plan.happened += 1;
        Some(fault)
    }

    fn check(&self, call: Call) -> Result<()> {
        self.meet(call)
            .map_or(Ok(()), |fault| Err(fault.error(call)))
    }
}

/// Calls `run` with the first call of this kind failing, then with the second, and so on until none
/// is left to fail. Returns the number of such calls. `run` starts from scratch each time and wraps
/// its devices and stores with the given faults.
pub fn at_every(call: Call, fault: Fault, mut run: impl FnMut(&Arc<Faults>, u64)) -> u64 {
    for n in 1.. {
        let faults = Faults::new();
        faults.fail(call, n, fault);
        run(&faults, n);
        if faults.happened() == 0 {
            return n - 1;
        }
    }
    unreachable!("the numbers have no end")
}

/// A device whose calls fail according to a plan.
#[derive(Debug)]
pub struct FaultyDevice {
    inner: Arc<dyn BlockDevice>,
    faults: Arc<Faults>,
    /// A flush failed.
    lost: AtomicBool,
}

impl FaultyDevice {
    /// Wraps `inner`, which fails according to `faults`.
    pub fn new(inner: Arc<dyn BlockDevice>, faults: &Arc<Faults>) -> Self {
        Self {
            inner,
            faults: faults.clone(),
            lost: AtomicBool::new(false),
        }
    }

    fn check_changeable(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Io, LAYER, "an earlier flush failed"));
        }
        Ok(())
    }
}

impl BlockDevice for FaultyDevice {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.faults.meet(Call::Read) {
            None => self.inner.read_at(offset, buf),
            Some(fault) => {
                if fault == Fault::Short {
                    let half = buf.len() / 2;
                    self.inner.read_at(offset, &mut buf[..half])?;
                }
                Err(fault.error(Call::Read))
            }
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_changeable()?;
        match self.faults.meet(Call::Write) {
            None => self.inner.write_at(offset, buf),
            Some(fault) => {
                if fault == Fault::Short {
                    self.inner.write_at(offset, &buf[..buf.len() / 2])?;
                }
                Err(fault.error(Call::Write))
            }
        }
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        self.faults.check(Call::Discard)?;
        self.inner.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.faults.check(Call::Extent)?;
        self.inner.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.check_changeable()?;
        self.faults
            .check(Call::Flush)
            .inspect_err(|_| self.lost.store(true, Ordering::Release))?;
        self.inner.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        self.faults.check(Call::SetLen)?;
        self.inner.set_len(len, leave)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.faults.check(Call::Lend)?;
        self.inner.file_range(range)
    }
}

/// A store whose calls, and those of its devices, fail according to a plan.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Faults>,
    /// A sync failed.
    lost: AtomicBool,
}

impl FaultyStore {
    /// Wraps `inner`, which fails according to `faults`.
    pub fn new(inner: Arc<dyn Store>, faults: &Arc<Faults>) -> Self {
        Self {
            inner,
            faults: faults.clone(),
            lost: AtomicBool::new(false),
        }
    }

    fn change(&self, call: Call) -> Result<()> {
        if self.lost.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Io, LAYER, "an earlier sync failed"));
        }
        self.faults.check(call)
    }
}

impl Store for FaultyStore {
    fn open(&self, name: &str, mode: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.faults.check(Call::Open)?;
        let device = self.inner.open(name, mode)?;
        Ok(device.map(|device| {
            Arc::new(FaultyDevice::new(device, &self.faults)) as Arc<dyn BlockDevice>
        }))
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        self.change(Call::Put)?;
        self.inner.put(name, bytes, cond)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        self.faults.check(Call::Stat)?;
        self.inner.stat(name)
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        self.change(Call::Copy)?;
        self.inner.copy(from, to)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.change(Call::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<bool> {
        self.change(Call::Remove)?;
        self.inner.remove(name)
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        self.change(Call::Remove)?;
        self.inner.remove_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        self.faults.check(Call::List)?;
        self.inner.list(prefix, each)
    }

    fn sync(&self) -> Result<()> {
        self.change(Call::Sync)
            .inspect_err(|_| self.lost.store(true, Ordering::Release))?;
        self.inner.sync()
    }

    fn lock(&self, name: &str, mode: Lock) -> Result<Guard> {
        self.faults.check(Call::Lock)?;
        self.inner.lock(name, mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};
    use bandsaw_core::store::MemoryStore;

    fn faulty(len: usize) -> (Arc<Faults>, FaultyDevice) {
        let faults = Faults::new();
        let device = FaultyDevice::new(Arc::new(Memory::zeros(len)), &faults);
        (faults, device)
    }

    #[test]
    fn the_call_that_was_named_fails() {
        let (faults, device) = faulty(4096);
        device.write_at(0, b"x").unwrap();
        faults.fail(Call::Write, 2, Fault::NoSpace);
        device.write_at(0, b"one").unwrap();
        let error = device.write_at(0, b"two").unwrap_err();
        assert_eq!(error.io_kind(), Some(io::ErrorKind::StorageFull));
        assert_eq!(device.read_array::<3>(0).unwrap(), *b"one");
        device.write_at(0, b"three").unwrap();
        assert_eq!((faults.count(Call::Write), faults.happened()), (4, 1));
    }

    #[test]
    fn a_short_write_does_its_first_half() {
        let (faults, device) = faulty(16);
        faults.fail(Call::Write, 1, Fault::Short);
        assert!(device.write_at(0, b"12345678").is_err());
        assert_eq!(device.read_array::<8>(0).unwrap(), *b"1234\0\0\0\0");
    }

    #[test]
    fn a_failed_flush_is_not_forgotten() {
        let (faults, device) = faulty(16);
        faults.fail(Call::Flush, 1, Fault::Io);
        assert!(device.flush().is_err());
        assert!(device.flush().is_err() && device.write_at(0, b"x").is_err());
        assert!(device.read_array::<1>(0).is_ok());
    }

    #[test]
    fn a_store_hands_its_faults_on() {
        let faults = Faults::new();
        let store = FaultyStore::new(Arc::new(MemoryStore::default()), &faults);
        let file = store.open("a", Open::Create).unwrap().unwrap();
        faults.break_all(Call::Open, Fault::TooManyFiles);
        assert!(store.open("b", Open::Read).is_err() && store.open("c", Open::Create).is_err());
        faults.clear();
        assert!(
            store.open("c", Open::Read).unwrap().is_none(),
            "a refused open made a file"
        );
        faults.fail(Call::SetLen, 1, Fault::NoSpace);
        assert!(file.set_len(5, AfterDiscard::Zeros).is_err() && file.info().len == 0);
        faults.fail(Call::Sync, 1, Fault::Io);
        assert!(store.sync().is_err() && store.put("d", b"", Put::Replace).is_err());
    }

    #[test]
    fn every_call_is_reached() {
        let calls = at_every(Call::Write, Fault::Io, |faults, n| {
            let device = FaultyDevice::new(Arc::new(Memory::zeros(64)), faults);
            let first_failure = (1..=5).find(|_| device.write_at(0, b"x").is_err());
            assert_eq!(first_failure, (n <= 5).then_some(n));
        });
        assert_eq!(calls, 5);
    }
}
