//! The conformance suite for devices.

use std::fmt;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Case, MIN_LEN, Promise};
use crate::Random;
use bandsaw_core::Kind;
use bandsaw_core::device::{AfterDiscard, BlockDevice, ExtentKind};

/// Runs the suite on the devices that `make` creates. Each must be new, writable and at least
/// [`MIN_LEN`] bytes long, with any contents.
pub fn device(make: impl Fn() -> Arc<dyn BlockDevice>) {
    Devices::new(make).check();
}

/// Devices under test, and their properties.
pub struct Devices<'a> {
    make: Box<dyn Fn() -> Arc<dyn BlockDevice> + 'a>,
    reopen: Option<Box<dyn Fn() -> Arc<dyn BlockDevice> + 'a>>,
    unit: u64,
}

impl fmt::Debug for Devices<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices")
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}

impl<'a> Devices<'a> {
    /// Creates a suite for the devices that `make` creates, as for [`device`].
    pub fn new(make: impl Fn() -> Arc<dyn BlockDevice> + 'a) -> Self {
        Self {
            make: Box::new(make),
            reopen: None,
            unit: 4096,
        }
    }

    /// Sets a function that reopens the device that was created last, after it was dropped: flushed
    /// data must be there.
    #[must_use]
    pub fn reopen(mut self, reopen: impl Fn() -> Arc<dyn BlockDevice> + 'a) -> Self {
        self.reopen = Some(Box::new(reopen));
        self
    }

    /// Sets the allocation unit of the device (a band, a chunk) in bytes, whose boundaries are
    /// tested. Default: 4096.
    #[must_use]
    pub fn unit(mut self, unit: u64) -> Self {
        assert!(unit > 0, "a unit has bytes");
        self.unit = unit;
        self
    }

    /// Runs the suite.
    pub fn check(&self) {
        for (promise, check) in CHECKS {
            check(&self.case(promise, (self.make)()));
        }
        self.lasts("what was flushed is there when opened again", |case| {
            case.fill_windows(20)
        });
        self.lasts(
            "what was discarded and flushed is gone when opened again",
            |case| {
                case.fill_windows(21);
                for range in discards(case) {
                    case.must("discard", case.device.discard(range, AfterDiscard::Zeros));
                }
                case.read_windows()
            },
        );
        self.lasts(
            "a length that was flushed is there when opened again",
            |case| {
                case.fill_windows(22);
                let len = case.len() + 3 * u64::from(case.info().block);
                let _unsupported = case.device.set_len(len, AfterDiscard::Zeros);
                case.fill_windows(23)
            },
        );
    }

    fn case(&self, promise: &'static str, device: Arc<dyn BlockDevice>) -> Case {
        let case = Case {
            promise,
            device,
            unit: self.unit,
        };
        case.claim(
            case.len() >= MIN_LEN,
            format_args!("the suite needs {MIN_LEN} bytes, not {}", case.len()),
        );
        case.claim(
            case.is_writable(),
            "the suite needs a device that can be written",
        );
        case
    }

    /// Changes a device, flushes it, reopens it and compares.
    fn lasts(&self, promise: &'static str, change: impl Fn(&Case) -> Vec<(u64, Vec<u8>)>) {
        let Some(reopen) = &self.reopen else { return };
        let case = self.case(promise, (self.make)());
        let expected = change(&case);
        let len = case.len();
        case.must("flush", case.device.flush());
        drop(case);
        let case = self.case(promise, reopen());
        case.claim(
            case.len() == len,
            format_args!("the length was {len}, now it is {}", case.len()),
        );
        case.expect_windows(&expected, "opened again");
        for window in case.windows() {
            case.check_extents(window);
        }
    }
}

/// Checks that a read-only device refuses every change with [`Kind::ReadOnly`] and still reads and
/// flushes.
pub fn read_only(device: Arc<dyn BlockDevice>) {
    let case = Case {
        promise: "a read-only device stays as it is",
        device,
        unit: 4096,
    };
    case.claim(!case.is_writable(), "info says it can be written");
    let before = case.read_windows();
    let (device, len) = (&case.device, case.len());
    case.must_refuse("write", Kind::ReadOnly, device.write_at(0, &[1; 512]));
    case.must_refuse(
        "discard to zeros",
        Kind::ReadOnly,
        device.discard(0..len, AfterDiscard::Zeros),
    );
    case.must_refuse(
        "discard to anything",
        Kind::ReadOnly,
        device.discard(0..len, AfterDiscard::Any),
    );
    for target in [0, len / 2, len + 4096] {
        // A device of fixed length may report that instead, which is as true.
        let error = device
            .set_len(target, AfterDiscard::Zeros)
            .expect_err("a read-only device changed its length");
        case.claim(
            matches!(error.kind(), Kind::ReadOnly | Kind::Unsupported),
            format_args!("set_len: {error:?}"),
        );
    }
    case.must("flush", device.flush());
    case.claim(case.len() == len, "its length changed");
    case.expect_windows(&before, "after refused changes");
    case.check_extents(0..len);
}

type Check = fn(&Case);

const CHECKS: &[(&str, Check)] = &[
    ("info makes sense and does not change", info_makes_sense),
    ("what was written is read", written_bytes_are_read),
    ("any offset and length will do", any_offset_and_length),
    ("the last byte is like the others", the_last_byte),
    (
        "one byte too many is refused and changes nothing",
        one_byte_too_many,
    ),
    ("an empty range within the length succeeds", empty_ranges),
    (
        "a discarded range reads as zeros, its neighbors stay",
        discards_leave_zeros,
    ),
    (
        "a discard that leaves anything leaves its neighbors",
        discards_leave_anything,
    ),
    (
        "extents cover the range and agree with its contents",
        extents_agree,
    ),
    ("what is lent is what is read", lent_ranges_are_read),
    ("a flush without changes succeeds", flushes),
    ("a length can be changed, or is refused", lengths_change),
    ("eight threads in eight units", super::threads::eight_units),
    ("eight threads in one unit", super::threads::one_unit),
    (
        "reads beside discards",
        super::threads::reads_beside_discards,
    ),
    (
        "a length is cut beside requests",
        super::threads::cuts_beside_requests,
    ),
];

fn info_makes_sense(case: &Case) {
    let info = case.info();
    case.claim(
        matches!(info.block, 512 | 4096),
        format_args!("a sector of {} bytes", info.block),
    );
    case.claim(
        info.write >= 1 && info.discard >= 1,
        format_args!("{info:?} has a grain of nothing"),
    );
    case.fill_windows(1);
    case.must("flush", case.device.flush());
    case.claim(
        case.info() == info,
        format_args!("{info:?} became {:?} by writing", case.info()),
    );
}

fn written_bytes_are_read(case: &Case) {
    let written = case.fill_windows(2);
    case.expect_windows(&written, "read again");
    let again = case.fill_windows(3);
    case.expect_windows(&again, "overwritten and read again");
    case.must("flush", case.device.flush());
    case.expect_windows(&again, "after the flush");
}

fn any_offset_and_length(case: &Case) {
    const LENGTHS: [u64; 10] = [1, 3, 15, 511, 512, 513, 4095, 4096, 4097, 9001];
    let mut random = Random::new(4);
    for window in case.windows() {
        let mut model = case.read(window.clone());
        let size = window.end - window.start;
        for len in LENGTHS.into_iter().filter(|len| *len < size) {
            // Across the middle, where a unit boundary is, at an odd offset, and at both ends.
            for start in [
                (size - len) / 2,
                random.within(0..size - len),
                0,
                size - len,
            ] {
                let bytes = random.bytes(len as usize);
                case.write(window.start + start, &bytes);
                model[start as usize..(start + len) as usize].copy_from_slice(&bytes);
                case.expect(window.start + start, &bytes, "the bytes just written");
            }
            case.expect(
                window.start,
                &model,
                &format!("around writes of {len} bytes"),
            );
        }
        for len in LENGTHS.into_iter().filter(|len| *len < size) {
            let start = random.within(0..size - len);
            case.expect(
                window.start + start,
                &model[start as usize..(start + len) as usize],
                "a part alone",
            );
        }
    }
}

fn the_last_byte(case: &Case) {
    let last = case.len() - 1;
    for value in [[0xff], [0x01]] {
        case.write(last, &value);
        case.expect(last, &value, "the last byte");
    }
}

fn one_byte_too_many(case: &Case) {
    let before = case.fill_windows(5);
    let (device, len) = (&case.device, case.len());
    for (offset, length) in [
        (len, 1),
        (len - 1, 2),
        (0, len + 1),
        (len + 1, 0),
        (u64::MAX, 1),
        (u64::MAX - 1, 4096),
    ] {
        let what = format!("{length} bytes at {offset} of {len}");
        let range = offset..offset.saturating_add(length);
        if length <= 4096 {
            let mut buf = vec![0xee; length as usize];
            case.must_refuse(
                format_args!("read {what}"),
                Kind::OutOfRange,
                device.read_at(offset, &mut buf),
            );
            case.claim(
                buf.iter().all(|byte| *byte == 0xee),
                format_args!("read {what}: the buffer was changed"),
            );
            case.must_refuse(
                format_args!("write {what}"),
                Kind::OutOfRange,
                device.write_at(offset, &buf),
            );
        }
        for leave in [AfterDiscard::Zeros, AfterDiscard::Any] {
            case.must_refuse(
                format_args!("discard {what}"),
                Kind::OutOfRange,
                device.discard(range.clone(), leave),
            );
        }
        if !range.is_empty() {
            case.must_refuse(
                format_args!("extent of {what}"),
                Kind::OutOfRange,
                device.extent_at(range.clone()),
            );
        }
        case.must_refuse(
            format_args!("lend {what}"),
            Kind::OutOfRange,
            device.file_range(range),
        );
    }
    let backwards = Range { start: 2, end: 1 };
    case.must_refuse(
        "discard 2..1",
        Kind::Invalid,
        device.discard(backwards.clone(), AfterDiscard::Zeros),
    );
    case.must_refuse("lend 2..1", Kind::Invalid, device.file_range(backwards));
    case.claim(case.len() == len, "the length changed");
    case.expect_windows(&before, "after refused requests");
}

fn empty_ranges(case: &Case) {
    let before = case.fill_windows(6);
    let (device, len) = (&case.device, case.len());
    for at in [0, 1, case.unit.min(len), len - 1, len] {
        case.must(
            format_args!("read nothing at {at}"),
            device.read_at(at, &mut []),
        );
        case.must(
            format_args!("write nothing at {at}"),
            device.write_at(at, &[]),
        );
        for leave in [AfterDiscard::Zeros, AfterDiscard::Any] {
            case.must(
                format_args!("discard nothing at {at}"),
                device.discard(at..at, leave),
            );
        }
        let lent = case.must(
            format_args!("lend nothing at {at}"),
            device.file_range(at..at),
        );
        case.claim(
            lent.is_none(),
            format_args!("lend nothing at {at}: something was lent"),
        );
    }
    case.expect_windows(&before, "after requests for nothing");
}

/// Returns ranges around the unit boundaries: a few bytes, whole sectors, whole blocks, and (if not
/// too long) whole units.
fn discards(case: &Case) -> Vec<Range<u64>> {
    let len = case.len();
    let mut ranges = Vec::new();
    for seam in case.seams() {
        let around = |before: u64, after: u64| seam.saturating_sub(before)..len.min(seam + after);
        ranges.extend([
            around(1, 1),
            around(5, 700),
            around(512, 512),
            around(4096, 0),
            around(0, 8192),
            around(5000, 9999),
        ]);
        if case.unit <= 64 << 20 {
            ranges.push(around(case.unit, 0));
        }
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}

fn discards_leave_zeros(case: &Case) {
    for range in discards(case) {
        let mut expected = case.fill_windows(7);
        case.must(
            format_args!("discard {range:?}"),
            case.device.discard(range.clone(), AfterDiscard::Zeros),
        );
        for (start, bytes) in &mut expected {
            zero_part(*start, bytes, &range);
        }
        case.expect_windows(&expected, &format!("after discarding {range:?}"));
        case.check_extents(range.start..case.len().min(range.end + 1));
    }
    let filled = case.fill_windows(8);
    case.expect_windows(&filled, "written again after discards");
}

fn zero_part(start: u64, bytes: &mut [u8], range: &Range<u64>) {
    let end = start + bytes.len() as u64;
    let (from, to) = (
        range.start.clamp(start, end) - start,
        range.end.clamp(start, end) - start,
    );
    bytes[from as usize..to as usize].fill(0);
}

fn discards_leave_anything(case: &Case) {
    for range in discards(case) {
        let before = case.fill_windows(9);
        case.must(
            format_args!("discard {range:?}"),
            case.device.discard(range.clone(), AfterDiscard::Any),
        );
        for (start, bytes) in &before {
            for part in [
                *start..range.start.min(start + bytes.len() as u64),
                range.end.max(*start)..start + bytes.len() as u64,
            ] {
                if !part.is_empty() {
                    let expected =
                        &bytes[(part.start - start) as usize..(part.end - start) as usize];
                    case.expect(part.start, expected, &format!("beside discarded {range:?}"));
                }
            }
        }
        case.check_extents(range.clone());
        let bytes = Random::new(10).bytes((range.end - range.start).min(MIN_LEN) as usize);
        case.write(range.start, &bytes);
        case.expect(
            range.start,
            &bytes,
            &format!("written again after discarding {range:?}"),
        );
    }
}

fn extents_agree(case: &Case) {
    let len = case.len();
    case.check_extents(0..len);
    case.fill_windows(11);
    for window in case.windows() {
        for (at, kind) in case.check_extents(window.clone()) {
            case.claim(
                kind == ExtentKind::Data,
                format_args!("{at:?} was written and is {kind:?}"),
            );
        }
    }
    for range in discards(case) {
        case.must("discard", case.device.discard(range, AfterDiscard::Zeros));
        for window in case.windows() {
            case.check_extents(window);
        }
    }
    case.must("flush", case.device.flush());
    case.check_extents(0..len);
    for at in [0, 1, len / 2, len - 1] {
        let extent = case.must(
            format_args!("extent of one byte at {at}"),
            case.device.extent_at(at..at + 1),
        );
        case.claim(
            extent.len == 1,
            format_args!("an extent of {} bytes for one byte", extent.len),
        );
    }
}

fn lent_ranges_are_read(case: &Case) {
    case.fill_windows(12);
    for window in case.windows() {
        let mut at = window.start + (window.end - window.start) / 3;
        while at < window.end {
            let lent = case.must(
                format_args!("lend {at}..{}", window.end),
                case.device.file_range(at..window.end),
            );
            let Some(lent) = lent else { break };
            case.claim(
                (1..=window.end - at).contains(&lent.len),
                format_args!("{} bytes were lent", lent.len),
            );
            let mut bytes = vec![0; lent.len as usize];
            lent.file
                .read_exact_at(&mut bytes, lent.offset)
                .unwrap_or_else(|error| panic!("{}: {error}", case.promise));
            case.expect(at, &bytes, "the file behind it");
            at += lent.len;
        }
    }
}

fn flushes(case: &Case) {
    let before = case.read_windows();
    case.must("flush", case.device.flush());
    case.must("flush again", case.device.flush());
    case.expect_windows(&before, "after the flush");
    case.write(0, b"x");
    case.must("flush a write", case.device.flush());
    case.must("flush it again", case.device.flush());
}

fn lengths_change(case: &Case) {
    let before = case.fill_windows(13);
    let (len, block) = (case.len(), u64::from(case.info().block));
    let change = |to: u64, leave| case.device.set_len(to, leave);
    let more = len + case.unit.min(64 << 20) + 3 * block;
    match change(more, AfterDiscard::Zeros) {
        Err(error) if error.kind() == Kind::Unsupported => {
            case.claim(case.len() == len, "refused, yet the length changed");
            case.expect_windows(&before, "after a refused change of length");
            return;
        }
        grown => case.must("grow", grown),
    }
    case.claim(
        case.len() == more,
        format_args!("grown to {more}, info says {}", case.len()),
    );
    case.expect_windows(&[(len, vec![0; (more - len) as usize])], "new bytes");
    before
        .iter()
        .for_each(|(at, bytes)| case.expect(*at, bytes, "after growing"));
    case.fill_windows(14);
    case.must_refuse(
        "read past the new end",
        Kind::OutOfRange,
        case.device.read_at(more, &mut [0]),
    );
    cut_and_grow(case, len - 5 * block, more);
    case.must("the old length again", change(len, AfterDiscard::Any));
    case.claim(case.len() == len, "the old length does not come back");
    case.must("the same length", change(len, AfterDiscard::Zeros));
}

/// Checks that truncated data does not reappear when the device grows again.
fn cut_and_grow(case: &Case, less: u64, more: u64) {
    match case.device.set_len(less, AfterDiscard::Zeros) {
        Err(error) if error.kind() == Kind::Unsupported => return,
        cut => case.must("cut", cut),
    }
    case.claim(
        case.len() == less,
        format_args!("cut to {less}, info says {}", case.len()),
    );
    let kept = case.read_windows();
    case.must_refuse(
        "read what was cut off",
        Kind::OutOfRange,
        case.device.read_at(less, &mut [0]),
    );
    case.must_refuse(
        "write what was cut off",
        Kind::OutOfRange,
        case.device.write_at(less, &[1]),
    );
    case.must("grow again", case.device.set_len(more, AfterDiscard::Zeros));
    case.expect(
        less,
        &vec![0; (more - less) as usize],
        "cut off and grown again",
    );
    case.expect_windows(&kept, "before the cut");
    case.check_extents(less..more);
}
