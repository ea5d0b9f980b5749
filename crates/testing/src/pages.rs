//! Sparse bytes that are cheap to copy: pages are shared until written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{Extent, ExtentKind};

const PAGE: u64 = 4096;

type Page = [u8; PAGE as usize];

/// A length and the written pages. Unwritten bytes read as zeros.
#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    len: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of bytes of allocated pages.
    pub(super) fn allocated(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// Fills `buf`; bytes past the end are zeros.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        for (number, within, part) in pieces(offset, buf.len()) {
            match self.pages.get(&number) {
                Some(page) => buf[part.clone()].copy_from_slice(&page[within..within + part.len()]),
                None => buf[part].fill(0),
            }
        }
    }

    /// Writes the bytes that are within the length.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let fits = self.len.saturating_sub(offset).min(bytes.len() as u64) as usize;
        for (number, within, part) in pieces(offset, fits) {
            let page = self
                .pages
                .entry(number)
                .or_insert_with(|| Arc::new([0; PAGE as usize]));
            Arc::make_mut(page)[within..within + part.len()].copy_from_slice(&bytes[part]);
        }
    }

    /// Zeros a range; whole pages are removed.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        let range = range.start..range.end.min(self.len);
        if range.is_empty() {
            return;
        }
        let numbers: Vec<u64> = self
            .pages
            .range(range.start / PAGE..range.end.div_ceil(PAGE))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            let start = range.start.max(number * PAGE);
            let end = range.end.min((number + 1) * PAGE);
            let to_the_end = end == self.len && start == number * PAGE;
            if end - start == PAGE || to_the_end {
                self.pages.remove(&number);
            } else if let Some(page) = self.pages.get_mut(&number) {
                Arc::make_mut(page)[(start % PAGE) as usize..][..(end - start) as usize].fill(0);
            }
        }
    }

    /// Truncates, or grows with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len..self.len);
        }
        self.len = len;
    }

    /// Returns the extent at the start of `range`, which is within the length.
    pub(super) fn extent(&self, range: Range<u64>) -> Extent {
        let first = range.start / PAGE;
        let is_there = self.pages.contains_key(&first);
        let end = if is_there {
            let run = self
                .pages
                .range(first..)
                .zip(first..)
                .take_while(|((number, _), expected)| *number == expected)
                .count();
            (first + run as u64) * PAGE
        } else {
            self.pages
                .range(first..)
                .next()
                .map_or(u64::MAX, |(number, _)| number * PAGE)
        };
        let kind = if is_there {
            ExtentKind::Data
        } else {
            ExtentKind::Zero
        };
        Extent {
            kind,
            len: end.min(range.end) - range.start,
        }
    }
}

/// Splits a range into pages: the page's number, the offset in the page, and the part of the
/// buffer.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let piece = (PAGE as usize - within).min(len - done);
        done += piece;
        Some((at / PAGE, within, done - piece..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Compares with a plain vector.
    #[test]
    fn pages_are_a_vector() {
        let (mut pages, mut vector, mut random) = (Pages::default(), Vec::new(), Random::new(1));
        for _ in 0..2000 {
            let len = vector.len() as u64;
            let start = random.within(0..len + 1);
            let end = start + random.within(0..(len - start).min(9000) + 1);
            let part = start as usize..end as usize;
            match random.within(0..5) {
                0 => {
                    let len = random.within(0..50_000);
                    pages.set_len(len);
                    vector.resize(len as usize, 0);
                }
                1 => {
                    pages.zero(start..end);
                    vector[part].fill(0);
                }
                _ => {
                    let bytes = random.bytes(part.len());
                    pages.write(start, &bytes);
                    vector[part].copy_from_slice(&bytes);
                }
            }
            let mut found = vec![1; vector.len()];
            pages.read(0, &mut found);
            assert!(found == vector && pages.len() == vector.len() as u64);
            let mut at = 0;
            while at < pages.len() {
                let extent = pages.extent(at..pages.len());
                let run = &vector[at as usize..(at + extent.len) as usize];
                assert!(
                    !run.is_empty()
                        && (extent.kind == ExtentKind::Data || run.iter().all(|byte| *byte == 0))
                );
                at += extent.len;
            }
        }
    }
}
