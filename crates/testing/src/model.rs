//! Random operations on a device, compared with a plain vector.
//!
//! The operations of a seed are a sequence: the first hundred do not depend on the total number, so
//! that a property test that shrinks the count finds the failing operation.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::Kind;
use bandsaw_core::device::{AfterDiscard, BlockDevice, ExtentKind};

use super::Random;

/// One operation. Offsets are fractions of the current length, so that any operation fits any
/// device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reads a range and compares it.
    Read(Span),
    /// Writes bytes that are derived from the number.
    Write(Span, u64),
    /// Discards a range.
    Discard(Span, AfterDiscard),
    /// Iterates over the extents of a range; those without data must be zeros.
    Extents(Span),
    /// Flushes.
    Flush,
    /// Changes the length, by this many sectors of the device up or down. A refusal as unsupported
    /// is accepted.
    Resize(i8),
    /// Flushes, drops the device and reopens it. Does nothing if reopening is not supported.
    Reopen,
}

/// A range of a device: its start (in 2^16 parts of the device) and its length in bytes, clipped to
/// the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The start, in 1/65536 of the length.
    pub start: u16,
    /// True if the start is rounded down to a multiple of 512.
    pub aligned: bool,
    /// Maximum length in bytes.
    pub len: u32,
}

impl Span {
    fn on(self, device_len: u64) -> Range<u64> {
        let start = (u128::from(device_len) * u128::from(self.start) / 65536) as u64;
        let start = if self.aligned {
            start / 512 * 512
        } else {
            start
        };
        start..device_len.min(start + u64::from(self.len))
    }

    fn random(random: &mut Random, longest: u64) -> Self {
        let aligned = random.one_in(2);
        let len = if random.one_in(4) {
            longest
        } else {
            longest.min(5000)
        };
        Self {
            start: random.number() as u16,
            aligned,
            len: random.within(0..len + 1) as u32,
        }
    }
}

/// Returns the first `count` operations of a seed; none is longer than `longest` bytes.
pub fn operations(seed: u64, count: usize, longest: u32) -> Vec<Op> {
    let mut random = Random::new(seed);
    let longest = u64::from(longest);
    let one = |random: &mut Random| match random.within(0..32) {
        0..8 => Op::Read(Span::random(random, longest)),
        8..18 => Op::Write(Span::random(random, longest), random.number()),
        18..22 => Op::Discard(Span::random(random, 4 * longest), AfterDiscard::Zeros),
        22..24 => Op::Discard(Span::random(random, longest), AfterDiscard::Any),
        24..26 => Op::Extents(Span::random(random, 16 * longest)),
        26..29 => Op::Flush,
        29..31 => Op::Resize(random.number() as i8),
        _ => Op::Reopen,
    };
    (0..count).map(|_| one(&mut random)).collect()
}

/// A device with its expected contents. Panics, naming the operation, when they differ.
pub struct Model<'a> {
    device: Option<Arc<dyn BlockDevice>>,
    /// `None` for bytes with undefined contents.
    bytes: Vec<Option<u8>>,
    reopen: Option<Box<dyn Fn() -> Arc<dyn BlockDevice> + 'a>>,
}

impl fmt::Debug for Model<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl<'a> Model<'a> {
    /// Creates a model of `device`, whose contents are read first. The device should have at most a
    /// few MiB.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        let mut bytes = vec![0; device.info().len as usize];
        device.read_at(0, &mut bytes).expect("read the device");
        Self {
            bytes: bytes.into_iter().map(Some).collect(),
            device: Some(device),
            reopen: None,
        }
    }

    /// Sets a function that reopens the device after it was dropped.
    #[must_use]
    pub fn reopen(mut self, reopen: impl Fn() -> Arc<dyn BlockDevice> + 'a) -> Self {
        self.reopen = Some(Box::new(reopen));
        self
    }

    /// Executes all operations and compares everything at the end.
    pub fn run(&mut self, operations: &[Op]) {
        for (index, operation) in operations.iter().enumerate() {
            let place = format!("operation {index}, {operation:?}");
            self.step(*operation, &place);
            let len = self.device().info().len;
            assert_eq!(len, self.bytes.len() as u64, "{place}: the length");
        }
        self.compare(0..self.bytes.len() as u64, "at the end");
        self.extents(0..self.bytes.len() as u64, "at the end");
    }

    fn device(&self) -> &dyn BlockDevice {
        &**self.device.as_ref().expect("a device")
    }

    fn step(&mut self, operation: Op, place: &str) {
        let len = self.bytes.len() as u64;
        match operation {
            Op::Read(span) => self.compare(span.on(len), place),
            Op::Write(span, seed) => {
                let range = span.on(len);
                let bytes = Random::new(seed).bytes((range.end - range.start) as usize);
                self.device()
                    .write_at(range.start, &bytes)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                self.set(range, |index| Some(bytes[index]));
            }
            Op::Discard(span, leave) => {
                let range = span.on(len);
                self.device()
                    .discard(range.clone(), leave)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                self.set(range, |_| (leave == AfterDiscard::Zeros).then_some(0));
            }
            Op::Extents(span) => self.extents(span.on(len), place),
            Op::Flush => self
                .device()
                .flush()
                .unwrap_or_else(|error| panic!("{place}: {error}")),
            Op::Resize(sectors) => self.resize(i64::from(sectors), place),
            Op::Reopen => self.open_again(place),
        }
    }

    fn set(&mut self, range: Range<u64>, value: impl Fn(usize) -> Option<u8>) {
        let part = &mut self.bytes[range.start as usize..range.end as usize];
        part.iter_mut()
            .enumerate()
            .for_each(|(index, byte)| *byte = value(index));
    }

    fn compare(&self, range: Range<u64>, place: &str) {
        let mut found = vec![0xee; (range.end - range.start) as usize];
        self.device()
            .read_at(range.start, &mut found)
            .unwrap_or_else(|error| panic!("{place}: read {range:?}: {error}"));
        for (at, found) in range.zip(found) {
            let expected = self.bytes[at as usize];
            assert!(
                expected.is_none_or(|expected| expected == found),
                "{place}: byte {at} is {found:#04x}, expected {expected:02x?}"
            );
        }
    }

    fn extents(&self, range: Range<u64>, place: &str) {
        let mut at = range.start;
        while at < range.end {
            let extent = self
                .device()
                .extent_at(at..range.end)
                .unwrap_or_else(|error| panic!("{place}: extent at {at}: {error}"));
            assert!(
                (1..=range.end - at).contains(&extent.len),
                "{place}: {extent:?} at {at} of {range:?}"
            );
            let run = &self.bytes[at as usize..(at + extent.len) as usize];
            let zeros = run.iter().all(|byte| byte.is_none_or(|byte| byte == 0));
            assert!(
                extent.kind == ExtentKind::Data || zeros,
                "{place}: {extent:?} at {at} holds something"
            );
            at += extent.len;
        }
    }

    fn resize(&mut self, sectors: i64, place: &str) {
        let old = self.bytes.len() as i64;
        let block = i64::from(self.device().info().block);
        // Containers of disks refuse a disk without sectors.
        let len = (old + sectors * block).max(block);
        match self.device().set_len(len as u64, AfterDiscard::Zeros) {
            Ok(()) => self.bytes.resize(len as usize, Some(0)),
            Err(error) => assert_eq!(error.kind(), Kind::Unsupported, "{place}: {error}"),
        }
    }

    fn open_again(&mut self, place: &str) {
        let Some(reopen) = &self.reopen else { return };
        self.device()
            .flush()
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        self.device = None;
        self.device = Some(reopen());
        self.compare(0..self.bytes.len() as u64, place);
    }
}
