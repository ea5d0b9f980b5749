//! Which bytes of a volume no file uses.

use std::fmt;
use std::ops::Range;

use crate::Result;

/// The free space of a volume, as its own map of used blocks tells it.
///
/// Only the map is read, and of it only what the answer needs; memory is bounded whatever the
/// volume's size. Positions are bytes of the volume, from its first on. Headers and what the blocks
/// do not cover at the end are never free.
///
/// This is the volume as it was when the map was opened, with the changes that wait in its journal
/// made: the map is of no use any more once the volume changes.
pub trait FreeMap: fmt::Debug + Send + Sync {
    /// Returns whether the volume was left in order, so that the map tells the truth: cleanly
    /// unmounted, with nothing waiting in a journal. Where it was not, what is free here may still
    /// be somebody's file. Whether to go by it all the same is for the caller to decide.
    fn is_in_order(&self) -> bool;

    /// The first free bytes from `at` on, up to the next that are used; `None` if there are none.
    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>>;
}

/// The first blocks from `first` on that are free, up to the next that is used or to `end`.
/// `run_at` says whether a block is used, and the first one after it that may be otherwise: a map
/// is read in pieces, and a run may go on in the next.
pub(in crate::fs) fn free_blocks(
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

/// Conveniences over [`FreeMap`].
pub trait FreeMapExt: FreeMap {
    /// The free runs within `range`, in order and apart. An error is the last item.
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

/// The free runs of a range, found one by one.
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
    use crate::{Error, Kind};

    /// Free are the tens whose digit is even; from 60 on nothing can be told.
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
