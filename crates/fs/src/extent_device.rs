//! The contents of a file as a device over the ranges of a volume that hold them.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{Access, AfterDiscard, BlockDevice, Extent, FileRange, Info, read_only};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

/// A run of a file's bytes that are contiguous on the volume.
#[derive(Debug, Clone, Copy)]
struct ExtentRun {
    /// Offset in the file, in bytes.
    file: u64,
    /// Offset on the volume, in bytes.
    volume: u64,
    /// Length in bytes, at least 1.
    len: u64,
}

/// The contents of a file, read-only for users of the device.
#[derive(Debug, Clone)]
pub(crate) struct ExtentDevice {
    device: Arc<dyn BlockDevice>,
    /// Runs in ascending order without gaps; together they hold at least `len` bytes.
    runs: Box<[ExtentRun]>,
    len: u64,
    /// The name in errors.
    layer: &'static str,
}

/// Adds a range of the volume to those of a file; one that follows the last is joined with it.
pub(crate) fn push_joined(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

impl ExtentDevice {
    /// Returns the first `len` bytes of `ranges`, which must hold as many. `layer` is the name in errors.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        ranges: impl IntoIterator<Item = Range<u64>>,
        len: u64,
        layer: &'static str,
    ) -> Self {
        let mut file = 0;
        let ranges = ranges.into_iter().filter(|range| !range.is_empty());
        let run = |range: Range<u64>| {
            let run = ExtentRun {
                file,
                volume: range.start,
                len: range.end - range.start,
            };
            file += run.len;
            run
        };
        Self {
            device,
            runs: ranges.map(run).collect(),
            len,
            layer,
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the ranges of the volume that hold the contents, without what follows their end.
    pub(crate) fn places(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let runs = self.runs.iter().take_while(|run| run.file < self.len);
        runs.map(|run| run.volume..run.volume + run.len.min(self.len - run.file))
    }

    /// Fails if a part of the contents is past the end of the volume.
    pub(crate) fn check_places(&self) -> Result<()> {
        let end = self.device.info().len;
        let past = self.places().find(|place| place.end > end);
        past.map_or(Ok(()), |place| Err(self.past_the_end(&place)))
    }

    fn past_the_end(&self, place: &Range<u64>) -> Error {
        let message = format!(
            "bytes {} to {} of the volume hold a file, but the volume ends at {}: it may be truncated",
            place.start,
            place.end,
            self.device.info().len
        );
        Error::corrupt(self.layer, place.start, message)
    }

    /// Returns an error of the volume: a place past its end is the fault of the file.
    fn explain(&self, error: Error, place: &Range<u64>) -> Error {
        match error.kind() {
            Kind::OutOfRange => self.past_the_end(place),
            _ => error,
        }
    }

    /// Returns the volume range of the bytes from `offset` on, at most `length`, up to the end of
    /// the contiguous run. `offset` is below the length of the file.
    fn locate(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        let at = self
            .runs
            .partition_point(|run| run.file + run.len <= offset);
        let Some(run) = self.runs.get(at) else {
            return Err(Error::out_of_range(self.layer, offset, length, self.len));
        };
        let within = offset - run.file;
        let start = run.volume + within;
        Ok(start..start + length.min(run.len - within))
    }

    /// Returns the volume offset of the byte at `offset`, or `offset` itself past the end. For
    /// error messages.
    pub(crate) fn volume_offset(&self, offset: u64) -> u64 {
        self.locate(offset, 1).map_or(offset, |place| place.start)
    }

    /// Returns the number of bytes from `offset` on that are contiguous on the volume; 0 past the
    /// end.
    pub(crate) fn volume_run(&self, offset: u64) -> u64 {
        self.locate(offset, u64::MAX)
            .map_or(0, |place| place.end - place.start)
    }

    /// Fills a range of the file with zeros; its blocks remain allocated.
    pub(crate) fn zero(&self, range: Range<u64>) -> Result<()> {
        self.info().check_range(self.layer, &range)?;
        let mut at = range.start;
        while at < range.end {
            let place = self.locate(at, range.end - at)?;
            let length = place.end - place.start;
            self.device.discard(place, AfterDiscard::Zeros)?;
            at += length;
        }
        Ok(())
    }

    /// Writes `buf` at `offset`; the range must be within the file. Used for the volume's own
    /// files; the device interface is read-only.
    pub(crate) fn overwrite(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check(self.layer, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at(to_usize(place.end - place.start));
            self.device.write_at(place.start, now)?;
            (offset, rest) = (offset + now.len() as u64, later);
        }
        Ok(())
    }
}

impl BlockDevice for ExtentDevice {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            access: Access::ReadOnly,
            ..self.device.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(self.layer, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(place.end - place.start));
            self.device
                .read_at(place.start, now)
                .map_err(|error| self.explain(error, &place))?;
            (offset, rest) = (offset + now.len() as u64, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(self.layer, &range)?;
        let place = self.locate(range.start, range.end - range.start)?;
        self.device
            .extent_at(place.clone())
            .map_err(|error| self.explain(error, &place))
    }

    read_only!("file");

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(self.layer, &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let place = self.locate(range.start, range.end - range.start)?;
        self.device
            .file_range(place.clone())
            .map_err(|error| self.explain(error, &place))
    }
}
