//! Derived operations of all devices.

use std::ops::Range;
use std::sync::Arc;

use super::{BlockDevice, Extent, ExtentKind, Slice};
use crate::{Error, Kind, Result};

/// Returns a vector of zeros, or [`Kind::Limit`] if there is no memory for it. For lengths that an
/// image states.
pub fn zeros(length: usize) -> Result<Vec<u8>> {
    // Reserved and released again: only then are zeros taken as the system has them, without writing
    // each byte.
    let mut reserved = Vec::new();
    reserve(&mut reserved, length)?;
    drop(std::hint::black_box(reserved)); // the compiler would leave an unused allocation out
    Ok(vec![0; length])
}

/// Reserves room for `more` bytes in `bytes`, or fails with [`Kind::Limit`] if there is no memory for
/// it.
pub fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<()> {
    bytes.try_reserve_exact(more).map_err(|_| {
        let message = format!("no memory for {more} bytes");
        Error::limit("memory", message)
    })
}

/// Convenience methods over [`BlockDevice`], implemented for all devices.
pub trait BlockDeviceExt: BlockDevice {
    /// Reads `length` bytes at `offset` into a vector. The range is checked before memory is
    /// allocated.
    fn read_vec(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.info().check("device", offset, length as u64)?;
        let mut buf = zeros(length)?;
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    /// Reads `N` bytes at `offset`.
    fn read_array<const N: usize>(&self, offset: u64) -> Result<[u8; N]> {
        let mut buf = [0; N];
        self.read_at(offset, &mut buf)?;
        Ok(buf)
    }

    /// Returns an iterator over the extents of `range`.
    fn extents(&self, range: Range<u64>) -> Extents<'_, Self> {
        Extents {
            device: self,
            range,
            failed: false,
        }
    }

    /// Returns a device for a fixed range of this device.
    fn slice(self: &Arc<Self>, range: Range<u64>) -> Result<Slice>
    where
        Self: Sized + 'static,
    {
        Slice::new(self.clone(), range)
    }
}

impl<D: BlockDevice + ?Sized> BlockDeviceExt for D {}

/// Iterator over the extents of a range: their ranges and kinds.
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
                    format!(
                        "the device reported an extent of {len} bytes, which is empty or longer \
                         than the requested range"
                    ),
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
