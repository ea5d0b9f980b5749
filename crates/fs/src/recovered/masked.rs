//! Contents of a file with lost ranges, which read as zeros.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::{Access, BlockDevice, Extent, ExtentKind, FileRange, Info, read_only};
use bandsaw_core::size::to_usize;

const LAYER: &str = "recovered file";

/// A read-only view of a device, in which some ranges are zeros.
#[derive(Debug)]
pub(crate) struct Masked {
    device: Arc<dyn BlockDevice>,
    /// Ascending and disjoint; they may reach past the end of `device`.
    lost: Vec<Range<u64>>,
    /// Length in bytes; what the device does not have is lost.
    len: u64,
}

impl Masked {
    /// Returns a view of `len` bytes. `lost` is ascending and disjoint.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, lost: Vec<Range<u64>>, len: u64) -> Self {
        Self { device, lost, len }
    }

    /// Returns true if the byte at `at` is lost, and the end of the range for which that is so, at most
    /// `end`.
    fn run_at(&self, at: u64, end: u64) -> (bool, u64) {
        let known = self.device.info().len;
        if at >= known {
            return (true, end);
        }
        let next = self.lost.partition_point(|range| range.end <= at);
        match self.lost.get(next) {
            Some(range) if range.start <= at => (true, range.end.min(end)),
            Some(range) => (false, range.start.min(end).min(known)),
            None => (false, end.min(known)),
        }
    }
}

impl BlockDevice for Masked {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            access: Access::ReadOnly,
            ..self.device.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (is_lost, end) = self.run_at(at, at + rest.len() as u64);
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(end - at));
            match is_lost {
                true => now.fill(0),
                false => self.device.read_at(at, now)?,
            }
            (at, rest) = (end, later);
        }
        Ok(())
    }

    read_only!(LAYER);

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        match self.run_at(range.start, range.end) {
            (true, end) => Ok(Extent {
                kind: ExtentKind::Hole,
                len: end - range.start,
            }),
            (false, end) => self.device.extent_at(range.start..end),
        }
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    #[test]
    fn lost_ranges_and_bytes_past_the_end_are_zeros() {
        let device = Arc::new(Memory::from(vec![7; 100]));
        let masked = Masked::new(device, vec![0..10, 50..60], 120);
        let bytes = masked.read_vec(0, 120).unwrap();
        for (at, byte) in bytes.into_iter().enumerate() {
            let is_lost = at < 10 || (50..60).contains(&at) || at >= 100;
            assert_eq!(byte, if is_lost { 0 } else { 7 }, "{at}");
        }
        assert_eq!(masked.extent_at(5..120).unwrap().len, 5);
        assert_eq!(masked.extent_at(10..120).unwrap().len, 40);
        assert!(masked.write_at(0, &[1]).is_err());
        assert!(masked.read_vec(0, 121).is_err());
    }
}
