//! Error-prone places of devices: both ends, and the boundaries of units.

use std::ops::Range;

use super::Case;

/// Bytes tested on each side of a boundary.
const REACH: u64 = 12 << 10;

impl Case {
    /// Returns the ends of the device and the boundaries of its first units and of its last.
    pub(super) fn seams(&self) -> Vec<u64> {
        let len = self.len();
        let mut seams = vec![
            0,
            self.unit,
            2 * self.unit,
            3 * self.unit,
            (len - 1) / self.unit * self.unit,
            len,
        ];
        seams.retain(|seam| *seam <= len);
        seams.sort_unstable();
        seams.dedup();
        seams
    }

    /// Returns a window around each boundary, clipped to the device.
    pub(super) fn windows(&self) -> Vec<Range<u64>> {
        let len = self.len();
        self.seams()
            .into_iter()
            .map(|seam| seam.saturating_sub(REACH)..len.min(seam + REACH))
            .collect()
    }

    /// Reads the contents of all windows, for a later [`expect_windows`](Self::expect_windows).
    pub(super) fn read_windows(&self) -> Vec<(u64, Vec<u8>)> {
        self.windows()
            .into_iter()
            .map(|window| (window.start, self.read(window)))
            .collect()
    }

    #[track_caller]
    pub(super) fn expect_windows(&self, windows: &[(u64, Vec<u8>)], why: &str) {
        for (offset, bytes) in windows {
            self.expect(*offset, bytes, why);
        }
    }

    /// Fills all windows with nonzero bytes. If they overlap, the later one wins.
    pub(super) fn fill_windows(&self, seed: u64) -> Vec<(u64, Vec<u8>)> {
        let mut random = crate::Random::new(seed);
        for window in self.windows() {
            self.write(
                window.start,
                &random.bytes((window.end - window.start) as usize),
            );
        }
        self.read_windows()
    }
}
