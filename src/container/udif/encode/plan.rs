//! Split of an area into chunks to be read and ranges of known zeros.

use super::{Area, CHUNK};
use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind};

/// The next step of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AreaStep {
    /// A chunk, or the rest of the area.
    Read(PlannedRead),
    /// The length in bytes of known zeros: whole chunks, or up to the end of the area.
    Zeros(u64),
}

/// A range of the disk in bytes, at most a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedRead {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Returns the steps through `area` in order. Chunks are aligned to its start, as in hdiutil.
/// Nothing follows an error.
pub(super) fn steps<'a>(
    disk: &'a dyn BlockDevice,
    area: &Area,
) -> impl Iterator<Item = Result<AreaStep>> + use<'a> {
    let (first, end) = (area.range.start, area.range.end);
    let mut extents = disk.extents(first..end);
    let mut at = first;
    // The current extent that may hold data.
    let mut data = first..first;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        while data.end <= at {
            match extents.next() {
                None => data = end..u64::MAX,
                Some(Ok((range, ExtentKind::Data))) => data = range,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    at = end;
                    return Some(Err(error));
                }
            }
        }
        let chunks = data.start.saturating_sub(at) / CHUNK as u64;
        let zeros = if data.start >= end {
            end - at
        } else {
            chunks * CHUNK as u64
        };
        let step = if zeros > 0 {
            AreaStep::Zeros(zeros)
        } else {
            AreaStep::Read(PlannedRead {
                start: at,
                len: (end - at).min(CHUNK as u64),
            })
        };
        at += match step {
            AreaStep::Zeros(len) | AreaStep::Read(PlannedRead { len, .. }) => len,
        };
        Some(Ok(step))
    })
}
