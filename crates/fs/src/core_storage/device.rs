//! The contents of a logical volume as a read-only device.

use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::crypt::{Xts, parallel};
use bandsaw_core::device::{BlockDevice, Extent, FileRange, Info};
use bandsaw_core::{Error, Kind, Result, read_only};

use super::LAYER;

/// A range of a logical volume, and where it is stored. In bytes.
#[derive(Debug, Clone)]
pub(super) struct MappedExtent {
    pub(super) logical: u64,
    pub(super) len: u64,
    pub(super) physical: u64,
    pub(super) device: Arc<dyn BlockDevice>,
}

/// The decrypted contents of a logical volume.
#[derive(Debug)]
pub struct LogicalDevice {
    /// Without gaps, in logical order.
    extents: Vec<MappedExtent>,
    len: u64,
    /// `None`: it is not encrypted.
    cipher: Option<Xts>,
}

impl LogicalDevice {
    /// Joins extents, which must cover `len` bytes without gaps or overlaps.
    pub(super) fn new(
        mut extents: Vec<MappedExtent>,
        len: u64,
        cipher: Option<Xts>,
    ) -> Result<Self> {
        extents.sort_by_key(|extent| extent.logical);
        let mut end = 0_u64;
        for extent in &extents {
            if extent.logical != end {
                let message = format!(
                    "unsupported: bytes {end} to {} of the logical volume are stored in a way \
                     that is not known (as on a Fusion drive), or described twice",
                    extent.logical
                );
                return Err(Error::unsupported(LAYER, message));
            }
            let stored = extent.device.info();
            stored
                .check(LAYER, extent.physical, extent.len)
                .map_err(|error| {
                    Error::corrupt(
                        LAYER,
                        extent.physical,
                        "an extent is past the end of its disk",
                    )
                    .caused_by(error)
                })?;
            end = end.saturating_add(extent.len);
        }
        if end < len || len == 0 || !len.is_multiple_of(Xts::UNIT as u64) {
            let message = format!(
                "unsupported: the logical volume has {len} bytes, of which {end} are described in \
                 a known way (a Fusion drive is not)"
            );
            return Err(Error::unsupported(LAYER, message));
        }
        Ok(Self {
            extents,
            len,
            cipher,
        })
    }

    /// Returns true if its contents are stored encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.cipher.is_some()
    }

    /// Reads stored bytes.
    fn read_stored(&self, mut offset: u64, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let at = self
                .extents
                .partition_point(|extent| extent.logical <= offset)
                .checked_sub(1);
            let extent = at.and_then(|at| self.extents.get(at)).ok_or_else(|| {
                Error::new(
                    Kind::OutOfRange,
                    LAYER,
                    "no extent is recorded for this part of the volume",
                )
            })?;
            let within = offset - extent.logical;
            let rest = usize::try_from(extent.len - within).unwrap_or(usize::MAX);
            let (now, later) = buf.split_at_mut(rest.min(buf.len()));
            extent.device.read_at(extent.physical + within, now)?;
            offset += now.len() as u64;
            buf = later;
        }
        Ok(())
    }

    /// Reads whole units.
    fn read_units(&self, cipher: &Xts, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_stored(offset, buf)?;
        let first = offset / Xts::UNIT as u64;
        let units = (parallel::PIECE / Xts::UNIT) as u64;
        parallel::each_mut(buf, |piece, buf| {
            cipher.decrypt(first + piece as u64 * units, buf);
            Ok(())
        })
    }
}

impl BlockDevice for LogicalDevice {
    fn info(&self) -> Info {
        Info::read_only(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let Some(cipher) = &self.cipher else {
            return self.read_stored(offset, buf);
        };
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let unit = Xts::UNIT as u64;
            #[expect(clippy::cast_possible_truncation, reason = "less than a unit")]
            let within = (at % unit) as usize;
            let whole = rest.len() / Xts::UNIT * Xts::UNIT;
            let part = match within == 0 && whole > 0 {
                true => whole,
                false => rest.len().min(Xts::UNIT - within),
            };
            let (now, later) = rest.split_at_mut(part);
            if within == 0 && whole > 0 {
                self.read_units(cipher, at, now)?;
            } else {
                let mut one = [0; Xts::UNIT];
                self.read_units(cipher, at - within as u64, &mut one)?;
                now.copy_from_slice(&one[within..within + part]);
            }
            at += part as u64;
            rest = later;
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }

    read_only!(LAYER);
}
