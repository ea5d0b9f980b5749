//! `mapped/` of a version 2 bundle: bitmaps of the mapped blocks of a band. Source:
//! docs/formats/sparsebundle.md §7.
//!
//! The order of the bits within a byte is not known. A zero byte means eight unmapped blocks in
//! either order, and only those read as zeros; every other block reads as stored.

use super::super::BandIndex;
use super::BLOCK;
use crate::Result;
use crate::device::BlockDeviceExt;
use crate::size::to_usize;
use crate::store::{Open, Store};

/// Bytes of a band per byte of the map.
const PER_BYTE: u64 = 8 * BLOCK;
/// Bytes that may precede the map in the file.
const PREFIX: u64 = 16;
/// Length of the map of an 8 GiB band, the largest that macOS makes. Longer maps are not loaded.
const MAX_BYTES: u64 = (8 << 30) / PER_BYTE;

/// Returns the offset of the map in a file of `len` bytes, or `None` if that length is invalid.
fn start_of(len: u64, band_size: u64) -> Option<u64> {
    len.checked_sub(band_size.div_ceil(PER_BYTE))
        .filter(|start| matches!(*start, 0 | PREFIX))
}

/// Returns true if `len` is a valid length of a map for this band size; an empty map hides nothing.
pub(in super::super) fn is_len(len: u64, band_size: u64) -> bool {
    len == 0 || start_of(len, band_size).is_some()
}

#[derive(Debug)]
pub(super) struct BandBitmap {
    /// Empty if the length of the file is invalid: all blocks are then mapped.
    bits: Box<[u8]>,
}

impl BandBitmap {
    /// Reads the map of a band. Returns `None` if there is no map.
    pub(super) fn load(
        store: &dyn Store,
        index: BandIndex,
        band_size: u64,
    ) -> Result<Option<Self>> {
        let Some(file) = store.open(&index.mapped_name(), Open::Read)? else {
            return Ok(None);
        };
        let expected = band_size.div_ceil(PER_BYTE);
        let start = match start_of(file.info().len, band_size) {
            Some(start) if expected <= MAX_BYTES => start,
            _ => {
                return Ok(Some(Self {
                    bits: Box::default(),
                }));
            }
        };
        let bits = file.read_vec(start, to_usize(expected))?.into_boxed_slice();
        Ok(Some(Self { bits }))
    }

    /// Returns whether the bytes at `offset` of the band are known to be unmapped, and the number
    /// of bytes for which this holds.
    pub(super) fn run_at(&self, offset: u64) -> (bool, u64) {
        let first = usize::try_from(offset / PER_BYTE).unwrap_or(usize::MAX);
        let Some(rest @ [byte, ..]) = self.bits.get(first..) else {
            return (false, u64::MAX);
        };
        let unmapped = *byte == 0;
        let bytes = rest
            .iter()
            .take_while(|byte| (**byte == 0) == unmapped)
            .count() as u64;
        (unmapped, bytes * PER_BYTE - offset % PER_BYTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, Put};

    const BAND: u64 = 4 * PER_BYTE;

    fn load(bytes: &[u8]) -> BandBitmap {
        let store = MemoryStore::default();
        store.put("mapped/a", bytes, Put::Replace).unwrap();
        BandBitmap::load(&store, BandIndex(10), BAND)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn only_bytes_of_zeros_are_known() {
        for map in [
            load(&[0, 0, 0x10, 0]),
            load(&[&[0; 16][..], &[0, 0, 0x10, 0]].concat()),
        ] {
            assert_eq!(map.run_at(0), (true, 2 * PER_BYTE));
            assert_eq!(map.run_at(PER_BYTE + 1), (true, PER_BYTE - 1));
            assert_eq!(map.run_at(2 * PER_BYTE), (false, PER_BYTE));
            assert_eq!(map.run_at(4 * PER_BYTE - 1), (true, 1));
        }
    }

    #[test]
    fn a_map_of_another_length_hides_nothing() {
        assert_eq!(load(&[0; 5]).run_at(0), (false, u64::MAX));
        assert_eq!(load(&[]).run_at(BAND), (false, u64::MAX));
        assert!(
            BandBitmap::load(&MemoryStore::default(), BandIndex(0), BAND)
                .unwrap()
                .is_none()
        );
    }
}
