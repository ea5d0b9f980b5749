//! The contents of a file as a read-only device over its extents.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, Extent, FileRange, Info};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result, read_only};

use super::layout::RecordRaw;
use super::{LAYER, Space};

/// A range of a file, and where it is stored. In bytes.
#[derive(Debug, Clone, Copy)]
struct StoredRange {
    logical: u64,
    physical: u64,
    len: u64,
}

/// The contents of a file.
#[derive(Debug)]
pub(super) struct IsoContents {
    device: Arc<dyn BlockDevice>,
    /// Not empty, without gaps, in logical order.
    ranges: Box<[StoredRange]>,
    len: u64,
}

impl IsoContents {
    /// Joins the sections of a file. Places past the end of the volume are refused when they are read.
    pub(super) fn new(space: &Space, sections: &[RecordRaw]) -> Result<Self> {
        let mut ranges: Vec<StoredRange> = Vec::new();
        let mut logical = 0_u64;
        for section in sections {
            let (physical, len) = (
                section.first_block() * space.block_size,
                u64::from(section.size.get()),
            );
            if section.is_interleaved() {
                let message = "interleaved files are not supported";
                return Err(Error::unsupported(LAYER, message));
            }
            if !section.agrees() {
                let message = "the place or the length of a file differs between the byte orders";
                return Err(Error::corrupt(LAYER, physical, message));
            }
            match ranges.last_mut() {
                _ if len == 0 => {}
                Some(last) if last.physical + last.len == physical => last.len += len,
                _ => ranges.push(StoredRange {
                    logical,
                    physical,
                    len,
                }),
            }
            // At most 2^14 sections of 2^32 bytes.
            logical += len;
        }
        Ok(Self {
            device: space.device.clone(),
            ranges: ranges.into(),
            len: logical,
        })
    }

    /// Fails if a part of the file is past the end of the volume.
    pub(super) fn check(&self) -> Result<()> {
        let place = |range: &StoredRange| range.physical..range.physical + range.len;
        self.ranges
            .iter()
            .try_for_each(|range| self.check_place(&place(range)))
    }

    fn check_place(&self, place: &Range<u64>) -> Result<()> {
        let len = self.device.info().len;
        if place.end <= len {
            return Ok(());
        }
        let message = format!(
            "bytes {} to {} of the volume hold a file, but the volume ends at {len}: it may be \
             truncated",
            place.start, place.end
        );
        Err(Error::corrupt(LAYER, place.start, message))
    }

    /// Returns the stored place of the bytes from `offset` on, at most `length`. `offset` is below
    /// the length of the file.
    fn locate(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        let after = self.ranges.partition_point(|range| range.logical <= offset);
        let range = after
            .checked_sub(1)
            .and_then(|at| self.ranges.get(at))
            .ok_or_else(|| Error::new(Kind::OutOfRange, LAYER, "not mapped").at(offset))?;
        let within = offset - range.logical;
        let start = range.physical + within;
        let place = start..start + length.min(range.len - within);
        self.check_place(&place)?;
        Ok(place)
    }
}

impl BlockDevice for IsoContents {
    fn info(&self) -> Info {
        Info::read_only(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(place.end - place.start));
            self.device.read_at(place.start, now)?;
            (offset, rest) = (offset + now.len() as u64, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        self.device
            .extent_at(self.locate(range.start, range.end - range.start)?)
    }

    read_only!(LAYER);

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        match range.is_empty() {
            true => Ok(None),
            false => self
                .device
                .file_range(self.locate(range.start, range.end - range.start)?),
        }
    }
}
