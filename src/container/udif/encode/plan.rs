//! The chunks of an area: which have to be read, and which are known to be zeros.

use super::{Area, CHUNK};
use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind};

/// What comes next in an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AreaStep {
    /// A chunk, or what is left of the area.
    Read(Read),
    /// So many bytes of whole chunks, or up to the area's end, that the disk says are zeros.
    Zeros(u64),
}

/// Bytes of the disk, at most a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// The steps through `area` in order. Chunks are counted from its beginning, as hdiutil counts
/// them. Nothing follows an error.
pub(super) fn steps<'a>(
    disk: &'a dyn BlockDevice,
    area: &Area,
) -> impl Iterator<Item = Result<AreaStep>> + use<'a> {
    let (first, end) = (area.range.start, area.range.end);
    let mut extents = disk.extents(first..end);
    let mut at = first;
    // Where data may be: the extent that the walk has come to.
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
            AreaStep::Read(Read {
                start: at,
                len: (end - at).min(CHUNK as u64),
            })
        };
        at += match step {
            AreaStep::Zeros(len) | AreaStep::Read(Read { len, .. }) => len,
        };
        Some(Ok(step))
    })
}
