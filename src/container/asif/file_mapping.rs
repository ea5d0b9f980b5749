//! Mapping of disk ranges to file ranges, without reading data.

use std::ops::Range;

use super::Asif;
use super::chunks::{ChunkPart, ChunkSource};
use super::layout::{ChunkEntry, DiskChunk};
use super::mask::BlockState;
use crate::Result;
use crate::container::FileMapping;
use crate::device::{Extent, ExtentKind};

/// Storage of a run of the disk.
enum RunStorage {
    /// Stored in this range of the file.
    At(Range<u64>),
    /// Not stored.
    Nowhere(Extent),
}

impl Asif {
    /// Returns the file offset of the start of `range`, which must not be empty, and the length of
    /// the run.
    pub(crate) fn place_at(&self, range: Range<u64>) -> Result<FileMapping> {
        Ok(match self.stands(&range)? {
            RunStorage::At(place) => FileMapping {
                at: Some(place.start),
                len: place.end - place.start,
            },
            RunStorage::Nowhere(extent) => FileMapping {
                at: None,
                len: extent.len,
            },
        })
    }

    pub(super) fn extent(&self, range: Range<u64>) -> Result<Extent> {
        let at = match self.stands(&range)? {
            RunStorage::At(place) => place,
            RunStorage::Nowhere(extent) => return Ok(extent),
        };
        if at.end > self.file.info().len {
            return Ok(Extent {
                kind: ExtentKind::Data,
                len: at.end - at.start,
            }); // the read reports the damage
        }
        let below = self.file.extent_at(at)?;
        let kind = if below.kind == ExtentKind::Data {
            ExtentKind::Data
        } else {
            ExtentKind::Zero
        };
        Ok(Extent { kind, ..below })
    }

    fn stands(&self, range: &Range<u64>) -> Result<RunStorage> {
        let piece = self.piece(range);
        let _held = self.units.shared(piece.chunk.0);
        self.check_piece(&piece)?;
        let rest = |kind| Extent {
            kind,
            len: piece.len(),
        };
        Ok(match self.find(piece.chunk)? {
            ChunkSource::Full(place) => RunStorage::At(self.geometry.in_file(place, piece.within)),
            ChunkSource::Partial(place, mask) => {
                let (state, run) = self.run(&mask, &piece.within);
                let len = run.end - run.start;
                match state {
                    BlockState::Written => RunStorage::At(self.geometry.in_file(place, run)),
                    BlockState::Uninit => RunStorage::Nowhere(Extent {
                        kind: ExtentKind::Hole,
                        len,
                    }),
                    BlockState::Unmapped => RunStorage::Nowhere(Extent {
                        kind: ExtentKind::Zero,
                        len,
                    }),
                }
            }
            ChunkSource::Uninit => {
                RunStorage::Nowhere(self.with_next(rest(ExtentKind::Hole), &piece, range)?)
            }
            ChunkSource::Unmapped => {
                RunStorage::Nowhere(self.with_next(rest(ExtentKind::Zero), &piece, range)?)
            }
        })
    }

    /// Extends an extent without data by the following chunks of the same kind.
    fn with_next(&self, extent: Extent, piece: &ChunkPart, range: &Range<u64>) -> Result<Extent> {
        let Some((entry, count)) = self.without_data(piece, range.end)? else {
            return Ok(extent);
        };
        let kind = if entry == ChunkEntry::Uninit {
            ExtentKind::Hole
        } else {
            ExtentKind::Zero
        };
        if kind != extent.kind {
            return Ok(extent);
        }
        let end = self
            .geometry
            .start(DiskChunk(piece.chunk.0 + count))
            .min(range.end);
        Ok(Extent {
            kind,
            len: end - range.start,
        })
    }
}
