//! The free clusters of a volume in memory, a bit each.

use std::ops::Range;

use bandsaw_core::Result;
use bandsaw_core::device::zeros;
use bandsaw_core::size::to_usize;

use crate::bitmap::{clear_bits, count_clear, run_at, set_bits};
use crate::clusters::FIRST;

/// Number of free runs that are compared before a file is stored in pieces.
const TRIES: usize = 64;

/// The clusters that are in use: with files, damaged, or held for the state on the device.
#[derive(Debug)]
pub(crate) struct FreeClusters {
    bits: Vec<u8>,
    count: usize,
    free: usize,
    /// Number of the bit at which the next search begins.
    next: usize,
    /// Taken by the current operation.
    taken: Vec<Range<u64>>,
}

impl FreeClusters {
    /// Returns the clusters of a volume, all of them free.
    pub(crate) fn new(count: u64) -> Result<Self> {
        let count = to_usize(count);
        Ok(Self {
            bits: zeros(count.div_ceil(8))?,
            count,
            free: count,
            next: 0,
            taken: Vec::new(),
        })
    }

    /// Returns the clusters of a volume by its bitmap.
    pub(crate) fn from_bits(bits: Vec<u8>, count: u64) -> Self {
        let count = to_usize(count);
        Self {
            free: count_clear(&bits, count),
            bits,
            count,
            next: 0,
            taken: Vec::new(),
        }
    }

    /// Records that a cluster is in use.
    pub(crate) fn set_used(&mut self, cluster: u64) {
        let at = bit(cluster);
        if !self.is_used(cluster) {
            set_bits(&mut self.bits, at..at + 1);
            self.free -= 1;
        }
    }

    /// Returns true if a cluster, which the volume must have, is in use.
    pub(crate) fn is_used(&self, cluster: u64) -> bool {
        let at = bit(cluster);
        self.bits
            .get(at / 8)
            .is_none_or(|byte| byte & 1 << (at % 8) != 0)
    }

    /// Returns the number of free clusters.
    pub(crate) fn free(&self) -> u64 {
        self.free as u64
    }

    /// Returns the cluster at which the next search begins.
    pub(crate) fn next(&self) -> u64 {
        self.next as u64 + FIRST
    }

    /// Takes clusters, those from `hint` on if they are free, in as few pieces as a short search finds.
    /// `None`: there are not as many.
    pub(crate) fn take(&mut self, count: u64, hint: Option<u64>) -> Option<Vec<Range<u64>>> {
        let mut left = usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.free)?;
        let mut pieces: Vec<Range<u64>> = Vec::new();
        if let Some(at) = hint.map(bit).filter(|&at| at < self.count) {
            let end = self.count.min(at + left);
            if let (false, end) = run_at(&self.bits, at, end) {
                left -= end - at;
                self.take_range(at..end, &mut pieces);
            }
        }
        if left > 0
            && let Some(at) = self.find_whole(left)
        {
            self.take_range(at..at + left, &mut pieces);
            left = 0;
        }
        let mut at = self.next;
        while left > 0 {
            if at >= self.count {
                at = 0;
            }
            let (is_used, end) = run_at(&self.bits, at, self.count);
            if !is_used {
                let end = end.min(at + left);
                left -= end - at;
                self.take_range(at..end, &mut pieces);
            }
            at = end;
        }
        Some(pieces)
    }

    /// Returns the first bit of a free run of a length, if one is among the next ones.
    fn find_whole(&self, len: usize) -> Option<usize> {
        let (mut at, mut tries, mut wrapped) = (self.next, 0, false);
        while tries < TRIES {
            if at >= self.count {
                if wrapped {
                    return None;
                }
                (at, wrapped) = (0, true);
            }
            let (is_used, end) = run_at(&self.bits, at, self.count);
            if !is_used {
                if end - at >= len {
                    return Some(at);
                }
                tries += 1;
            }
            at = end;
        }
        None
    }

    fn take_range(&mut self, range: Range<usize>, pieces: &mut Vec<Range<u64>>) {
        set_bits(&mut self.bits, range.clone());
        self.free -= range.len();
        self.next = range.end;
        let piece = range.start as u64 + FIRST..range.end as u64 + FIRST;
        self.taken.push(piece.clone());
        crate::extent_device::push_joined(pieces, piece);
    }

    /// Frees clusters.
    pub(crate) fn release(&mut self, range: Range<u64>) {
        let bits = bit(range.start)..bit(range.end);
        self.free += bits.len();
        self.next = self.next.min(bits.start);
        clear_bits(&mut self.bits, bits);
    }

    /// Keeps what the current operation has taken.
    pub(crate) fn accept(&mut self) {
        self.taken.clear();
    }

    /// Frees what the current operation has taken.
    pub(crate) fn rollback(&mut self) {
        for range in std::mem::take(&mut self.taken) {
            self.release(range);
        }
    }
}

/// Returns the number of the bit of a cluster.
fn bit(cluster: u64) -> usize {
    to_usize(cluster - FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(pieces: Option<Vec<Range<u64>>>) -> Range<u64> {
        let [piece] = <[_; 1]>::try_from(pieces.unwrap()).unwrap();
        piece
    }

    #[test]
    fn files_get_whole_runs_before_pieces() {
        let mut free = FreeClusters::new(20).unwrap();
        for cluster in [4, 5, 10] {
            free.set_used(cluster);
        }
        assert_eq!(
            (free.free(), free.is_used(4), free.is_used(6)),
            (17, true, false)
        );
        assert_eq!(only(free.take(5, None)), 11..16);
        assert_eq!(only(free.take(3, Some(16))), 16..19);
        free.accept();
        assert_eq!(only(free.take(3, Some(4))), 19..22);
        free.rollback();
        assert_eq!(free.free(), 9);
        assert_eq!(free.take(9, None).unwrap().len(), 3);
        assert_eq!(free.take(1, None), None);
        free.accept();
        free.release(7..9);
        assert_eq!(only(free.take(2, None)), 7..9);
    }
}
