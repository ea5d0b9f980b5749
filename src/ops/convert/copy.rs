//! Copy of a disk to a blank one.
//!
//! For targets of many files the disk is divided into stretches, which threads copy in parallel:
//! files written in parallel are faster than one. Zeros are not stored, whether the source reports
//! them as holes or holds them as data.

use std::iter;
use std::ops::Range;

use crate::device::{self, AfterDiscard, BlockDevice, BlockDeviceExt, ExtentKind, is_zero};
use crate::ops::pipeline::{self, DiskPiece};
use crate::parallel::{self, StopFlag};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// Smallest stretch, in bytes. It is rounded up to a multiple of the target's bands. Small, so that
/// no thread is left with a large part of a source that is slow to decode.
const STRETCH: u64 = 4 << 20;
/// Bytes read at a time: as much as fits in a core's cache, so that the search for zeros and the
/// write find the data there. More is no faster anywhere, and on ext4 half as fast. Copies by the
/// kernel are no alternative: it does not search for zeros.
const PIECE: usize = 256 << 10;
/// Largest extent that is read in one piece, in bytes: compressed chunks are extents of their own,
/// and are decoded whole.
const WHOLE: usize = 1 << 20;
/// Granularity at which zeros are omitted, in bytes: the usual block size of file systems.
const BLOCK: usize = 4096;
/// Largest number of threads; more of them only wait for the disk.
const MAX_THREADS: usize = 16;

/// Amount of data moved by a copy.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CopyCounts {
    /// Bytes read: all but holes and ranges known to be zeros.
    pub read: u64,
    /// Bytes written: all but zeros.
    pub written: u64,
}

impl std::ops::Add for CopyCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read: self.read + other.read,
            written: self.written + other.written,
        }
    }
}

/// The order of writes of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Several threads; each aligned unit of this many bytes is written by one thread only.
    SideBySide(u64),
    /// One thread reads and one writes, so that the target is written in the order of the disk.
    FrontToBack,
    /// Several threads, to a disk that may hold any data: zeros are written too.
    Over,
}

/// Copies a disk to a blank one of the same length. The caller flushes.
pub fn copy(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    order: Order,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let len = from.info().len;
    if to.info().len != len {
        let message = format!(
            "a disk of {len} bytes does not fit in one of {} bytes",
            to.info().len
        );
        return Err(Error::new(Kind::Invalid, "copy", message));
    }
    progress.stage("copy", len);
    copy_range(from, to, 0..len, order, progress)
}

/// Returns true if two disks have the same length and contents.
pub(super) fn is_same(
    one: &dyn BlockDevice,
    other: &dyn BlockDevice,
    progress: &dyn Progress,
) -> Result<bool> {
    let len = one.info().len;
    if other.info().len != len {
        return Ok(false);
    }
    progress.stage("compare", len);
    let (mut ours, mut theirs) = (device::zeros(WHOLE)?, device::zeros(WHOLE)?);
    let mut at = 0;
    while at < len {
        progress.check()?;
        let extents = [one.extent_at(at..len)?, other.extent_at(at..len)?];
        let common = extents[0].len.min(extents[1].len);
        let is_data = extents.iter().any(|extent| extent.kind == ExtentKind::Data);
        let now = if is_data {
            common.min(WHOLE as u64)
        } else {
            common
        };
        if is_data {
            let (ours, theirs) = (&mut ours[..to_usize(now)], &mut theirs[..to_usize(now)]);
            one.read_at(at, ours)?;
            other.read_at(at, theirs)?;
            if ours != theirs {
                return Ok(false);
            }
        }
        progress.advance(now);
        at += now;
    }
    Ok(true)
}

/// Copies a range of a disk to the same range of another, which is blank there.
pub(super) fn copy_range(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    range: Range<u64>,
    order: Order,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    match order {
        Order::SideBySide(unit) => side_by_side(from, to, range, unit, false, progress),
        Order::Over => side_by_side(from, to, range, 1, true, progress),
        Order::FrontToBack => front_to_back(from, to, range, progress),
    }
}

fn front_to_back(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    range: Range<u64>,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let mut copied = CopyCounts::default();
    pipeline::in_order(from, range, progress, |piece| {
        let DiskPiece::Data(at, bytes) = piece else {
            return Ok(());
        };
        copied.read += bytes.len() as u64;
        for run in runs_of_data(bytes, at) {
            to.write_at(at + run.start as u64, &bytes[run.clone()])?;
            copied.written += run.len() as u64;
        }
        Ok(())
    })?;
    Ok(copied)
}

fn side_by_side(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    range: Range<u64>,
    unit: u64,
    zeros: bool,
    progress: &dyn Progress,
) -> Result<CopyCounts> {
    let stretch = STRETCH.next_multiple_of(unit.max(1));
    let mut at = range.start;
    let stretches = iter::from_fn(|| {
        let start = at;
        at = (at - at % stretch).saturating_add(stretch).min(range.end);
        (start < at).then_some(start..at)
    });
    let count = range
        .end
        .div_ceil(stretch)
        .saturating_sub(range.start / stretch);
    let threads = parallel::cores(MAX_THREADS).min(usize::try_from(count).unwrap_or(MAX_THREADS));
    let begin = || CopyThread {
        from,
        to,
        zeros,
        progress,
        buf: Vec::new(),
        copied: CopyCounts::default(),
    };
    let done = parallel::each(threads, stretches, begin, CopyThread::copy_stretch)?;
    Ok(done
        .iter()
        .fold(CopyCounts::default(), |sum, thread| sum + thread.copied))
}

/// One of the threads of a copy.
struct CopyThread<'a> {
    from: &'a dyn BlockDevice,
    to: &'a dyn BlockDevice,
    /// True if zeros have to be written, because the target is not blank.
    zeros: bool,
    progress: &'a dyn Progress,
    buf: Vec<u8>,
    copied: CopyCounts,
}

impl CopyThread<'_> {
    fn copy_stretch(&mut self, range: Range<u64>, stop: &StopFlag) -> Result<()> {
        for extent in self.from.extents(range) {
            let (range, kind) = extent?;
            if kind == ExtentKind::Data {
                self.copy_data(range, stop)?;
            } else {
                self.pass_zeros(range, stop)?;
            }
        }
        Ok(())
    }

    fn pass_zeros(&self, range: Range<u64>, stop: &StopFlag) -> Result<()> {
        /// Bytes of zeros written between two checks for cancellation.
        const ZEROS: u64 = 16 << 20;
        let mut at = range.start;
        while at < range.end {
            stop.check()?;
            self.progress.check()?;
            let end = if self.zeros {
                at.saturating_add(ZEROS).min(range.end)
            } else {
                range.end
            };
            if self.zeros {
                self.to.discard(at..end, AfterDiscard::Zeros)?;
            }
            self.progress.advance(end - at);
            at = end;
        }
        Ok(())
    }

    fn copy_data(&mut self, range: Range<u64>, stop: &StopFlag) -> Result<()> {
        if self.buf.is_empty() {
            self.buf = device::zeros(WHOLE)?;
        }
        let whole = range.end - range.start <= WHOLE as u64;
        let mut at = range.start;
        while at < range.end {
            stop.check()?;
            self.progress.check()?;
            // Up to the next multiple of a piece, so that all pieces but the first begin at a
            // block.
            let most = if whole {
                WHOLE as u64
            } else {
                PIECE as u64 - at % PIECE as u64
            };
            let piece = &mut self.buf[..to_usize(most.min(range.end - at))];
            self.from.read_at(at, piece)?;
            if self.zeros {
                self.to.write_at(at, piece)?;
                self.copied.written += piece.len() as u64;
            }
            for run in runs_of_data(piece, at).filter(|_| !self.zeros) {
                self.to
                    .write_at(at + run.start as u64, &piece[run.clone()])?;
                self.copied.written += run.len() as u64;
            }
            self.copied.read += piece.len() as u64;
            at += piece.len() as u64;
            self.progress.advance(piece.len() as u64);
        }
        Ok(())
    }
}

/// Returns the runs of `bytes`, which begin at disk offset `offset`, without blocks of zeros.
pub(super) fn runs_of_data(bytes: &[u8], offset: u64) -> impl Iterator<Item = Range<usize>> {
    let first = BLOCK - to_usize(offset % BLOCK as u64);
    let block_at = move |at: usize| at..(if at == 0 { first } else { at + BLOCK }).min(bytes.len());
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(&bytes[block_at(at)]) {
            at = block_at(at).end;
        }
        let start = at;
        while at < bytes.len() && !is_zero(&bytes[block_at(at)]) {
            at = block_at(at).end;
        }
        (start < at).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::progress::Silent;

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut bytes = vec![0; 5 * BLOCK];
        bytes[BLOCK] = 1;
        bytes[3 * BLOCK - 1] = 1;
        bytes[5 * BLOCK - 1] = 1;
        let runs = |bytes: &[u8], offset| runs_of_data(bytes, offset).collect::<Vec<_>>();
        assert_eq!(runs(&bytes, 0), [BLOCK..3 * BLOCK, 4 * BLOCK..5 * BLOCK]);
        // Blocks are counted from the beginning of the disk, not of the buffer.
        let shifted = [3584..7680, 11776..15872, 19968..20480];
        assert_eq!(runs(&bytes, 512), shifted);
        assert_eq!(runs(&[0; 10], 4090), []);
        assert_eq!(runs(&[1; 10], 4090), std::slice::from_ref(&(0..10)));
    }

    #[test]
    fn any_length_is_copied() {
        for len in [0, 1, 511, 4097, PIECE - 1, PIECE + 1, 3 * PIECE + 77] {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 5000 % 3 * 100) as u8).collect();
            for order in [Order::SideBySide(1), Order::FrontToBack] {
                let (from, to) = (Memory::from(bytes.clone()), Memory::zeros(len));
                let copied = copy(&from, &to, order, &Silent).unwrap();
                assert!(to.to_vec() == bytes, "{len}");
                assert_eq!(copied.read, len as u64);
                assert!(copied.written <= copied.read);
            }
        }
        assert_eq!(
            copy(
                &Memory::zeros(1),
                &Memory::zeros(2),
                Order::FrontToBack,
                &Silent
            )
            .unwrap_err()
            .kind(),
            Kind::Invalid
        );
    }

    #[test]
    fn zeros_replace_what_was_there() {
        let mut bytes = vec![0; 3 * PIECE + 77];
        bytes[PIECE + 5000..PIECE + 9000].fill(7);
        let to = Memory::from(vec![0xEE; bytes.len()]);
        copy(&Memory::from(bytes.clone()), &to, Order::Over, &Silent).unwrap();
        assert!(to.to_vec() == bytes);
    }
}
