//! Search for the next stored band after many missing ones: lists the folder once instead of trying
//! each band.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{BANDS, BandIndex, LAYER};
use super::{BandPart, Bands};
use crate::{Error, Kind, Result};

/// Missing bands that are tried one by one before the folder is listed; a power of two. The folder
/// of a new bundle has no more names than that, and trying a band costs as much as listing so few.
const FEW: u64 = 4;

/// Number of consecutive lookups of bands that are missing.
#[derive(Debug, Default)]
pub(super) struct ConsecutiveMisses(AtomicU64);

impl ConsecutiveMisses {
    /// Resets the count after a band was found.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Counts a missing band. Returns the number of names to list now, if any. It doubles each
    /// time, so that listing a full folder costs no more than the lookups did.
    fn more(&self) -> Option<u64> {
        let missed = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        (missed >= FEW && missed.is_power_of_two()).then_some(missed)
    }
}

impl Bands {
    /// Returns a lower bound of the end of the hole that starts in the missing band of `piece`: a
    /// disk offset, at most `end`.
    pub(super) fn gap_end(&self, piece: &BandPart, end: u64) -> Result<u64> {
        let behind = end.min(
            piece
                .index
                .0
                .saturating_add(1)
                .saturating_mul(self.band_size),
        );
        // During a change of the band size a part of the disk has bands with other names.
        let plain = self.prefix == BANDS && self.or_prefix.is_none();
        let Some(names) = self.missed.more().filter(|_| plain && behind < end) else {
            return Ok(behind);
        };
        let (mut seen, mut next, mut is_conclusive) = (0, u64::MAX, true);
        let listed = self.store.list(BANDS, &mut |entry| {
            seen += 1;
            let digits = entry.name.strip_prefix(BANDS).unwrap_or_default();
            match BandIndex::from_name(BANDS, entry.name) {
                // On a case-insensitive host this is a band, too.
                None if u64::from_str_radix(digits, 16).is_ok() => is_conclusive = false,
                Some(index) if index > piece.index => next = next.min(index.0),
                _ => {}
            }
            is_conclusive &= seen <= names;
            if !is_conclusive {
                return Err(Error::new(
                    Kind::Cancelled,
                    LAYER,
                    "stopped: enough names were read",
                ));
            }
            Ok(())
        });
        match listed {
            Err(_) if !is_conclusive => Ok(behind),
            Err(error) => Err(error),
            Ok(()) => {
                self.missed.reset();
                Ok(next.saturating_mul(self.band_size).clamp(behind, end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::container::sparsebundle::{Bundle, BundleOptions};
    use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind};
    use crate::store::{MemoryStore, Put, Store};

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_listing_finds_the_holes_that_lookups_find() {
        let store = Arc::new(MemoryStore::default());
        let len = 1_000_000 * MIB;
        let bundle = Bundle::create(
            store.clone(),
            &BundleOptions {
                len,
                band_size: Some(MIB),
            },
        )
        .unwrap();
        let stored = [0, 3, 200, 5000, 5001, 700_000, 999_999];
        for band in stored {
            bundle.write_at(band * MIB, &[1; 4096]).unwrap();
        }
        bundle.flush().unwrap();
        let extents = |bundle: &Bundle| -> (usize, Vec<u64>) {
            let all: Vec<_> = bundle
                .extents(0..len)
                .map(|extent| extent.unwrap())
                .collect();
            let data = all
                .iter()
                .filter(|(_, kind)| *kind == ExtentKind::Data)
                .map(|(range, _)| range.start / MIB);
            (all.len(), data.collect())
        };
        let (count, data) = extents(&bundle);
        assert_eq!(data, stored);
        assert!(count < 2000, "{count} extents");
        // An unusual spelling may be a band all the same.
        store.put("bands/AB", b"x", Put::Replace).unwrap();
        let hole = bundle.extent_at(6000 * MIB..6001 * MIB).unwrap();
        assert_eq!((hole.kind, hole.len), (ExtentKind::Hole, MIB));
    }
}
