//! Search for runs of zeros in used space, all of which is read.

use std::ops::Range;

use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind, is_zero, regions};
use crate::open::Image;
use crate::ops::space::{FreeSpace, Storage, UnitKind};
use crate::progress::Progress;
use crate::size::to_usize;

/// Bytes per read, and the size of the smallest run worth a hole.
const PIECE: u64 = 1 << 20;
const GRAIN: u64 = 4096;

/// Calls `each` for the runs of zeros that are allocated and outside the free space in `free`. Each
/// can be discarded and still reads as zeros. `can_punch` is true if the host frees parts of files.
pub(super) fn find(
    image: &Image,
    storage: &Storage<'_>,
    free: &FreeSpace,
    can_punch: bool,
    progress: &dyn Progress,
    each: &mut dyn FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let disk = image.disk();
    let len = disk.info().len;
    let Some(grain) = grain(image, storage, len, can_punch) else {
        return Ok(());
    };
    progress.stage("zeros", len);
    let mut used = 0;
    for run in free.runs().map(Some).chain([None]) {
        let (start, end) = run
            .transpose()?
            .map_or((len, len), |run| (run.start, run.end));
        search(&**disk, used..start, grain, progress, each)?;
        progress.advance(end.saturating_sub(start));
        used = used.max(end);
    }
    Ok(())
}

/// Returns the granularity of runs of zeros, in bytes, at which they still read as zeros after a
/// discard. Partly discarded ciphertext reads as noise, in macOS everywhere, so only units that the
/// container does not store at all are safe. The same applies on hosts that cannot free parts of
/// files. `None`: no run can be discarded.
fn grain(image: &Image, storage: &Storage<'_>, len: u64, can_punch: bool) -> Option<u64> {
    let encrypted = image
        .layers()
        .iter()
        .any(|layer| layer.encryption().is_some());
    // The data of a stack does not come from the topmost layer alone.
    if image.overlays().next().is_some() {
        return None;
    }
    match storage.units(len) {
        (UnitKind::Piece, _) if encrypted || !can_punch => None,
        (_, size) if encrypted || !can_punch => Some(size),
        _ => Some(GRAIN),
    }
}

/// Searches `range` for whole grains of zeros.
fn search(
    disk: &dyn BlockDevice,
    range: Range<u64>,
    grain: u64,
    progress: &dyn Progress,
    each: &mut dyn FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let len = disk.info().len;
    // Partly free grains are skipped: their free part has been discarded already.
    let end = if range.end == len {
        len
    } else {
        range.end / grain * grain
    };
    let start = range.start.next_multiple_of(grain).min(range.end);
    let mut buf = Vec::new();
    if start < end && grain > GRAIN {
        return units(disk, start..end, grain, progress, each);
    }
    let mut seen = range.start;
    for extent in disk.extents(start..end) {
        let (run, kind) = extent?;
        let mut at = if kind == ExtentKind::Data {
            run.start
        } else {
            run.end
        };
        while at < run.end {
            progress.check()?;
            let piece = (run.end - at).min(PIECE);
            buf.resize(to_usize(piece), 0);
            disk.read_at(at, &mut buf)?;
            zeros_in(&buf, at, each)?;
            at += piece;
            progress.advance(at - seen);
            seen = at;
        }
    }
    progress.advance(range.end - seen);
    Ok(())
}

/// Calls `each` for the runs of whole grains of zeros in `bytes`, which begin at disk offset `at`.
fn zeros_in(bytes: &[u8], at: u64, each: &mut dyn FnMut(Range<u64>) -> Result<()>) -> Result<()> {
    let skip = (at.next_multiple_of(GRAIN) - at).min(bytes.len() as u64);
    let mut zeros: Option<Range<u64>> = None;
    let mut start = at + skip;
    for grain in bytes
        .get(to_usize(skip)..)
        .unwrap_or_default()
        .chunks(to_usize(GRAIN))
    {
        let end = start + grain.len() as u64;
        if grain.len() as u64 == GRAIN && is_zero(grain) {
            zeros = Some(zeros.map_or(start, |run| run.start)..end);
        } else if let Some(run) = zeros.take() {
            each(run)?;
        }
        start = end;
    }
    zeros.map_or(Ok(()), each)
}

/// Calls `each` for the allocated units of `size` bytes in `range` that hold only zeros. `range`
/// begins at a unit boundary.
fn units(
    disk: &dyn BlockDevice,
    range: Range<u64>,
    size: u64,
    progress: &dyn Progress,
    each: &mut dyn FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        progress.check()?;
        let end = at.saturating_add(size).min(range.end);
        if regions::is_zero(disk, at..end)? && is_stored(disk, at..end)? {
            each(at..end)?;
        }
        progress.advance(end - at);
        at = end;
    }
    Ok(())
}

fn is_stored(disk: &dyn BlockDevice, range: Range<u64>) -> Result<bool> {
    for extent in disk.extents(range) {
        if extent?.1 == ExtentKind::Data {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::progress::Silent;

    #[test]
    fn runs_are_of_whole_grains() {
        let mut bytes = vec![1; 40 << 10];
        bytes[100..4096 * 3 + 5].fill(0);
        bytes[7 * 4096..8 * 4096].fill(0);
        bytes[9 * 4096..].fill(0);
        let disk = Memory::from(bytes);
        let found = |range: Range<u64>| {
            let mut found = Vec::new();
            let mut keep = |run| {
                found.push(run);
                Ok(())
            };
            search(&disk, range, GRAIN, &Silent, &mut keep).unwrap();
            found
        };
        assert_eq!(
            found(0..40 << 10),
            [4096..3 * 4096, 7 * 4096..8 * 4096, 9 * 4096..40 << 10]
        );
        assert_eq!(found(4097..12_000), [] as [Range<u64>; 0]);
        assert_eq!(found(4096..9000), std::slice::from_ref(&(4096..8192)));
        assert_eq!(found(5..5), [] as [Range<u64>; 0]);
    }

    #[test]
    fn units_are_whole_or_left() {
        let disk = Memory::zeros(10_000_000);
        disk.write_at(1 << 20, &[1]).unwrap();
        let mut found = Vec::new();
        let mut keep = |run| {
            found.push(run);
            Ok(())
        };
        search(&disk, 5..10_000_000, 1 << 20, &Silent, &mut keep).unwrap();
        assert!(
            found
                .iter()
                .all(|run| run.start % (1 << 20) == 0 && run.start >= 2 << 20)
        );
    }
}
