//! Free space of a volume.

use std::fmt;
use std::ops::Range;

use bandsaw_core::Result;

/// The free map of a volume: its own map of used blocks.
///
/// Only those parts of the map are read that an answer needs; memory use is bounded regardless of
/// the volume's size. Positions are offsets on the volume in bytes. Headers, and bytes at the end
/// that no block covers, are never free.
///
/// The map is a snapshot of the volume when it was opened, with its journal replayed: it is invalid
/// after the volume changes.
pub trait FreeMap: fmt::Debug + Send + Sync {
    /// Returns true if the volume is clean, so that the map is correct: cleanly unmounted, with no
    /// journal to replay. Otherwise, space that is free here may belong to a file, and the caller
    /// must decide whether to rely on the map.
    fn is_in_order(&self) -> bool;

    /// Returns the first free range at or after `at`, up to the next used byte; `None` if there is
    /// none.
    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>>;
}

/// Returns the first free blocks at or after `first`, up to the next used one or to `end`. `run_at`
/// returns whether a block is used, and the first block after it for which that may differ: a map
/// is read in pieces, and a run may continue in the next one.
pub(crate) fn free_blocks(
    first: u64,
    end: u64,
    run_at: impl Fn(u64) -> Result<(bool, u64)>,
) -> Result<Option<Range<u64>>> {
    let mut block = first;
    while block < end {
        let (used, mut until) = run_at(block)?;
        if used {
            block = until;
            continue;
        }
        while until < end {
            match run_at(until)? {
                (true, _) => break,
                (false, further) => until = further,
            }
        }
        return Ok(Some(block..until));
    }
    Ok(None)
}

/// Convenience methods for [`FreeMap`].
pub trait FreeMapExt: FreeMap {
    /// Returns the free ranges within `range`, ascending and disjoint. An error is the last item.
    fn free_runs(&self, range: Range<u64>) -> FreeRuns<'_>;
}

impl<M: FreeMap> FreeMapExt for M {
    fn free_runs(&self, range: Range<u64>) -> FreeRuns<'_> {
        FreeRuns {
            map: self,
            rest: range,
        }
    }
}

impl FreeMapExt for dyn FreeMap {
    fn free_runs(&self, range: Range<u64>) -> FreeRuns<'_> {
        FreeRuns {
            map: self,
            rest: range,
        }
    }
}

/// An iterator over the free ranges within a range.
#[derive(Debug)]
pub struct FreeRuns<'a> {
    map: &'a dyn FreeMap,
    rest: Range<u64>,
}

impl Iterator for FreeRuns<'_> {
    type Item = Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let found = self.map.free_from(self.rest.start);
        match found {
            Ok(Some(run)) if run.start < self.rest.end => {
                let run = run.start..run.end.min(self.rest.end);
                self.rest.start = run.end;
                Some(Ok(run))
            }
            Ok(_) => {
                self.rest.start = self.rest.end;
                None
            }
            Err(error) => {
                self.rest.start = self.rest.end;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw_core::{Error, Kind};

    /// Tens with an even digit are free; from 60 on every query fails.
    #[derive(Debug)]
    struct EvenTens;

    impl FreeMap for EvenTens {
        fn is_in_order(&self) -> bool {
            true
        }

        fn free_from(&self, at: u64) -> Result<Option<Range<u64>>> {
            let ten = at / 10 * 10;
            let run = if (at / 10).is_multiple_of(2) {
                at..ten + 10
            } else {
                ten + 10..ten + 20
            };
            if run.start >= 60 {
                Err(Error::new(Kind::Corrupt, "test", "unreadable"))
            } else {
                Ok(Some(run))
            }
        }
    }

    #[test]
    fn runs_are_those_of_the_range() {
        let all: Result<Vec<_>> = EvenTens.free_runs(5..43).collect();
        assert_eq!(all.unwrap(), [5..10, 20..30, 40..43]);
        assert_eq!(EvenTens.free_runs(10..20).count(), 0);
        assert_eq!(EvenTens.free_runs(7..7).count(), 0);
        let mut broken = EvenTens.free_runs(41..100);
        assert_eq!(broken.next().unwrap().unwrap(), 41..50);
        assert!(broken.next().unwrap().is_err());
        assert!(broken.next().is_none());
    }
}
