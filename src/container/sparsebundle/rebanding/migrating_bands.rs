//! The disk during a change of the band size: new bands up to an offset, old ones after it.

use std::ops::Range;

use super::super::LAYER;
use super::super::bands::Bands;
use super::Rebanding;
use crate::Result;
use crate::device::{AfterDiscard, Extent, FileRange};
use crate::size::to_usize;

/// The part of the disk that is in bands of the new size.
#[derive(Debug)]
pub(in super::super) struct MigratingBands {
    /// The new bands. Their length is that of the whole disk; only the migrated part is accessed.
    pub(in super::super) bands: Bands,
    pub(in super::super) state: Rebanding,
}

impl MigratingBands {
    /// Splits `range` of the disk at the end of the new bands.
    fn parts<'a>(
        &'a self,
        rest: &'a Bands,
        range: Range<u64>,
    ) -> impl Iterator<Item = (&'a Bands, Range<u64>)> {
        let moved = self.state.moved;
        let migrating_bands = range.start.min(moved)..range.end.min(moved);
        let behind = range.start.max(moved)..range.end.max(moved);
        [(&self.bands, migrating_bands), (rest, behind)]
            .into_iter()
            .filter(|(_, part)| part.start < part.end)
    }

    pub(in super::super) fn read_at(
        &self,
        rest: &Bands,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = rest.info().check(LAYER, offset, buf.len() as u64)?;
        self.parts(rest, offset..end).try_for_each(|(bands, part)| {
            let within = to_usize(part.start - offset)..to_usize(part.end - offset);
            bands.read_at(part.start, &mut buf[within])
        })
    }

    pub(in super::super) fn write_at(&self, rest: &Bands, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_changeable(rest)?;
        let end = rest.info().check(LAYER, offset, buf.len() as u64)?;
        self.parts(rest, offset..end).try_for_each(|(bands, part)| {
            let within = to_usize(part.start - offset)..to_usize(part.end - offset);
            bands.write_at(part.start, &buf[within])
        })
    }

    pub(in super::super) fn discard(
        &self,
        rest: &Bands,
        range: Range<u64>,
        leave: AfterDiscard,
    ) -> Result<()> {
        self.check_changeable(rest)?;
        rest.info().check_range(LAYER, &range)?;
        self.parts(rest, range)
            .try_for_each(|(bands, part)| bands.discard(part, leave))
    }

    pub(in super::super) fn extent_at(&self, rest: &Bands, range: Range<u64>) -> Result<Extent> {
        rest.info().check_range(LAYER, &range)?;
        match self.parts(rest, range.clone()).next() {
            Some((bands, part)) => bands.extent_at(part),
            None => rest.extent_at(range),
        }
    }

    pub(in super::super) fn file_range(
        &self,
        rest: &Bands,
        range: Range<u64>,
    ) -> Result<Option<FileRange>> {
        rest.info().check_range(LAYER, &range)?;
        match self.parts(rest, range.clone()).next() {
            Some((bands, part)) => bands.file_range(part),
            None => rest.file_range(range),
        }
    }

    pub(in super::super) fn flush(&self, rest: &Bands) -> Result<()> {
        self.bands.flush()?;
        rest.flush()
    }

    /// Refuses changes if the bundle is read-only or a flush of either part failed.
    fn check_changeable(&self, rest: &Bands) -> Result<()> {
        rest.check_changeable()?;
        self.bands.check_changeable()
    }
}
