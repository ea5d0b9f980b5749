//! The parts of a volume that are searched for records.

use std::ops::Range;
use std::sync::Arc;

use crate::RecordSource;
use crate::hfsplus::extents::ForkDevice;
use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, ExtentKind, Slice, is_zero};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;

/// A function that takes a piece: its offset, the bytes from there on, and the number of its own.
type EachPiece<'a> = &'a mut dyn FnMut(u64, &[u8], usize) -> Result<()>;
/// A function that returns the unused range of a live node, by its number and bytes.
type LiveRange<'a> = &'a dyn Fn(u32, &[u8]) -> Option<Range<usize>>;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Bytes behind a piece that are read with it, as a record can reach into the next one.
const OVERLAP: u64 = 4096;

/// A file of the volume, or a range of it.
#[derive(Debug)]
pub(super) enum Area {
    /// The catalog.
    Catalog(ForkDevice),
    /// The extents tree.
    Extents(ForkDevice),
    /// The attributes tree.
    Attributes(ForkDevice),
    /// The transactions of the journal.
    Journal(Slice),
    /// All of the volume.
    Volume(Arc<dyn BlockDevice>),
}

impl Area {
    pub(super) fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Catalog(file) | Self::Extents(file) | Self::Attributes(file) => file,
            Self::Journal(slice) => slice,
            Self::Volume(device) => &**device,
        }
    }

    /// Returns the offset on the volume of the byte at `at`.
    pub(super) fn volume_offset(&self, at: u64) -> u64 {
        match self {
            Self::Catalog(file) | Self::Extents(file) | Self::Attributes(file) => {
                file.volume_offset(at)
            }
            Self::Journal(slice) => slice.start() + at,
            Self::Volume(_) => at,
        }
    }

    /// Returns the source of records that are found in the area. `is_slack`: in a node of the tree.
    pub(super) fn source(&self, is_slack: bool, is_damaged: bool) -> RecordSource {
        match self {
            Self::Journal(_) => RecordSource::Journal,
            Self::Volume(_) => RecordSource::FreeSpace,
            _ if is_damaged => RecordSource::DamagedTree,
            _ if is_slack => RecordSource::NodeSlack,
            _ => RecordSource::FreeNode,
        }
    }

    /// Calls `each` for pieces of the area that are not empty, in order, with the offset of each, the
    /// bytes from there on, and the number of those that belong to the piece. Pieces begin at multiples
    /// of 1 MiB. Pieces that cannot be read are passed to `failed`.
    pub(super) fn pieces(
        &self,
        progress: &dyn Progress,
        failed: &mut dyn FnMut(bandsaw_core::Error),
        each: EachPiece<'_>,
    ) -> Result<u64> {
        let device = self.device();
        let len = device.info().len;
        let mut buffer = Vec::new();
        let (mut at, mut searched) = (0, 0);
        while at < len {
            progress.check()?;
            let extent = device.extent_at(at..len)?;
            if extent.kind != ExtentKind::Data && extent.len > 0 {
                let skipped = extent.len / PIECE * PIECE;
                // The rest of a piece is read, so that pieces keep their places.
                let skipped = if at + extent.len >= len {
                    extent.len
                } else {
                    skipped
                };
                if skipped > 0 {
                    progress.advance(skipped);
                    at += skipped;
                    continue;
                }
            }
            let own = PIECE.min(len - at);
            buffer.resize(to_usize((own + OVERLAP).min(len - at)), 0);
            match device.read_at(at, &mut buffer) {
                Ok(()) if !is_zero(&buffer) => each(at, &buffer, to_usize(own))?,
                Ok(()) => {}
                Err(error) => failed(error),
            }
            progress.advance(own);
            searched += own;
            at += own;
        }
        Ok(searched)
    }

    /// Reads at most `most` bytes from `at` on.
    pub(super) fn read(&self, at: u64, most: usize) -> Result<Vec<u8>> {
        let device = self.device();
        let len = device.info().len.saturating_sub(at).min(most as u64);
        let mut bytes = vec![0; to_usize(len)];
        device.read_at(at, &mut bytes)?;
        Ok(bytes)
    }
}

/// The place of a record: the number of its area and its offset there, and whether it is in a node of
/// the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecordPlace(u64);

impl RecordPlace {
    const AREA: u32 = 60;
    const SLACK: u32 = 59;

    /// Returns the place; the area is below 16, the offset below 2^59.
    pub(super) fn new(area: usize, at: u64, is_slack: bool) -> Self {
        let area = (area as u64) << Self::AREA;
        Self(area | u64::from(is_slack) << Self::SLACK | at & ((1 << Self::SLACK) - 1))
    }

    pub(super) fn area(self) -> usize {
        to_usize(self.0 >> Self::AREA)
    }

    pub(super) fn is_slack(self) -> bool {
        self.0 >> Self::SLACK & 1 != 0
    }

    pub(super) fn at(self) -> u64 {
        self.0 & ((1 << Self::SLACK) - 1)
    }
}

/// Returns the parts of a piece of `own` bytes, which begins at `at`, outside of the ranges that `live`
/// returns for the nodes of `node_size` bytes in it: their bytes that hold records of the tree. Each part
/// comes with true if it is in such a node.
pub(super) fn parts(
    at: u64,
    bytes: &[u8],
    own: usize,
    node_size: Option<u16>,
    live: LiveRange<'_>,
) -> Vec<(Range<usize>, bool)> {
    let Some(size) = node_size.map(usize::from) else {
        return vec![(0..own, false)];
    };
    let mut all = Vec::new();
    for start in (0..own).step_by(size) {
        let end = (start + size).min(bytes.len());
        let number = u32::try_from((at + start as u64) / size as u64).unwrap_or(u32::MAX);
        match live(number, &bytes[start..end]) {
            Some(slack) => all.push((start + slack.start..(start + slack.end).min(end), true)),
            None => all.push((start..end, false)),
        }
    }
    all
}
