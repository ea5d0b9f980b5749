//! Random work on a device over a [`PowerCut`], then every crash: flushed data must be there, and
//! every other sector must be old or new.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::disk::SECTOR;
use super::{Crash, Keep, PowerCut};
use crate::Random;
use bandsaw_core::Result;
use bandsaw_core::device::{AfterDiscard, BlockDevice, BlockDeviceExt, is_zero};

type Make<'a> = Box<dyn Fn(&PowerCut) -> Result<Arc<dyn BlockDevice>> + 'a>;

/// A test of a kind of device with power failures.
///
/// The device must write sectors of 512 bytes atomically: the data of one sector must be within one
/// sector of its files. Contents are compared entirely, so the device should have at most a few
/// MiB.
pub struct Survival<'a> {
    create: Make<'a>,
    open: Make<'a>,
    steps: u64,
    each: u64,
    resize_by: u64,
}

impl fmt::Debug for Survival<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survival")
            .field("steps", &self.steps)
            .field("each", &self.each)
            .finish_non_exhaustive()
    }
}

impl<'a> Survival<'a> {
    /// Creates a test of devices that `create` creates in an empty store and `open` opens again.
    /// Crashes begin after the creation, so it must be durable when `create` returns.
    pub fn new(
        create: impl Fn(&PowerCut) -> Result<Arc<dyn BlockDevice>> + 'a,
        open: impl Fn(&PowerCut) -> Result<Arc<dyn BlockDevice>> + 'a,
    ) -> Self {
        Self {
            create: Box::new(create),
            open: Box::new(open),
            steps: 40,
            each: 3,
            resize_by: 0,
        }
    }

    /// Sets the number of requests. Default: 40.
    #[must_use]
    pub fn steps(mut self, steps: u64) -> Self {
        self.steps = steps;
        self
    }

    /// Sets the number of random crashes at each point, in addition to the two extremes. Default:
    /// 3.
    #[must_use]
    pub fn crashes(mut self, each: u64) -> Self {
        self.each = each;
        self
    }

    /// Enables changes of the length, up and down by this many bytes. Default: none.
    #[must_use]
    pub fn resize_by(mut self, bytes: u64) -> Self {
        self.resize_by = bytes;
        self
    }

    /// Runs the work of `seed` and checks its crashes; returns their number. Panics at the first
    /// failure.
    pub fn check(&self, seed: u64) -> usize {
        let cut = PowerCut::default();
        let steps = self.work(&cut, seed);
        let mut past = Past::new(steps);
        let mut checked = 0;
        for crash in cut.crashes_from(past.steps[0].begin, seed, self.each) {
            past.advance(crash.position);
            let place = format!(
                "seed {seed}, crash after event {} ({:?})",
                crash.position, crash.keep
            );
            self.check_crash(&crash, &past, &place);
            checked += 1;
        }
        checked
    }

    /// Performs random requests and records them as steps. The first step represents the creation.
    fn work(&self, cut: &PowerCut, seed: u64) -> Vec<RecordedRequest> {
        let mut random = Random::new(seed);
        let mut device = (self.create)(cut).expect("create the device");
        let first_len = device.info().len;
        let mut model = device
            .read_vec(0, first_len as usize)
            .expect("read the new device");
        let begin = cut.position();
        let versions = sectors(&model, 0..first_len);
        let mut steps = vec![
            RecordedRequest {
                begin,
                end: begin,
                what: What::ContentChange {
                    versions,
                    len: Some(first_len),
                },
            },
            RecordedRequest {
                begin,
                end: begin,
                what: What::Flush,
            },
        ];
        for _ in 0..self.steps {
            let begin = cut.position();
            let what = match random.within(0..16) {
                0..8 => write(&*device, &mut model, &mut random),
                8..10 => discard(&*device, &mut model, &mut random),
                10..12 if self.resize_by > 0 => {
                    resize(&*device, &mut model, &mut random, first_len, self.resize_by)
                }
                12 => {
                    device.flush().expect("flush");
                    drop(device);
                    device = (self.open)(cut).expect("open the device again");
                    What::Flush
                }
                _ => {
                    device.flush().expect("flush");
                    What::Flush
                }
            };
            steps.push(RecordedRequest {
                begin,
                end: cut.position(),
                what,
            });
        }
        steps
    }

    fn check_crash(&self, crash: &Crash, past: &Past, place: &str) {
        let device = (self.open)(&crash.store)
            .unwrap_or_else(|error| panic!("{place}: does not open: {error}"));
        let len = device.info().len;
        assert!(
            past.allows_len(len),
            "{place}: the length is {len}, which it never was since the last flush"
        );
        let found = device
            .read_vec(0, len as usize)
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        if let Some(why) = past.refuses(&found) {
            panic!("{place}: {why}");
        }
        let bytes = [0x77; SECTOR as usize];
        let written = device
            .write_at(0, &bytes)
            .and_then(|()| device.flush())
            .and_then(|()| device.read_array(0));
        assert_eq!(
            written.unwrap_or_else(|error| panic!("{place}: {error}")),
            bytes,
            "{place}: a write is not read"
        );
        if self.resize_by > 0 && matches!(crash.keep, Keep::Some(_)) {
            self.check_growth(crash, device, place);
        }
    }

    /// Checks that growth does not expose old data, after any crash and a second one.
    fn check_growth(&self, crash: &Crash, device: Arc<dyn BlockDevice>, place: &str) {
        let old = device.info().len;
        let new = old + self.resize_by.next_multiple_of(SECTOR);
        let begin = crash.store.position();
        device
            .set_len(new, AfterDiscard::Zeros)
            .unwrap_or_else(|error| panic!("{place}: grow: {error}"));
        device
            .flush()
            .unwrap_or_else(|error| panic!("{place}: flush: {error}"));
        self.expect_zeros(&*device, old, place);
        drop(device);
        for second in crash.store.crashes_from(begin, begin as u64, 1) {
            let place = format!(
                "{place}, grown, crash after event {} ({:?})",
                second.position, second.keep
            );
            let device = (self.open)(&second.store)
                .unwrap_or_else(|error| panic!("{place}: does not open: {error}"));
            let len = device.info().len;
            assert!(
                len == old || len == new,
                "{place}: the length is {len}, neither {old} nor {new}"
            );
            self.expect_zeros(&*device, old, &place);
        }
    }

    fn expect_zeros(&self, device: &dyn BlockDevice, from: u64, place: &str) {
        let bytes = device
            .read_vec(from, (device.info().len - from) as usize)
            .unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(
            is_zero(&bytes),
            "{place}: growing showed what was there before"
        );
    }
}

/// One request with its events.
#[derive(Debug)]
struct RecordedRequest {
    begin: usize,
    end: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Flush,
    /// New contents of sectors, and the length if it changed.
    ContentChange {
        versions: Vec<(u64, Version)>,
        len: Option<u64>,
    },
}

#[derive(Debug, Clone)]
enum Version {
    Bytes(Vec<u8>),
    /// Discarded, with undefined contents.
    Anything,
}

impl Version {
    /// Returns true if `found` matches as far as it reaches (the last sector of a device may be
    /// partial).
    fn allows(&self, found: &[u8]) -> bool {
        match self {
            Version::Anything => true,
            Version::Bytes(bytes) => {
                let (known, beyond) = found.split_at(bytes.len().min(found.len()));
                *known == bytes[..known.len()] && is_zero(beyond)
            }
        }
    }
}

fn sectors(model: &[u8], range: Range<u64>) -> Vec<(u64, Version)> {
    (range.start / SECTOR..range.end.div_ceil(SECTOR))
        .map(|sector| {
            let start = (sector * SECTOR) as usize;
            let end = model.len().min(start + SECTOR as usize);
            (
                sector,
                Version::Bytes(model.get(start..end).unwrap_or_default().to_vec()),
            )
        })
        .collect()
}

fn write(device: &dyn BlockDevice, model: &mut [u8], random: &mut Random) -> What {
    let range = some_range(model, random);
    let bytes = random.bytes((range.end - range.start) as usize);
    device.write_at(range.start, &bytes).expect("write");
    model[range.start as usize..range.end as usize].copy_from_slice(&bytes);
    What::ContentChange {
        versions: sectors(model, range),
        len: None,
    }
}

fn discard(device: &dyn BlockDevice, model: &mut [u8], random: &mut Random) -> What {
    let range = some_range(model, random);
    let part = range.start as usize..range.end as usize;
    if random.one_in(2) {
        device
            .discard(range.clone(), AfterDiscard::Zeros)
            .expect("discard to zeros");
        model[part].fill(0);
        return What::ContentChange {
            versions: sectors(model, range),
            len: None,
        };
    }
    // Whole sectors only, and in one write: the rest of a partial sector would be undefined too.
    let whole = range.start.next_multiple_of(SECTOR)
        ..(range.end / SECTOR * SECTOR).max(range.start.next_multiple_of(SECTOR));
    if whole.end > range.end || whole.is_empty() {
        return What::ContentChange {
            versions: Vec::new(),
            len: None,
        };
    }
    device
        .discard(whole.clone(), AfterDiscard::Any)
        .expect("discard to anything");
    let bytes = random.bytes((whole.end - whole.start) as usize);
    device
        .write_at(whole.start, &bytes)
        .expect("write what was discarded");
    model[whole.start as usize..whole.end as usize].copy_from_slice(&bytes);
    let mut versions: Vec<_> = (whole.start / SECTOR..whole.end / SECTOR)
        .map(|sector| (sector, Version::Anything))
        .collect();
    versions.extend(sectors(model, whole));
    What::ContentChange {
        versions,
        len: None,
    }
}

fn resize(
    device: &dyn BlockDevice,
    model: &mut Vec<u8>,
    random: &mut Random,
    first: u64,
    by: u64,
) -> What {
    let old = model.len() as u64;
    let len = random.within(first.saturating_sub(by).max(SECTOR)..first + by + 1) / SECTOR * SECTOR;
    device
        .set_len(len, AfterDiscard::Zeros)
        .expect("change the length");
    model.resize(len as usize, 0);
    // Truncated bytes are zeros if they become visible again.
    let changed = if len < old {
        sectors(model, len..old)
    } else {
        sectors(model, old..len)
    };
    What::ContentChange {
        versions: changed,
        len: Some(len),
    }
}

/// Returns a range, mostly short, often at a boundary, sometimes of whole sectors.
fn some_range(model: &[u8], random: &mut Random) -> Range<u64> {
    let len = model.len() as u64;
    let longest = if random.one_in(8) { 40_000 } else { 3000 };
    let size = random.within(1..longest).min(len);
    let start = match random.within(0..4) {
        0 => 0,
        1 => len - size,
        _ => random.within(0..len - size + 1),
    };
    let end = start + size;
    if random.one_in(2) && size > 2 * SECTOR {
        return start.next_multiple_of(SECTOR)..end / SECTOR * SECTOR;
    }
    start..end
}

/// The steps so far, as relevant to a crash.
struct Past {
    steps: Vec<RecordedRequest>,
    /// Number of steps that a flush has made durable.
    settled_steps: usize,
    durable: Vec<Version>,
    settled_len: u64,
    position: usize,
}

impl Past {
    fn new(steps: Vec<RecordedRequest>) -> Self {
        Self {
            steps,
            settled_steps: 0,
            durable: Vec::new(),
            settled_len: 0,
            position: 0,
        }
    }

    /// Advances to a crash after `position` events.
    fn advance(&mut self, position: usize) {
        self.position = position;
        let done =
            |step: &RecordedRequest| matches!(step.what, What::Flush) && step.end <= position;
        let Some(last) = self
            .steps
            .iter()
            .rposition(done)
            .filter(|last| *last >= self.settled_steps)
        else {
            return;
        };
        for step in &self.steps[self.settled_steps..=last] {
            let What::ContentChange { versions, len } = &step.what else {
                continue;
            };
            for (sector, version) in versions {
                let index = *sector as usize;
                if self.durable.len() <= index {
                    self.durable.resize(index + 1, Version::Bytes(Vec::new()));
                }
                self.durable[index] = version.clone();
            }
            self.settled_len = len.unwrap_or(self.settled_len);
        }
        self.settled_steps = last + 1;
    }

    /// Returns the changes since the last flush, including the one in flight.
    fn unsettled(&self) -> impl Iterator<Item = (&[(u64, Version)], Option<u64>)> {
        let begun =
            |step: &&RecordedRequest| step.begin < self.position || step.end <= self.position;
        self.steps[self.settled_steps..]
            .iter()
            .take_while(begun)
            .filter_map(|step| match &step.what {
                What::ContentChange { versions, len } => Some((versions.as_slice(), *len)),
                What::Flush => None,
            })
    }

    fn allows_len(&self, len: u64) -> bool {
        len == self.settled_len || self.unsettled().any(|(_, changed)| changed == Some(len))
    }

    /// Describes the first sector that contains neither flushed nor later data, if any.
    fn refuses(&self, found: &[u8]) -> Option<String> {
        let mut later: BTreeMap<u64, Vec<&Version>> = BTreeMap::new();
        for (sector, version) in self.unsettled().flat_map(|(versions, _)| versions) {
            later.entry(*sector).or_default().push(version);
        }
        let zeros = Version::Bytes(Vec::new());
        for (sector, bytes) in (0..).zip(found.chunks(SECTOR as usize)) {
            let later = later.get(&sector).map_or(&[][..], Vec::as_slice);
            let durable = self.durable.get(sector as usize).unwrap_or(&zeros);
            if !durable.allows(bytes) && !later.iter().any(|version| version.allows(bytes)) {
                let what = if bytes.iter().all(|byte| *byte == 0) {
                    "zeros"
                } else {
                    "other bytes"
                };
                let at = sector * SECTOR;
                return Some(format!(
                    "{what} at byte {at}, neither what was flushed nor one of {} later versions",
                    later.len()
                ));
            }
        }
        None
    }
}
