//! Sequential read of a disk with read-ahead: one thread reads or decodes while another writes or
//! computes checksums.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use crate::device::{self, BlockDevice, BlockDeviceExt, ExtentKind};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

/// Largest piece of data, in bytes: a chunk of most formats. An extent of at most this length is
/// one piece, so that its chunk is decoded as a whole; all pieces of longer extents but the first
/// begin at a multiple of this size.
pub(super) const PIECE: usize = 1 << 20;
/// Number of pieces read ahead.
const AHEAD: usize = 4;
/// Largest run of zeros handed over at a time, in bytes, so that progress stays visible.
const MAX_ZEROS: u64 = 64 << 20;

/// The next piece of the disk, with its offset.
#[derive(Debug)]
pub(super) enum DiskPiece<'a> {
    Data(u64, &'a [u8]),
    /// A range for which the source stores no data.
    Zeros(Range<u64>),
}

enum Read {
    Data(u64, Vec<u8>, usize),
    Zeros(Range<u64>),
}

/// Passes `range` of `disk` to `take` in pieces, in order and without gaps, until `take` or a read
/// fails or `progress` cancels. Uses [`AHEAD`] buffers of [`PIECE`] bytes.
pub(super) fn in_order(
    disk: &dyn BlockDevice,
    range: Range<u64>,
    progress: &dyn Progress,
    mut take: impl FnMut(DiskPiece<'_>) -> Result<()>,
) -> Result<()> {
    let (full, pieces) = sync_channel(AHEAD);
    let (empty, buffers) = channel();
    for _ in 0..AHEAD {
        let _ = empty.send(device::zeros(PIECE)?); // the receiver exists
    }
    thread::scope(|scope| {
        let reader = thread::Builder::new()
            .spawn_scoped(scope, move || read(disk, range, &full, &buffers))
            .map_err(|source| Error::io("disk", "start a thread", source))?;
        // The closure drops both channel ends when it returns, which ends the reader.
        let taken = (move || {
            for piece in pieces {
                progress.check()?;
                match piece {
                    Read::Data(at, buf, len) => {
                        take(DiskPiece::Data(at, &buf[..len]))?;
                        progress.advance(len as u64);
                        let _ = empty.send(buf);
                    }
                    Read::Zeros(range) => {
                        let len = range.end - range.start;
                        take(DiskPiece::Zeros(range))?;
                        progress.advance(len);
                    }
                }
            }
            Ok(())
        })();
        let read = reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        taken.and(read)
    })
}

/// Reads until the end of `range`, or until the receiver is dropped.
fn read(
    disk: &dyn BlockDevice,
    range: Range<u64>,
    full: &SyncSender<Read>,
    buffers: &Receiver<Vec<u8>>,
) -> Result<()> {
    for extent in disk.extents(range) {
        let (range, kind) = extent?;
        let whole = range.end - range.start <= PIECE as u64;
        let mut at = range.start;
        while at < range.end {
            let read = if kind == ExtentKind::Data {
                let Ok(mut buf) = buffers.recv() else {
                    return Ok(());
                };
                let most = if whole {
                    PIECE as u64
                } else {
                    PIECE as u64 - at % PIECE as u64
                };
                let len = to_usize(most.min(range.end - at));
                disk.read_at(at, &mut buf[..len])?;
                Read::Data(at, buf, len)
            } else {
                Read::Zeros(at..range.end.min(at + MAX_ZEROS))
            };
            at += match &read {
                Read::Data(_, _, len) => *len as u64,
                Read::Zeros(zeros) => zeros.end - zeros.start,
            };
            if full.send(read).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::progress::Silent;
    use crate::{Error, Kind};

    #[test]
    fn pieces_make_up_the_disk() {
        let bytes: Vec<u8> = (0..7 * PIECE + 77)
            .map(|at| {
                if at % (3 * PIECE) < PIECE {
                    (at / 1000) as u8
                } else {
                    0
                }
            })
            .collect();
        let disk = Memory::from(bytes.clone());
        for start in [0, 1, PIECE + 5] {
            let (mut seen, mut next) = (Vec::new(), start as u64);
            in_order(&disk, start as u64..bytes.len() as u64, &Silent, |piece| {
                let at = match piece {
                    DiskPiece::Data(at, data) => {
                        seen.extend_from_slice(data);
                        at
                    }
                    DiskPiece::Zeros(range) => {
                        seen.resize(seen.len() + (range.end - range.start) as usize, 0);
                        range.start
                    }
                };
                assert_eq!(at, next);
                next = (start + seen.len()) as u64;
                Ok(())
            })
            .unwrap();
            assert!(seen == bytes[start..]);
        }
    }

    #[test]
    fn whoever_takes_may_stop() {
        let disk = Memory::from(vec![1; 20 * PIECE]);
        let mut count = 0;
        let stopped = in_order(&disk, 0..20 * PIECE as u64, &Silent, |_| {
            count += 1;
            if count == 3 {
                Err(Error::limit("test", "enough"))
            } else {
                Ok(())
            }
        });
        assert_eq!((stopped.unwrap_err().kind(), count), (Kind::Limit, 3));
        let beyond = in_order(&disk, 19 * PIECE as u64..21 * PIECE as u64, &Silent, |_| {
            Ok(())
        });
        assert_eq!(beyond.unwrap_err().kind(), Kind::OutOfRange);
    }
}
