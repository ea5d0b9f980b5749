//! Checksums of the data that was read, so that a verification does not decode it again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crc32fast::Hasher;

use super::chunks::Chunk;
use crate::sync::Mutex;

/// The checksums of ranges of the disk, recorded while [`RangeChecksums::record`] is in force.
#[derive(Debug, Default)]
pub(super) struct RangeChecksums {
    recording: AtomicBool,
    ranges: Mutex<Ranges>,
}

/// By disk offset of the start: the end offset and the checksum. Adjacent ranges of a chunk are
/// merged, so there are few.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, (u64, Hasher)>);

impl RangeChecksums {
    /// Starts or ends recording; at the end all checksums are dropped.
    pub(super) fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Release);
        if !on {
            self.ranges.lock().0.clear();
        }
    }

    /// Returns true while checksums are recorded.
    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Acquire)
    }

    /// Records the checksum of `bytes`, a part of `chunk` that begins at byte `start` of the disk.
    pub(super) fn add(&self, chunk: &Chunk, start: u64, bytes: &[u8]) {
        let range = start..start + bytes.len() as u64;
        if !self.is_recording() || range.is_empty() || self.ranges.lock().has_part_of(&range) {
            return;
        }
        let mut sum = Hasher::new();
        sum.update(bytes);
        self.ranges.lock().add(chunk.start..chunk.end(), range, sum);
    }

    /// Returns the checksum of `range`, if all of it was read.
    pub(super) fn of(&self, range: Range<u64>) -> Option<Hasher> {
        let ranges = self.ranges.lock();
        let (end, sum) = ranges.0.get(&range.start)?;
        (*end == range.end).then(|| sum.clone())
    }
}

impl Ranges {
    fn has_part_of(&self, range: &Range<u64>) -> bool {
        let last = self.0.range(..range.end).next_back();
        last.is_some_and(|(_, (end, _))| *end > range.start)
    }

    /// Adds a range within `chunk`, unless a part of it is there already.
    fn add(&mut self, chunk: Range<u64>, mut range: Range<u64>, mut sum: Hasher) {
        if self.has_part_of(&range) {
            return;
        }
        let before = self.0.range(..range.start).next_back();
        let before = before.filter(|(start, (end, _))| {
            *end == range.start && (chunk.start..chunk.end).contains(*start)
        });
        if let Some(start) = before.map(|(start, _)| *start)
            && let Some((_, mut whole)) = self.0.remove(&start)
        {
            whole.combine(&sum);
            (range.start, sum) = (start, whole);
        }
        if chunk.contains(&range.end)
            && let Some((end, rest)) = self.0.remove(&range.end)
        {
            sum.combine(&rest);
            range.end = end;
        }
        self.0.insert(range.start, (range.end, sum));
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::RunKind;
    use super::*;

    fn chunk(start: u64, len: u64) -> Chunk {
        Chunk {
            kind: RunKind::Raw,
            start,
            len,
            offset: 0,
            stored: len,
        }
    }

    #[test]
    fn pieces_in_any_order_make_one_sum_for_each_chunk() {
        let bytes: Vec<u8> = (0..100u8).collect();
        let (first, second) = (chunk(0, 60), chunk(60, 40));
        let sums = RangeChecksums::default();
        let read = |chunk: &Chunk, range: Range<usize>| {
            sums.add(chunk, range.start as u64, &bytes[range]);
        };
        read(&first, 0..60);
        assert!(sums.of(0..60).is_none(), "nothing is recorded at first");
        sums.record(true);
        read(&first, 20..30);
        read(&first, 50..60);
        read(&first, 0..10);
        read(&second, 60..100);
        read(&first, 30..50);
        read(&first, 5..15);
        assert!(sums.of(0..60).is_none(), "10 to 20 is missing");
        read(&first, 10..20);
        for range in [0..60, 60..100] {
            let sum = sums.of(range.start..range.end).unwrap().finalize();
            let range = range.start as usize..range.end as usize;
            assert_eq!(sum, crc32fast::hash(&bytes[range]));
        }
        assert!(sums.of(0..100).is_none());
        sums.record(false);
        assert!(sums.of(0..60).is_none());
    }
}
