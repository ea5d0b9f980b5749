//! What every device can do by means of the few things it must do.

use std::ops::Range;
use std::sync::Arc;

use super::{BlockDevice, Extent, ExtentKind, Slice};
use crate::{Error, Kind, Result};

/// Conveniences over [`BlockDevice`], implemented once for all.
pub trait BlockDeviceExt: BlockDevice {
    /// `length` bytes at `offset` as a vector. The range is checked before memory is taken.
    fn read_vec(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.info().check("device", offset, length as u64)?;
        let mut buf = vec![0; length];
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    /// `N` bytes at `offset`.
    fn read_array<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let mut buf = [0; N];
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    /// The runs of `range` one after another.
    fn extents(&self, range: Range<u64>) -> Extents<'_, Self> {
        Extents {
            device: self,
            range,
            failed: false,
        }
    }

    /// A fixed window on this device.
    fn slice(self: &Arc<Self>, range: Range<u64>) -> Result<Slice>
    where
        Self: Sized + 'static,
    {
        Slice::new(self.clone(), range)
    }
}

impl<D: BlockDevice + ?Sized> BlockDeviceExt for D {}

/// Iterator over the runs of a range: their starts, kinds and lengths.
#[derive(Debug)]
pub struct Extents<'a, D: ?Sized> {
    device: &'a D,
    range: Range<u64>,
    failed: bool,
}

impl<D: BlockDevice + ?Sized> Iterator for Extents<'_, D> {
    type Item = Result<(Range<u64>, ExtentKind)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.range.is_empty() {
            return None;
        }
        let start = self.range.start;
        match self.device.extent_at(self.range.clone()) {
            Ok(Extent { kind, len }) if len > 0 && len <= self.range.end - start => {
                self.range.start += len;
                Some(Ok((start..start + len, kind)))
            }
            Ok(Extent { len, .. }) => {
                self.failed = true;
                Some(Err(Error::new(
                    Kind::Corrupt,
                    "device",
                    format!("an extent of {len} bytes is not in its range"),
                )
                .at(start)))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}
