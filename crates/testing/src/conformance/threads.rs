//! Concurrent requests: callers serialize overlapping ones, devices must handle the others.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Case, Promise};
use crate::Random;
use bandsaw_core::Kind;
use bandsaw_core::device::AfterDiscard;

const THREADS: u64 = 8;
const ROUNDS: u64 = 12;

/// Gives each thread a unit of its own (an eighth of the device if units are longer than that).
pub(super) fn eight_units(case: &Case) {
    let unit = case.unit.min(case.len() / THREADS);
    let area = |thread: u64| thread * unit..thread * unit + unit.min(64 << 10);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bytes = content(thread, round, area(thread));
                    case.write(area(thread).start, &bytes);
                    case.expect(
                        area(thread).start,
                        &bytes,
                        &format!("thread {thread} reads its own unit"),
                    );
                    if round % 4 == thread % 4 {
                        case.must("flush", case.device.flush());
                    }
                }
            });
        }
    });
    for thread in 0..THREADS {
        case.expect(
            area(thread).start,
            &content(thread, ROUNDS - 1, area(thread)),
            "after all threads",
        );
    }
}

fn content(thread: u64, round: u64, area: Range<u64>) -> Vec<u8> {
    Random::new(thread << 32 | round).bytes((area.end - area.start) as usize)
}

/// Gives eight threads every eighth piece each of one place: the first bytes of a unit, then both
/// sides of a boundary.
pub(super) fn one_unit(case: &Case) {
    const PIECE: u64 = 97;
    let size = (16 << 10).min(case.len());
    for start in [
        0,
        case.unit
            .min(case.len() - size / 2)
            .saturating_sub(size / 2),
    ] {
        let pieces = size / PIECE;
        let own = |thread: u64| (0..pieces).filter(move |piece| piece % THREADS == thread);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        own(thread).for_each(|piece| {
                            write_piece(case, start + piece * PIECE, PIECE, piece, round)
                        });
                        own(thread).for_each(|piece| {
                            expect_piece(case, start + piece * PIECE, PIECE, piece, round)
                        });
                    }
                });
            }
        });
        (0..pieces)
            .for_each(|piece| expect_piece(case, start + piece * PIECE, PIECE, piece, ROUNDS - 1));
    }
}

/// Discards some pieces, and writes the others.
fn write_piece(case: &Case, at: u64, len: u64, piece: u64, round: u64) {
    if (piece + round).is_multiple_of(5) {
        case.must(
            format_args!("discard a piece at {at}"),
            case.device.discard(at..at + len, AfterDiscard::Zeros),
        );
    } else {
        case.write(at, &content(piece, round, 0..len));
    }
}

fn expect_piece(case: &Case, at: u64, len: u64, piece: u64, round: u64) {
    let expected = if (piece + round).is_multiple_of(5) {
        vec![0; len as usize]
    } else {
        content(piece, round, 0..len)
    };
    case.expect(at, &expected, "a piece between the pieces of other threads");
}

/// Writes and discards everything around a kept range repeatedly, the next unit as a whole too; the
/// kept range must never change.
pub(super) fn reads_beside_discards(case: &Case) {
    let end = case.unit.clamp(48 << 10, 128 << 10).min(case.len());
    let unit = case.unit.max(end);
    let next = unit.min(case.len())..(2 * unit).min(case.len());
    let kept = 20_001..28_001;
    let bytes = content(1, 1, kept.clone());
    case.write(kept.start, &bytes);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    case.expect(kept.start, &bytes, "beside discards");
                    case.check_extents(kept.clone());
                }
            });
        }
        let stopping = Stop(&stop);
        for round in 0..4 * ROUNDS {
            let leave = if round % 2 == 0 {
                AfterDiscard::Zeros
            } else {
                AfterDiscard::Any
            };
            for range in [0..kept.start, kept.end..end, next.clone()] {
                let some = range.start..range.end.min(range.start + (128 << 10));
                case.write(range.start, &content(2, round, some));
                case.must("discard", case.device.discard(range, leave));
            }
        }
        drop(stopping);
    });
    case.expect(kept.start, &bytes, "after discards");
}

/// Makes requests at the end of the device while it is truncated and grown: each succeeds or is out
/// of range, nothing else.
pub(super) fn cuts_beside_requests(case: &Case) {
    let (len, block) = (case.len(), u64::from(case.info().block));
    let less = len - 8 * block;
    if case.device.set_len(len, AfterDiscard::Zeros).is_err()
        || case.device.set_len(less, AfterDiscard::Zeros).is_err()
    {
        return; // of fixed length
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut buf = vec![1; 4 * block as usize];
                while !stop.load(Ordering::Relaxed) {
                    let at = len - (4 + thread) * block;
                    let results = [
                        case.device.write_at(at, &buf),
                        case.device.read_at(at, &mut buf),
                        case.device.extent_at(at..at + block).map(drop),
                        case.device.file_range(at..at + block).map(drop),
                        case.device.discard(at..at + block, AfterDiscard::Zeros),
                    ];
                    for error in results.into_iter().filter_map(Result::err) {
                        case.claim(
                            error.kind() == Kind::OutOfRange,
                            format_args!("beside a cut: {error:?}"),
                        );
                    }
                }
            });
        }
        let stopping = Stop(&stop);
        for _ in 0..4 * ROUNDS {
            case.must("grow", case.device.set_len(len, AfterDiscard::Zeros));
            case.must("cut", case.device.set_len(less, AfterDiscard::Zeros));
        }
        drop(stopping);
    });
    case.must("grow", case.device.set_len(len, AfterDiscard::Zeros));
    case.expect(
        less,
        &vec![0; 8 * block as usize],
        "cut off beside requests",
    );
}

/// Stops the other threads, even if this one panics: otherwise the scope would never end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
