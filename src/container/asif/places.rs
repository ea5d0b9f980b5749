//! Where the bytes of the disk are in the file, told without reading them.

use std::ops::Range;

use super::Asif;
use super::chunks::{ChunkPart, ChunkSource};
use super::layout::{ChunkEntry, DiskChunk};
use super::mask::BlockState;
use crate::Result;
use crate::container::Placed;
use crate::device::{Extent, ExtentKind};

/// What a run of the disk stands for.
enum Stands {
    /// It is stored here in the file.
    At(Range<u64>),
    /// It is not stored.
    Nowhere(Extent),
}

impl Asif {
    /// Where in the file the front of `range`, which is not empty, is stored.
    pub fn place_at(&self, range: Range<u64>) -> Result<Placed> {
        Ok(match self.stands(&range)? {
            Stands::At(place) => Placed {
                at: Some(place.start),
                len: place.end - place.start,
            },
            Stands::Nowhere(extent) => Placed {
                at: None,
                len: extent.len,
            },
        })
    }

    pub(super) fn extent(&self, range: Range<u64>) -> Result<Extent> {
        let at = match self.stands(&range)? {
            Stands::At(place) => place,
            Stands::Nowhere(extent) => return Ok(extent),
        };
        if at.end > self.file.info().len {
            return Ok(Extent {
                kind: ExtentKind::Data,
                len: at.end - at.start,
            }); // reading it tells what is wrong
        }
        let below = self.file.extent_at(at)?;
        let kind = if below.kind == ExtentKind::Data {
            ExtentKind::Data
        } else {
            ExtentKind::Zero
        };
        Ok(Extent { kind, ..below })
    }

    fn stands(&self, range: &Range<u64>) -> Result<Stands> {
        let piece = self.piece(range);
        let _held = self.units.shared(piece.chunk.0);
        self.check_piece(&piece)?;
        let rest = |kind| Extent {
            kind,
            len: piece.len(),
        };
        Ok(match self.find(piece.chunk)? {
            ChunkSource::Full(place) => Stands::At(self.geometry.in_file(place, piece.within)),
            ChunkSource::Partial(place, mask) => {
                let (state, run) = self.run(&mask, &piece.within);
                let len = run.end - run.start;
                match state {
                    BlockState::Written => Stands::At(self.geometry.in_file(place, run)),
                    BlockState::Uninit => Stands::Nowhere(Extent {
                        kind: ExtentKind::Hole,
                        len,
                    }),
                    BlockState::Unmapped => Stands::Nowhere(Extent {
                        kind: ExtentKind::Zero,
                        len,
                    }),
                }
            }
            ChunkSource::Uninit => {
                Stands::Nowhere(self.with_next(rest(ExtentKind::Hole), &piece, range)?)
            }
            ChunkSource::Unmapped => {
                Stands::Nowhere(self.with_next(rest(ExtentKind::Zero), &piece, range)?)
            }
        })
    }

    /// An extent without data, with the chunks after it that are the same.
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
