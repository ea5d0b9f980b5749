//! A disk whose stored checksums are verified during a read of all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crc32fast::Hasher;

use super::layout::{Checksum, RunKind, Table};
use super::verify::zeros;
use super::{LAYER, SECTOR, Udif};
use crate::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::progress::Silent;
use crate::{Error, Result};

/// The disk of an image, which computes checksums of the data that is read, in any order.
/// [`Checked::finish`] compares them with the stored ones.
#[derive(Debug)]
pub struct Checked<'a> {
    udif: &'a Udif,
    /// Disk offsets of the starts of tables: a checksum ends there.
    borders: BTreeSet<u64>,
    seen: Mutex<Seen>,
}

/// The ranges read so far. Adjacent ranges are merged, so there are few.
#[derive(Debug, Default)]
struct Seen {
    /// By start offset: the end offset and the checksum.
    sums: BTreeMap<u64, (u64, Hasher)>,
    /// True if a range was read more than once, which is not summed.
    twice: bool,
}

impl Udif {
    /// Returns the disk as a device that verifies its checksums.
    pub fn checked(&self) -> Checked<'_> {
        let borders = self
            .tables
            .iter()
            .map(|table| table.first_sector * SECTOR)
            .collect();
        Checked {
            udif: self,
            borders,
            seen: Mutex::default(),
        }
    }
}

impl Checked<'_> {
    /// Compares all stored checksums of tables. Tables that were not read completely, or read
    /// twice, are read again. [`Kind::Corrupt`](crate::Kind::Corrupt) if the data that was read
    /// does not match the stored checksums.
    pub fn finish(self) -> Result<()> {
        let seen = self
            .seen
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let names = self
            .udif
            .resources
            .iter()
            .filter(|resource| resource.kind == "blkx")
            .map(|resource| &resource.name);
        for (table, name) in self.udif.tables.iter().zip(names) {
            let Checksum::Crc32(stored) = table.checksum else {
                continue;
            };
            let computed = match seen.table_sum(table) {
                Some(sum) => sum,
                None => self.udif.contents.table_sum(table, &Silent)?,
            };
            if computed != stored {
                let message = format!(
                    "is damaged: the checksum of {name:?} is {computed:08x}, and {stored:08x} is stored"
                );
                return Err(Error::corrupt(LAYER, table.first_sector * SECTOR, message));
            }
        }
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn add(&mut self, range: Range<u64>, sum: Hasher, borders: &BTreeSet<u64>) {
        let (mut range, mut sum) = (range, sum);
        let before = self
            .sums
            .range(..=range.start)
            .next_back()
            .map(|(&start, &(end, _))| (start, end));
        let after = self
            .sums
            .range(range.start..)
            .next()
            .map(|(&start, _)| start);
        if before.is_some_and(|(_, end)| end > range.start)
            || after.is_some_and(|start| start < range.end)
        {
            self.twice = true;
            return;
        }
        if let Some((start, _)) =
            before.filter(|&(_, end)| end == range.start && !borders.contains(&end))
            && let Some((_, mut whole)) = self.sums.remove(&start)
        {
            whole.combine(&sum);
            (range.start, sum) = (start, whole);
        }
        if let Some((end, rest)) = self
            .sums
            .get(&range.end)
            .filter(|_| !borders.contains(&range.end))
            .cloned()
        {
            self.sums.remove(&range.end);
            sum.combine(&rest);
            range.end = end;
        }
        self.sums.insert(range.start, (range.end, sum));
    }

    /// Returns the checksum of a table if all of it was read exactly once.
    fn table_sum(&self, table: &Table) -> Option<u32> {
        if self.twice {
            return None;
        }
        let mut runs: Vec<_> = table
            .runs
            .iter()
            .filter(|run| run.sector_count > 0 && run.kind != RunKind::Ignore)
            .collect();
        runs.sort_unstable_by_key(|run| run.first_sector);
        let (mut sum, mut done) = (Hasher::new(), 0);
        for run in runs {
            let start = (table.first_sector + run.first_sector) * SECTOR;
            let end = start + run.sector_count * SECTOR;
            if run.kind == RunKind::Zero {
                sum.combine(&zeros(end - start));
                continue;
            }
            // A range may contain this run and more, but does not start within it.
            if done < end {
                let (stretch_end, stretch) = self
                    .sums
                    .get(&start)
                    .filter(|(stretch_end, _)| *stretch_end >= end)?;
                sum.combine(stretch);
                done = *stretch_end;
            }
        }
        Some(sum.finalize())
    }
}

impl BlockDevice for Checked<'_> {
    fn info(&self) -> Info {
        self.udif.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.udif.read_at(offset, buf)?;
        for (run, found) in self.udif.contents.runs(offset..offset + buf.len() as u64) {
            if found
                .is_some_and(|(_, chunk)| matches!(chunk.kind, RunKind::Raw | RunKind::Packed(_)))
            {
                let mut sum = Hasher::new();
                sum.update(&buf[(run.start - offset) as usize..(run.end - offset) as usize]);
                self.seen().add(run, sum, &self.borders);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.udif.write_at(offset, buf)
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.udif.discard(range, leave)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.udif.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        self.udif.flush()
    }

    fn set_len(&self, len: u64, leave: AfterDiscard) -> Result<()> {
        self.udif.set_len(len, leave)
    }

    /// Lends nothing: data that bypasses this device would not be summed.
    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_make_one_sum() {
        let bytes: Vec<u8> = (0..100u8).collect();
        let borders = BTreeSet::from([0, 60]);
        let mut seen = Seen::default();
        let mut read = |range: Range<u64>| {
            let mut sum = Hasher::new();
            sum.update(&bytes[range.start as usize..range.end as usize]);
            seen.add(range, sum, &borders);
            (seen.sums.clone(), seen.twice)
        };
        for range in [20..30, 50..60, 0..10, 60..100, 30..50] {
            assert!(!read(range).1);
        }
        let (sums, twice) = read(10..20);
        let sums: Vec<_> = sums
            .into_iter()
            .map(|(start, (end, sum))| (start, end, sum.finalize()))
            .collect();
        assert_eq!(
            sums,
            [
                (0, 60, crc32fast::hash(&bytes[..60])),
                (60, 100, crc32fast::hash(&bytes[60..]))
            ]
        );
        assert!(!twice && read(5..6).1 && read(0..100).1);
    }
}
